"""Which sample comes when: seeded, shared between ranks, known to the prefetcher, resumable."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import torch.utils.data

from hotset.errors import Changed, InvalidInput
from hotset.read.order import SampleOrder
from hotset.torch.world import place_in_world

__all__ = ["HotBatches", "HotSampler", "Stretch"]

State = dict[str, Any]


class Prefetching(Protocol):
    """What a sampler needs of its dataset: `HotDataset` and `hotset.Dataset` have it."""

    def __len__(self) -> int: ...

    @property
    def snapshot(self) -> str: ...

    @property
    def complete(self) -> bool: ...

    def prefetch(self, order: Iterable[int], *, lookahead: int | None = None) -> None: ...


class Stretch(NamedTuple):
    """What this rank reads of an epoch, from ``start`` on (counted over all ranks)."""

    epoch: int
    start: int
    indices: npt.NDArray[np.int64]


class HotSampler(torch.utils.data.Sampler[int]):
    """The samples of this rank, epoch after epoch, for torch's `DataLoader` or torchdata's `StatefulDataLoader`.

    The order is a function of (snapshot, seed, epoch) only; the world merely partitions it, as DistributedSampler does:
    padded with the first samples of the epoch, or cut with ``drop_last``. Whenever an epoch begins, its order and that of
    the next one are told to the prefetcher, which fetches what is absent at most ``lookahead`` bytes ahead.

    Each iteration is the next epoch; `set_epoch` is welcome but not needed. ``rank`` and ``world`` come from
    torch.distributed, else from torchrun's or SLURM's variables, unless they are given.
    """

    def __init__(
        self,
        dataset: Prefetching,
        *,
        shuffle: bool = True,
        seed: int = 0,
        rank: int | None = None,
        world: int | None = None,
        drop_last: bool = False,
        lookahead: int | None = None,
        accept_other_snapshot: bool = False,
    ) -> None:
        self._dataset = dataset
        self._order = SampleOrder(dataset.snapshot, len(dataset), seed, shuffle)
        self.rank, self.world = place_in_world(rank, world)
        self.drop_last = drop_last
        self._lookahead = lookahead
        self._accept_other = accept_other_snapshot
        self._epoch = self._start = 0  # of the next iteration
        self._under_way: _Walk | None = None
        if drop_last and len(dataset) < self.world:
            raise InvalidInput(f"{len(dataset)} samples for {self.world} ranks leave nothing with drop_last")

    def set_epoch(self, epoch: int) -> None:
        """The next iteration is this epoch (from its beginning, unless a state of it was loaded)."""
        if epoch != self._epoch:
            self._epoch, self._start = epoch, 0

    def __len__(self) -> int:
        """Of the next iteration."""
        return self._order.share_length(world=self.world, start=self._start, drop_last=self.drop_last)

    def __iter__(self) -> Iterator[int]:
        self._under_way = _Walk(self)
        return self._under_way

    def begin(self) -> Stretch:
        """Take the next stretch, and tell the prefetcher."""
        epoch, start = self._epoch, self._start
        indices = self._share(epoch, start)
        self._epoch, self._start = epoch + 1, 0
        if not self._dataset.complete:
            self._dataset.prefetch(np.concatenate((indices, self._share(epoch + 1, 0))), lookahead=self._lookahead)
        return Stretch(epoch, start, indices)

    def _share(self, epoch: int, start: int) -> npt.NDArray[np.int64]:
        return self._order.share(epoch, rank=self.rank, world=self.world, start=start, drop_last=self.drop_last)

    # -- where it stands -------------------------------------------------------------------------------------------------

    def state_after(self, stretch: Stretch, read: int) -> State:
        """The state when this rank, and all others in step with it, have read ``read`` samples of the stretch."""
        consumed = min(stretch.start + read * self.world, self._order.count)
        return {
            "snapshot": self._order.snapshot,
            "count": self._order.count,
            "seed": self._order.seed,
            "shuffle": self._order.shuffle,
            "epoch": stretch.epoch,
            "consumed": consumed,
        }

    def state_dict(self) -> State:
        """Where the iteration stands. It counts what was taken from it: a loader that reads ahead has taken more than it
        gave; torchdata's `StatefulDataLoader` and `HotLoader` know better.
        """
        if self._under_way is not None:
            return self._under_way.state_dict()
        return self.state_after(Stretch(self._epoch, self._start, np.empty(0, np.int64)), 0)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where that state was taken, on any number of ranks."""
        missing = {"snapshot", "seed", "shuffle", "epoch", "consumed"} - set(state)
        if missing:
            raise InvalidInput(f"this is no state of a sampler: it lacks {', '.join(sorted(missing))}")
        if state["snapshot"] != self._order.snapshot and not self._accept_other:
            raise Changed(
                f"the state belongs to snapshot {state['snapshot'][:12]}, and open is {self._order.snapshot[:12]}: open that "
                "one (snapshot=...), or go on with other samples (accept_other_snapshot=True)"
            )
        self._order = SampleOrder(self._order.snapshot, self._order.count, state["seed"], state["shuffle"])
        self._epoch, self._start = state["epoch"], min(state["consumed"], self._order.count)
        self._under_way = None
        if not len(self):  # the epoch was over, but for what drop_last leaves
            self._epoch, self._start = self._epoch + 1, 0


class _Walk(Iterator[int]):
    """One iteration. Has a state of its own, which `StatefulDataLoader` keeps for each batch that is on its way."""

    def __init__(self, sampler: HotSampler) -> None:
        self._sampler = sampler
        self._begin()

    def _begin(self) -> None:
        self._stretch = self._sampler.begin()
        self._indices: list[int] = self._stretch.indices.tolist()
        self._read = 0

    def __next__(self) -> int:
        if self._read == len(self._indices):
            raise StopIteration
        self._read += 1
        return self._indices[self._read - 1]

    def state_dict(self) -> State:
        return self._sampler.state_after(self._stretch, self._read)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._sampler.load_state_dict(state)
        self._begin()
        self._sampler._under_way = self


class HotBatches(torch.utils.data.Sampler[list[int]]):
    """Batches of the stretch that was begun last: one slice each, where torch's BatchSampler collects index by index."""

    def __init__(self, sampler: HotSampler, batch_size: int, *, drop_last: bool) -> None:
        self.sampler = sampler
        self.batch_size = batch_size
        self.drop_last = drop_last
        self.stretch: Stretch | None = None

    def __len__(self) -> int:
        return self.batches_in(len(self.sampler))

    def batches_in(self, samples: int) -> int:
        return samples // self.batch_size if self.drop_last else -(-samples // self.batch_size)

    def __iter__(self) -> Iterator[list[int]]:
        stretch = self.stretch or self.sampler.begin()
        for number in range(self.batches_in(len(stretch.indices))):
            yield stretch.indices[number * self.batch_size : (number + 1) * self.batch_size].tolist()

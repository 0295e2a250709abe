"""The loader: torch's own, with the order told ahead, an exact state, and the time that training waited for data."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import torch.utils.data
from torch.profiler import record_function

import hotset
from hotset.errors import HotsetError, InvalidInput
from hotset.torch.dataset import HotDataset, SourceArgument
from hotset.torch.decode import Decode
from hotset.torch.sampler import HotBatches, HotSampler, State, Stretch
from hotset.torch.stats import Counts, LoaderStats, Tally
from hotset.torch.world import open_agreed

__all__ = ["HotLoader", "loader"]


def loader(
    source: SourceArgument,
    name: str | None = None,
    *,
    batch_size: int = 1,
    decode: Decode = "bytes",
    transform: Callable[[Any], Any] | None = None,
    target: Any = None,
    on_bad: Any = "raise",
    shuffle: bool = True,
    seed: int = 0,
    drop_last: bool = False,
    rank: int | None = None,
    world: int | None = None,
    lookahead: int | None = None,
    accept_other_snapshot: bool = False,
    loading: Mapping[str, Any] | None = None,
    num_workers: int = 0,
    collate_fn: Callable[[list[Any]], Any] | None = None,
    pin_memory: bool = False,
    persistent_workers: bool = False,
    multiprocessing_context: Any = None,
    **opening: Any,
) -> HotLoader:
    """All of it in one line: open, decode, shuffle, share between ranks, fetch ahead, batch, resume, count.

    ``decode``, ``transform``, ``target``, ``on_bad``: see `HotDataset`. ``shuffle``, ``seed``, ``rank``, ``world``,
    ``lookahead``: see `HotSampler`. ``drop_last`` drops the incomplete batch at the end, and what does not divide by the
    world. ``num_workers`` and those after it, and everything in ``loading``: see torch's DataLoader. The rest goes to
    `hotset.open`. In a process group all ranks see the snapshot that rank 0 opens.
    """
    hot = source if isinstance(source, hotset.Dataset) else open_agreed(source, name, opening)
    if hot is source and (name or opening):
        raise InvalidInput("the dataset is open already: say how when it is opened")
    try:
        dataset = HotDataset(hot, decode=decode, transform=transform, target=target, on_bad=on_bad)
        dataset._owned = hot is not source
        return HotLoader(
            dataset,
            batch_size,
            shuffle=shuffle,
            seed=seed,
            drop_last=drop_last,
            rank=rank,
            world=world,
            lookahead=lookahead,
            accept_other_snapshot=accept_other_snapshot,
            num_workers=num_workers,
            collate_fn=collate_fn,
            pin_memory=pin_memory,
            persistent_workers=persistent_workers,
            multiprocessing_context=multiprocessing_context,
            **(loading or {}),
        )
    except BaseException:
        if hot is not source:
            hot.close()
        raise


class HotLoader(torch.utils.data.DataLoader[Any]):
    """A `DataLoader` over a `HotDataset` with a `HotSampler`; each iteration is the next epoch."""

    def __init__(
        self,
        dataset: HotDataset,
        batch_size: int = 1,
        *,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
        rank: int | None = None,
        world: int | None = None,
        lookahead: int | None = None,
        accept_other_snapshot: bool = False,
        num_workers: int = 0,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        **loading: Any,
    ) -> None:
        if batch_size < 1:
            raise InvalidInput(f"a batch of {batch_size} samples")
        sampler = HotSampler(
            dataset,
            shuffle=shuffle,
            seed=seed,
            rank=rank,
            world=world,
            drop_last=drop_last,
            lookahead=lookahead,
            accept_other_snapshot=accept_other_snapshot,
        )
        batches = HotBatches(sampler, batch_size, drop_last=drop_last)
        if not len(batches):
            raise InvalidInput(
                f"batches of {batch_size} and drop_last leave nothing of {len(sampler)} samples a rank; "
                "make the batches smaller"
            )
        self._samples = sampler
        self._batches = batches
        self._tally = Tally(num_workers, dataset.hot)
        dataset.tally_in(self._tally)
        self._stretch: Stretch | None = None  # the epoch under way, or the last one
        self._given = 0  # batches of it
        self._epoch_stats = _Epoch(-1, Counts())
        super().__init__(
            dataset,
            batch_sampler=batches,
            num_workers=num_workers,
            collate_fn=_NonEmpty(collate_fn or torch.utils.data.default_collate),
            **loading,
        )

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]  # torch names its own iterator class
        self._stretch = self._batches.stretch = self._samples.begin()
        self._given = 0
        stats = self._epoch_stats = _Epoch(self._stretch.epoch, self._tally.total())
        batches = iter(super().__iter__())
        size = self._batches.batch_size
        while True:
            begun = time.perf_counter()
            with record_function("hotset.wait"):
                batch = _next(batches)
            if batch is _END:
                return
            self._given += 1
            done = min(self._given * size, len(self._stretch.indices))
            stats.waited(time.perf_counter() - begun, samples=done - stats.samples)
            yield batch

    # -- where it stands -------------------------------------------------------------------------------------------------

    def set_epoch(self, epoch: int) -> None:
        """The next iteration is this epoch. Not needed: each iteration is the next."""
        self._samples.set_epoch(epoch)

    def state_dict(self) -> State:
        """Exactly where the training stands: behind the last batch that it got. Good for any number of ranks."""
        if self._stretch is None:
            return self._samples.state_dict()
        read = min(self._given * self._batches.batch_size, len(self._stretch.indices))
        return self._samples.state_after(self._stretch, read)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there, with the next iteration."""
        self._samples.load_state_dict(state)
        if not len(self._batches):  # less than a batch was left, and is dropped
            self._samples.set_epoch(state["epoch"] + 1)
        self._stretch = None

    # -- what is told ----------------------------------------------------------------------------------------------------

    def stats(self) -> LoaderStats:
        """Of the epoch under way, or of the last one."""
        return self._epoch_stats.so_far(self._tally.total())

    @property
    def snapshot(self) -> str:
        return self._hot_dataset.snapshot

    @property
    def classes(self) -> list[str]:
        """Their names, by number, with ``target="directory"``."""
        return self._hot_dataset.classes

    @property
    def _hot_dataset(self) -> HotDataset:
        dataset = self.dataset
        assert isinstance(dataset, HotDataset)
        return dataset

    def close(self) -> None:
        """Close the dataset, if the loader opened it."""
        self._hot_dataset.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


_END = object()


def _next(batches: Iterator[Any]) -> Any:
    try:
        return next(batches, _END)
    except RuntimeError as error:
        if "worker" in str(error) and ("killed" in str(error) or "exited unexpectedly" in str(error)):
            error.add_note(
                "A worker was killed, most often by the system for want of memory: use fewer workers, smaller batches or a "
                "smaller prefetch_factor. The cache is unharmed; state_dict() says where to go on."
            )
        raise


class _NonEmpty:
    """Collates what there is. A batch of which everything was left out is an error, not a surprise for the model."""

    def __init__(self, collate: Callable[[list[Any]], Any]) -> None:
        self._collate = collate

    def __call__(self, samples: Sequence[Any]) -> Any:
        if not samples:
            raise HotsetError("nothing of a batch could be decoded: are these the right objects for this decoder?")
        return self._collate(list(samples))


class _Epoch:
    """The clock of one epoch: it runs from the first request for a batch to the last batch."""

    def __init__(self, epoch: int, before: Counts) -> None:
        self.epoch = epoch
        self.samples = 0
        self._before = before
        self._batches = 0
        self._stalled = 0.0
        self._begun = self._last = time.perf_counter()

    def waited(self, seconds: float, *, samples: int) -> None:
        self._batches += 1
        self._stalled += seconds
        self.samples += samples
        self._last = time.perf_counter()

    def so_far(self, now: Counts) -> LoaderStats:
        return LoaderStats(
            epoch=max(0, self.epoch),
            batches=self._batches,
            samples=self.samples,
            seconds=self._last - self._begun if self._batches else 0.0,
            stall_seconds=self._stalled,
            counts=now.since(self._before),
        )

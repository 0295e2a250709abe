"""The order of the samples: a pure function of (snapshot, seed, epoch), the same on every machine and for ever.

The world merely partitions it: neither the number of ranks nor of workers, nor what is cached, changes which sample is the
n-th of an epoch. So a job that was interrupted after n samples goes on with the n-th, on as many ranks as it likes.
Only whole numbers are computed with, none of numpy's random streams, which may change between its versions.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import sha256

import numpy as np
import numpy.typing as npt

from hotset.errors import InvalidInput

__all__ = ["SampleOrder", "WindowedOrder"]

Positions = npt.NDArray[np.int64]


@dataclass(frozen=True)
class SampleOrder:
    """The order of ``count`` samples in each epoch; ``snapshot`` is the digest of what they are samples of."""

    snapshot: str
    count: int
    seed: int = 0
    shuffle: bool = True

    def epoch(self, epoch: int) -> Positions:
        """All samples, each once, in the order of that epoch."""
        if not self.shuffle:
            return np.arange(self.count)
        return np.argsort(_mixed(self.count, self._key(epoch)), kind="stable")

    def share(self, epoch: int, *, rank: int = 0, world: int = 1, start: int = 0, drop_last: bool = False) -> Positions:
        """What one rank reads of an epoch of which ``start`` samples (of all ranks together) were read before.

        All ranks get the same number: what is left over at the end is dropped, or else filled up with the samples that the
        epoch began with, as torch's DistributedSampler does it. Rank r reads each ``world``-th sample from the r-th on, so
        that ranks in step have read, together, the beginning of the order.
        """
        if not 0 <= rank < world:
            raise InvalidInput(f"rank {rank} of a world of {world}")
        if not 0 <= start <= self.count:
            raise InvalidInput(f"{start} samples of an epoch of {self.count} cannot have been read")
        order = self.epoch(epoch)
        rest = order[start:]
        surplus = len(rest) % world
        if surplus and drop_last:
            rest = rest[: len(rest) - surplus]
        elif surplus:
            rest = np.concatenate((rest, np.resize(order, world - surplus)))
        return rest[rank::world]

    def share_length(self, *, world: int = 1, start: int = 0, drop_last: bool = False) -> int:
        """How many samples `share` gives to each rank."""
        rest = self.count - start
        return rest // world if drop_last else -(-rest // world)

    def _key(self, epoch: int) -> str:
        return f"{self.snapshot} {self.seed} {epoch}"


@dataclass(frozen=True, eq=False)
class WindowedOrder(SampleOrder):
    """Shuffled so that what lies together is read at about the same time: blocks of neighbours come in shuffled order, and
    the samples of all blocks that fit into a window of bytes are shuffled among themselves.

    ``starts``: the first sample of each block, ``sizes``: its bytes. A window has at least one block.
    """

    starts: Positions = field(kw_only=True, repr=False)
    sizes: Positions = field(kw_only=True, repr=False)
    window: int = field(kw_only=True)

    def epoch(self, epoch: int) -> Positions:
        key = self._key(epoch)
        mixed = _mixed(self.count, key)
        blocks = np.argsort(_mixed(len(self.starts), f"{key} blocks"), kind="stable")
        lengths = np.diff(self.starts, append=self.count)[blocks]
        windows = (np.cumsum(self.sizes[blocks]) - 1) // max(1, self.window)  # by where a block ends
        shifts = self.starts[blocks] - (np.cumsum(lengths) - lengths)
        samples = np.arange(self.count) + np.repeat(shifts, lengths)
        order: Positions = samples[np.lexsort((mixed[samples], np.repeat(windows, lengths)))]
        return order


def _mixed(count: int, key: str) -> npt.NDArray[np.uint64]:
    """A number for each position that looks random: splitmix64, whose stream begins where ``key`` says."""
    first = int.from_bytes(sha256(key.encode()).digest()[:8], "little")
    with np.errstate(over="ignore"):
        mixed = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(first)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return mixed ^ (mixed >> np.uint64(31))

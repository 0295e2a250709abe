"""What a trainer wants to know of its data: how long it waited, what came from where, what was left out."""

from __future__ import annotations

import os
from dataclasses import dataclass

import torch
import torch.utils.data

import hotset

__all__ = ["Counts", "LoaderStats", "Tally"]


@dataclass(frozen=True)
class Counts:
    """What was read, by all workers together."""

    reads: int = 0  #: objects
    waits: int = 0  #: objects that were not in the cache yet when they were read
    bytes_from_cache: int = 0
    bytes_read_through: int = 0  #: of objects that have no place in the cache
    bad: int = 0  #: could not be decoded
    left_out: int = 0  #: samples missing from their batches

    def since(self, earlier: Counts) -> Counts:
        return Counts(*(now - then for now, then in zip(self._values(), earlier._values(), strict=True)))

    def _values(self) -> tuple[int, ...]:
        return (self.reads, self.waits, self.bytes_from_cache, self.bytes_read_through, self.bad, self.left_out)


class Tally:
    """Counters of the process that iterates and of its workers: a row each in shared memory, written by its owner only.

    Reached by forked and spawned workers alike, whose `hotset.Dataset` counts from zero.
    """

    def __init__(self, workers: int, hot: hotset.Dataset) -> None:
        self._rows = torch.zeros((workers + 1, 6), dtype=torch.int64).share_memory_()  # type: ignore[no-untyped-call]
        self._pid = os.getpid()
        self._before = self._read(hot)  # what was read earlier is not this tally's business
        self._row = self._rows[0]
        self._bad = 0

    def bad_sample(self) -> None:
        """One could not be decoded. Counted with the batch that it belongs to."""
        self._at_home()
        self._bad += 1

    def note(self, hot: hotset.Dataset, *, left_out: int) -> None:
        """A batch was read: add what this process read since it was asked last."""
        self._at_home()
        now = self._read(hot)
        new = now.since(self._before)
        self._before = now
        self._row += torch.tensor((*new._values()[:4], self._bad, left_out))
        self._bad = 0

    def _at_home(self) -> None:
        """In a worker, whose dataset counts from zero, write to the worker's row."""
        if self._pid != os.getpid():
            worker = torch.utils.data.get_worker_info()
            self._pid, self._before, self._bad = os.getpid(), Counts(), 0
            self._row = self._rows[0 if worker is None else worker.id + 1]

    def total(self) -> Counts:
        return Counts(*self._rows.sum(dim=0).tolist())

    @staticmethod
    def _read(hot: hotset.Dataset) -> Counts:
        stats = hot.stats(filler=False)
        return Counts(stats.reads, stats.waits, stats.bytes_from_cache, stats.bytes_read_through)


@dataclass(frozen=True)
class LoaderStats:
    """One epoch, as far as it has come; `HotLoader.stats`."""

    epoch: int
    batches: int
    samples: int
    seconds: float
    stall_seconds: float  #: of them, those in which the training waited for data
    counts: Counts

    @property
    def stall_share(self) -> float:
        """The part of the time for which the training waited for data: 0 is perfect."""
        return self.stall_seconds / self.seconds if self.seconds else 0.0

    @property
    def samples_per_second(self) -> float:
        return self.samples / self.seconds if self.seconds else 0.0

    @property
    def hit_rate(self) -> float:
        """The part of the reads that found their object in the cache."""
        return 1 - self.counts.waits / self.counts.reads if self.counts.reads else 1.0

    def encoded(self) -> dict[str, float]:
        """Plain numbers for a log: ``hotset/stall_percent`` and so on."""
        counts = self.counts
        return {
            "hotset/samples_per_second": self.samples_per_second,
            "hotset/stall_percent": 100 * self.stall_share,
            "hotset/hit_rate": self.hit_rate,
            "hotset/bytes_from_cache": float(counts.bytes_from_cache),
            "hotset/bytes_read_through": float(counts.bytes_read_through),
            "hotset/bad_samples": float(counts.bad),
        }

    def __str__(self) -> str:
        return (
            f"epoch {self.epoch}: {self.samples} samples, {self.samples_per_second:,.0f} samples/s, "
            f"data stall {100 * self.stall_share:.1f} %, hit rate {self.hit_rate:.2f}"
        )

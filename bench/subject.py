"""hotset doing the work of the benchmarks.

The public functions that take a `Stored` run in a new interpreter each, so that a cold start is cold and the clock
begins after the import, as it does for the other libraries. Every one checks what it got.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bench.fresh import fresh
from bench.servers import Stored
from bench.workloads import Workload

if TYPE_CHECKING:
    from hotset import Dataset

__all__ = [
    "BATCH",
    "NAME",
    "Epoch",
    "Load",
    "checked",
    "first_epoch",
    "load",
    "loaded",
    "order_of",
    "read_epoch",
    "reload_and_load",
    "reload_seconds",
    "wait_for_go",
]

#: Samples in a batch; the first one of a cold epoch is what a person waits for.
BATCH = 256
#: The dataset's name in every cache of the benchmarks.
NAME = "bench"


@dataclass(frozen=True)
class Load:
    """Seconds of a cold load: until the dataset is open (listed, planned, indexed), then until all is here."""

    opened: float
    filled: float

    @property
    def total(self) -> float:
        return self.opened + self.filled


@dataclass(frozen=True)
class Epoch:
    """Seconds of a shuffled epoch: opening, then from there to the first batch and to the last sample."""

    opened: float
    first_batch: float
    all_samples: float


def order_of(count: int, seed: int) -> list[int]:
    """The order of a shuffled epoch."""
    order = list(range(count))
    random.Random(seed).shuffle(order)
    return order


def checked(dataset: Dataset, workload: Workload) -> None:
    """Raise unless the dataset is the workload: the right length, the right bytes in a few places."""
    if len(dataset) != workload.count:
        raise RuntimeError(f"{len(dataset):,} samples instead of {workload.count:,}")
    for index in {0, workload.count // 3, workload.count - 1}:
        if dataset[index] != workload.body(index):
            raise RuntimeError(f"sample {index} has wrong bytes")


@contextmanager
def loaded(data: Stored, cache: Path, *, layout: str | None = None) -> Iterator[Dataset]:
    """The dataset, all of it here, open in this process."""
    import hotset

    with hotset.open(data.url, NAME, cache=cache, layout=layout) as dataset:
        dataset.load()
        checked(dataset, data.workload)
        yield dataset


def load(data: Stored, cache: Path) -> Load:
    """A cold load into an empty cache directory."""
    return fresh(_load, data.url, data.workload, cache, env=data.env())


def _load(url: str, workload: Workload, cache: Path) -> Load:
    import hotset

    begun = time.perf_counter()
    with hotset.open(url, NAME, cache=cache) as dataset:
        opened = time.perf_counter()
        dataset.load()
        filled = time.perf_counter()
        checked(dataset, workload)
    return Load(opened - begun, filled - opened)


def first_epoch(data: Stored, cache: Path, *, seed: int, samples: int | None = None) -> Epoch:
    """A shuffled epoch over an empty cache, or its first ``samples`` samples."""
    return fresh(_first_epoch, data.url, data.workload, cache, seed, samples, env=data.env())


def _first_epoch(url: str, workload: Workload, cache: Path, seed: int, samples: int | None) -> Epoch:
    import hotset

    order = order_of(workload.count, seed)
    begun = time.perf_counter()
    with hotset.open(url, NAME, cache=cache) as dataset:
        opened = time.perf_counter()
        dataset.prefetch(order)
        for index in order[:BATCH]:
            dataset[index]
        batch = time.perf_counter()
        for index in order[BATCH:samples]:
            dataset[index]
        done = time.perf_counter()
        if dataset[order[0]] != workload.body(order[0]) or len(dataset) != workload.count:
            raise RuntimeError("the first epoch read wrong bytes")
    return Epoch(opened - begun, batch - opened, done - opened)


def read_epoch(dataset: Dataset, order: Sequence[int]) -> None:
    """One epoch as a training loop does it: the order is announced, then every sample is read."""
    dataset.prefetch(order)
    for index in order:
        dataset[index]


def reload_seconds(data: Stored, cache: Path) -> float:
    """Seconds of a reload that finds nothing new, in a process that is up: its second one."""
    return fresh(_reload_seconds, data.url, cache, env=data.env())


def _reload_seconds(url: str, cache: Path) -> float:
    import hotset

    with hotset.open(url, NAME, cache=cache, refresh="never") as dataset:
        dataset.reload()
        begun = time.perf_counter()
        changes = dataset.reload()
        elapsed = time.perf_counter() - begun
    if changes:
        raise RuntimeError(f"nothing changed, but reload says: {changes}")
    return elapsed


def reload_and_load(data: Stored, cache: Path) -> float:
    """Seconds, in a new process, until a loaded dataset is up to date and all here again."""
    return fresh(_reload_and_load, data.url, cache, env=data.env())


def _reload_and_load(url: str, cache: Path) -> float:
    import hotset

    with hotset.open(url, NAME, cache=cache, refresh="never") as before:
        begun = time.perf_counter()
        before.reload()
        with hotset.open(url, NAME, cache=cache, refresh="never") as after:
            after.load()
        return time.perf_counter() - begun


def wait_for_go(word: str) -> None:
    """Say ``word`` to the parent and wait for a line from it: how processes start at the same moment."""
    print(word, flush=True)
    sys.stdin.readline()

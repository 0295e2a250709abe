"""What the demo measures: epochs without and with hotset, and a reload after one object changed."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice

import numpy as np

import hotset
from hotset.demo.images import Images
from hotset.demo.server import Server
from hotset.errors import Corrupt
from hotset.read.dataset import Dataset
from hotset.source import open_source

__all__ = ["BATCH", "DIRECT_THREADS", "Epoch", "Reload", "direct_epoch", "first_epoch", "later_epochs", "reload_one"]

BATCH = 256
#: More of them are not faster: measured on two cores, client and server together.
DIRECT_THREADS = 16
LATER_EPOCHS = 5

Tick = Callable[[int], object]
"""Called with the number of images read so far."""


@dataclass(frozen=True)
class Epoch:
    """Every image read once, in shuffled order, in batches."""

    name: str
    images: int
    bytes: int
    seconds: float
    first_batch_seconds: float
    timeline: list[tuple[float, int]] = field(repr=False)  #: (seconds since the start, images read)

    @property
    def images_per_second(self) -> float:
        return self.images / self.seconds


@dataclass(frozen=True)
class Reload:
    """What it cost to notice and take over one changed object."""

    modified: int
    gets: int
    fetched_bytes: int
    seconds: float


def direct_epoch(uri: str, server: Server, order: Sequence[int], images: Images, tick: Tick) -> Epoch:
    """The usual way: threads that GET each image when it is its turn. They use the same client library as hotset, which
    makes this the fastest direct way that we know; most programs read more slowly.
    """
    source = open_source(uri, options=server.options, env={})
    try:
        infos = {info.key: info for batch in source.list() for info in batch}
        wanted = [infos[images.key(index).removeprefix("train/")] for index in order]
        with ThreadPoolExecutor(DIRECT_THREADS) as pool:
            try:
                lengths = pool.map(lambda info: len(source.read(info.key, 0, info.size, info)), wanted)
                return _timed("direct from S3", _in_batches(lengths), tick)
            finally:
                pool.shutdown(wait=True, cancel_futures=True)
    finally:
        source.close()


def first_epoch(dataset: Dataset, order: Sequence[int], tick: Tick) -> Epoch:
    """Nothing is cached yet: the images come from the source in the order of this epoch, and stay."""
    return _timed("hotset, first epoch", _batches_of(dataset, order), tick)


def later_epochs(dataset: Dataset, orders: Sequence[Sequence[int]], images: Images) -> Epoch:
    """Everything is cached: the median of some epochs, each in an order of its own; then a look at the bytes themselves."""
    epochs = [_timed("hotset, every later epoch", _batches_of(dataset, order), lambda _: None) for order in orders]
    for index in range(0, images.count, max(1, images.count // 20)):
        key = images.key(index)
        if dataset.read(key.removeprefix("train/")) != images.content(index):
            raise Corrupt(f"{key} has other bytes than it was made of")
    middle = statistics.median_low(epoch.seconds for epoch in epochs)
    return next(epoch for epoch in epochs if epoch.seconds == middle)


def reload_one(dataset: Dataset, name: str, cache: str, server: Server, key: str) -> Reload:
    """After an object was overwritten at the source: list again, open the new snapshot, bring it into the cache."""
    started = time.perf_counter()
    changes = dataset.reload()
    with hotset.open(name=name, cache=cache, refresh="never", options=server.options) as after:
        after.load()
        seconds = time.perf_counter() - started
        fill = after.stats().fill
        if after.read(key) == dataset.read(key):
            raise Corrupt(f"the change of {key} was not noticed")
    return Reload(len(changes.modified), fill.fetched_objects, fill.fetched_bytes, seconds)


def shuffled(count: int, seed: int) -> list[int]:
    order: list[int] = np.random.default_rng(seed).permutation(count).tolist()
    return order


def _batches_of(dataset: Dataset, order: Sequence[int]) -> Iterator[list[int]]:
    dataset.prefetch(order)
    for start in range(0, len(order), BATCH):
        yield [len(data) for data in dataset.read_many(order[start : start + BATCH])]


def _in_batches(lengths: Iterator[int]) -> Iterator[list[int]]:
    while batch := list(islice(lengths, BATCH)):
        yield batch


def _timed(name: str, batches: Iterator[list[int]], tick: Tick) -> Epoch:
    """Consume ``batches`` (the lengths of images) and note when each one came."""
    images = size = 0
    timeline = [(0.0, 0)]
    started = time.perf_counter()
    for batch in batches:
        images += len(batch)
        size += sum(batch)
        timeline.append((time.perf_counter() - started, images))
        tick(images)
    return Epoch(name, images, size, timeline[-1][0], timeline[1][0], timeline)

"""The first epoch, shuffled, over an empty cache: training starts while the data comes.

The clock starts when the dataset is open, that is when its index is published; opening is reported apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from bench.report import AT_MOST, Bound, Row, plain, speed
from bench.servers import Stored, delayed
from bench.session import Session
from bench.subject import BATCH, Epoch, first_epoch, load
from bench.synthetic import synthetic
from bench.timing import take_turns
from bench.workloads import IMAGES
from tests.support.s3 import Bucket

__all__ = ["MANY", "run"]

#: As many objects as a large image set has, from a server that makes them up.
MANY = replace(IMAGES, name="million", count=1_000_000)

_DELAY_MS = 20
_FIRST_BATCH = Bound(AT_MOST, 1.0, "s")


def run(session: Session) -> Iterator[Row]:
    data = session.data(IMAGES)
    yield from _rate(session, data)
    with delayed(data.endpoint, _DELAY_MS) as endpoint:
        yield from _first_batch(session, data.through(endpoint), f"{_DELAY_MS} ms added to each request")
    many = MANY.scaled(max(session.share, 0.1))
    with synthetic(many) as endpoint:
        far = Stored(many, Bucket(session.server, many.name), endpoint)
        yield from _first_batch(session, far, "generated listing")
        with delayed(endpoint, _DELAY_MS) as slow:
            yield from _first_batch(session, far.through(slow), f"generated listing, {_DELAY_MS} ms added")


def _rate(session: Session, data: Stored) -> Iterator[Row]:
    epochs: list[Epoch] = []

    def epoch() -> float:
        with session.directory() as cache:
            epochs.append(first_epoch(data, cache, seed=len(epochs)))
        return epochs[-1].all_samples

    def whole_load() -> float:
        with session.directory() as cache:
            return load(data, cache).filled

    taken = take_turns({"epoch": epoch, "load": whole_load}, session.turns)
    count = data.workload.count
    rate = {name: count / samples.best for name, samples in taken.items()}
    work = f"first shuffled epoch, cold, {data.workload.label}"
    yield speed(work, rate["epoch"], "ds.load()", rate["load"], unit="objects/s", at_least=0.85)
    best = min(each.first_batch for each in epochs)
    yield plain(f"first batch of {BATCH}, cold, {data.workload.label}", best, unit="s", bound=_FIRST_BATCH)


def _first_batch(session: Session, data: Stored, how: str) -> Iterator[Row]:
    epochs = []
    for turn in range(min(session.turns, 2)):
        with session.directory() as cache:
            epochs.append(first_epoch(data, cache, seed=turn, samples=4 * BATCH))
    best = min(each.first_batch for each in epochs)
    opened = min(each.opened for each in epochs)
    work = f"first batch of {BATCH}, cold, {data.workload.label}, {how}"
    yield plain(work, best, unit="s", bound=_FIRST_BATCH, note=f"open {opened:.2f} s before it")

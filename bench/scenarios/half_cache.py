"""A cache with room for half of the dataset, over three shuffled epochs.

The quota is half of what the whole dataset takes in a cache, measured with all of it in one. A hit is a sample that was
read without a GET, as the server counts them. LRU would have none: it evicts each sample just before its next turn.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from bench.fresh import expect
from bench.report import AT_LEAST, AT_MOST, Bound, Row, plain
from bench.servers import Counts, Stored, counted, store
from bench.session import Session
from bench.subject import NAME, load, order_of, wait_for_go
from bench.workloads import IMAGES, RECORDS, Workload
from tests.support.processes import call

__all__ = ["run"]

_EPOCHS = 3
_HIT_RATE = Bound(AT_LEAST, 0.45)
_LOOK_EVERY = 0.02


def run(session: Session) -> Iterator[Row]:
    for kind in (IMAGES, RECORDS):
        # Not less than a quarter, in a bucket of its own: a handful of packs cannot be halved.
        workload = kind.scaled(max(session.share, 0.25))
        data = store(session.server, replace(workload, name=f"half-{kind.name}"))
        yield from _epochs(session, data)
        session.forget(data)


def _epochs(session: Session, data: Stored) -> Iterator[Row]:
    with session.directory() as cache:
        load(data, cache)
        quota = usage(cache) // 2
    work = f"cache of half the dataset, {data.workload.label}"
    with session.directory() as scratch, counted(session.server, scratch / "log") as counts:
        cache = scratch / "cache"
        cache.mkdir()
        with _watched(cache) as sizes:
            rates = list(_hit_rates(data.through(counts.endpoint), cache, quota, counts))
    for epoch, rate in enumerate(rates[1:], start=2):
        yield plain(f"{work}: hit rate of epoch {epoch}", rate, unit="hits a sample", bound=_HIT_RATE)
    largest = Bound(AT_MOST, 1.0, "of the quota")
    yield plain(f"{work}: largest size seen", max(sizes) / quota, unit="of the quota", bound=largest)


def _hit_rates(data: Stored, cache: Path, quota: int, counts: Counts) -> Iterator[float]:
    with call(_read_epochs, data.url, data.workload, cache, quota, env=data.env()) as child:
        for epoch in range(_EPOCHS):
            expect(child, f"ready for epoch {epoch}")
            counts.reset()
            child.tell("go")
            expect(child, "done")
            yield 1 - counts.gets() / data.workload.count
        child.result()


def _read_epochs(url: str, workload: Workload, cache: Path, quota: int) -> None:
    import hotset

    with hotset.open(url, NAME, cache=cache, quota=quota) as dataset:
        for epoch in range(_EPOCHS):
            order = order_of(workload.count, seed=epoch)
            wait_for_go(f"ready for epoch {epoch}")
            dataset.prefetch(order)
            for index in order:
                sample = dataset[index]
                if index % 1000 == 0 and sample != workload.body(index):
                    raise RuntimeError(f"sample {index} has wrong bytes")
            print("done", flush=True)


@contextmanager
def _watched(directory: Path) -> Iterator[list[int]]:
    """The sizes of the directory, looked at all the time during the block."""
    sizes = [usage(directory)]
    stop = threading.Event()

    def look() -> None:
        while not stop.wait(_LOOK_EVERY):
            sizes.append(usage(directory))

    watcher = threading.Thread(target=look, name="directory size")
    watcher.start()
    try:
        yield sizes
    finally:
        stop.set()
        watcher.join()
        sizes.append(usage(directory))


def usage(directory: Path) -> int:
    """Bytes that the file system has given to what is below the directory."""
    from hotset.base.files import usage_of

    return usage_of(directory)

"""Several processes open one cold dataset at the same moment, as the ranks of a job do; and one that comes later.

The clock starts when every process has imported hotset and waits at a barrier.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

from bench.fresh import expect
from bench.report import AT_MOST, Bound, Row, cost, plain, speed
from bench.servers import Stored, counted
from bench.session import Session
from bench.subject import BATCH, NAME, load, order_of, wait_for_go
from bench.timing import take_turns
from bench.workloads import IMAGES, Workload
from tests.support.processes import call

__all__ = ["run"]

_RANKS = 4
_DEADLINE = 600.0


def run(session: Session) -> Iterator[Row]:
    data = session.data(IMAGES)
    for what, job in (("load", _load), ("shuffled epoch", _epoch)):
        work = f"{_RANKS} processes, cold, {what}, {data.workload.label}"
        taken = take_turns(
            {
                str(_RANKS): lambda j=job: _together(session, data, j, _RANKS),
                "1": lambda j=job: _together(session, data, j, 1),
            },
            session.turns,
        )
        yield cost(work, taken[str(_RANKS)].best, "1 process", taken["1"].best, unit="s", at_most=1.3)
        yield from _requests(session, data, job, work)
    yield from _latecomer(session, data)


def _together(session: Session, data: Stored, job: Callable[..., float], ranks: int) -> float:
    with session.directory() as cache:
        return _run_ranks(data, cache, job, ranks)


def _run_ranks(data: Stored, cache: Path, job: Callable[..., float], ranks: int) -> float:
    """Seconds from the barrier until the last process has everything it wanted."""
    with ExitStack() as stack:
        children = [
            stack.enter_context(call(job, data.url, data.workload, cache, rank, env=data.env()))
            for rank in range(ranks)
        ]
        for child in children:
            expect(child, "ready")
        begun = time.perf_counter()  # CLOCK_MONOTONIC: the same clock in all processes
        for child in children:
            child.tell("go")
        return max(child.result(timeout=_DEADLINE) for child in children) - begun


def _load(url: str, workload: Workload, cache: Path, rank: int) -> float:
    """Everything, in the order of the keys. The moment when it was done."""
    import hotset

    wait_for_go("ready")
    with hotset.open(url, NAME, cache=cache) as dataset:
        dataset.load()
        done = time.perf_counter()
        if dataset[rank] != workload.body(rank):
            raise RuntimeError("wrong bytes")
    return done


def _epoch(url: str, workload: Workload, cache: Path, rank: int) -> float:
    """Every sample once, in an order of its own. The moment when it was done."""
    import hotset

    order = order_of(workload.count, seed=rank)
    wait_for_go("ready")
    with hotset.open(url, NAME, cache=cache) as dataset:
        dataset.prefetch(order)
        for index in order:
            dataset[index]
        return time.perf_counter()


def _requests(session: Session, data: Stored, job: Callable[..., float], work: str) -> Iterator[Row]:
    with session.directory() as scratch, counted(session.server, scratch / "log") as counts:
        _run_ranks(data.through(counts.endpoint), scratch / "cache", job, _RANKS)
        objects = counts.objects()
        yield plain(f"{work}: listings", counts.lists(), unit="LISTs", bound=Bound(AT_MOST, 1, "LISTs"))
        more = sum(objects.values()) - data.workload.count
        yield plain(f"{work}: repeated requests", more, unit="GETs", bound=Bound(AT_MOST, 0, "GETs"))


def _latecomer(session: Session, data: Stored) -> Iterator[Row]:
    """A second job on the same machine, when the first has loaded everything."""
    with session.directory() as scratch, counted(session.server, scratch / "log") as counts:
        behind = data.through(counts.endpoint)
        first = load(behind, scratch / "cache").total
        counts.reset()
        epochs = [_run_ranks(behind, scratch / "cache", _epoch, 1) for _ in range(session.turns)]
        work = f"second process, whole epoch, {data.workload.label}"
        yield speed(work, min(epochs), "first process, load", first, unit="s")
        yield plain(f"{work}: requests", counts.gets(), unit="GETs", bound=Bound(AT_MOST, 0, "GETs"))
        starts = [_run_ranks(behind, scratch / "cache", _first_batch, 1) for _ in range(session.turns)]
        yield plain(f"second process, open + {BATCH} samples, {data.workload.label}", min(starts), unit="s")


def _first_batch(url: str, workload: Workload, cache: Path, rank: int) -> float:
    import hotset

    order = order_of(workload.count, seed=rank)[:BATCH]
    wait_for_go("ready")
    with hotset.open(url, NAME, cache=cache) as dataset:
        for index in order:
            dataset[index]
        return time.perf_counter()

"""Reload: what it costs to ask whether anything changed, and to take in one change."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from bench.limits import bare_list
from bench.report import AT_MOST, Bound, Row, cost, plain
from bench.servers import Stored, counted, store
from bench.session import Session
from bench.subject import load, reload_and_load, reload_seconds
from bench.timing import take_turns
from bench.workloads import IMAGES

__all__ = ["run"]


def run(session: Session) -> Iterator[Row]:
    # A bucket of its own, since it is changed.
    data = store(session.server, replace(IMAGES.scaled(session.share), name="changing"))
    with session.directory() as cache:
        load(data, cache)
        taken = take_turns(
            {"reload": lambda: reload_seconds(data, cache), "list": lambda: bare_list(data)}, session.turns + 2
        )
    work = f"reload, {data.workload.label}, nothing changed"
    yield cost(work, taken["reload"].best, "bare LIST", taken["list"].best, unit="s", at_most=1.3)
    yield from _changes(session, data)
    session.forget(data)


def _changes(session: Session, data: Stored) -> Iterator[Row]:
    workload, bucket = data.workload, data.bucket
    middle = workload.key(workload.count // 2)
    inserted = middle.replace(".bin", "-new.bin")
    steps: list[tuple[str, Callable[[], object], int]] = [
        ("nothing changed", lambda: None, 0),
        ("1 changed", lambda: bucket.put(middle, workload.body(0)), 1),
        ("1 inserted", lambda: bucket.put(inserted, workload.body(1)), 1),
        ("1 removed", lambda: bucket.delete(inserted), 0),
    ]
    with session.directory() as scratch, counted(session.server, scratch / "log") as counts:
        behind = data.through(counts.endpoint)
        cache = scratch / "cache"
        load(behind, cache)
        for what, change, gets in steps:
            change()
            counts.reset()
            took = reload_and_load(behind, cache)
            work = f"reload + load, {workload.label}, {what}"
            yield plain(work, counts.gets(), unit="GETs", bound=Bound(AT_MOST, gets, "GETs"), note=f"{took:.2f} s")

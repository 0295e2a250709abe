"""A view: the dataset as plain files, read by a program that knows only paths."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from bench.peers.plain import file_reader, write_files
from bench.report import AT_LEAST, Bound, Row, compared
from bench.scenarios.warm import read_all
from bench.session import Session
from bench.subject import loaded, order_of
from bench.timing import take_turns
from bench.workloads import IMAGES

__all__ = ["run"]

_TURNS = 11  # the requirement is about the median
_SAMPLES = 4_000


def run(session: Session) -> Iterator[Row]:
    data = session.data(IMAGES)
    workload = data.workload
    order = order_of(workload.count, seed=3)[:_SAMPLES]
    with session.directory() as cache, session.directory() as scratch, loaded(data, cache, layout="files") as dataset:
        place = scratch / "view"
        dataset.view(place)
        through = file_reader([f"{place}/{key}" for key in workload.all_keys()], workload.size)
        directly = file_reader(write_files(workload, scratch / "files"), workload.size)
        for read in (through, directly):
            read_all(read, order)
        taken = take_turns(
            {"view": lambda: read_all(through, order), "files": lambda: read_all(directly, order)}, _TURNS
        )
    ratios = [other / ours for ours, other in zip(taken["view"].values, taken["files"].values, strict=True)]
    yield compared(
        f"read files of a view, {workload.label}",
        taken["view"].median * 1e6,
        "plain files",
        taken["files"].median * 1e6,
        "us",
        statistics.median(ratios),
        Bound(AT_LEAST, 0.95),
        f"median of {_TURNS} turns",
    )

"""A view: the dataset as plain files, read by a program that knows only paths."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from bench.peers.plain import file_reader, write_files
from bench.report import AT_LEAST, Bound, Row, compared
from bench.scenarios.warm import read_all
from bench.servers import Stored
from bench.session import Session
from bench.subject import loaded, order_of
from bench.timing import Samples, take_turns
from bench.workloads import IMAGES

__all__ = ["run"]

_ROUNDS = 3
_TURNS = 5
_SAMPLES = 4_000


def run(session: Session) -> Iterator[Row]:
    """The requirement is about the median of alternating runs. Where in memory the files happen to lie changes the time
    of a read by tens of percents and stays the same from turn to turn, so both sides are written anew in each round.
    """
    data = session.data(IMAGES)
    views: list[float] = []
    files: list[float] = []
    for _ in range(_ROUNDS):
        taken = _round(session, data)
        views.extend(taken["view"].values)
        files.extend(taken["files"].values)
    ratios = [other / ours for ours, other in zip(views, files, strict=True)]
    yield compared(
        f"read files of a view, {data.workload.label}",
        statistics.median(views) * 1e6,
        "plain files",
        statistics.median(files) * 1e6,
        "us",
        statistics.median(ratios),
        Bound(AT_LEAST, 0.95),
        f"median of {len(ratios)} turns",
    )


def _round(session: Session, data: Stored) -> dict[str, Samples]:
    workload = data.workload
    order = order_of(workload.count, seed=3)[:_SAMPLES]
    with session.directory() as cache, session.directory() as scratch, loaded(data, cache, layout="files") as dataset:
        place = scratch / "view"
        dataset.view(place)
        through = file_reader([f"{place}/{key}" for key in workload.all_keys()], workload.size)
        directly = file_reader(write_files(workload, scratch / "files"), workload.size)
        for read in (through, directly):
            read_all(read, order)
        return take_turns(
            {"view": lambda: read_all(through, order), "files": lambda: read_all(directly, order)}, _TURNS
        )

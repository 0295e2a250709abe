"""A view: the dataset as plain files, read by a program that knows only paths.

A view is a symbolic link into the cache. So the files to compare it with lie as deep, behind a link as well, as datasets
on a machine with several disks do; what the kernel takes for a link and a long path shows beside files at a short one.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from pathlib import Path

from bench.peers.plain import file_reader, write_files
from bench.report import AT_LEAST, Bound, Row, compared
from bench.scenarios.warm import read_all
from bench.servers import Stored
from bench.session import Session
from bench.subject import loaded, order_of
from bench.timing import Samples, take_turns
from bench.workloads import IMAGES, Workload

__all__ = ["run"]

_ROUNDS = 3
_TURNS = 5
_SAMPLES = 4_000


def run(session: Session) -> Iterator[Row]:
    """The requirement is about the median of alternating runs. Where in memory the files happen to lie changes the time
    of a read by tens of percents and stays the same from turn to turn, so all sides are written anew in each round.
    """
    data = session.data(IMAGES)
    rounds = [_round(session, data) for _ in range(_ROUNDS)]
    taken = {name: [value for round_ in rounds for value in round_[name].values] for name in rounds[0]}
    for peer, at_least in (("plain files behind a link", 0.95), ("plain files at a short path", None)):
        ratios = [other / ours for ours, other in zip(taken["view"], taken[peer], strict=True)]
        yield compared(
            f"read files of a view, {data.workload.label}",
            statistics.median(taken["view"]) * 1e6,
            peer,
            statistics.median(taken[peer]) * 1e6,
            "us",
            statistics.median(ratios),
            None if at_least is None else Bound(AT_LEAST, at_least),
            f"median of {len(ratios)} turns",
        )


def _round(session: Session, data: Stored) -> dict[str, Samples]:
    workload = data.workload
    order = order_of(workload.count, seed=3)[:_SAMPLES]
    with session.directory() as cache, session.directory() as scratch, loaded(data, cache, layout="files") as dataset:
        place = dataset.view(scratch / "view")
        depth = place.resolve().relative_to(cache)
        write_files(workload, scratch / depth)
        (scratch / "link").symlink_to(scratch / depth)
        roots = {"view": place, "plain files behind a link": scratch / "link"}
        readers = {name: file_reader(_paths(workload, root), workload.size) for name, root in roots.items()}
        short = write_files(workload, scratch / "files")
        readers["plain files at a short path"] = file_reader(short, workload.size)
        for read in readers.values():
            read_all(read, order)
        return take_turns({name: lambda r=read: read_all(r, order) for name, read in readers.items()}, _TURNS)


def _paths(workload: Workload, root: Path) -> list[str]:
    return [f"{root}/{key}" for key in workload.all_keys()]

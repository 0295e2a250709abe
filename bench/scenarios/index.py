"""The index of a million objects: how long it takes to make, what it costs each reader, how quick it answers."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bench.fresh import fresh
from bench.report import AT_MOST, Bound, Row, plain
from bench.session import Session
from bench.timing import take_turns
from bench.workloads import Workload

if TYPE_CHECKING:
    from hotset.source.base import ObjectInfo

__all__ = ["run"]

_MILLION = Workload("million", 1_000_000, 33_000)
_LOOKUPS = 20_000
_PAGE = 1000


def run(session: Session) -> Iterator[Row]:
    workload = _MILLION  # whole, in a quick run, too: it takes seconds, and the requirement is about a million
    work = f"index, {workload.count:,} objects"
    with session.directory() as directory:
        builds = take_turns({"build": lambda: _build(workload, directory)}, session.turns)
        yield plain(f"{work}: plan and write", builds["build"].best, unit="s", bound=Bound(AT_MOST, 5, "s"))
        answers = [fresh(_look_up, workload, directory, env={}) for _ in range(session.turns)]
    private = min(answer.private_bytes for answer in answers) / workload.count
    position = min(answer.by_position for answer in answers) * 1e6
    key = min(answer.by_key for answer in answers) * 1e6
    yield plain(
        f"{work}: private memory", private, unit="bytes an object", bound=Bound(AT_MOST, 100, "bytes an object")
    )
    yield plain(f"{work}: look-up by position", position, unit="us", bound=Bound(AT_MOST, 3, "us"))
    yield plain(f"{work}: look-up by key", key, unit="us", bound=Bound(AT_MOST, 15, "us"))


@dataclass(frozen=True)
class _Answers:
    """Of one reader: what its process holds for itself, and the seconds of a look-up."""

    private_bytes: int
    by_position: float
    by_key: float


def _build(workload: Workload, directory: Path) -> float:
    return fresh(_build_seconds, workload, directory, env={})


def _build_seconds(workload: Workload, directory: Path) -> float:
    """Seconds from a listing in memory to its index on tmpfs."""
    from hotset.snapshot import Listing, plan, write_index

    batches = list(_listing(workload))
    begun = time.perf_counter()
    listing = Listing.of(batches, listed_ns=0)
    write_index(directory, listing, plan(listing, b"bench"))
    return time.perf_counter() - begun


def _listing(workload: Workload) -> Iterator[list[ObjectInfo]]:
    from hotset.source.base import FingerprintKind, ObjectInfo

    for start in range(0, workload.count, _PAGE):
        yield [
            ObjectInfo(workload.key(index), workload.size, FingerprintKind.ETAG, f"{index:032x}".encode())
            for index in range(start, min(start + _PAGE, workload.count))
        ]


def _look_up(workload: Workload, directory: Path) -> _Answers:
    """Open the index as a reader does, then ask for places in random order."""
    from hotset.snapshot import Snapshot

    numbers = random.Random(0).sample(range(workload.count), _LOOKUPS)
    keys = [workload.key(index) for index in numbers]
    before = _private_bytes()
    snapshot = Snapshot(directory)
    by_position = min(_seconds_each(snapshot.locate, numbers) for _ in range(3))
    by_key = min(_seconds_each(snapshot.find, keys) for _ in range(3))
    if [snapshot.find(key) for key in keys[:100]] != numbers[:100]:
        raise RuntimeError("the index finds other objects")
    return _Answers(_private_bytes() - before, by_position, by_key)


def _seconds_each(ask: Callable[[object], object], questions: Sequence[object]) -> float:
    begun = time.perf_counter()
    for question in questions:
        ask(question)
    return (time.perf_counter() - begun) / len(questions)


def _private_bytes() -> int:
    """What this process would free if it ended: pages that no file and no other process share."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(("Private_Dirty:", "SwapPss:")))

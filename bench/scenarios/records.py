"""Lines of one large file in random order, beside slices of a bare map of the same file; and what their index costs."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

import hotset
from bench.report import AT_MOST, Bound, Row, plain, speed
from bench.session import Session
from bench.subject import BATCH
from bench.timing import seconds, take_turns

__all__ = ["run"]

_LINES = 1_000_000
_READS = 400 * BATCH
#: Of a slice of the bare map, which knows without a look where each line lies.
_READ_AT_LEAST = 0.35
_INDEX_BYTES = 4.5


def run(session: Session) -> Iterator[Row]:
    work = f"records, {_LINES:,} lines of 60-160 bytes"
    with session.directory() as directory:
        path = _write(directory / "data")
        with hotset.open(str(path.parent), cache=directory / "cache", quota="1GiB") as dataset:
            dataset.load()
            builds = take_turns({"build": lambda: seconds(lambda: _build(dataset, directory))}, session.turns)
            speed_of_index = path.stat().st_size / builds["build"].best / 1e6
            yield plain(f"{work}: index", speed_of_index, unit="MB/s")
            [index] = _indexes(directory)
            size = index.stat().st_size / _LINES
            yield plain(f"{work}: index", size, unit="bytes a line", bound=Bound(AT_MOST, _INDEX_BYTES, "bytes a line"))
            with hotset.records(dataset) as records:
                yield from _reads(session, work, path, records)


def _reads(session: Session, work: str, path: Path, records: hotset.Records) -> Iterator[Row]:
    order = records.order(seed=1).epoch(0)[:_READS]
    batches = [order[first : first + BATCH] for first in range(0, _READS, BATCH)]
    spans = [(place.start, place.end - 1) for place in map(records.origin, order.tolist())]
    singles = order[: _READS // 4].tolist()
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapping:
        if [mapping[start:end] for start, end in spans[:BATCH]] != records.read_many(batches[0]):
            raise RuntimeError("these are not the lines of the file")
        taken = take_turns(
            {
                "many": lambda: seconds(lambda: [records.read_many(batch) for batch in batches]) / _READS,
                "one": lambda: seconds(lambda: [records[record] for record in singles]) / len(singles),
                "map": lambda: seconds(lambda: [mapping[start:end] for start, end in spans]) / _READS,
            },
            session.turns + 2,
        )
    best = {name: samples.best * 1e6 for name, samples in taken.items()}
    many = f"{work}: read_many of {BATCH}"
    yield speed(many, best["many"], "map[a:b]", best["map"], unit="us", at_least=_READ_AT_LEAST)
    yield speed(f"{work}: records[i]", best["one"], "map[a:b]", best["map"], unit="us")


def _write(directory: Path) -> Path:
    directory.mkdir()
    path = directory / "lines.txt"
    lengths = np.random.default_rng(0).integers(50, 150, _LINES)
    with path.open("wb") as file:
        for first in range(0, _LINES, 10_000):
            some: Sequence[int] = lengths[first : first + 10_000].tolist()
            file.write(b"".join(b"%09d %s\n" % (first + n, b"x" * length) for n, length in enumerate(some)))
    return path


def _build(dataset: hotset.Dataset, directory: Path) -> None:
    for index in _indexes(directory):
        os.unlink(index)
    hotset.records(dataset).close()


def _indexes(directory: Path) -> list[Path]:
    return list(directory.glob("cache/datasets/*/snapshots/*/records-*"))

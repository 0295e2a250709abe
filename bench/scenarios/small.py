"""Warm 1 KB samples in batches: where a call a sample costs more than the bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from bench.peers.base import Reads
from bench.report import Row, speed
from bench.scenarios.warm import read_all
from bench.session import Session
from bench.subject import BATCH, loaded, order_of
from bench.timing import seconds, take_turns
from bench.workloads import RECORDS

if TYPE_CHECKING:
    from hotset import Dataset

__all__ = ["run"]

_SAMPLES = 40 * BATCH
_PEERS = {"plain files": None, "MosaicML streaming": 5.0, "LitData": None}


def run(session: Session) -> Iterator[Row]:
    data = session.data(RECORDS)
    work = f"warm read_many, {data.workload.label}"
    order = order_of(data.workload.count, seed=2)[:_SAMPLES]
    with session.directory() as cache, loaded(data, cache) as dataset:
        single = take_turns(
            {"many": lambda: _read_batches(dataset, order), "one": lambda: read_all(dataset.__getitem__, order)},
            session.turns,
        )
        yield speed(work, single["many"].best * 1e6, "ds[i]", single["one"].best * 1e6, unit="us")

        # A mount is measured with images: 200,000 files through FUSE say nothing new.
        def reading(name: str, reader: Reads) -> Iterator[Row]:
            with session.directory() as scratch, reader.reader(data, scratch) as read:
                read_all(read, order)
                taken = take_turns(
                    {"hotset": lambda: _read_batches(dataset, order), name: lambda: read_all(read, order)},
                    session.turns,
                )
            best = {who: samples.best * 1e6 for who, samples in taken.items()}
            yield speed(work, best["hotset"], name, best[name], unit="us", at_least=_PEERS[name])

        yield from session.beside(work, Reads, reading, among=_PEERS)


def _read_batches(dataset: Dataset, order: Sequence[int]) -> float:
    """Seconds a sample."""
    batches = [order[start : start + BATCH] for start in range(0, len(order), BATCH)]

    def work() -> None:
        for batch in batches:
            dataset.read_many(batch)

    return seconds(work) / len(order)

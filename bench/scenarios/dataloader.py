"""Warm samples through torch's DataLoader, in the training process and in forked workers."""

from __future__ import annotations

from collections.abc import Iterator

from bench.peers.base import Reader, Reads, without_package
from bench.report import Row, speed, unavailable
from bench.session import Session
from bench.subject import BATCH, loaded
from bench.timing import seconds, take_turns
from bench.workloads import IMAGES

__all__ = ["run"]

_PEERS = ("plain files", "MosaicML streaming", "LitData")
_SAMPLES = 8 * BATCH


def run(session: Session) -> Iterator[Row]:
    work = "warm, torch DataLoader"
    if reason := without_package("torch", "torch"):
        yield unavailable(work, "all", reason)
        return
    data = session.data(IMAGES)
    with session.directory() as cache, loaded(data, cache) as dataset:

        def reading(name: str, reader: Reads) -> Iterator[Row]:
            with session.directory() as scratch, reader.reader(data, scratch) as read:
                theirs = _MapStyle(read, data.workload.count)
                for workers in (0, 2):
                    taken = take_turns(
                        {"hotset": lambda w=workers: _pass(dataset, w), name: lambda w=workers: _pass(theirs, w)},
                        session.turns,
                    )
                    rates = {who: _SAMPLES / samples.best for who, samples in taken.items()}
                    yield speed(f"{work}, {workers} workers", rates["hotset"], name, rates[name], unit="samples/s")

        yield from session.beside(work, Reads, reading, among=_PEERS)


class _MapStyle:
    """A reader as the map-style dataset that torch expects."""

    def __init__(self, read: Reader, count: int) -> None:
        self._read = read
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> object:
        return self._read(index)


def _pass(dataset: object, workers: int) -> float:
    """Seconds for the first samples of a shuffled epoch, starting the workers included."""
    from torch.utils.data import DataLoader, RandomSampler

    sampler = RandomSampler(dataset, num_samples=_SAMPLES)

    def work() -> None:
        for _ in DataLoader(dataset, batch_size=BATCH, sampler=sampler, num_workers=workers, collate_fn=len):
            pass

    return seconds(work)

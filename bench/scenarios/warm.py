"""Warm random reads of images, one thread: what a training loop does from the second epoch on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice

from bench import limits
from bench.peers.base import Reader, Reads, Streams
from bench.report import Row, quantity, speed
from bench.session import Session
from bench.subject import loaded, order_of
from bench.timing import Samples, seconds, take_turns
from bench.workloads import IMAGES

__all__ = ["read_all", "run", "stream_some"]

_SAMPLES = 2_000  # of a peer: enough for a steady mean, few enough for one that needs half a millisecond a sample
_SLICE_EXTRA = 0.3
_READS_AT_LEAST = {"plain files": 3.0, "MosaicML streaming": 5.0, "JuiceFS": 100.0}
_STREAMS_AT_LEAST = {"WebDataset": 30.0}


def run(session: Session) -> Iterator[Row]:
    data = session.data(IMAGES)
    work = f"warm random read, {data.workload.label}"
    order = order_of(data.workload.count, seed=1)
    some = order[:_SAMPLES]
    with session.directory() as cache, loaded(data, cache) as dataset:
        yield from _against_limits(session, work, dataset.__getitem__, dataset.slice, order)

        ours = {
            "ds[i]": lambda: read_all(dataset.__getitem__, some),
            "ds.slice(i)": lambda: read_all(dataset.slice, some),
            "memcpy": lambda: limits.memory_copy(data.workload.size, times=len(some)),
        }

        def reading(name: str, reader: Reads) -> Iterator[Row]:
            with session.directory() as scratch, reader.reader(data, scratch) as read:
                read_all(read, some)
                taken = take_turns(ours | {name: lambda: read_all(read, some)}, session.turns)
            yield from _compared(work, taken, name, name, _READS_AT_LEAST.get(name))

        def streaming(name: str, streamer: Streams) -> Iterator[Row]:
            with session.directory() as scratch, streamer.stream(data, scratch) as begin:
                taken = take_turns(ours | {name: lambda: stream_some(begin, _SAMPLES)}, session.turns)
            yield from _compared(work, taken, name, f"{name} iteration", _STREAMS_AT_LEAST.get(name))

        yield from session.beside(work, Reads, reading)
        yield from session.beside(work, Streams, streaming)


def _against_limits(session: Session, work: str, get: Reader, view: Reader, order: Sequence[int]) -> Iterator[Row]:
    workload = session.data(IMAGES).workload
    spans = [(index * workload.size, (index + 1) * workload.size) for index in order]
    with session.directory() as scratch, limits.mapped(workload, scratch / "objects") as mapping:
        taken = take_turns(
            {
                "get": lambda: read_all(get, order),
                "bytes": lambda: limits.slice_bytes(mapping, spans),
                "slice": lambda: read_all(view, order),
                "view": lambda: limits.slice_views(mapping, spans),
                "copy": lambda: limits.memory_copy(workload.size, times=len(order)),
            },
            session.turns + 2,  # cheap, and the closest of all comparisons
        )
    best = {name: samples.best * 1e6 for name, samples in taken.items()}
    yield speed(f"{work}: ds[i]", best["get"], "bytes(map[a:b])", best["bytes"], unit="us", at_least=0.8)
    yield speed(f"{work}: ds[i]", best["get"], "memcpy", best["copy"], unit="us")
    extra = best["slice"] - best["view"]
    yield Row(
        f"{work}: ds.slice(i)",
        quantity(best["slice"], "us"),
        "memoryview slice",
        quantity(best["view"], "us"),
        required=f"<= {_SLICE_EXTRA} us more",
        met=extra <= _SLICE_EXTRA,
        note=f"{extra:.2f} us more",
    )


def _compared(work: str, taken: Mapping[str, Samples], name: str, peer: str, at_least: float | None) -> Iterator[Row]:
    """Both ways to read: a copy, which no machine makes faster than its memory copies, and a view."""
    best = {who: samples.best * 1e6 for who, samples in taken.items()}
    bare = best[name] / best["memcpy"]
    note = f"memcpy alone: {bare:.0f}" if at_least is not None and bare < at_least / 0.8 else ""
    yield speed(f"{work}: ds[i]", best["ds[i]"], peer, best[name], unit="us", at_least=at_least, note=note)
    yield speed(f"{work}: ds.slice(i)", best["ds.slice(i)"], peer, best[name], unit="us", at_least=at_least)


def read_all(read: Reader, order: Sequence[int]) -> float:
    """Seconds a sample."""

    def work() -> None:
        for index in order:
            read(index)

    return seconds(work) / len(order)


def stream_some(begin: Callable[[], Iterable[object]], count: int) -> float:
    """Seconds a sample of the first ``count`` of a pass, its beginning included."""
    seen = 0

    def work() -> None:
        nonlocal seen
        seen = sum(1 for _ in islice(begin(), count))

    return seconds(work) / max(seen, 1)

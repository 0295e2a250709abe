"""What a training script in PyTorch sees: batches from `hotset.torch`, beside the bare map, files, and its peers' loaders.

Reading is by one process without workers, in batches. The consumer of the last rows takes samples as fast as a V100 did
in the study behind hotset; what counts for it is whether it ever waits.
"""

from __future__ import annotations

import io
import random
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from bench import limits
from bench.fresh import fresh
from bench.peers.base import Streams, without_package
from bench.peers.plain import file_reader, write_files
from bench.report import AT_LEAST, AT_MOST, Bound, Row, plain, speed, unavailable
from bench.scenarios.first_epoch import MANY
from bench.scenarios.warm import stream_some
from bench.servers import Stored, delayed
from bench.session import Session
from bench.subject import BATCH, NAME, loaded, order_of
from bench.synthetic import synthetic
from bench.timing import seconds, take_turns
from bench.workloads import IMAGES
from tests.support.s3 import Bucket

__all__ = ["run"]

_STREAMS_AT_LEAST = {"MosaicML streaming": 20.0, "WebDataset": 10.0}
_STREAMED = 2_000
_PICTURES, _PIXELS = 600, 256
#: Images a second that one V100 trained in the study.
V100 = 383
_STEP = 96
_PACED_SECONDS = 8.0
_DELAY_MS = 20


def run(session: Session) -> Iterator[Row]:
    work = "torch, batches of 256, no workers"
    if reason := without_package("torch", "torch") or without_package("torchvision", "torchvision"):
        yield unavailable(work, "all", reason)
        return
    data = session.data(IMAGES)
    yield from _bytes(session, data, f"{work}, {data.workload.label}")
    yield from _pictures(session)
    yield from _consumer(session, data)
    yield from _resumed(session)


def _bytes(session: Session, data: Stored, work: str) -> Iterator[Row]:
    from torch.utils.data import DataLoader, RandomSampler

    from hotset.torch import loader

    workload = data.workload
    spans = [(index * workload.size, (index + 1) * workload.size) for index in order_of(workload.count, seed=1)]
    with (
        session.directory() as cache,
        loaded(data, cache) as dataset,
        session.directory() as scratch,
        limits.mapped(workload, scratch / "map") as mapping,
    ):
        batches = loader(dataset, batch_size=BATCH)
        read = file_reader(write_files(workload, scratch / "files"), workload.size)
        folder: Any = _MapStyle(read, workload.count)
        files = DataLoader(folder, BATCH, sampler=RandomSampler(folder), collate_fn=list)

        def ours() -> float:
            return _pass(batches, workload.count)

        taken = take_turns(
            {
                "hotset": ours,
                "map": lambda: limits.slice_bytes(mapping, spans),
                "files": lambda: _pass(files, workload.count),
            },
            session.turns,
        )
        rate = {name: 1 / samples.best for name, samples in taken.items()}
        yield plain(work, rate["hotset"], unit="samples/s", bound=Bound(AT_LEAST, 100_000, "samples/s"))
        yield speed(work, rate["hotset"], "bytes(map[a:b])", rate["map"], unit="samples/s", at_least=0.35)
        yield speed(work, rate["hotset"], "DataLoader over files", rate["files"], unit="samples/s", at_least=5.0)

        def streaming(name: str, streamer: Streams) -> Iterator[Row]:
            with session.directory() as shards, streamer.stream(data, shards) as begin:
                taken = take_turns({"hotset": ours, name: lambda: stream_some(begin, _STREAMED)}, session.turns)
            ours_rate, theirs = 1 / taken["hotset"].best, 1 / taken[name].best
            least = _STREAMS_AT_LEAST.get(name)
            yield speed(work, ours_rate, f"{name} iteration", theirs, unit="samples/s", at_least=least)

        yield from session.beside(work, Streams, streaming)


def _pictures(session: Session) -> Iterator[Row]:
    """Decoding from the cache beside decoding from a list in memory: if they are equal, storage has disappeared."""
    import hotset
    from hotset.torch import loader
    from hotset.torch.decode import decoder

    decode, _ = decoder("image")
    with session.directory() as place, session.directory() as cache:
        pictures = [_picture(number) for number in range(_PICTURES)]
        for number, picture in enumerate(pictures):
            (place / f"{number:05}.jpg").write_bytes(picture)
        with hotset.open(str(place), NAME, cache=cache) as dataset:
            dataset.load()
            batches = loader(dataset, batch_size=32, decode="image", collate_fn=len)
            order = order_of(_PICTURES, seed=0)

            def in_memory() -> float:
                return seconds(lambda: [decode(pictures[index]) for index in order]) / _PICTURES

            taken = take_turns({"hotset": lambda: _pass(batches, _PICTURES), "memory": in_memory}, session.turns + 2)
    rate = {name: 1 / samples.best for name, samples in taken.items()}
    work = f"torch, decoded by torchvision, JPEGs of {_PIXELS} pixels"
    yield speed(work, rate["hotset"], "a list of bytes", rate["memory"], unit="samples/s", at_least=0.95)


def _consumer(session: Session, data: Stored) -> Iterator[Row]:
    work = f"torch, first epoch, cold, {_DELAY_MS} ms added to each request"
    with delayed(data.endpoint, _DELAY_MS) as endpoint:
        far = data.through(endpoint)
        with session.directory() as cache:
            stalled = fresh(_paced, far.url, cache, env=far.env())
        yield plain(
            f"{work}: one V100 ({V100} images/s) waits after its first second",
            stalled,
            unit="s",
            bound=Bound(AT_MOST, 0.01, "s"),
            note=f"of {_PACED_SECONDS:.0f} s",
        )
        with session.directory() as cache:
            cold, warm = fresh(_unpaced, far.url, cache, env=far.env())
    yield plain(f"{work}: feeds", cold / V100, unit="V100s")
    yield plain("torch, second epoch: feeds", warm / V100, unit="V100s")


def _paced(url: str, cache: Path) -> float:
    """Seconds that the consumer waited after its first second."""
    from hotset.torch import loader

    with loader(url, NAME, cache=cache, batch_size=_STEP) as batches:
        walk = iter(batches)
        next(walk)
        begun = time.perf_counter()
        stalled, due = 0.0, begun
        while (now := time.perf_counter()) - begun < _PACED_SECONDS:
            due = max(due, now) + _STEP / V100
            time.sleep(max(0.0, due - time.perf_counter()))  # the step of the GPU
            asked = time.perf_counter()
            if next(walk, None) is None:
                break
            if asked - begun > 1.0:
                # Handing over a batch that is there takes a fraction of a millisecond, which a real loop overlaps.
                stalled += max(0.0, time.perf_counter() - asked - 0.001)
    return stalled


def _unpaced(url: str, cache: Path) -> tuple[float, float]:
    """Samples a second of the first two epochs."""
    from hotset.torch import loader

    with loader(url, NAME, cache=cache, batch_size=_STEP) as batches:
        rates = []
        for _ in range(2):
            for _ in batches:
                pass
            rates.append(batches.stats().samples_per_second)
    return rates[0], rates[1]


def _resumed(session: Session) -> Iterator[Row]:
    many = MANY.scaled(max(session.share, 0.1))
    with synthetic(many) as endpoint, session.directory() as cache:
        far = Stored(many, Bucket(session.server, many.name), endpoint)
        state = fresh(_interrupted, far.url, cache, many.count // 2, env=far.env())
        took = min(fresh(_first_batch, far.url, cache, state, env=far.env()) for _ in range(session.turns))
    work = f"torch, resume in the middle of an epoch of {many.count:,} objects: first batch"
    yield plain(work, took, unit="s", bound=Bound(AT_MOST, 1.0, "s"))


def _interrupted(url: str, cache: Path, consumed: int) -> dict[str, Any]:
    from hotset.torch import loader

    with loader(url, NAME, cache=cache, batch_size=_STEP) as batches:
        return batches.state_dict() | {"consumed": consumed}


def _first_batch(url: str, cache: Path, state: dict[str, Any]) -> float:
    """Seconds from opening to the first batch."""
    from hotset.torch import loader

    begun = time.perf_counter()
    with loader(url, NAME, cache=cache, batch_size=_STEP) as batches:
        batches.load_state_dict(state)
        next(iter(batches))
        return time.perf_counter() - begun


class _MapStyle:
    """Files as the map-style dataset that torch expects."""

    def __init__(self, read: Callable[[int], object], count: int) -> None:
        self._read = read
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> object:
        return self._read(index)


def _pass(batches: Iterable[object], count: int) -> float:
    """Seconds a sample of one epoch."""

    def work() -> None:
        for _ in islice(batches, count):
            pass

    return seconds(work) / count


def _picture(number: int) -> bytes:
    """A JPEG with the entropy of a photograph: soft shapes and some noise."""
    from PIL import Image

    random_ = random.Random(number)
    small = Image.frombytes("RGB", (32, 32), random_.randbytes(32 * 32 * 3)).resize((_PIXELS, _PIXELS), Image.BICUBIC)
    noise = Image.frombytes("RGB", (_PIXELS, _PIXELS), random_.randbytes(_PIXELS * _PIXELS * 3))
    file = io.BytesIO()
    Image.blend(small, noise, 0.08).save(file, "JPEG", quality=90)
    return file.getvalue()

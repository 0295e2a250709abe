"""What cannot be beaten on a machine: the bare operation under each piece of work, with nothing around it."""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.fresh import fresh
from bench.servers import Stored
from bench.timing import seconds
from bench.workloads import Workload

__all__ = ["FETCHES", "bare_list", "fetch", "mapped", "memory_copy", "slice_bytes", "slice_views"]

#: What the bare threads do with the bytes, by the name that the table shows.
FETCHES = {"bare threads": False, "bare threads + tmpfs write": True}

_THREADS = 24
_RANGE = 8 << 20
_PAGE = 4096


@contextmanager
def mapped(workload: Workload, path: Path) -> Iterator[mmap.mmap]:
    """All objects of the workload back to back in one file, mapped and touched."""
    with path.open("w+b") as file:
        for index in range(workload.count):
            file.write(workload.body(index))
        file.flush()
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapping:
            for offset in range(0, len(mapping), _PAGE):
                mapping[offset]
            yield mapping
    path.unlink()


def slice_bytes(mapping: mmap.mmap, spans: Sequence[tuple[int, int]]) -> float:
    """Seconds a sample of ``bytes(map[a:b])``."""

    def work() -> None:
        for start, end in spans:
            bytes(mapping[start:end])

    return seconds(work) / len(spans)


def slice_views(mapping: mmap.mmap, spans: Sequence[tuple[int, int]]) -> float:
    """Seconds a sample of a memoryview slice, which copies nothing."""

    with memoryview(mapping) as view:

        def work() -> None:
            for start, end in spans:
                view[start:end]

        return seconds(work) / len(spans)


def memory_copy(size: int, *, times: int) -> float:
    """Seconds to copy ``size`` bytes from a large buffer, each time from another place, into a warm one."""
    pool = memoryview(os.urandom(1 << 20) * 64)
    target = memoryview(bytearray(size))
    starts = [(index * 7919 * 64) % (len(pool) - size) for index in range(times)]

    def work() -> None:
        for start in starts:
            target[:] = pool[start : start + size]

    return seconds(work) / times


def fetch(data: Stored, into: Path | None) -> tuple[float, float]:
    """List the bucket and get every object with obstore's synchronous API from threads, in a new process.

    The seconds of the LIST and of the GETs. With ``into``, each object also becomes a file there.
    """
    return fresh(
        _fetch, data.bucket.name, data.workload.total_bytes, None if into is None else str(into), env=data.env()
    )


def bare_list(data: Stored) -> float:
    """Seconds for one LIST of the bucket, in a process that is up: its second one."""
    return fresh(_list_seconds, data.bucket.name, data.workload.count, env=data.env())


def _store(bucket: str) -> Any:
    from obstore.store import S3Store

    # The default pool closes what it finds idle; threads as many as these keep all their connections.
    options = {"allow_http": True, "pool_max_idle_per_host": "64"}
    return S3Store(bucket, client_options=options, virtual_hosted_style_request=False)


def _list(store: Any) -> list[tuple[str, int]]:
    import obstore

    return [(item["path"], item["size"]) for batch in obstore.list(store, chunk_size=1000) for item in batch]


def _list_seconds(bucket: str, expected: int) -> float:
    store = _store(bucket)
    _list(store)
    start = time.perf_counter()
    found = len(_list(store))
    elapsed = time.perf_counter() - start
    if found != expected:
        raise RuntimeError(f"listed {found:,} objects of {expected:,}")
    return elapsed


def _fetch(bucket: str, expected: int, into: str | None) -> tuple[float, float]:
    import obstore

    store = _store(bucket)
    begun = time.perf_counter()
    objects = _list(store)
    listed = time.perf_counter()
    if into is not None:
        for directory in {os.path.dirname(key) for key, _ in objects}:
            os.makedirs(f"{into}/{directory}", exist_ok=True)

    def get(key: str) -> int:
        body = obstore.get(store, key).bytes()
        if into is not None:
            fd = os.open(f"{into}/{key}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
            try:
                os.write(fd, body)
            finally:
                os.close(fd)
        return len(body)

    def get_ranges(item: tuple[str, int]) -> int:
        """A large object in parallel pieces, as any good client does."""
        key, size = item
        return sum(pool.map(lambda start: get_range(key, start, min(start + _RANGE, size)), range(0, size, _RANGE)))

    def get_range(key: str, start: int, end: int) -> int:
        body = obstore.get_range(store, key, start=start, end=end)
        if into is not None:
            fd = os.open(f"{into}/{key}", os.O_WRONLY | os.O_CREAT, 0o644)
            try:
                os.pwrite(fd, body, start)
            finally:
                os.close(fd)
        return len(body)

    with ThreadPoolExecutor(_THREADS) as pool:
        small = [key for key, size in objects if size <= 2 * _RANGE]
        received = sum(pool.map(get, small, chunksize=8))
        received += sum(map(get_ranges, (item for item in objects if item[1] > 2 * _RANGE)))
    done = time.perf_counter()
    if received != expected:
        raise RuntimeError(f"fetched {received:,} bytes of {expected:,}")
    return listed - begun, done - listed

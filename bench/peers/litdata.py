"""LitData: chunks of 64 MB on tmpfs, random access."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.peers.base import Reader, package_version, without_package
from bench.servers import Stored

__all__ = ["LitData"]


class LitData:
    name = "LitData"

    def version(self) -> str:
        return package_version("litdata")

    def missing(self) -> str | None:
        return without_package("litdata", "litdata")

    @contextmanager
    def reader(self, data: Stored, scratch: Path) -> Iterator[Reader]:
        from litdata import StreamingDataset
        from litdata.streaming import Cache

        workload = data.workload
        cache = Cache(str(scratch), chunk_bytes="64MB")
        for index in range(workload.count):
            cache[index] = workload.body(index)
        cache.done()
        cache.merge()
        yield StreamingDataset(str(scratch), shuffle=False).__getitem__

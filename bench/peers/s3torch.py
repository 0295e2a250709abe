"""s3torchconnector: AWS's datasets over its CRT client. They keep nothing.

Two ways: as its documentation begins, one iteration in the training process; and its map-style dataset read by threads,
which is more than its users get without writing it themselves.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from bench.fresh import fresh
from bench.peers.base import package_version, without_package
from bench.servers import Stored
from tests.support.s3 import REGION

__all__ = ["S3TorchConnector"]


class S3TorchConnector:
    def __init__(self, *, threads: int = 1) -> None:
        self._threads = threads
        self.name = "s3torchconnector" if threads == 1 else f"s3torchconnector with {threads} threads"

    def version(self) -> str:
        return package_version("s3torchconnector")

    def missing(self) -> str | None:
        return without_package("s3torchconnector", "s3torchconnector")

    def copy(self, data: Stored, into: Path) -> float:
        return fresh(_read_all, data.url, data.endpoint, self._threads, data.workload.total_bytes, env=data.env())


def _read_all(url: str, endpoint: str, threads: int, expected: int) -> float:
    from s3torchconnector import S3ClientConfig, S3IterableDataset, S3MapDataset

    start = time.perf_counter()
    style = S3MapDataset if threads > 1 else S3IterableDataset
    options = S3ClientConfig(force_path_style=True)
    dataset = style.from_prefix(f"{url}/", region=REGION, endpoint=endpoint, transform=_size, s3client_config=options)
    if threads > 1:
        with ThreadPoolExecutor(threads) as pool:
            received = sum(pool.map(dataset.__getitem__, range(len(dataset)), chunksize=16))
    else:
        received = sum(dataset)
    elapsed = time.perf_counter() - start
    if received != expected:
        raise RuntimeError(f"s3torchconnector read {received:,} bytes of {expected:,}")
    return elapsed


def _size(reader: Any) -> int:
    return len(reader.read())

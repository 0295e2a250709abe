"""WebDataset: tar files on tmpfs. It has no random access: shuffling tars and a buffer is its nearest thing to it."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.peers.base import package_version, without_package
from bench.servers import Stored
from bench.workloads import Workload

__all__ = ["WebDataset"]

_PER_TAR = 1_000
_SHUFFLE_BUFFER = 1_000


class WebDataset:
    name = "WebDataset"

    def version(self) -> str:
        return package_version("webdataset")

    def missing(self) -> str | None:
        return without_package("webdataset", "webdataset")

    @contextmanager
    def stream(self, data: Stored, scratch: Path) -> Iterator[Callable[[], Iterable[object]]]:
        import webdataset

        tars = [str(_write(data.workload, scratch, start)) for start in range(0, data.workload.count, _PER_TAR)]
        yield lambda: webdataset.WebDataset(tars, shardshuffle=len(tars)).shuffle(_SHUFFLE_BUFFER).to_tuple("bin")


def _write(workload: Workload, scratch: Path, start: int) -> Path:
    path = scratch / f"{start:08d}.tar"
    with tarfile.open(path, "w") as tar:
        for index in range(start, min(start + _PER_TAR, workload.count)):
            member = tarfile.TarInfo(f"{index:08d}.bin")
            member.size = workload.size
            tar.addfile(member, io.BytesIO(workload.body(index)))
    return path

"""MosaicML streaming: shards of 64 MiB on tmpfs, random access and its own shuffled iteration."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.peers.base import Reader, package_version, without_package
from bench.servers import Stored

__all__ = ["MosaicML"]


class MosaicML:
    name = "MosaicML streaming"

    def version(self) -> str:
        return package_version("mosaicml-streaming")

    def missing(self) -> str | None:
        return without_package("streaming", "mosaicml-streaming")

    @contextmanager
    def reader(self, data: Stored, scratch: Path) -> Iterator[Reader]:
        with _opened(data, scratch, shuffle=False) as dataset:

            def read(index: int) -> object:
                return dataset[index]["data"]

            yield read

    @contextmanager
    def stream(self, data: Stored, scratch: Path) -> Iterator[Callable[[], Iterable[object]]]:
        with _opened(data, scratch, shuffle=True) as dataset:
            yield lambda: dataset


@contextmanager
def _opened(data: Stored, scratch: Path, *, shuffle: bool) -> Iterator[Any]:
    from streaming import MDSWriter, StreamingDataset
    from streaming.base.util import clean_stale_shared_memory

    workload = data.workload
    with MDSWriter(out=str(scratch), columns={"data": "bytes"}) as writer:
        for index in range(workload.count):
            writer.write({"data": workload.body(index)})
    clean_stale_shared_memory()  # of runs that were killed; otherwise it refuses to open
    yield StreamingDataset(local=str(scratch), shuffle=shuffle, batch_size=1, num_canonical_nodes=1)

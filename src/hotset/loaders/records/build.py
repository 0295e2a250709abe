"""Builds the index of a snapshot's records: one pass over the bytes of its objects, in bounded memory.

What is found goes to a draft of the index file, object by object. A process that is killed costs the object that it was
at; the next one goes on behind it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from hotset.loaders.records.format import Format, Malformed, damage
from hotset.loaders.records.frames import Frames, ObjectOut
from hotset.loaders.records.stream import Stream
from hotset.read.dataset import Dataset
from hotset.read.ranges import Places, Ranges
from hotset.tier.node.side import Draft

__all__ = ["IndexProgress", "OnProgress", "build_index"]

_PROGRESS_SECONDS = 0.25

#: First bytes of what is compressed as a whole: its records have no place of their own in it.
_COMPRESSED = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bzip2", b"\xfd7zXZ": "xz"}


@dataclass(frozen=True)
class IndexProgress:
    """How far an index is."""

    objects: int
    total_objects: int
    bytes: int  #: of the objects that are done, and of the one that is looked at
    total_bytes: int
    records: int
    finished: bool = False


OnProgress = Callable[[IndexProgress], object]


def build_index(
    dataset: Dataset, form: Format, draft: Draft, *, identity: str, skip_damaged: bool, progress: OnProgress | None
) -> None:
    """Write the index into ``draft``, going on where an earlier process stopped, and publish it. ``identity``: of all that
    the index depends on.

    Raises `InvalidInput` with key and offset for data that is damaged or of another format, `Full` if there is no room for
    the index, and whatever reading raises.
    """
    frames = Frames(draft, identity)
    frames.resume()
    scanning = _Scanning(dataset, form, frames, progress)
    todo = range(frames.objects_done, len(dataset))
    Ranges(dataset).prefetch([_extents(dataset, form, todo)])
    for position in todo:
        scanning.scan(position, skip_damaged=skip_damaged)
    frames.publish()
    scanning.tell(0, finished=True)


class _Scanning:
    """Scans objects one after the other and says how far it is."""

    def __init__(self, dataset: Dataset, form: Format, frames: Frames, progress: OnProgress | None) -> None:
        self._dataset = dataset
        self._form = form
        self._frames = frames
        self._ranges = Ranges(dataset)
        self._progress = progress
        self._told = time.monotonic()
        self._bytes = sum(dataset.size(position) for position in range(frames.objects_done))

    def scan(self, position: int, *, skip_damaged: bool) -> None:
        """One object; an empty one has no records."""
        size = self._dataset.size(position)
        out = ObjectOut(self._frames, position, skip_damaged=skip_damaged)
        facts = ""
        if size:
            key = self._dataset.keys[position]
            stream = Stream(size, lambda offset: self._rest(position, offset), file=lambda: self._dataset.open(key))
            try:
                if self._form.extent(size)[0] == 0:
                    _refuse_compressed(self._ranges.one(position, 0, min(8, size)))
                facts = self._form.scan(stream, out)
                out.close()
            except Malformed as error:
                raise damage(key, error.at, str(error)) from error
        self._frames.mark(position, facts, out.damage)
        self._bytes += size
        self.tell(0)

    def tell(self, offset: int, *, finished: bool = False) -> None:
        now = time.monotonic()
        if self._progress is None or not (finished or now >= self._told + _PROGRESS_SECONDS):
            return
        self._told = now
        objects, records = self._frames.objects_done, self._frames.records
        count, total = len(self._dataset), self._dataset.total_bytes
        self._progress(IndexProgress(objects, count, self._bytes + offset, total, records, finished))

    def _rest(self, position: int, offset: int) -> memoryview:
        self.tell(offset)
        return self._ranges.rest(position, offset)


def _extents(dataset: Dataset, form: Format, todo: range) -> Places:
    extents = np.array([form.extent(dataset.size(position)) for position in todo], np.int64).reshape(-1, 2)
    return Places(np.array(todo, np.int64), extents[:, 0], extents[:, 1])


def _refuse_compressed(begin: memoryview) -> None:
    for magic, name in _COMPRESSED.items():
        if bytes(begin).startswith(magic):
            raise Malformed(0, f"compressed with {name}, so its records have no place of their own; decompress it")

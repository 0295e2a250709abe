"""Tar archives as they are: a record is a member, or a WebDataset sample (members that have a name in common).

An index entry stands for everything up to the end of a member, its headers included; names are read from there when the
record is, and take no room in the index. Directories, links and devices are no records. Sparse members are refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hotset.loaders.records.format import Malformed, Out, Reader, SpanReader
from hotset.loaders.records.stream import Stream
from hotset.loaders.records.tarheaders import Member, members
from hotset.read.dataset import Dataset

__all__ = ["Tar"]

#: The key and the extension, which begins at the first dot of the file's name: WebDataset's own expression.
_SPLIT = re.compile(r"((?:.*/|)[^.]+)[.]([^/]*)")
_BATCH = 4096


@dataclass(frozen=True)
class Tar:
    """``group``: neighbours with the same name up to its first dot are one record, a dict of extension -> bytes and
    ``"__key__"``; else a record is a pair of name and bytes.
    """

    group: bool = False

    @property
    def identity(self) -> str:
        return "tar groups" if self.group else "tar"

    def extent(self, size: int) -> tuple[int, int]:
        return 0, size

    def scan(self, stream: Stream, out: Out) -> str:
        ends = _Ends(out)
        group = _Group()
        out.begin(0)
        try:
            for member in members(stream, check=True):
                if not self.group:
                    ends.add(member.end)
                elif (parts := _parts(member.name)) is not None:
                    if group.key not in (None, parts[0]):
                        ends.add(group.end)
                        group = _Group()
                    group.add(*parts, member)
            if group.key is not None:
                ends.add(group.end)
            ends.flush()
        except Malformed as error:
            ends.flush()
            out.damaged(error.at, str(error))
        return ""

    def reader(self, dataset: Dataset, facts: Mapping[str, str], first_segments: npt.NDArray[np.int64]) -> Reader:
        return SpanReader(dataset, _samples if self.group else _files)


class _Group:
    """A sample on its way."""

    def __init__(self) -> None:
        self.key: str | None = None
        self.end = 0
        self._extensions: set[str] = set()

    def add(self, key: str, extension: str, member: Member) -> None:
        if extension in self._extensions:
            raise Malformed(member.data, f"the sample {key!r} has two members with the extension {extension!r}")
        self._extensions.add(extension)
        self.key = key
        self.end = member.end


class _Ends:
    """Hands ends on many at a time."""

    def __init__(self, out: Out) -> None:
        self._out = out
        self._ends: list[int] = []

    def add(self, end: int) -> None:
        self._ends.append(end)
        if len(self._ends) >= _BATCH:
            self.flush()

    def flush(self) -> None:
        ends, self._ends = self._ends, []
        self._out.ends(ends)


def _parts(name: str) -> tuple[str, str] | None:
    """(key, extension) as WebDataset splits a name; None for what it leaves out: no extension, or its own notes."""
    if name.startswith("__") and name.endswith("__") and "/" not in name:
        return None
    found = _SPLIT.fullmatch(name)
    return None if found is None else (found[1], found[2].lower())


def _files(views: list[memoryview]) -> list[Any]:
    records = []
    for place, view in enumerate(views):
        member = next(_inside(place, view))
        records.append((member.name, view[member.data : member.data + member.size].tobytes()))
    return records


def _samples(views: list[memoryview]) -> list[Any]:
    records = []
    for place, view in enumerate(views):
        sample: dict[str, Any] = {}
        for member in _inside(place, view):
            if (parts := _parts(member.name)) is not None:
                sample["__key__"] = parts[0]
                sample[parts[1]] = view[member.data : member.data + member.size].tobytes()
        records.append(sample)
    return records


def _inside(place: int, view: memoryview) -> Iterator[Member]:
    """The members in the bytes of a record. They were checked when the archive was indexed."""
    try:
        yield from members(Stream.of(view), check=False)
    except Malformed as error:
        raise Malformed(place, str(error)) from error

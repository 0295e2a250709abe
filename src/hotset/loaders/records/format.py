"""What a format is: how to find the records of an object, and how to make a record out of its bytes.

One module a format; none knows of caches, index files or the other formats.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from importlib import import_module
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from hotset.errors import InvalidInput
from hotset.loaders.records.stream import Stream
from hotset.read.dataset import Dataset
from hotset.read.ranges import Places, Ranges

__all__ = ["FORMATS", "Format", "Found", "Malformed", "Out", "Reader", "SpanReader", "damage", "make_format"]

#: Name, which is that of the module as well, and class.
FORMATS = {"lines": "Lines", "csv": "Csv", "parquet": "Parquet", "tfrecord": "TFRecord", "tar": "Tar"}

Integers = npt.NDArray[np.int64]
Decode = Callable[[list[memoryview]], list[Any]]
"""Makes records out of their bytes; raises `Malformed` for one that cannot be."""


class Malformed(Exception):
    """The bytes at ``at`` are not what the format says: an offset while scanning, a place in the batch while decoding."""

    def __init__(self, at: int, reason: str) -> None:
        super().__init__(reason)
        self.at = at


class Out(Protocol):
    """Takes what a scan finds, in the order of the object's bytes."""

    def begin(self, offset: int) -> None:
        """The next record begins here, and not where the last one ended."""

    def ends(self, offsets: Iterable[int] | Integers) -> None:
        """Each is where a record ends and the next one begins."""

    def group(self, start: int, end: int, records: int) -> None:
        """So many records that are read together, out of the bytes ``[start, end)``."""

    def damaged(self, offset: int, reason: str) -> None:
        """Raises `Malformed`, or comes back if damage is to be skipped: go on behind it, after `begin`."""


class Found(NamedTuple):
    """Where records lie, one row a record: which segment of the index, which in the segment, which bytes of which object."""

    segments: Integers
    inside: Integers
    places: Places


class Reader(Protocol):
    """Gives records. As safe for threads and forks as a `Dataset`."""

    def one(self, segment: int, inside: int, position: int, start: int, end: int) -> Any:
        """One record, by the members of a row of `Found`."""

    def many(self, found: Found) -> list[Any]:
        """Records in the order of ``found``, without those of objects that changed, if the dataset skips them."""


class Format(Protocol):
    """How records lie in objects. A frozen dataclass: its fields are what a user may say about the data."""

    @property
    def identity(self) -> str:
        """Everything that the places of the records depend on: data with another identity is indexed anew."""

    def extent(self, size: int) -> tuple[int, int]:
        """Which bytes of an object of that size a scan reads."""

    def scan(self, stream: Stream, out: Out) -> str:
        """Find the records of one object that is not empty. What decoding must know of it is the result, often nothing."""

    def reader(self, dataset: Dataset, facts: Mapping[str, str], first_segments: Integers) -> Reader:
        """``facts``: the different results of scans, each with the key of the first object that it was found for;
        ``first_segments``: of each segment, the first one of the same object. `InvalidInput` if objects do not go together.
        """


class SpanReader:
    """Records that are decoded from their own bytes, without ``head`` bytes before and ``tail`` bytes behind."""

    def __init__(self, dataset: Dataset, decode: Decode, *, head: int = 0, tail: int = 0) -> None:
        self._dataset = dataset
        self._ranges = Ranges(dataset)
        self._decode = decode
        self._head = head
        self._tail = tail

    def one(self, segment: int, inside: int, position: int, start: int, end: int) -> Any:
        view = self._ranges.one(position, start + self._head, end - self._tail)
        try:
            return self._decode([view])[0]
        except Malformed as error:
            raise damage(self._dataset.keys[position], start, str(error)) from error

    def many(self, found: Found) -> list[Any]:
        places = found.places
        if self._head or self._tail:
            places = Places(places.objects, places.starts + self._head, places.ends - self._tail)
        views = self._ranges.many(places)
        there = [view for view in views if view is not None]
        try:
            return self._decode(there)
        except Malformed as error:
            [row] = [place for place, view in enumerate(views) if view is there[error.at]]
            key = self._dataset.keys[int(places.objects[row])]
            raise damage(key, int(places.starts[row]), str(error)) from error


def damage(key: str, offset: int, reason: str) -> InvalidInput:
    return InvalidInput(f"{key!r}, at byte {offset}: {reason}")


def make_format(name: str, options: Mapping[str, Any]) -> Format:
    """The format of that name; `InvalidInput` for options that mean nothing to it."""
    if name not in FORMATS:
        raise InvalidInput(f"there is no format {name!r}; there are {', '.join(FORMATS)}")
    kind = getattr(import_module(f"hotset.loaders.records.{name}"), FORMATS[name])
    known = {field.name for field in fields(kind)}
    if unknown := sorted(set(options) - known):
        which = f"its options are {', '.join(sorted(known))}" if known else "it has none"
        raise InvalidInput(f"{unknown[0]!r} is no option of the format {name!r}; {which}")
    made: Format = kind(**options)
    return made

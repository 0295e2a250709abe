"""The index of a format's records in a snapshot: four bytes a record, mapped, without a Python object for any of them.

Records follow one another, so a record's place is one number: where it ends and the next one begins. The numbers are
relative to the begin of a **segment**, a run of records of one object that is short enough for 32 bits. A segment of a
format whose records are read in groups (Parquet) is one group, and has no number for each of them.

    64 bytes            what this is an index of
    frames              of each object in turn: its segments, and a mark that they are complete
    table               a row a segment: the first record, the object, the offset in it, where its numbers are
    notes               what the scans said, as JSON
    tail                how many segments, where the table begins

A file that is cut off behind a mark is a draft that can be gone on with.
"""

from __future__ import annotations

import json
import struct
from bisect import bisect_right
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hotset.loaders.records.format import Found
from hotset.read.ranges import Places

__all__ = ["Damage", "Notes", "RecordIndex", "Table", "encode_end"]

TAIL = struct.Struct("<QQQQ")  # segments, where the table begins, length of the notes, whether records come in groups

Integers = npt.NDArray[np.int64]


class Damage(NamedTuple):
    """Something that was left out of the records because it is damaged."""

    key: str
    offset: int
    reason: str


class Notes(NamedTuple):
    """What scans said: facts that decoding must know, each with the first object (its position) that it was found for, and
    damage that was skipped, as (position, offset, reason).
    """

    facts: dict[str, int]
    damage: list[tuple[int, int, str]]


class Table(NamedTuple):
    """A row a segment. ``first`` has one more: how many records there are."""

    first: Integers
    objects: Integers
    bases: Integers
    words: Integers


def encode_end(table: Table, notes: Notes, *, at: int, groups: bool) -> list[bytes]:
    """All that comes after the frames, which end at the offset ``at``."""
    text = json.dumps(notes).encode()
    columns = [np.ascontiguousarray(column, np.int64).tobytes() for column in table]
    return [*columns, text, TAIL.pack(len(table.objects), at, len(text), groups)]


class RecordIndex:
    """A finished index. Immutable; may be used from any number of threads and forked processes."""

    def __init__(self, data: memoryview) -> None:
        segments, at, length, groups = TAIL.unpack_from(data, len(data) - TAIL.size)
        self.groups = bool(groups)
        columns = np.frombuffer(data, np.int64, 4 * segments + 1, at)
        first, rest = columns[: segments + 1], columns[segments + 1 :].reshape(3, segments)
        self._table = Table(first, *rest)
        end = len(data) - TAIL.size
        facts, damage = json.loads(bytes(data[end - length : end]))
        self.notes = Notes(facts, [(position, offset, reason) for position, offset, reason in damage])
        self._words = np.frombuffer(data[: len(data) // 4 * 4], np.uint32)
        # For one record at a time, numpy costs more than the look-up.
        self._first, self._objects, self._bases, self._begin = (column.data for column in self._table)
        self._ends = self._words.data

    def __len__(self) -> int:
        return self._first[-1]

    def find(self, record: int) -> tuple[int, int, int, int, int]:
        """One row of `find_many`: (segment, which in it, object, start, end)."""
        segment = bisect_right(self._first, record) - 1
        inside = record - self._first[segment]
        base = self._bases[segment]
        word = self._begin[segment] + (0 if self.groups else inside)
        return segment, inside, self._objects[segment], base + self._ends[word], base + self._ends[word + 1]

    def find_many(self, records: Integers) -> Found:
        table = self._table
        segments = np.searchsorted(table.first, records, side="right") - 1
        inside = records - table.first[segments]
        bases = table.bases[segments]
        words = table.words[segments]
        if not self.groups:
            words += inside
        return Found(
            segments,
            inside,
            Places(table.objects[segments], bases + self._words[words], bases + self._words[words + 1]),
        )

    def of(self, position: int) -> range:
        """The records of one object."""
        low, high = np.searchsorted(self._table.objects, [position, position + 1])
        return range(self._first[low], self._first[high])

    def first_segments(self) -> Integers:
        """Of each segment, the first one of the same object."""
        return np.searchsorted(self._table.objects, self._table.objects)

    def blocks(self, stripes: npt.NDArray[np.int64]) -> tuple[Integers, Integers]:
        """Records that are fetched together: the first record of each block, and how many bytes it has. ``stripes``: of each
        object the length of its stripes, 0 if it has none.
        """
        table = self._table
        firsts: list[Integers] = []
        sizes: list[Integers] = []
        counts = np.diff(table.first)
        last = table.words + (1 if self.groups else counts)
        lengths = self._words[last].astype(np.int64) - self._words[table.words]
        striped = np.zeros(len(counts), bool) if self.groups else stripes[table.objects] > 0
        for segment in np.flatnonzero(striped).tolist():
            begins = self._words[table.words[segment] : last[segment] + 1].astype(np.int64)
            stripe = int(stripes[table.objects[segment]])
            base = int(table.bases[segment])
            borders = np.arange(base // stripe + 1, (base + int(begins[-1])) // stripe + 1) * stripe - base
            inside = np.unique(np.concatenate(([0], np.searchsorted(begins[:-1], borders))))
            inside = inside[inside < counts[segment]]
            firsts.append(table.first[segment] + inside)
            sizes.append(np.diff(begins[np.append(inside, counts[segment])]))
        firsts.append(table.first[:-1][~striped])
        sizes.append(lengths[~striped])
        starts, weights = np.concatenate(firsts), np.concatenate(sizes)
        order = np.argsort(starts)
        return starts[order], weights[order]

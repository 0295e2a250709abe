"""The units of a snapshot, numbered through in the order of their bytes: an order of reads is a row of such numbers.

An order names units and not objects, because of a large object parts are read as well: records of a file of gigabytes, in
any order. Of an object that is not striped the number is its position, plus one for each stripe but the first before it.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Any

import numpy as np
import numpy.typing as npt

from hotset.snapshot.index import Snapshot

__all__ = ["Units"]

Numbers = npt.NDArray[np.int64]


class Units:
    """Turns positions, byte ranges and (pack, unit) into numbers and back. A few words a pack; cheap to make."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._packs = np.frombuffer(snapshot.packs, np.uint32)
        self._sizes = np.frombuffer(snapshot.sizes, np.uint64)
        self._pack_first = np.frombuffer(snapshot.pack_first, np.uint64).astype(np.int64)
        self._stripes = np.frombuffer(snapshot.stripes, np.uint32).astype(np.int64)
        counts = np.frombuffer(snapshot.pack_units, np.uint32)
        self._first = np.concatenate((np.zeros(1, np.int64), np.cumsum(counts, dtype=np.int64)))
        self._firsts: list[int] = self._first.tolist()

    def __len__(self) -> int:
        return self._firsts[-1]

    def number(self, pack: int, unit: int) -> int:
        return self._firsts[pack] + unit

    def unit(self, number: int) -> tuple[int, int]:
        """(pack, unit in the pack)."""
        pack = bisect_right(self._firsts, number) - 1
        return pack, number - self._firsts[pack]

    def of_objects(self, positions: npt.NDArray[np.integer[Any]]) -> Numbers:
        """The units of these objects, in their order."""
        sizes = self._sizes[positions].astype(np.int64)
        return self.of_ranges(positions, np.zeros(len(positions), np.int64), sizes)

    def of_ranges(self, positions: npt.NDArray[np.integer[Any]], starts: Numbers, ends: Numbers) -> Numbers:
        """The units that hold the bytes ``[start, end)`` of these objects; at least one each. IndexError without such an
        object.
        """
        packs = self._packs[positions]
        stripes = self._stripes[packs]
        length = np.maximum(stripes, 1)
        inside = np.where(stripes > 0, starts // length, positions.astype(np.int64) - self._pack_first[packs])
        last = np.where(stripes > 0, np.maximum(starts, ends - 1) // length, inside)
        counts = last - inside + 1
        before = np.cumsum(counts) - counts
        steps = np.arange(int(counts.sum())) - np.repeat(before, counts)
        numbers: Numbers = np.repeat(self._first[packs] + inside, counts) + steps
        return numbers

    def sizes(self, numbers: npt.NDArray[np.integer[Any]]) -> Numbers:
        """How many bytes each of these units has. IndexError if there is no such unit."""
        numbers = numbers.astype(np.int64)
        if len(numbers) and not 0 <= numbers.min() <= numbers.max() < len(self):
            raise IndexError(f"there are {len(self)} units")
        packs = np.searchsorted(self._first, numbers, side="right") - 1
        inside = numbers - self._first[packs]
        stripes = self._stripes[packs]
        objects = self._sizes[self._pack_first[packs] + np.where(stripes > 0, 0, inside)].astype(np.int64)
        return np.where(stripes > 0, np.minimum(stripes, objects - inside * stripes), objects)

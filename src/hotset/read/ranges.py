"""Byte ranges of many objects at once: for loaders whose samples are parts of objects."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hotset.errors import Changed, HotsetError
from hotset.read.dataset import Dataset
from hotset.read.fetch import REQUEST_BYTES

__all__ = ["Places", "Ranges"]

Integers = npt.NDArray[np.int64]
Unit = tuple[int, int]


class Places(NamedTuple):
    """The bytes ``[start, end)`` of the objects at these positions; three rows of one length."""

    objects: Integers
    starts: Integers
    ends: Integers


class Ranges:
    """Reads ranges of one `Dataset`, as safe to share and to fork as that is. Ranges must lie within their objects."""

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset
        self._snapshot = dataset._snapshot
        self._fetching = dataset._fetching
        self._views = dataset._views
        self._packs = np.frombuffer(self._snapshot.packs, np.uint32)
        self._offsets = np.frombuffer(self._snapshot.offsets, np.uint32)

    @property
    def skips_changed(self) -> bool:
        """Whether what changed at the source is to be left out."""
        return self._dataset._options.on_changed == "skip"

    @property
    def gives_newest(self) -> bool:
        """Whether the bytes of an object may be those of another version, in which ranges mean something else."""
        return self._dataset._options.on_changed == "newest"

    def stripes(self) -> Integers:
        """Of each object the length of its stripes, 0 if it has none."""
        return np.frombuffer(self._snapshot.stripes, np.uint32)[self._packs].astype(np.int64)

    def one(self, position: int, start: int, end: int) -> memoryview:
        """A view of one range."""
        view = self._views[self._snapshot.packs[position]]
        if view is None:
            return self._dataset._range(position, start, end)
        offset = self._snapshot.offsets[position]
        self._dataset._reads += 1
        self._dataset._bytes += end - start
        return view[offset + start : offset + end]

    def many(self, places: Places) -> list[memoryview | None]:
        """A view of each range; what is absent is fetched in parallel. None for those of objects that changed at the source,
        if the dataset skips them.
        """
        packs = self._packs[places.objects].tolist()
        offsets = self._offsets[places.objects]
        starts = (places.starts + offsets).tolist()
        ends = (places.ends + offsets).tolist()
        views = self._views
        found: list[memoryview | None] = []
        absent: list[int] = []
        total = 0
        for pack, start, end in zip(packs, starts, ends, strict=True):
            view = views[pack]
            if view is None:
                absent.append(len(found))
                found.append(None)
            else:
                total += end - start
                found.append(view[start:end])
        self._dataset._reads += len(found) - len(absent)
        self._dataset._bytes += total
        if absent:
            self._dataset._check_open()
            self._fetch(places, absent, found)
        return found

    def rest(self, position: int, start: int) -> memoryview:
        """The bytes from ``start`` to the end of the unit that they lie in: to walk through an object, of whatever size, and
        fetch no more of it than is looked at.
        """
        size = self._snapshot.sizes[position]
        if start >= size:
            return memoryview(b"")
        pack, units = self._snapshot.units_of(position, start, start + 1)
        _, _, end = self._snapshot.unit_range(pack, units[0])
        return self._dataset._range(position, start, min(end, size))

    def prefetch(self, parts: Iterable[Places], *, lookahead: int | None = None) -> None:
        """As `Dataset.prefetch`, for an order of ranges, given in parts: each unit is fetched when it is needed first."""
        dataset = self._dataset
        dataset._check_open()
        dataset._reader.forget_unlinked()
        dataset._reader.scan()
        if dataset.complete:
            return
        numbers = self._fetching.numbers
        seen = np.zeros(len(numbers), bool)
        order: list[Integers] = []
        for places in parts:
            units = numbers.of_ranges(*places)
            units = units[~seen[units]]
            _, first = np.unique(units, return_index=True)
            fresh = units[np.sort(first)]
            seen[fresh] = True
            order.append(fresh)
        whole = np.concatenate([np.empty(0, np.int64), *order]).astype(np.uint64)
        dataset._fill.follow(dataset.snapshot, whole, dataset._options.lookahead if lookahead is None else lookahead)

    def _fetch(self, places: Places, absent: Sequence[int], found: list[memoryview | None]) -> None:
        """Fill the gaps, unit by unit: each is asked for once, however many ranges lie in it."""
        pieces: dict[Unit, list[tuple[int, int, int]]] = {}
        for place in absent:
            position, start, end = (int(row[place]) for row in places)
            if start == end:
                found[place] = memoryview(b"")
                continue
            pack, inside = self._snapshot.units_of(position, start, end)
            for number in inside:
                pieces.setdefault((pack, number), []).append((place, start, end))
        parts: dict[int, list[bytes]] = {}
        lost: set[int] = set()
        for batch in self._batches(sorted(pieces)):
            for unit, data in zip(batch, self._fetching.units(batch), strict=True):
                if isinstance(data, HotsetError):
                    if not (isinstance(data, Changed) and self.skips_changed):
                        raise data
                    lost.update(place for place, _, _ in pieces[unit])
                    continue
                _, base, _ = self._snapshot.unit_range(*unit)
                for place, start, end in pieces[unit]:
                    # Copied, since a view would keep the whole stripe in memory if it has no place in the cache.
                    parts.setdefault(place, []).append(bytes(data[max(0, start - base) : end - base]))
        for place, each in parts.items():
            if place not in lost:
                found[place] = memoryview(each[0] if len(each) == 1 else b"".join(each))

    def _batches(self, units: Sequence[Unit]) -> Iterator[list[Unit]]:
        """Few enough at a time that what is read through does not fill the memory."""
        batch: list[Unit] = []
        size = 0
        for unit in units:
            _, start, end = self._snapshot.unit_range(*unit)
            batch.append(unit)
            size += end - start
            if size >= REQUEST_BYTES:
                yield batch
                batch, size = [], 0
        if batch:
            yield batch

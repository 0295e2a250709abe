"""The packs of one snapshot, as readers see them: mapped, and trusted when they may be."""

from __future__ import annotations

import os
from contextlib import suppress

from hotset.errors import Corrupt
from hotset.snapshot import Snapshot
from hotset.tier.node.dataset import DatasetDirectory
from hotset.tier.node.packfile import MappedPack, PackGeometry

__all__ = ["PackReader"]

#: Maps kept at once. Each costs one of the kernel's 65,530 map areas; dropped ones cost 10 us when they are needed again.
MAPS = 16_384


class PackReader:
    """Maps the packs of one snapshot. Not thread-safe by itself, but harmless: the worst is a pack mapped twice."""

    def __init__(self, dataset: DatasetDirectory, snapshot: Snapshot) -> None:
        self.dataset = dataset
        self.snapshot = snapshot
        self._on_disk = dataset.cache.durable
        self._maps: dict[int, MappedPack] = {}
        self._sealed = bytearray(snapshot.pack_count)
        #: The data of each pack that is complete and mapped, None for the others: the fast way of `Dataset`.
        self.views: list[memoryview | None] = [None] * snapshot.pack_count
        self._directory = os.fspath(dataset.packs)  # joined as text: thousands of packs are looked for at each opening

    def path(self, number: int) -> str:
        return f"{self._directory}/{self.snapshot.pack_name(number).hex()}"

    def geometry(self, number: int) -> PackGeometry:
        return PackGeometry(self.snapshot.pack_units[number], self.snapshot.pack_sizes[number])

    def mapped(self, number: int) -> MappedPack | None:
        """The pack if it is mapped already."""
        return self._maps.get(number)

    def open(self, number: int) -> MappedPack | None:
        """The pack, mapped; None if it is not here. `Corrupt` if the file is not the pack it should be."""
        mapped = self._maps.get(number)
        if mapped is None:
            try:
                name = self.snapshot.pack_name(number)
                mapped = MappedPack(self.path(number), name, self.geometry(number), on_disk=self._on_disk)
            except FileNotFoundError:
                return None
            if len(self._maps) >= MAPS:
                with suppress(StopIteration, RuntimeError):  # another thread may be making room as well
                    oldest = next(iter(self._maps))
                    self._maps.pop(oldest, None)
                    self.views[oldest] = None
            self._maps[number] = mapped
        return mapped

    def scan(self) -> None:
        """Look which packs are complete now; their objects are then read without any further check."""
        for number, sealed in enumerate(self._sealed):
            if not sealed:
                with suppress(Corrupt):  # found again, and repaired, when it is read
                    mapped = self.open(number)
                    if mapped is not None:
                        self._note(number, mapped)

    @property
    def complete(self) -> bool:
        """Whether every pack is here and sealed, as far as was looked."""
        return 0 not in self._sealed

    def _note(self, number: int, mapped: MappedPack) -> None:
        if mapped.sealed:
            self._sealed[number] = 1
            if mapped.readable:
                self.views[number] = mapped.data

    def forget(self, number: int) -> None:
        """Drop the map: the file was replaced, evicted, or found damaged."""
        self._maps.pop(number, None)
        self.views[number] = None
        self._sealed[number] = 0

    def forget_unlinked(self) -> list[int]:
        """Drop maps of files that were evicted, so that their room is really free; which packs these were."""
        gone = [number for number in list(self._maps) if not self.current(number)]
        for number in gone:
            self.forget(number)
        return gone

    def current(self, number: int) -> bool:
        """Whether the mapped file is still the one that the path names."""
        mapped = self._maps.get(number)
        if mapped is None:
            return False
        try:
            stat = os.stat(self.path(number))
        except FileNotFoundError:
            return False
        return mapped.identity == (stat.st_dev, stat.st_ino)

    def extents(self, number: int) -> list[tuple[int, int]]:
        """Where each unit lies in the data of its pack."""
        places = []
        for unit in range(self.snapshot.pack_units[number]):
            _, start, end = self.snapshot.unit_range(number, unit)
            offset = self.snapshot.unit_offset(number, unit)
            places.append((offset, offset + end - start))
        return places

    def unit(self, number: int, unit: int) -> memoryview | None:
        """The bytes of a unit if they are here."""
        mapped = self.open(number)
        if mapped is None or not mapped.trusted or not mapped.words[unit]:  # words change before they are trusted
            return None
        _, start, end = self.snapshot.unit_range(number, unit)
        offset = self.snapshot.unit_offset(number, unit)
        mapped.touch(offset, offset + end - start)
        self._note(number, mapped)
        return mapped.data[offset : offset + end - start]

    def held(self, number: int) -> int:
        """How many units of a pack are here."""
        try:
            mapped = self.open(number)
        except Corrupt:
            return 0
        if mapped is None or not mapped.trusted:
            return 0
        return mapped.geometry.units if mapped.sealed else mapped.present()

    def close(self) -> None:
        self._maps.clear()
        self.views[:] = [None] * len(self.views)

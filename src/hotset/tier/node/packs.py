"""The layout "packs": units of a snapshot in pack files, written by fillers and read by anybody."""

from __future__ import annotations

import errno
import os
import threading
from contextlib import suppress

from hotset.base.files import is_tmpfs
from hotset.errors import Corrupt, Full
from hotset.snapshot import Snapshot
from hotset.source.base import Buffer
from hotset.tier.node.cache import CacheDirectory
from hotset.tier.node.dataset import DatasetDirectory
from hotset.tier.node.evict import admitted, make_room, pack_costs, share_of
from hotset.tier.node.packfile import MappedPack, PackGeometry, PackWriter, create_pack, salvage

__all__ = ["PackReader", "PackShelf"]

#: The disk is full, or a limit of the system (quota, ulimit -f) forbids the file: both mean "not here".
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

#: Maps kept at once. Each costs one of the kernel's 65,530 map areas; dropped ones cost 10 us when they are needed again.
MAPS = 16_384
#: Pack files kept open for writing.
WRITERS = 256


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

    def forget_unlinked(self) -> int:
        """Drop maps of files that were evicted, so that their room is really free; how many these were."""
        gone = [number for number in list(self._maps) if not self.current(number)]
        for number in gone:
            self.forget(number)
        return len(gone)

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
        if mapped is None or not mapped.words[unit] or not mapped.trusted:
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


class PackShelf:
    """Where fillers put units. Thread-safe; other processes may fill the same snapshot at the same time."""

    def __init__(self, dataset: DatasetDirectory, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.reader = PackReader(dataset, snapshot)
        self._cache: CacheDirectory = dataset.cache
        self._dataset = dataset
        self._on_disk = not is_tmpfs(dataset.path)
        self._costs = pack_costs(snapshot)
        self._lock = threading.RLock()
        self._refused: set[int] = set()
        self._ready: set[int] = set()  # packs that have a file here which may be trusted
        self._absent: dict[int, int] = {}  # a unit of a pack before which none is absent
        self._finishing: set[int] = set()
        self._writers: dict[int, PackWriter] = {}
        self._chosen: set[int] | None = None

    def admit(self, number: int) -> bool:
        """Whether the pack may be stored here; makes its file, and room for it, at the first call."""
        if number in self._ready:
            return True
        if number in self._refused:
            return False
        with self._lock:
            if self._usable(number) is None and (number not in self._admitted() or not self._make(number)):
                self._refused.add(number)
                return False
            self._ready.add(number)
            return True

    def reconsider(self) -> None:
        with self._lock:
            self._refused.clear()
            self._chosen = None

    def present(self, number: int, unit: int) -> bool:
        mapped = self.reader.mapped(number)
        if mapped is None:
            with self._lock:
                mapped = self._usable(number)
        return mapped is not None and mapped.words[unit] != 0

    def held(self, number: int) -> int:
        mapped = self.reader.mapped(number)
        if mapped is None:
            with self._lock:
                mapped = self._usable(number)
        return 0 if mapped is None else mapped.geometry.units if mapped.sealed else mapped.present()

    def verify_presence(self, number: int, unit: int) -> None:
        """Forget what is known of the pack if its file is not the one that its path names any more."""
        if not self.reader.current(number):
            self._forget(number)

    def write(self, number: int, unit: int, *data: Buffer) -> bool:
        if any(self.present(number, place) for place in range(unit, unit + len(data))):
            # By another filler, while this one counted as stalled: present bytes are never written again.
            return len(data) == 1 or all(self.write(number, unit + place, each) for place, each in enumerate(data))
        try:
            self._writer(number).write(unit, self.snapshot.unit_offset(number, unit), *data)
        except FileNotFoundError:
            self._forget(number)
            return False
        except OSError as error:
            if error.errno not in _NO_ROOM:
                raise Full(f"cannot write to {self.reader.path(number)}: {error.strerror}") from error
            self._forget(number)
            self._refused.add(number)  # the disk is full though the quota is not: read through from now on
            return False
        return True

    def finish(self, number: int) -> list[int]:
        """Seal the pack if it is complete. The units that turned out to be damaged and must be fetched again."""
        mapped = self.reader.open(number)
        if mapped is None or mapped.sealed or not self._all_present(number, mapped):
            return []
        with self._lock:
            if number in self._finishing:
                return []  # several threads wrote the last units; one of them looks
            self._finishing.add(number)
        try:
            return self._check_and_seal(number)
        finally:
            self._finishing.discard(number)

    def _check_and_seal(self, number: int) -> list[int]:
        mapped = self.reader.open(number)
        if mapped is None or mapped.sealed or not self._all_present(number, mapped):
            return []  # somebody did it between our look and our turn
        if mapped.bad_units(self.reader.extents(number)):
            return self._salvage(number, mapped)
        with suppress(FileNotFoundError), PackWriter(self.reader.path(number), mapped.geometry) as writer:
            if writer.identity == mapped.identity:  # only what was checked is sealed, whatever the path names by now
                writer.seal(directory=self._dataset.packs, durable=self._cache.durable)
                self._writers.pop(number, None)
                return []
        self._forget(number)  # evicted or replaced while it was filled: nobody else will ever find these bytes
        return list(range(mapped.geometry.units))

    def repair(self, number: int) -> list[int]:
        """Compare every present unit with its CRC; damaged ones are taken out. The units that were damaged."""
        with self._lock:
            self.reader.forget(number)
            mapped = self._usable(number)
            if mapped is None or not mapped.bad_units(self.reader.extents(number)):
                return []
            return self._salvage(number, mapped)

    def close(self) -> None:
        self._writers.clear()
        self.reader.close()

    def _forget(self, number: int) -> None:
        """What is known of the file is not true any more."""
        self.reader.forget(number)
        self._ready.discard(number)
        self._absent.pop(number, None)
        self._writers.pop(number, None)

    def _all_present(self, number: int, mapped: MappedPack) -> bool:
        """Asked after each write, so it goes on where it found an absent unit the last time."""
        unit, words = self._absent.get(number, 0), mapped.words
        while unit < len(words) and words[unit]:
            unit += 1
        self._absent[number] = unit
        return unit == len(words)

    def _writer(self, number: int) -> PackWriter:
        """Opened once for many units: each system call costs a turn of the interpreter lock. A file that was replaced
        or evicted meanwhile is noticed when somebody misses a unit in it, and when it is complete.
        """
        writer = self._writers.get(number)
        if writer is None:
            with self._lock:
                if len(self._writers) >= WRITERS:
                    del self._writers[next(iter(self._writers))]
                writer = self._writers[number] = PackWriter(self.reader.path(number), self.reader.geometry(number))
        return writer

    def _usable(self, number: int) -> MappedPack | None:
        """The pack if it is here, in a state that can be trusted: damaged files go, untrusted units are checked."""
        try:
            mapped = self.reader.open(number)
        except Corrupt:
            with suppress(FileNotFoundError):
                os.unlink(self.reader.path(number))
                self._cache.space.release(self._costs[number])
            return None
        if mapped is not None and not mapped.trusted:
            self._salvage(number, mapped)
            mapped = self.reader.open(number)
        return mapped

    def _salvage(self, number: int, mapped: MappedPack) -> list[int]:
        path, name = self.reader.path(number), self.snapshot.pack_name(number)
        bad = salvage(
            path, mapped, name, self.reader.extents(number), mode=self._cache.file_mode, on_disk=self._on_disk
        )
        self._forget(number)
        return bad

    def _admitted(self) -> set[int]:
        """The fixed choice of packs, made when the first absent one is asked for."""
        if self._chosen is None:
            share = share_of(self._cache, self._dataset, sum(self._costs))
            names = self.snapshot.pack_names()
            held = [number for number, name in enumerate(names) if (self._dataset.packs / name.hex()).exists()]
            self._chosen = admitted(names, self._costs, share, held)
        return self._chosen

    def _make(self, number: int) -> bool:
        cost = self._costs[number]
        space = self._cache.space
        with space.locked():
            path = self.reader.path(number)
            if os.path.exists(path):
                return True  # another filler was faster
            if not space.reserve(cost):
                make_room(self._cache, cost, for_dataset=self._dataset.identifier)
                if not space.reserve(cost):
                    return False
            try:
                create_pack(
                    path,
                    self.snapshot.pack_name(number),
                    self.reader.geometry(number),
                    mode=self._cache.file_mode,
                    on_disk=self._on_disk,
                )
            except OSError as error:
                space.release(cost)
                if error.errno not in _NO_ROOM:
                    raise Full(f"cannot make a pack in {self._dataset.packs}: {error.strerror}") from error
                return False
        return True

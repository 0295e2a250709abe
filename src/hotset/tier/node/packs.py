"""The layout "packs": units of a snapshot put into pack files by fillers (`packreader.py` has the reading of them)."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Sequence
from contextlib import suppress

from hotset.base.files import is_tmpfs
from hotset.errors import Changed, Corrupt, HotsetError
from hotset.snapshot import Snapshot
from hotset.source.base import Buffer
from hotset.tier.node.cache import CacheDirectory
from hotset.tier.node.dataset import DatasetDirectory
from hotset.tier.node.digest import check_digest
from hotset.tier.node.evict import admitted, make_room, pack_costs, share_of
from hotset.tier.node.packfile import MappedPack, PackWriter, create_pack, revive, salvage
from hotset.tier.node.packreader import PackReader

__all__ = ["PackShelf"]

#: The disk is full, or a limit of the system (quota, ulimit -f) forbids the file: both mean "not here".
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

#: Pack files kept open for writing.
WRITERS = 256


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
            here = self._usable(number) is not None
        # Made without the lock: a shuffled epoch begins with thousands of files, and others look at theirs meanwhile.
        if not here and (number not in self._admitted() or not self._make(number)):
            self._refused.add(number)
            return False
        self._ready.add(number)
        return True

    def admissible(self, number: int) -> bool:
        if number in self._ready:
            return True
        return number not in self._refused and number in self._admitted()

    def reconsider(self) -> None:
        with self._lock:
            self._refused.clear()
            self._chosen = None
        self.let_go()

    def let_go(self) -> None:
        for number in self.reader.forget_unlinked():
            self._forget(number)

    def present(self, number: int, unit: int) -> bool:
        mapped = self.reader.mapped(number)
        if mapped is None:
            if not os.path.exists(self.reader.path(number)):
                return False  # asked under the engine's lock: not to wait for who opens another pack
            with self._lock:
                mapped = self._usable(number)
        return mapped is not None and mapped.words[unit] != 0

    def held(self, number: int) -> int:
        mapped = self.reader.mapped(number)
        if mapped is None:
            with self._lock:
                mapped = self._usable(number)
        return 0 if mapped is None else mapped.geometry.units if mapped.sealed else mapped.present()

    def verify_presence(self, number: int, unit: int) -> bool:
        if not self.reader.current(number):
            self._forget(number)  # its file is not the one that its path names any more
            return True
        mapped = self.reader.mapped(number)
        if mapped is None or not mapped.words[unit]:
            return True
        _, start, end = self.snapshot.unit_range(number, unit)
        offset = self.snapshot.unit_offset(number, unit)
        if mapped.check(unit, offset, offset + end - start):
            return True
        self.repair(number)
        return False

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
                raise _refused(self.reader.path(number), error) from error
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
        if bad := mapped.bad_units(self.reader.extents(number)):
            with self._lock:
                return self._take_out(number, mapped, bad)
        try:
            check_digest(self.snapshot, number, [mapped.data])
        except Changed:
            self._drop(number)
            raise
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
            return (
                [] if mapped is None else self._take_out(number, mapped, mapped.bad_units(self.reader.extents(number)))
            )

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
            if mapped is not None and not mapped.trusted:
                revive(self.reader.path(number), mapped, self.reader.extents(number))
                self._forget(number)
                mapped = self.reader.open(number)
            if mapped is not None and not mapped.sealed and self._all_present(number, mapped):
                with suppress(Changed):  # its filler was killed after the last unit, before it could look
                    self._check_and_seal(number)
                mapped = self.reader.open(number)
        except FileNotFoundError:
            return None  # evicted meanwhile
        except Corrupt:
            self._drop(number)
            return None
        return mapped

    def _take_out(self, number: int, mapped: MappedPack, bad: Sequence[int]) -> list[int]:
        """Let a file without the bad units take the place of this one; the units that are lost. If there is no room for
        both for a moment, all of them.
        """
        if not bad:
            return []
        cost = self._costs[number]
        space = self._cache.space
        with space.locked():
            lost = list(bad)
            if not self.reader.current(number):
                pass  # replaced or evicted meanwhile
            elif not space.reserve(cost):
                self._drop(number)
                lost = [unit for unit, word in enumerate(mapped.words.tolist()) if word]
            else:
                try:
                    salvage(
                        self.reader.path(number),
                        mapped,
                        self.snapshot.pack_name(number),
                        self.reader.extents(number),
                        lost,
                        mode=self._cache.file_mode,
                        on_disk=self._on_disk,
                    )
                except OSError:
                    self._drop(number)
                    lost = [unit for unit, word in enumerate(mapped.words.tolist()) if word]
                finally:
                    space.release(cost)
        self._forget(number)
        return lost

    def _drop(self, number: int) -> None:
        """The file is of no use: away with it. Who has it mapped keeps what was read."""
        with self._cache.space.locked(), suppress(FileNotFoundError):
            os.unlink(self.reader.path(number))
            self._cache.space.release(self._costs[number])
        self._forget(number)

    def _admitted(self) -> set[int]:
        """The fixed choice of packs, made when the first absent one is asked for."""
        chosen = self._chosen
        if chosen is not None:
            return chosen
        with self._lock:
            share = share_of(self._cache, self._dataset, sum(self._costs))
            names = self.snapshot.pack_names()
            held = [number for number, name in enumerate(names) if (self._dataset.packs / name.hex()).exists()]
            self._chosen = chosen = admitted(names, self._costs, share, held)
        return chosen

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
                    raise _refused(str(self._dataset.packs), error) from error
                return False
        return True


def _refused(path: str, error: OSError) -> HotsetError:
    return HotsetError(f"cannot write to {path} ({error.strerror}); look at that disk, or set HOTSET_CACHE to another")

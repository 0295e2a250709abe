"""The layout "files": each object is a plain, read-only file in a tree with the dataset's own names.

A file appears under its name when it is complete and never before (rule 14): small objects are written without a name
and linked; stripes of a large one go to a hidden partial file that is renamed after the last. What is present, and its
CRC, stands in the tree's **ledger** (`treefiles.py`). A tree is admitted as a whole or not at all.
A new snapshot's tree begins with hard links to the unchanged files of older trees.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from hotset.base.checksum import checksum
from hotset.base.files import fsync_directory, temporary_name, tmpfile, write_all
from hotset.errors import Changed, Corrupt, Denied, Full, HotsetError, InvalidInput, NotFound
from hotset.snapshot import Snapshot
from hotset.source.base import Buffer
from hotset.tier.node.dataset import DatasetDirectory
from hotset.tier.node.digest import check_digest
from hotset.tier.node.evict import make_room
from hotset.tier.node.keys import check_keys, directories_cost
from hotset.tier.node.packfile import MappedPack, PackGeometry, PackWriter, create_pack
from hotset.tier.node.space import cost_of
from hotset.tier.node.treereader import TreeReader

__all__ = ["TreeShelf"]

_READ_ONLY = 0o444
#: After so many bytes of new files, or 1/256 of the tree if that is more, the account is told that they are here.
ACCOUNT_EVERY = 2**20


class TreeShelf:
    """Where fillers put objects of a "files" dataset."""

    def __init__(self, dataset: DatasetDirectory, snapshot: Snapshot) -> None:
        """`InvalidInput` if the keys cannot be paths; `Full` if the whole tree does not fit the quota."""
        self.snapshot = snapshot
        self.reader = TreeReader(dataset, snapshot)
        self._dataset = dataset
        self._cache = dataset.cache
        self._lock = threading.RLock()
        self._finishing = threading.Lock()
        self._arrived = 0  # bytes since the last account; several threads may lose some
        self._account_every = max(ACCOUNT_EVERY, snapshot.total_bytes >> 8)
        self._absent = 0  # a unit before which none is absent, as far as was looked
        self._tree = self.reader.tree
        self._prepare()
        self.finish(0)  # who wrote the last unit may have been killed before the seal

    def admit(self, number: int) -> bool:
        return True  # the constructor admitted the whole tree

    def admissible(self, number: int) -> bool:
        return True

    def reconsider(self) -> None:
        """Nothing is ever refused."""

    def let_go(self) -> None:
        """Nothing is kept mapped but the ledger."""

    def present(self, number: int, unit: int) -> bool:
        return self._ledger().words[self._tree.bases[number] + unit] != 0

    def held(self, number: int) -> int:
        return self.reader.held(number)

    def verify_presence(self, number: int, unit: int) -> bool:
        with self._lock:
            self._tree.ledger = None
            self._prepare(again=True)
            check = self.reader.stored_check(number, unit)
            if check is None or self._tree.holds(number, unit, check):
                return True
            self._take_out(number, [unit])  # removed, cut short, unreadable, changed
            return False

    def write(self, number: int, unit: int, *data: Buffer) -> bool:
        return all(self._write(number, unit + place, each) for place, each in enumerate(data))

    def _write(self, number: int, unit: int, data: Buffer) -> bool:
        try:
            if self.present(number, unit):
                return True  # by another filler, while this one counted as stalled
            if self._tree.striped(number):
                self._write_stripe(number, unit, data)
            else:
                self._write_file(self._tree.path(number, unit), data)
            self._mark(number, unit, checksum(data))
            if self._tree.striped(number):
                if self._complete(number):
                    self._publish_large(number)
            else:
                self._account_for(len(data))
        except FileNotFoundError:
            return False  # the tree was dropped
        except OSError as error:
            raise _refused(self._tree.path(number, unit), error) from error
        return True

    def finish(self, number: int) -> list[int]:
        """A tree is sealed as a whole, when everything is in it; until then, and afterwards, this costs next to nothing."""
        lost: list[int] = []
        while not (ledger := self._ledger()).sealed and self._all_present(ledger):
            if not self._finishing.acquire(blocking=False):
                break  # several threads wrote the last units; one of them looks, and looks again when it is done
            try:
                lost += self._check_and_seal(number)
            finally:
                self._finishing.release()
        return lost

    def _check_and_seal(self, number: int) -> list[int]:
        ledger = self._ledger()
        if ledger.sealed or ledger.present() < ledger.geometry.units:
            self._absent = 0
            return []  # somebody did it, or found something damaged, between our look and our turn
        bad = {pack: found for pack in range(self.snapshot.pack_count) if (found := self.repair(pack))}
        if bad:
            return list(self._lost_with(number, bad[number])) if number in bad else []
        if self._cache.durable:
            os.sync()  # the files of a tree were not synced one by one
        with (
            suppress(FileNotFoundError),
            self._cache.space.locked(),
            PackWriter(str(self._tree.ledger_path), ledger.geometry) as writer,
        ):
            if writer.identity == ledger.identity:  # only what was checked is sealed
                writer.seal(directory=self._dataset.trees, durable=self._cache.durable)
                writer.cut()
                self._cache.space.recount()
                return []
        self._tree.ledger = None  # dropped, or another filler found something damaged: it is not complete
        return []

    def _all_present(self, ledger: MappedPack) -> bool:
        """Asked after each write, so it goes on where it found an absent unit the last time (which may be too far if
        something was taken out since: whoever acts on it counts).
        """
        unit, words = self._absent, ledger.words
        while unit < len(words) and words[unit]:
            unit += 1
        self._absent = unit
        return unit == len(words)

    def repair(self, number: int) -> list[int]:
        with self._lock:
            bad = self._tree.bad_units(self._ledger(), number)
            if bad:
                self._take_out(number, bad)
        return bad

    def close(self) -> None:
        self.reader.close()

    # -- one object ----------------------------------------------------------------------------------------------------

    def _write_file(self, path: Path, data: Buffer) -> None:
        self._make_parents(path)
        with tmpfile(path.parent, _READ_ONLY) as file:
            write_all(file.fd, [data], 0)
            if not file.publish(path.name):  # left by a filler that was killed before it marked the unit
                temporary = temporary_name(path)
                file.publish(temporary.name)
                temporary.rename(path)

    def _write_stripe(self, number: int, unit: int, data: Buffer) -> None:
        partial = self._tree.partial(number)
        if not self.held(number):
            # Made once, before the first stripe is marked: made again later, it would take the place of the whole file.
            with self._cache.space.locked():
                if not self.held(number):
                    with tmpfile(partial.parent, self._cache.file_mode) as file:
                        os.ftruncate(file.fd, self.snapshot.pack_sizes[number])
                        file.publish(partial.name)
                    self._tree.account()
        fd = os.open(partial, os.O_WRONLY | os.O_CLOEXEC)
        try:
            write_all(fd, [data], self.snapshot.unit_offset(number, unit))
        finally:
            os.close(fd)

    def _publish_large(self, number: int) -> None:
        stripes = (self._tree.read(number, unit) for unit in range(self.snapshot.pack_units[number]))
        try:
            check_digest(self.snapshot, number, (stripe for stripe in stripes if stripe is not None))
        except Changed:
            self._take_out(number, [0])
            raise
        path = self._tree.path(number, 0)
        partial = self._tree.partial(number)
        self._make_parents(path)
        with suppress(FileNotFoundError):  # another filler renamed it
            with suppress(PermissionError):  # another user of the group made it: it stays writable for the group
                partial.chmod(_READ_ONLY)
            partial.rename(path)

    def _make_parents(self, path: Path) -> None:
        if not path.parent.is_dir():
            self._make_parents(path.parent)
            self._make_directory(path.parent)

    def _make_directory(self, path: Path) -> None:
        """As open as the cache allows: whoever shares it fills the same tree, and programs may read it as they like."""
        with suppress(FileExistsError):
            path.mkdir()
            path.chmod(self._cache.directory_mode | 0o055)

    def _complete(self, number: int) -> bool:
        return self.held(number) == self.snapshot.pack_units[number]

    def _account_for(self, size: int) -> None:
        """A file arrived. Until the ledger is made shorter it counts twice in a recount, and others are evicted for nothing."""
        self._arrived += cost_of(size)
        if self._arrived >= self._account_every:
            self._arrived = 0
            with self._cache.space.locked():
                self._tree.account()

    def _mark(self, number: int, unit: int, check: int) -> None:
        ledger = self._ledger()
        with PackWriter(str(self._tree.ledger_path), ledger.geometry) as writer:
            writer.mark(self._tree.bases[number] + unit, check)
            if writer.identity != ledger.identity:
                self._tree.ledger = None  # another filler found something damaged, and made a new one

    # -- the tree ------------------------------------------------------------------------------------------------------

    def _ledger(self) -> MappedPack:
        ledger = self._tree.open_ledger()
        if ledger is None:
            raise NotFound(f"the tree {self._tree.root} was dropped; open the dataset again")
        return ledger

    def _prepare(self, *, again: bool = False) -> None:
        """Make the tree and its ledger, or adopt what is there after checking what cannot be trusted. Done ``again``,
        it costs next to nothing if nothing happened.
        """
        with suppress(Corrupt):
            if again and (ledger := self._tree.open_ledger()) is not None and ledger.trusted:
                return
        with self._cache.space.locked():
            try:
                ledger = self._tree.open_ledger()
            except Corrupt:
                self._tree.ledger_path.unlink(missing_ok=True)
                ledger = None
            if ledger is None:
                check_keys(self.snapshot)
                self._create()
            elif not ledger.trusted:
                self._recheck(ledger)
            self._finish_large()
            if ledger is not None and not self.reader.complete:
                self._tree.account()  # less is missing than when the tree was admitted
                self._cache.space.recount()

    def _create(self) -> None:
        linked = self._link_unchanged()
        missing = sum(
            cost_of(self.snapshot.sizes[position]) for position in range(len(self.snapshot)) if position not in linked
        )
        geometry = PackGeometry(self._tree.bases[-1], missing + directories_cost(self.snapshot))
        need = cost_of(geometry.length)
        if not self._cache.space.reserve(need):
            make_room(self._cache, need, for_dataset=self._dataset.identifier)
            if not self._cache.space.reserve(need):
                raise Full(
                    f"the files need {need} bytes and the quota of {self._cache.root} has {self._cache.space.free} left; "
                    "raise HOTSET_QUOTA, or use the layout 'packs', which reads through what does not fit"
                )
        self._make_directory(self._tree.root)
        create_pack(str(self._tree.ledger_path), self._tree.name, geometry, mode=self._cache.file_mode, on_disk=False)
        with PackWriter(str(self._tree.ledger_path), geometry) as writer:
            for position, checks in linked.items():
                number, units = self.snapshot.units_of(position)
                for unit, check in zip(units, checks, strict=True):
                    writer.mark(self._tree.bases[number] + unit, check)

    def _link_unchanged(self) -> dict[int, list[int]]:
        """Hard-link what other trees of this dataset have in the same version: position -> CRCs of its units."""
        linked: dict[int, list[int]] = {}
        for digest in self._dataset.digests():
            if digest == self.snapshot.digest:
                continue
            try:
                older = Snapshot(self._dataset.snapshot_path(digest))
            except (NotFound, Corrupt):
                continue  # collected meanwhile, or damaged: then nothing is taken from it
            reader = TreeReader(self._dataset, older)
            for position in range(len(self.snapshot)):
                if position in linked:
                    continue
                with suppress(NotFound, FileNotFoundError):
                    there = older.find(self.snapshot.key(position))
                    version, size = older.stored_fingerprint(there), older.sizes[there]
                    if (version, size) != (self.snapshot.stored_fingerprint(position), self.snapshot.sizes[position]):
                        continue  # a fingerprint alone may be a time, which two versions can have in common
                    number, units = older.units_of(there)
                    checks = [check for unit in units if (check := reader.stored_check(number, unit)) is not None]
                    if len(checks) == len(units) == len(self.snapshot.units_of(position)[1]):
                        target = self._tree.root / self.snapshot.key(position)
                        self._make_parents(target)
                        with suppress(FileExistsError):
                            target.hardlink_to(reader.file(there))
                        linked[position] = checks
        return linked

    def _recheck(self, ledger: MappedPack) -> None:
        """After a crash of the machine: believe only what matches its CRC."""
        gone: set[int] = set()
        for number in range(self.snapshot.pack_count):
            bad = self._tree.bad_units(ledger, number)
            if bad and self._tree.partial(number).exists():
                # Nobody has mapped a file on its way since the machine started: only its bad stripes are written again.
                gone.update(self._tree.bases[number] + unit for unit in bad)
            elif bad:
                gone |= self._remove(number, bad)
        self._new_ledger(without=gone)

    def _take_out(self, number: int, bad: Sequence[int]) -> None:
        """Make damaged units absent again."""
        with self._cache.space.locked():
            self._new_ledger(without=self._remove(number, bad))

    def _remove(self, number: int, bad: Sequence[int]) -> set[int]:
        """Unlink the files of damaged units; the places in the ledger of all that is lost with them."""
        for path in {path for unit in bad for path in self._tree.files(number, unit)}:
            path.unlink(missing_ok=True)
        return {self._tree.bases[number] + unit for unit in self._lost_with(number, bad)}

    def _lost_with(self, number: int, bad: Sequence[int]) -> Sequence[int]:
        """A large object whose file is gone has lost all of its stripes."""
        return range(self.snapshot.pack_units[number]) if self._tree.striped(number) else bad

    def _new_ledger(self, *, without: set[int]) -> None:
        """Only under the lock of the space: two that did it at once would mark again what the other one removed."""
        self._tree.ledger = None
        ledger = self._ledger()
        words = ledger.words.tolist()
        for unit in without:
            words[unit] = 0
        temporary = temporary_name(self._tree.ledger_path)
        create_pack(str(temporary), self._tree.name, ledger.geometry, mode=self._cache.file_mode, on_disk=False)
        with PackWriter(str(temporary), ledger.geometry) as writer:
            writer.mark(0, *words)
        temporary.rename(self._tree.ledger_path)
        if self._cache.durable:
            fsync_directory(self._dataset.trees)
        self._tree.ledger = None
        self._tree.account()

    def _finish_large(self) -> None:
        """Rename large objects whose filler was killed between the last stripe and the renaming."""
        for number in range(self.snapshot.pack_count):
            if self._tree.striped(number) and self._tree.partial(number).exists() and self._complete(number):
                with suppress(Changed):  # absent again; who wants it is told
                    self._publish_large(number)


def _refused(path: Path, error: OSError) -> HotsetError:
    """Why a file cannot be written, as what the caller can do about it."""
    what = f"cannot write {path}: {error.strerror}"
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT | errno.EFBIG:  # the disk is full, or a limit of the system forbids the file
            return Full(f"{what}; make room there, or set HOTSET_CACHE to another place")
        case errno.EACCES | errno.EPERM | errno.EROFS:
            return Denied(f"{what}; set HOTSET_CACHE to a directory that you may write to")
        case errno.ENAMETOOLONG:
            return InvalidInput(f"{what}; exclude the object (--exclude), or use the layout 'packs'")
        case _:
            return HotsetError(f"{what}; look at that disk, or set HOTSET_CACHE to another")

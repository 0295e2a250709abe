"""One dataset's directory: what it is, its snapshots, which of them is current, and who uses them."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from hotset.base.files import fsync_directory, remove_directory, temporary_name
from hotset.base.locks import FileLock
from hotset.errors import AlreadyExists, Busy, Corrupt, Full, NotFound
from hotset.tier.node.records import Current, DatasetRecord, Layout, SnapshotRecord
from hotset.tier.node.space import told_if_full
from hotset.tier.node.treepaths import remove_tree

if TYPE_CHECKING:
    from hotset.snapshot import Listing, Plan, Snapshot
    from hotset.tier.node.cache import CacheDirectory

__all__ = ["DatasetDirectory", "Lease"]

_REMEDY = "`hotset reload` writes the current one anew"


class Lease:
    """Keeps one snapshot, and the packs in it, from being evicted. Held by a shared lock: ends with its last holder,
    forked children included, however they end.
    """

    def __init__(self, lock: FileLock, digest: str) -> None:
        self._lock = lock
        self.digest = digest
        self._touch()

    def release(self) -> None:
        if self._lock.held:
            self._touch()
            self._lock.release()

    def _touch(self) -> None:
        with suppress(OSError):  # the time of last use is a hint; a member of the group may not set it
            os.utime(self._lock.fd)


class DatasetDirectory:
    """One dataset in a cache directory. Holds nothing open; methods are safe from any process at any time."""

    def __init__(self, path: Path, cache: CacheDirectory) -> None:
        self.path = path
        self.cache = cache

    def __repr__(self) -> str:
        return f"DatasetDirectory({str(self.path)!r})"

    @property
    def identifier(self) -> str:
        return self.path.name

    @property
    def packs(self) -> Path:
        return self.path / "packs"

    @property
    def trees(self) -> Path:
        return self.path / "trees"

    @property
    def claims(self) -> Path:
        return self.path / "claims"

    def record(self) -> DatasetRecord:
        path = self.path / "dataset.json"
        try:
            return DatasetRecord.decode(json.loads(path.read_bytes()))
        except FileNotFoundError as error:
            raise NotFound(f"the dataset in {self.path} is gone") from error
        except (ValueError, TypeError, KeyError) as error:
            raise Corrupt(f"{path} is damaged ({error}); drop the dataset (`hotset drop`) and load it again") from error

    def create(self, record: DatasetRecord) -> None:
        """Make the directory, or check that the one that is there has the layout of ``record``."""
        try:
            self.check_layout(record.layout)
        except NotFound:
            parts = (self.path, self.packs, self.trees, self.path / "snapshots")
            try:
                for directory in parts:
                    self.cache.make_directory(directory)
                self.cache._write(self.path / "dataset.json", record.encoded())
            except BaseException:
                for directory in reversed(parts):
                    with suppress(OSError):  # not made, or not empty
                        directory.rmdir()
                raise

    def check_layout(self, layout: Layout) -> None:
        """`AlreadyExists` if the dataset has the other one here."""
        existing = self.record().layout
        if existing != layout:
            raise AlreadyExists(
                f"this dataset is in the cache with the layout {existing!r}; open it with that layout, or convert it "
                f"with `hotset view --convert` (which copies its data)"
            )

    def set_layout(self, layout: Layout) -> None:
        record = self.record()
        fields = {**record.encoded(), "layout": layout}
        self.cache._write(self.path / "dataset.json", fields)

    def listing_lock(self) -> FileLock:
        """Held by whoever lists the source for this dataset on this machine."""
        return FileLock(self.path / "listing.lock", mode=self.cache.file_mode)

    # -- snapshots -----------------------------------------------------------------------------------------------------

    def current(self) -> Current | None:
        """None if nothing was listed yet. A damaged file counts as none: the next listing writes it anew."""
        try:
            return self.checked_current()
        except Corrupt:
            return None

    def checked_current(self) -> Current | None:
        """As `current`, but `Corrupt` if the file is damaged: for those who tell the user."""
        path = self.path / "current"
        try:
            return Current(**json.loads(path.read_bytes()))
        except FileNotFoundError:
            return None
        except (ValueError, TypeError) as error:
            raise Corrupt(f"{path} is damaged ({error}); {_REMEDY}") from error

    def set_current(self, current: Current) -> None:
        """Make a published snapshot the one that is opened from now on."""
        self.cache._write(self.path / "current", asdict(current))

    def publish(self, listing: Listing, plan: Plan, *, listed_ns: int) -> Current:
        """Store the snapshot, whole or not at all, and make it current. `Full` if the quota or the disk has no room for its
        index.
        """
        target = self.snapshot_path(plan.digest)
        with told_if_full(self.cache.root):
            if not self._whole(target):
                self._store(target, listing, plan)
        current = Current(plan.digest, listed_ns)
        self.set_current(current)
        return current

    def _store(self, target: Path, listing: Listing, plan: Plan) -> None:
        from hotset.snapshot import write_index

        estimate = len(listing) * 41 + len(listing.keys) + len(listing.fingerprints) + 64 * plan.packs + 2**16
        if not self.cache.space.reserve(estimate):
            from hotset.tier.node.evict import make_room  # below this module's users, above its records

            if make_room(self.cache, estimate, for_dataset=self.identifier) < estimate or not self.cache.space.reserve(
                estimate
            ):
                raise Full(
                    f"the index of {len(listing)} objects does not fit into the quota of {self.cache.root}; raise HOTSET_QUOTA"
                )
        temporary = temporary_name(target)
        try:
            self.cache.make_directory(temporary)
            write_index(temporary, listing, plan)
            (temporary / "lease").touch()
            for file in temporary.iterdir():
                file.chmod(self.cache.file_mode)
                if self.cache.durable:
                    with file.open("rb") as opened:
                        os.fsync(opened.fileno())
            if self.cache.durable:
                fsync_directory(temporary)
            try:
                temporary.rename(target)
            except OSError:
                if not target.exists():
                    raise
                shutil.rmtree(temporary)  # another process published the same snapshot
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            self.cache.space.release(estimate)
            raise
        if self.cache.durable:
            fsync_directory(target.parent)

    def _whole(self, target: Path) -> bool:
        """Whether the snapshot is there and undamaged; a damaged one is taken away, so that it can be written anew."""
        try:
            open_index(target)
            (target / "lease").stat()
        except (NotFound, Corrupt, FileNotFoundError):
            with suppress(FileNotFoundError):
                remove_directory(target)
            return False
        return True

    def snapshot_path(self, digest: str) -> Path:
        return self.path / "snapshots" / digest

    def open(self, digest: str | None = None) -> tuple[Snapshot, Lease]:
        """A snapshot (the current one by default) with a lease on it. `NotFound` if there is none, `Corrupt` if it is
        damaged.
        """
        while True:
            wanted = self._resolve(digest)
            lock = FileLock(self.snapshot_path(wanted) / "lease", shared=True, create=False)
            try:
                lock.acquire()
            except FileNotFoundError as error:
                if digest is None and (now := self.current()) is not None:
                    if now.digest == wanted and not lock.path.exists():
                        raise self._lost(wanted) from error
                    continue  # replaced and collected in between
                raise NotFound(
                    f"snapshot {wanted[:12]} is not in the cache any more; open without it, or reload"
                ) from error
            # Between reading `current` and locking, the evictor may have been faster: what is current now counts.
            if digest is not None or self._resolve(None) == wanted:
                try:
                    return open_index(self.snapshot_path(wanted)), Lease(lock, wanted)
                except NotFound as error:  # and nobody collects it under our lock
                    lock.release()
                    raise self._lost(wanted) from error
                except BaseException:
                    lock.release()
                    raise
            lock.release()

    def look(self) -> Snapshot | None:
        """The current snapshot without a lease, which is no use of it; None if nothing was listed yet. `Corrupt` if it is
        damaged.
        """
        while (current := self.checked_current()) is not None:
            try:
                return open_index(self.snapshot_path(current.digest))
            except NotFound as error:
                if self.current() == current:
                    raise self._lost(current.digest) from error
        return None

    def _lost(self, digest: str) -> Corrupt:
        place = self.snapshot_path(digest)
        return Corrupt(f"the index in {place} is gone, or a part of it; {_REMEDY}, `hotset gc` removes an older one")

    def _resolve(self, digest: str | None) -> str:
        """A full digest from None (current) or an unambiguous beginning."""
        if digest is None:
            current = self.checked_current()
            if current is None:
                raise NotFound(f"the dataset in {self.path} has no snapshot yet")
            return current.digest
        matches = [found for found in self.digests() if found.startswith(digest)]
        if len(matches) != 1:
            raise NotFound(f"{len(matches)} snapshots begin with {digest!r}; see `hotset snapshots`")
        return matches[0]

    def digests(self) -> list[str]:
        try:
            return sorted(entry.name for entry in os.scandir(self.path / "snapshots") if not entry.name.startswith("."))
        except FileNotFoundError:
            return []

    def snapshots(self) -> list[SnapshotRecord]:
        """All snapshots, oldest first."""
        current = self.current()
        records = []
        for digest in self.digests():
            path = self.snapshot_path(digest)
            opened: Snapshot | None = None
            try:
                created = path.stat().st_mtime_ns
                opened = open_index(path)
                created = (path / "objects.arrow").stat().st_mtime_ns
            except (NotFound, Corrupt, FileNotFoundError):
                if not path.exists():
                    continue  # collected meanwhile
            records.append(
                SnapshotRecord(
                    digest,
                    created,
                    0 if opened is None else len(opened),
                    0 if opened is None else opened.total_bytes,
                    self.pinned(digest),
                    self.leased(digest),
                    current is not None and current.digest == digest,
                    damaged=opened is None,
                )
            )
        return sorted(records, key=lambda record: record.created_ns)

    def pin(self, digest: str, *, pinned: bool = True) -> None:
        """Keep a snapshot and its packs until it is unpinned, whoever needs room."""
        path = self.snapshot_path(self._resolve(digest)) / "pinned"
        if pinned:
            path.touch(self.cache.file_mode)
        else:
            path.unlink(missing_ok=True)

    def pinned(self, digest: str) -> bool:
        return (self.snapshot_path(digest) / "pinned").exists()

    def leased(self, digest: str) -> bool:
        """Whether some process has the snapshot open now."""
        lock = self.exclusive(digest)
        if lock is None:
            return self.snapshot_path(digest).exists()
        lock.release()
        return False

    def exclusive(self, digest: str) -> FileLock | None:
        """The lock that keeps openers out, if nobody has the snapshot open."""
        lock = FileLock(self.snapshot_path(digest) / "lease", create=False)
        try:
            return lock if lock.try_acquire() else None
        except FileNotFoundError:
            return None

    def last_used_ns(self) -> int:
        times = [0]
        for digest in self.digests():
            with suppress(FileNotFoundError):
                times.append((self.snapshot_path(digest) / "lease").stat().st_mtime_ns)
        return max(times)

    def remove_snapshot(self, digest: str) -> bool:
        """Remove a snapshot's index (and its tree) unless somebody uses it or it is pinned."""
        lock = self.exclusive(digest)
        if lock is None or self.pinned(digest):
            if lock is not None:
                lock.release()
            return False
        try:
            with suppress(FileNotFoundError):
                remove_tree(self.trees / digest)
            with suppress(FileNotFoundError):
                remove_directory(self.snapshot_path(digest))
        finally:
            lock.release()
        return True

    def drop(self, *, force: bool = False) -> None:
        """Remove the dataset. `Busy` while it is in use, unless forced: readers then keep what they have mapped."""
        with ExitStack() as locks:  # held through the renaming: no opener comes in between
            for digest in () if force else self.digests():
                if (lock := self.exclusive(digest)) is not None:
                    locks.callback(lock.release)
                elif self.snapshot_path(digest).exists():
                    raise Busy("the dataset is in use; end the processes that read it, or use --force")
            with self.cache.space.locked():
                with suppress(FileNotFoundError):
                    remove_directory(self.path)
                self.cache.space.recount()

    def leftovers(self) -> Iterator[Path]:
        """What processes that were killed left behind: temporary names."""
        for directory in (self.path, self.path / "snapshots", self.packs, self.trees):
            with suppress(FileNotFoundError):
                yield from (Path(entry.path) for entry in os.scandir(directory) if entry.name.startswith("."))


def open_index(path: Path) -> Snapshot:
    """Numpy and Arrow come with the first index that is opened: who only has a filler started need not wait for them."""
    from hotset.snapshot import Snapshot

    return Snapshot(path)

"""Side files: what a loader computes once out of all the bytes of a snapshot, such as where each line begins.

A side file lies in the snapshot's directory, so it goes when the snapshot goes, is protected by the same lease, and counts
against the quota. It is there whole or not at all: one process of the machine writes a draft while others wait for its
lock, and the draft gets the final name when it is complete. A draft that was left by a process that was killed is handed
to the next one, which goes on with what it finds right in it.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from crc32c import crc32c

from hotset.base.files import fsync_directory, write_all
from hotset.base.locks import FileLock
from hotset.base.maps import map_readonly
from hotset.errors import Full, InvalidInput, NotFound
from hotset.source.base import Buffer
from hotset.tier.node.dataset import DatasetDirectory
from hotset.tier.node.evict import make_room
from hotset.tier.node.space import cost_of

__all__ = ["Draft", "SideFile"]

_MAGIC = b"HOTSETSF"
_TRAILER = struct.Struct("<8sQI4x")  # magic, length of what comes before, its CRC-32C
#: Room is asked for in steps of this many bytes, or of this part of the quota.
_STEP = 4 * 2**20
_STEP_SHARE = 256
_READ = 2**20


class SideFile:
    """One file beside the index of a snapshot, by its name. The caller holds a lease on the snapshot."""

    def __init__(self, dataset: DatasetDirectory, digest: str, name: str) -> None:
        self._dataset = dataset
        self.path = dataset.snapshot_path(digest) / name

    def map(self, *, verify: bool = True) -> memoryview | None:
        """The bytes of the finished file, mapped; None if there is none, or a damaged one, which is removed.

        ``verify=False`` is for a process whose parent has verified it.
        """
        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            length = os.fstat(fd).st_size - _TRAILER.size
            if length >= 0 and _whole(fd, length, verify=verify):
                return map_readonly(fd, length + _TRAILER.size)[:length]
        finally:
            os.close(fd)
        self._discard()
        return None

    @contextmanager
    def draft(self) -> Iterator[Draft | None]:
        """The file to be written, by this process alone; None if another one finished it while we waited.

        `Draft.publish` finishes it. Left before that, the draft stays for the next one to go on with, but for `Full`, since
        it is in the way of others, and `InvalidInput`, after which nobody goes on.
        """
        path = self.path.with_name(f"{self.path.name}.draft")
        lock = FileLock(path, mode=self._dataset.cache.file_mode)
        try:
            lock.acquire()
        except FileNotFoundError as error:
            raise _removed(self.path) from error
        draft = Draft(self._dataset, path, self.path, lock.fd)
        try:
            if self.path.exists():
                draft.remove()
                yield None
            else:
                yield draft
        except (Full, InvalidInput):
            draft.remove()
            raise
        finally:
            draft.settle()
            lock.release()

    def _discard(self) -> None:
        with suppress(FileNotFoundError):
            cost = cost_of(self.path.stat().st_size)
            self.path.unlink()
            self._dataset.cache.space.release(cost)


class Draft:
    """A side file on its way. Grows at its end only; its room is promised before it is taken."""

    def __init__(self, dataset: DatasetDirectory, path: Path, target: Path, fd: int) -> None:
        self._cache = dataset.cache
        self._path = path
        self._target = target
        self._fd = fd
        self._there = True
        self.size = os.fstat(fd).st_size
        self._promised = cost_of(self.size)  # whoever wrote it had it promised

    def read(self, offset: int, length: int) -> bytes:
        """What is at ``offset``; shorter at the end."""
        return os.pread(self._fd, length, offset)

    def truncate(self, size: int) -> None:
        """Give up what comes after ``size``."""
        os.ftruncate(self._fd, size)
        self.size = size

    def append(self, *data: Buffer) -> None:
        """`Full` if the quota or the disk has no room for it."""
        length = sum(memoryview(part).nbytes for part in data)
        self._promise(self.size + length)
        try:
            write_all(self._fd, data, self.size)
        except OSError as error:
            raise Full(f"cannot write {self._path}: {error.strerror}") from error
        self.size += length

    def publish(self) -> None:
        """Give the file its name; from now on it is there for everybody."""
        self.append(_TRAILER.pack(_MAGIC, self.size, _sum_of(self._fd, self.size)))
        if self._cache.durable:
            os.fdatasync(self._fd)
        try:
            self._path.rename(self._target)
        except FileNotFoundError as error:
            raise _removed(self._target) from error
        self._there = False
        if self._cache.durable:
            fsync_directory(self._target.parent)

    def remove(self) -> None:
        if self._there:
            self._there = False
            self._path.unlink(missing_ok=True)
            self.size = 0

    def settle(self) -> None:
        """Give back the room that was promised and not taken."""
        surplus = self._promised - cost_of(self.size)
        if surplus > 0:
            self._cache.space.release(surplus)
            self._promised -= surplus

    def _promise(self, size: int) -> None:
        need = cost_of(size) - self._promised
        if need <= 0:
            return
        space = self._cache.space
        need = max(need, min(_STEP, space.capacity // _STEP_SHARE))
        ask = need
        while not space.reserve(need):
            if ask > space.capacity:
                raise Full(f"{self._target.name} does not fit into the quota of {self._cache.root}; raise HOTSET_QUOTA")
            # Not for the dataset, whose packs may fill the quota to the brim, but as if it were another one: the share of
            # the packs is smaller by what stands beside them. More than is needed if that was not enough: of the account,
            # some is directories and some was promised and not taken.
            make_room(self._cache, ask, for_dataset=self._target.name)
            ask *= 2
        self._promised += need


def _removed(path: Path) -> NotFound:
    return NotFound(f"the snapshot in {path.parent} was removed; open the dataset again")


def _whole(fd: int, length: int, *, verify: bool) -> bool:
    try:
        magic, stored, check = _TRAILER.unpack(os.pread(fd, _TRAILER.size, length))
        return (magic, stored) == (_MAGIC, length) and (not verify or _sum_of(fd, length) == check)
    except OSError:
        return False  # a disk that fails: written anew, it comes to lie elsewhere


def _sum_of(fd: int, length: int) -> int:
    """Read, not mapped: a disk that fails is then an error and not a signal."""
    total = 0
    buffer = memoryview(bytearray(min(_READ, length)))
    for offset in range(0, length, _READ):
        part = buffer[: min(_READ, length - offset)]
        if os.preadv(fd, [part], offset) < len(part):
            return -1
        total = crc32c(part, total)
    return total

"""Room in a cache directory: how much is promised, and to whom.

A sparse file takes its blocks later, so what counts is what each file will take when full: its length, or its blocks if
those are more. The sum stands in the file ``space``, changed only under its lock; a pack is admitted by adding its size
before it is made and evicted by subtracting after it is gone, so that a crash in between errs to the safe side, and the
sum is counted anew from the file system whenever a filler starts.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hotset.base.files import BLOCK, rounded
from hotset.base.locks import FileLock
from hotset.errors import Full

__all__ = ["Space", "cost_of", "directory_cost", "told_if_full"]


def cost_of(length: int) -> int:
    """What a file of ``length`` takes when it is full."""
    return rounded(length)


def slack_of(quota: int) -> int:
    """Part of the quota that is never promised: for directory entries, extent maps and the small files."""
    return 256 * 1024 + quota // 1024


@contextmanager
def told_if_full(root: Path) -> Iterator[None]:
    """A file system that is full, or on which this user may not store more, is `Full`: the quota promised what is not there."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise Full(
            f"the file system of {root} has no room left ({os.strerror(error.errno)}): make room there, set HOTSET_CACHE to a "
            "directory on a larger one, or HOTSET_QUOTA to what this one can hold"
        ) from error


class Space:
    """The account of one cache directory. Thread-safe; shared between processes through the file system."""

    def __init__(self, root: Path, quota: int, file_mode: int) -> None:
        self.root = root
        self.capacity = quota - slack_of(quota)
        self._path = root / "space"
        self._mode = file_mode
        self._threads = threading.RLock()
        self._depth = 0
        self._file: FileLock | None = None

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Nobody else admits or evicts meanwhile. Re-entrant."""
        with self._threads:
            if self._depth == 0:
                lock = FileLock(self._path, mode=self._mode)
                lock.acquire()
                self._file = lock
            self._depth += 1
            try:
                yield
            finally:
                self._depth -= 1
                if self._depth == 0 and self._file is not None:
                    self._file.release()
                    self._file = None

    @property
    def committed(self) -> int:
        with self.locked():
            return self._read()

    @property
    def free(self) -> int:
        return max(0, self.capacity - self.committed)

    def short_of(self, need: int) -> int:
        """What must go before ``need`` bytes can be promised; more than ``need`` if the quota was made smaller."""
        return max(0, self.committed + need - self.capacity)

    def reserve(self, cost: int) -> bool:
        """Promise ``cost`` bytes, if the quota allows it."""
        with self.locked():
            committed = self._read()
            if committed + cost > self.capacity:
                return False
            self._write(committed + cost)
            return True

    def release(self, cost: int) -> None:
        with self.locked():
            self._write(max(0, self._read() - cost))

    def recount(self) -> int:
        """Set the account to what the file system says; undoes the traces of processes that were killed."""
        with self.locked():
            committed = directory_cost(self.root)
            self._write(committed)
            return committed

    def _read(self) -> int:
        data = os.pread(self._descriptor(), 8, 0)
        if len(data) == 8:
            return int.from_bytes(data, "little")
        committed = directory_cost(self.root)  # the first use of this directory, or a lost file
        self._write(committed)
        return committed

    def _write(self, committed: int) -> None:
        os.pwrite(self._descriptor(), committed.to_bytes(8, "little"), 0)

    def _descriptor(self) -> int:
        assert self._file is not None, "only under the lock"
        return self._file.fd


def directory_cost(directory: Path, *, own: bool = False) -> int:
    """What everything below ``directory`` takes when its files are full; hard links count once, or if only its ``own``
    files count, not at all.
    """
    seen: set[int] = set()
    total = BLOCK
    pending = [os.fspath(directory)]
    while pending:
        try:
            entries = list(os.scandir(pending.pop()))
        except FileNotFoundError:
            continue  # dropped by somebody while we looked
        for entry in entries:
            try:
                stat = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            if entry.is_dir(follow_symlinks=False):
                total += max(BLOCK, stat.st_blocks * 512)
                pending.append(entry.path)
            elif stat.st_nlink == 1 or (not own and stat.st_ino not in seen):
                seen.add(stat.st_ino)
                total += max(cost_of(stat.st_size), stat.st_blocks * 512)
    return total

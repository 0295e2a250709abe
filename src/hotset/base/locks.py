"""Locks between processes, kept by the kernel: they end with their holder, however it ends.

`FileLock` is flock(2): whole file, shared or exclusive; forked children inherit a shared one with the descriptor.
`RangeLock` is an open-file-description lock on a range of bytes: thousands of independent locks in one file.
Neither protects threads of one process that share the object from one another; callers keep a `threading.Lock` for that.
"""

from __future__ import annotations

import fcntl
import os
import struct
from pathlib import Path
from types import TracebackType
from typing import Self

__all__ = ["FileLock", "RangeLocks"]


class FileLock:
    """A lock on a path. Survives that somebody unlinks and makes the path anew: the lock is always on the current file.

    ``with FileLock(path): ...`` takes it exclusively and waits; `try_acquire` does not wait.
    """

    def __init__(self, path: Path, *, shared: bool = False, mode: int = 0o600, create: bool = True) -> None:
        self.path = path
        self._operation = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
        self._mode = mode
        self._create = create
        self._fd = -1

    @property
    def held(self) -> bool:
        return self._fd >= 0

    @property
    def fd(self) -> int:
        """The descriptor that carries the lock; -1 while it is not held."""
        return self._fd

    def acquire(self) -> None:
        """Wait for the lock. FileNotFoundError if the file is not there and was not to be created."""
        if not self._lock(wait=True):
            raise AssertionError("a waiting flock came back without the lock")

    def try_acquire(self) -> bool:
        return self._lock(wait=False)

    def release(self) -> None:
        """Let go. A shared lock stays with forked children that have it; an exclusive one ends here, since a child that
        another thread forked meanwhile knows nothing of it and would hold it for its whole life.
        """
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            if self._operation == fcntl.LOCK_EX:
                fcntl.flock(fd, fcntl.LOCK_UN)
            os.close(fd)

    def _lock(self, *, wait: bool) -> bool:
        while True:
            fd = self._open()
            try:
                fcntl.flock(fd, self._operation | (0 if wait else fcntl.LOCK_NB))
                if _same_file(fd, self.path):
                    self._fd = fd
                    return True
            except BlockingIOError:
                os.close(fd)
                return False
            except BaseException:
                os.close(fd)
                raise
            os.close(fd)  # the path names another file by now: lock that one

    def _open(self) -> int:
        if not self._create:
            return os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, self._mode)
            if os.fstat(fd).st_uid == os.geteuid():
                os.fchmod(fd, self._mode)
            return fd

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


class RangeLocks:
    """Exclusive locks on bytes of one file. The bytes need not exist; the file stays empty."""

    def __init__(self, path: Path, *, mode: int = 0o600) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, mode)
        if os.fstat(self._fd).st_uid == os.geteuid():
            os.fchmod(self._fd, mode)

    def try_acquire(self, start: int, length: int = 1) -> bool:
        """Lock bytes that no other `RangeLocks` (here or in another process) holds; never waits."""
        try:
            fcntl.fcntl(self._fd, fcntl.F_OFD_SETLK, _flock(fcntl.F_WRLCK, start, length))
        except (BlockingIOError, PermissionError):  # EAGAIN or EACCES, at the kernel's choice
            return False
        return True

    def release(self, start: int, length: int = 1) -> None:
        fcntl.fcntl(self._fd, fcntl.F_OFD_SETLK, _flock(fcntl.F_UNLCK, start, length))

    def close(self) -> None:
        """Let go of all of them."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


_STRUCT_FLOCK = struct.Struct("hhqqi4x")  # l_type, l_whence, l_start, l_len, l_pid (0, as OFD locks demand)


def _flock(kind: int, start: int, length: int) -> bytes:
    return _STRUCT_FLOCK.pack(kind, os.SEEK_SET, start, length, 0)


def _same_file(fd: int, path: Path) -> bool:
    try:
        there = os.stat(path)
    except FileNotFoundError:
        return False
    here = os.fstat(fd)
    return (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino)

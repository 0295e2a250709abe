"""A directory of this machine as a source.

Plain system calls instead of obstore's local store: they cost less, take names as they are, and let a read be checked
against size and modification time of the very file it came from, before and after.

Symbolic links are followed, to files and to directories, also out of the root: people build datasets out of links.
A loop of links is entered once. Sockets, pipes, devices and links to nothing are not objects and are skipped.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress

from hotset.errors import Changed, Denied, HotsetError, InvalidInput, NotFound, Unavailable
from hotset.source.base import Buffer, FingerprintKind, ObjectInfo
from hotset.source.keys import modified_value

__all__ = ["LocalSource"]

_BATCH = 1000
#: Tries to read a file between two of its changes.
_CALM = 5


class LocalSource:
    """The files below ``root``. The fingerprint is the modification time in ns, kind MODIFIED (size is kept beside)."""

    def __init__(self, root: str) -> None:
        self._root = os.path.abspath(root)

    @property
    def identity(self) -> str:
        return f"file://{os.path.realpath(self._root)}"

    def list(self) -> Iterator[Sequence[ObjectInfo]]:
        try:
            status = os.stat(self._root)
        except OSError as error:
            raise _ours(error, self._root) from error
        if not stat.S_ISDIR(status.st_mode):
            raise InvalidInput(f"{self._root}: not a directory; give the directory that holds the files")
        batch: list[ObjectInfo] = []
        # A stack of (path, key prefix, directories that lead there): depth first, one open directory at a time.
        pending = [(self._root, "", frozenset({(status.st_dev, status.st_ino)}))]
        while pending:
            path, prefix, ancestors = pending.pop()
            try:
                with os.scandir(path) as entries:
                    for entry in entries:
                        key = prefix + _text(entry.name, path)
                        try:
                            found = entry.stat()
                        except FileNotFoundError:
                            continue  # a link to nothing, or deleted since the directory was read
                        except OSError as error:
                            if entry.is_symlink() and error.errno == 40:  # ELOOP
                                continue
                            raise
                        if stat.S_ISDIR(found.st_mode):
                            inode = (found.st_dev, found.st_ino)
                            if inode not in ancestors:
                                pending.append((entry.path, f"{key}/", ancestors | {inode}))
                        elif stat.S_ISREG(found.st_mode):
                            batch.append(_info(key, found))
                            if len(batch) >= _BATCH:
                                yield batch
                                batch = []
            except FileNotFoundError:
                continue  # the directory was deleted while we walked
            except OSError as error:
                raise _ours(error, error.filename or path) from error
        if batch:
            yield batch

    def read(self, key: str, start: int, end: int, expect: ObjectInfo) -> Buffer:
        if start == end:
            return b""
        path = f"{self._root}/{key}"
        try:
            # O_NONBLOCK: a pipe put in the place of a file must not hang the reader.
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            try:
                _compare(path, os.fstat(descriptor), expect)
                data = os.pread(descriptor, end - start, start)
                if len(data) < end - start:
                    data = _read_rest(descriptor, data, start, end)
                _compare(path, os.fstat(descriptor), expect)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise _ours(error, path) from error
        if len(data) != end - start:
            raise Changed(f"{path}: shorter than when it was listed; reload the dataset")
        return data

    def newest(self, key: str) -> Buffer:
        path = f"{self._root}/{key}"
        for _ in range(_CALM):
            try:
                expect = _info(key, os.stat(path))
            except OSError as error:
                raise _ours(error, path) from error
            with suppress(Changed):
                return self.read(key, 0, expect.size, expect)
        raise Unavailable(f"{path}: changes faster than it can be read")

    def close(self) -> None:
        """Nothing is kept open."""


def _info(key: str, found: os.stat_result) -> ObjectInfo:
    modified = found.st_mtime_ns
    return ObjectInfo(key, found.st_size, FingerprintKind.MODIFIED, modified_value(modified), modified)


def _text(name: str, directory: str) -> str:
    """The name as text. Keys are text everywhere else, so a name that is not UTF-8 cannot become one."""
    try:
        name.encode()
    except UnicodeEncodeError:
        shown = ascii(os.fsencode(name))
        raise InvalidInput(f"{directory}: the file name {shown} is not UTF-8; rename it") from None
    return name


def _read_rest(descriptor: int, data: bytes, start: int, end: int) -> bytes:
    """Linux returns at most 2 GiB a call, and less when a signal comes in between."""
    parts = [data]
    position = start + len(data)
    while position < end:
        part = os.pread(descriptor, end - position, position)
        if not part:
            break
        parts.append(part)
        position += len(part)
    return b"".join(parts)


def _compare(path: str, found: os.stat_result, expect: ObjectInfo) -> None:
    same = stat.S_ISREG(found.st_mode) and found.st_size == expect.size and found.st_mtime_ns == expect.modified_ns
    if not same:
        raise Changed(f"{path}: changed since it was listed; reload the dataset")


def _ours(error: OSError, path: str) -> HotsetError:
    if isinstance(error, (FileNotFoundError, NotADirectoryError)):
        return NotFound(f"{path}: no such file or directory")
    if isinstance(error, PermissionError):
        return Denied(f"{path}: this user may not read it; change its permissions or leave it out")
    return Unavailable(f"{path}: {error.strerror}")

"""One pack on the node: a single sparse file with everything that belongs to it, so that one unlink takes all of it.

    0     magic, format, flags, number of units, where data begins, length of data
    32    name of the pack (32 bytes)
    64    boot in which it was made (16 bytes)
    128   one word a unit: 0 while it is absent, then its CRC-32C (a CRC of 0 is written as 1)
    ...   data, aligned to a page: units back to back

A unit is written data first, then its word, each with one pwrite: what tells that a unit is present is also what its
bytes must match, so the two cannot disagree. Readers in any process map the file read-only and believe the word.
**Sealed** (a flag) means: all units present, read back and compared with their words, and on a disk synced. Bytes that
have been marked present never change again (rule 3): whoever finds a bad unit makes a new file (`salvage`) and leaves
the old one to those who have it mapped. Only what an earlier boot left behind unsealed is put right in place
(`revive`): nobody believes its words before that.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Container, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np

from hotset.base.checksum import checksum
from hotset.base.files import allocate, boot_id, fsync_directory, rounded, temporary_name, tmpfile, write_all
from hotset.base.locks import FileLock
from hotset.base.maps import map_readonly, populate
from hotset.errors import Corrupt
from hotset.source.base import Buffer

__all__ = ["MappedPack", "PackGeometry", "PackWriter", "count_words", "create_pack", "revive", "salvage"]

_MAGIC = b"HOTSETPK"
_FORMAT = 1
_SEALED = 1
#: A pack up to this size is read in from a disk as a whole, with its first object.
WHOLE = 16 * 2**20
_HEADER = struct.Struct("<8sIIIIQ32s16s")
_FLAGS_AT = 12
_BOOT_AT = 64
_WORDS_AT = 128


class PackGeometry:
    """Where things lie in the file of a pack with ``units`` units and ``size`` bytes of data."""

    __slots__ = ("data_at", "length", "size", "units")

    def __init__(self, units: int, size: int) -> None:
        self.units = units
        self.size = size
        self.data_at = rounded(_WORDS_AT + 4 * units)
        self.length = self.data_at + size


class MappedPack:
    """A pack file, mapped read-only. Costs no descriptor; stays readable after the file was unlinked."""

    __slots__ = ("_on_disk", "_path", "_seen", "_touched", "_view", "data", "geometry", "identity", "words")

    def __init__(self, path: str, name: bytes, geometry: PackGeometry, *, on_disk: bool) -> None:
        """FileNotFoundError if there is no such pack; `Corrupt` if the file is not the pack it should be."""
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            stat = os.fstat(fd)
            if stat.st_size < geometry.length:
                raise Corrupt(f"{path} is {stat.st_size} bytes long instead of {geometry.length}")
            self._view = map_readonly(fd, geometry.length)
        finally:
            os.close(fd)
        self.identity = (stat.st_dev, stat.st_ino)
        self.geometry = geometry
        self._path = path
        self._on_disk = on_disk
        self._touched = not on_disk
        self._seen: set[int] = set()  # where the units of a large pack begin that were read in
        if on_disk:
            self._read_in(self._view[: geometry.data_at])
        magic, form, _, units, data_at, size, stored_name, _ = _HEADER.unpack_from(self._view)
        expected = (_MAGIC, _FORMAT, geometry.units, geometry.data_at, geometry.size, name)
        if (magic, form, units, data_at, size if geometry.size else 0, stored_name) != expected:
            raise Corrupt(f"{path} does not have the header of its pack")
        #: One word a unit: 0 while it is absent, then its checksum.
        self.words = self._view[_WORDS_AT : _WORDS_AT + 4 * units].cast("I")
        self.data = self._view[data_at:]

    def touch(self, start: int, end: int) -> None:
        """Call before the first use of a unit (with its place): reads it in from the disk, so that a failing disk is `Corrupt`
        here and not a signal later. The whole pack at once, unless it is large.
        """
        if self._touched or start in self._seen:
            return
        if self.geometry.size <= WHOLE:
            self._read_in(self.data)
            self._touched = True
        else:
            self._read_in(self.data[start:end])
            self._seen.add(start)
            self._touched = len(self._seen) == self.geometry.units

    @property
    def readable(self) -> bool:
        """Whether all data may be used without further ado."""
        return self._touched

    def _read_in(self, view: memoryview) -> None:
        try:
            populate(view)
        except OSError as error:
            raise Corrupt(f"{self._path} cannot be read from its disk: {error.strerror}") from error

    @classmethod
    def open_ledger(cls, path: str, name: bytes, units: int) -> MappedPack:
        """A pack file of which only the words count, whatever length of data it stands for."""
        return cls(path, name, PackGeometry(units, 0), on_disk=False)

    @property
    def sealed(self) -> bool:
        return bool(self._view[_FLAGS_AT] & _SEALED)

    @property
    def boot(self) -> bytes:
        return bytes(self._view[_BOOT_AT : _BOOT_AT + 16])

    @property
    def trusted(self) -> bool:
        """Whether words may be believed: after a crash of the machine only those of sealed packs may."""
        return self.sealed or self.boot == _this_boot()

    def present(self) -> int:
        """How many units are here."""
        return count_words(self.words)

    def missing_units(self) -> list[int]:
        return [unit for unit, word in enumerate(self.words.tolist()) if not word]

    def check(self, unit: int, start: int, end: int) -> bool:
        """Whether the bytes of a unit can be read, now, and match the checksum that was stored with them."""
        return self._can_be_read(self.data[start:end]) and checksum(self.data[start:end]) == self.words[unit]

    def bad_units(self, extents: Sequence[tuple[int, int]]) -> list[int]:
        """The units that are marked present and whose bytes are wrong; ``extents`` are their places in the data."""
        present = [(unit, word) for unit, word in enumerate(self.words.tolist()) if word]
        if self.geometry.size <= WHOLE and self._can_be_read(self.data):
            return [unit for unit, word in present if checksum(self.data[slice(*extents[unit])]) != word]
        return [unit for unit, _ in present if not self.check(unit, *extents[unit])]

    def _can_be_read(self, view: memoryview) -> bool:
        try:
            if self._on_disk:
                self._read_in(view)
        except Corrupt:
            return False
        return True


def count_words(words: memoryview[int]) -> int:
    """How many of these units are present."""
    return int(np.count_nonzero(np.frombuffer(words, np.uint32)))


class PackWriter:
    """Writes units into a pack file. Any number of writers, in any processes, may have the same file open, as long as
    each unit is written by one of them at a time (that is what claims are for).
    """

    def __init__(self, path: str, geometry: PackGeometry) -> None:
        """FileNotFoundError if the pack is not there (any more)."""
        self._fd = -1  # what `__del__` sees if there is no such file
        self._fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        self._geometry = geometry

    @property
    def identity(self) -> tuple[int, int]:
        """Tells whether this is the file that a `MappedPack` has mapped."""
        stat = os.fstat(self._fd)
        return stat.st_dev, stat.st_ino

    def write(self, unit: int, offset: int, *data: Buffer) -> None:
        """Put the bytes of a unit, or of several that follow one another, in their place and mark them present."""
        write_all(self._fd, data, self._geometry.data_at + offset)
        self.mark(unit, *map(checksum, data))

    def mark(self, unit: int, *checks: int) -> None:
        """Mark units whose bytes are in place already (for a ledger: in another file) as present."""
        write_all(self._fd, [b"".join(check.to_bytes(4, "little") for check in checks)], _WORDS_AT + 4 * unit)

    def vouch(self) -> None:
        """Let this boot answer for the words, which the caller has compared with the bytes."""
        write_all(self._fd, [_this_boot()], _BOOT_AT)

    def seal(self, *, directory: Path, durable: bool) -> None:
        """Set the flag. The caller has compared every unit with its CRC."""
        if durable:
            os.fdatasync(self._fd)
        os.pwrite(self._fd, _SEALED.to_bytes(4, "little"), _FLAGS_AT)
        if durable:
            os.fdatasync(self._fd)
            fsync_directory(directory)

    def cut(self) -> None:
        """Give up the room behind the header (of a ledger, whose data lies elsewhere); no reader ever touched it."""
        os.ftruncate(self._fd, self._geometry.data_at)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __del__(self) -> None:
        self.close()  # a thread may be writing when every other reference is gone

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def create_pack(path: str, name: bytes, geometry: PackGeometry, *, mode: int, on_disk: bool) -> None:
    """Make an empty pack at ``path`` unless there is one already; nobody ever sees a half-made header."""
    directory, file_name = os.path.split(path)
    with tmpfile(Path(directory), mode) as file:
        _write_header(file.fd, name, geometry, on_disk=on_disk)
        file.publish(file_name)


def revive(path: str, pack: MappedPack, extents: Sequence[tuple[int, int]]) -> None:
    """After a crash of the machine: unmark the units that did not reach the disk, and believe the rest. One filler does it
    while others wait; cut off in the middle, it is done again.
    """
    with FileLock(Path(path), create=False), PackWriter(path, pack.geometry) as writer:
        if not pack.trusted and writer.identity == pack.identity:  # else another filler did it, or it was replaced
            for unit in pack.bad_units(extents):
                writer.mark(unit, 0)
            writer.vouch()


def salvage(
    path: str,
    pack: MappedPack,
    name: bytes,
    extents: Sequence[tuple[int, int]],
    bad: Container[int],
    *,
    mode: int,
    on_disk: bool,
) -> None:
    """Put a new file with all present units of ``pack`` but the ``bad`` ones in the place of ``path``.

    Readers of the old file keep what they have mapped; the new one belongs to this boot and is not sealed.
    """
    temporary = temporary_name(Path(path))
    with tmpfile(temporary.parent, mode) as file:
        _write_header(file.fd, name, pack.geometry, on_disk=on_disk)
        file.publish(temporary.name)
    try:
        with PackWriter(str(temporary), pack.geometry) as writer:
            for unit, word in enumerate(pack.words.tolist()):
                if word and unit not in bad:
                    start, end = extents[unit]
                    writer.write(unit, start, pack.data[start:end])
        temporary.rename(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _write_header(fd: int, name: bytes, geometry: PackGeometry, *, on_disk: bool) -> None:
    os.ftruncate(fd, geometry.length)
    # On a disk all blocks are taken now: the file lies in one piece, and a full disk is found before the fetch. On tmpfs
    # that would write every page twice, so only the header (whose pages readers touch) is taken.
    allocate(fd, 0, geometry.length if on_disk and geometry.size else geometry.data_at)
    write_all(
        fd,
        [_HEADER.pack(_MAGIC, _FORMAT, 0, geometry.units, geometry.data_at, geometry.size, name, _this_boot())],
        0,
    )


_boot: bytes | None = None


def _this_boot() -> bytes:
    global _boot  # noqa: PLW0603  (constant for the life of the process; read from /proc once)
    if _boot is None:
        _boot = boot_id()
    return _boot

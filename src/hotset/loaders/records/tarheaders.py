"""The headers of a tar archive, one after another: ustar, GNU and PAX, long names included.

Written for walking through an archive once and for making a record out of a few headers later; `tarfile` would make an
object of thirty fields of each. Where the two must agree is tested against `tarfile`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from hotset.loaders.records.format import Malformed
from hotset.loaders.records.stream import Stream

__all__ = ["Member", "members"]

_BLOCK = 512
_FILES = (b"0", b"\0", b"7")
#: Link, symbolic link, devices, directory, pipe: without data, whatever their size says.
_EMPTY = (b"1", b"2", b"3", b"4", b"5", b"6")
#: A name or a path of this length is not one.
_LONGEST = 2**20


class Member(NamedTuple):
    """A regular file: its bytes are ``[data, data + size)`` of the archive, and ``end`` is behind its padding."""

    name: str
    data: int
    size: int
    end: int


def members(stream: Stream, *, check: bool) -> Iterator[Member]:
    """The regular files of an archive, in order; all else is skipped.

    Raises `Malformed` where the archive is cut off or damaged (if ``check``, by the checksums of its headers as well), for
    members that are stored in several parts (sparse files, several volumes), and for what is not a tar archive.
    """
    name: str | None = None  # from an extended header, for the member that comes next
    size: int | None = None
    while header := _next_header(stream, check=check):
        start = stream.offset - _BLOCK
        kind = bytes(header[156:157])
        stored = _number(header[124:136], start)
        if kind in (b"L", b"K", b"x", b"X", b"g"):
            extended = _payload(stream, stored, start)
            if kind == b"L":
                name = _text(extended)
            elif kind != b"K":
                fields = _pax(extended, start)
                if kind == b"g" and not fields.keys().isdisjoint(("path", "size")):
                    raise Malformed(start, "a global header gives all members one name or size")
                if any(key.startswith("GNU.sparse.") for key in fields):
                    raise Malformed(start, "a sparse file; make the archive without --sparse")
                name = fields.get("path", name)
                size = _decimal(fields["size"], start) if "size" in fields else size
            continue
        if kind in (b"S", b"M"):
            raise Malformed(
                start, "a sparse file, or one that is continued in another volume; make the archive without"
            )
        length = 0 if kind in _EMPTY else stored if size is None else size
        found = name if name is not None else _name(header)
        name = size = None
        data = stream.offset
        if not stream.skip(length):
            raise Malformed(start, f"the archive is cut off in {found!r}, a file of {length} bytes")
        stream.skip(min(-length % _BLOCK, stream.size - stream.offset))
        if kind in _FILES and not (kind == b"\0" and found.endswith("/")):  # as archives of old wrote directories
            yield Member(found, data, length, stream.offset)


def _next_header(stream: Stream, *, check: bool) -> memoryview | None:
    start = stream.offset
    header = stream.take(_BLOCK)
    if not header or not any(header):
        return None  # a block of zeros ends the archive; some writers leave it out
    if len(header) < _BLOCK:
        raise Malformed(start, "the archive is cut off in a header")
    if check and not _matches(bytes(header), _number(header[148:156], start)):
        raise Malformed(start, "this is not a tar archive" if start == 0 else "the header of a member is damaged")
    return header


def _matches(header: bytes, stored: int) -> bool:
    """Whether that is the checksum of the header, whose own field counts as blanks."""
    rest = header[:148] + header[156:]
    total = sum(rest) + 8 * 0x20
    # Some old writers took bytes for signed numbers.
    return stored == total or stored == total - 256 * sum(byte > 127 for byte in rest)


def _payload(stream: Stream, length: int, start: int) -> bytes:
    if length > _LONGEST:
        raise Malformed(start, f"an extended header of {length} bytes")
    data = bytes(stream.take(length))
    if len(data) < length or not stream.skip(-length % _BLOCK):
        raise Malformed(start, "the archive is cut off in an extended header")
    return data


def _number(field: memoryview, start: int) -> int:
    if field[0] & 0x80:
        return int.from_bytes(field[1:], "big")  # sizes from 8 GiB on
    try:
        return int(bytes(field).split(b"\0", 1)[0].strip() or b"0", 8)
    except ValueError as error:
        raise Malformed(start, "this is not a tar archive" if start == 0 else "the header is damaged") from error


def _decimal(text: str, start: int) -> int:
    if not text.isdecimal():
        raise Malformed(start, f"an extended header gives the size {text!r}")
    return int(text)


def _name(header: memoryview) -> str:
    name = _text(bytes(header[:100]))
    if bytes(header[257:263]) == b"ustar\0" and header[345]:
        return f"{_text(bytes(header[345:500]))}/{name}"
    return name


def _text(data: bytes) -> str:
    return data.split(b"\0", 1)[0].decode("utf-8", "surrogateescape")


def _pax(data: bytes, start: int) -> dict[str, str]:
    """Lines of the form ``length key=value``, newline included in the length."""
    fields = {}
    at = 0
    try:
        while at < len(data) and data[at]:
            blank = data.index(b" ", at)
            end = at + int(data[at:blank])
            key, _, value = data[blank + 1 : end - 1].partition(b"=")
            fields[key.decode()] = value.decode("utf-8", "surrogateescape")
            if not blank < end <= len(data):
                break
            at = end
        else:
            return fields
    except ValueError:
        pass
    raise Malformed(start, "an extended header is damaged")

"""One object as a stream of bytes for a scan: forwards only, in bounded memory, fetched as far as it is looked at."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import BinaryIO

__all__ = ["Stream"]


class Stream:
    """Walks through the bytes of one object. ``rest(offset)`` gives some bytes from there on; ``file`` opens the object, for a
    library that wants to find its own way.
    """

    def __init__(
        self, size: int, rest: Callable[[int], memoryview], *, file: Callable[[], BinaryIO] | None = None
    ) -> None:
        self.size = size
        self._rest = rest
        self._file = file
        self._chunk = memoryview(b"")
        self._at = 0  # in the chunk
        self._base = 0  # of the chunk in the object

    @classmethod
    def of(cls, data: memoryview) -> Stream:
        """Over bytes that are here already."""
        return cls(len(data), lambda offset: data[offset:])

    def file(self) -> BinaryIO:
        """The whole object as a file."""
        assert self._file is not None, "bytes that are here already need no file"
        return self._file()

    @property
    def offset(self) -> int:
        """Of the byte that comes next."""
        return self._base + self._at

    def chunk(self) -> memoryview:
        """The next bytes, as many as there are at once; none at the end."""
        if self._at >= len(self._chunk):
            self._base, self._at = self.offset, 0
            self._chunk = self._rest(self._base) if self._base < self.size else memoryview(b"")
        chunk = self._chunk[self._at :]
        self._at = len(self._chunk)
        return chunk

    def take(self, length: int) -> memoryview:
        """The next ``length`` bytes; fewer at the end."""
        end = self._at + length
        if end <= len(self._chunk):
            taken = self._chunk[self._at : end]
            self._at = end
            return taken
        return memoryview(b"".join(self.pieces(length)))

    def pieces(self, length: int) -> Iterator[memoryview]:
        """The next ``length`` bytes piece by piece, so that a large record need not be in memory as a whole."""
        while length > 0 and (chunk := self.chunk()):
            if len(chunk) > length:
                self._at -= len(chunk) - length
                chunk = chunk[:length]
            length -= len(chunk)
            yield chunk

    def skip(self, length: int) -> bool:
        """Go on ``length`` bytes further, without fetching what lies between; False if the object ends before."""
        if self.offset + length > self.size:
            return False
        if self._at + length <= len(self._chunk):
            self._at += length
        else:
            self._base, self._chunk, self._at = self.offset + length, memoryview(b""), 0
        return True

"""An object as a file."""

from __future__ import annotations

import io
from collections.abc import Callable

__all__ = ["ObjectFile", "ObjectReader"]

_BUFFER = 2**17


class ObjectFile(io.RawIOBase):
    """A read-only, seekable binary file over ranges of one object, without a buffer."""

    def __init__(self, name: str, size: int, read_range: Callable[[int, int], bytes | memoryview]) -> None:
        super().__init__()
        self.name = name
        self.size = size
        self._read_range = read_range
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self.size}[whence]
        if base + offset < 0:
            raise ValueError(f"cannot seek to {base + offset}, before the beginning of {self.name}")
        self._at = base + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: object) -> int:
        target = memoryview(buffer).cast("B")  # type: ignore[arg-type]  # typeshed's WriteableBuffer has no runtime name
        end = min(self._at + len(target), self.size)
        if end <= self._at:
            return 0
        data = self._read_range(self._at, end)
        target[: len(data)] = data
        self._at += len(data)
        return len(data)

    def readall(self) -> bytes:
        data = bytes(self._read_range(self._at, self.size)) if self._at < self.size else b""
        self._at = max(self._at, self.size)
        return data


class ObjectReader(io.BufferedReader):
    """An object as a file for small reads. ``size``: many libraries ask a remote file how long it is."""

    def __init__(self, file: ObjectFile) -> None:
        super().__init__(file, _BUFFER)
        self.size = file.size

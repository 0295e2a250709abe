"""The checksum of stored bytes: CRC-32C, never 0, so that 0 can mean "nothing here yet"."""

from __future__ import annotations

from crc32c import crc32c

__all__ = ["checksum"]

#: Below this the interpreter lock is kept: the sum takes 15 us at most, and letting the lock go and taking it again among
#: many fetching threads costs more than that.
_KEEP_LOCK = 2**18


def checksum(data: bytes | memoryview) -> int:
    return crc32c(data, 0, 0 if len(data) <= _KEEP_LOCK else 1) or 1

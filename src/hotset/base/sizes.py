"""Sizes as people write and read them."""

from __future__ import annotations

import re

from hotset.errors import InvalidInput

__all__ = ["format_size", "parse_size"]

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]i?)?b?\s*", re.IGNORECASE)


def parse_size(text: str | int) -> int:
    """``"20GiB"``, ``"500 MB"``, ``"1.5T"`` or a plain number of bytes."""
    if isinstance(text, int):
        size = text
    else:
        match = _SIZE.fullmatch(text)
        if match is None:
            raise InvalidInput(f"{text!r} is not a size; write it like 20GiB, 500MB or a number of bytes")
        size = int(float(match[1]) * _UNITS[(match[2] or "").lower()])
    if size < 0:
        raise InvalidInput(f"a size cannot be negative: {text}")
    return size


def format_size(size: float) -> str:
    """``1536`` as ``"1.5 KiB"``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1024:
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"

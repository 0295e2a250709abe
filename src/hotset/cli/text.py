"""Numbers, times and tables as a person reads them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hotset.base.sizes import format_size

__all__ = ["ago", "count", "duration", "facts", "percent", "plural", "printable", "rate", "table"]


def count(number: float) -> str:
    """``12,345``"""
    return f"{number:,.0f}"


def plural(number: int, noun: str) -> str:
    """``1 object``, ``2,000 objects``"""
    return f"{count(number)} {noun}" if number == 1 else f"{count(number)} {noun}s"


def percent(share: float) -> str:
    """Whole percents, but never 100 % (or 0 %) of something that is not all (or nothing)."""
    if 0.0 < share < 0.01:
        return "<1 %"
    if 0.99 < share < 1.0:
        return "99 %"
    return f"{share * 100:.0f} %"


def rate(bytes_per_second: float) -> str:
    return f"{format_size(bytes_per_second)}/s"


def duration(seconds: float) -> str:
    """``0.4 s``, ``12 s``, ``3:05 min``, ``2:03 h``"""
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02} min"
    return f"{whole // 3600}:{whole % 3600 // 60:02} h"


def ago(then_ns: int, now_ns: int) -> str:
    """``3 minutes ago``; ``never`` for 0."""
    if then_ns == 0:
        return "never"
    seconds = max(0, now_ns - then_ns) // 10**9
    for unit, length in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        if seconds >= length:
            return f"{plural(seconds // length, unit)} ago"
    return "just now" if seconds < 5 else f"{seconds} seconds ago"


def printable(key: str) -> str:
    """A key for a terminal: one that could move the cursor, or hide itself, is shown escaped."""
    return key if key.isprintable() and key == key.strip() and key else repr(key)


def table(head: Sequence[str], rows: Iterable[Sequence[str]], *, right: str = "") -> str:
    """Columns with two blanks between them; those whose heads are among the words of ``right`` are flushed right."""
    lines = [list(head), *(list(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    to_right = set(right.split())

    def cell(column: int, text: str) -> str:
        return text.rjust(widths[column]) if head[column] in to_right else text.ljust(widths[column])

    return "\n".join("  ".join(cell(column, text) for column, text in enumerate(line)).rstrip() for line in lines)


def facts(pairs: Iterable[tuple[str, str]]) -> str:
    """One fact a line: ``name     value``."""
    known = list(pairs)
    width = max((len(name) for name, _ in known), default=0)
    return "\n".join(f"{name.ljust(width)}  {value}".rstrip() for name, value in known)

"""Formats over bytes in memory, cut into chunks at will: what a scan finds, and the records that are made of it."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from typing import Any

from hotset.loaders.records.format import Format, Malformed
from hotset.loaders.records.stream import Stream


class Spans:
    """An `Out` that remembers what it was told."""

    def __init__(self, *, skip_damaged: bool = False) -> None:
        self.spans: list[tuple[int, int]] = []
        self.groups: list[tuple[int, int, int]] = []
        self.damage: list[tuple[int, str]] = []
        self._skip = skip_damaged
        self._at = -1

    def begin(self, offset: int) -> None:
        assert offset >= self._at
        self._at = offset

    def ends(self, offsets: Iterable[int]) -> None:
        for end in offsets:
            assert 0 <= self._at < end
            self.spans.append((self._at, int(end)))
            self._at = int(end)

    def group(self, start: int, end: int, records: int) -> None:
        self.groups.append((start, end, records))

    def damaged(self, offset: int, reason: str) -> None:
        if not self._skip:
            raise Malformed(offset, reason)
        self.damage.append((offset, reason))


def stream_of(data: bytes, cuts: Sequence[int] = ()) -> Stream:
    """In chunks that end at these offsets."""
    borders = sorted({cut for cut in cuts if 0 < cut < len(data)} | {len(data)})

    def rest(offset: int) -> memoryview:
        end = next(border for border in borders if border > offset)
        return memoryview(data)[offset:end]

    return Stream(len(data), rest, file=lambda: io.BytesIO(data))


def scan(form: Format, data: bytes, cuts: Sequence[int] = (), *, skip_damaged: bool = False) -> tuple[str, Spans]:
    out = Spans(skip_damaged=skip_damaged)
    return form.scan(stream_of(data, cuts), out), out


def read(decode: Any, data: bytes, spans: Iterable[tuple[int, int]], *, head: int = 0, tail: int = 0) -> list[Any]:
    """The records at these places, all at once and one by one, which must be the same."""
    views = [memoryview(data)[start + head : end - tail] for start, end in spans]
    together = decode(views)
    assert together == [decode([view])[0] for view in views]
    return together

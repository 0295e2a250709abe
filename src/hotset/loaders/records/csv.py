"""CSV and TSV: a record is a row, as a dict if its columns have names, else as a list; values are text (UTF-8).

A row ends at a newline outside of quotes, exactly as Python's `csv` module reads it (its dialect "excel", with another
delimiter or quote if told so). Blank lines are no rows. A row that has another number of fields than there are names, and
a quote that is never closed, are errors.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hotset.errors import InvalidInput
from hotset.loaders.records.format import Malformed, Out, Reader, SpanReader
from hotset.loaders.records.stream import Stream
from hotset.read.dataset import Dataset

__all__ = ["Csv"]

_NEWLINE, _RETURN = 10, 13
_MARK = b"\xef\xbb\xbf"  # a byte order mark, as spreadsheets write it
_LONGEST_HEADER = 2**24

Indices = npt.NDArray[np.intp]


@dataclass(frozen=True)
class Csv:
    """``header``: the first row of each object names the columns; ``columns``: those to keep, or without a header the names
    of all; ``quote``: empty if quotes mean nothing.
    """

    delimiter: str = ","
    quote: str = '"'
    header: bool = True
    columns: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        for name, value in (("delimiter", self.delimiter), ("quote", self.quote or "'")):
            if len(value) != 1 or not value.isascii() or value in "\r\n":
                raise InvalidInput(f"the {name} of a CSV file is one ASCII character, not {value!r}")

    @property
    def identity(self) -> str:
        return f"csv {json.dumps([self.delimiter, self.quote, self.header])}"

    def extent(self, size: int) -> tuple[int, int]:
        return 0, size

    def scan(self, stream: Stream, out: Out) -> str:
        rows = _Rows(self.delimiter, self.quote)
        head: bytearray | None = bytearray() if self.header else None
        names = ""
        last = -1  # where the line that comes next begins
        for chunk in _without_mark(stream):
            base = stream.offset - len(chunk)
            if last < 0:
                last = base
                out.begin(base)
            every, ends = rows.ends(chunk, last - base)
            if len(every):
                last = base + int(every[-1])
            if head is not None:
                head += chunk[: ends[0]] if len(ends) else chunk
                if len(head) > _LONGEST_HEADER:
                    raise Malformed(0, f"the header does not end within {_LONGEST_HEADER} bytes")
                if not len(ends):
                    continue
                names, head = self._names(head), None
                out.begin(base + int(ends[0]))
                ends = ends[1:]
            out.ends(ends + base)
        if rows.open:
            out.damaged(last, "a quote is not closed before the end of the file")
        elif last < stream.size and not (last == stream.size - 1 and rows.before == _RETURN):
            if head is None:
                out.ends([stream.size])
            else:
                names = self._names(head)  # a header and nothing else
        return names

    def reader(self, dataset: Dataset, facts: Mapping[str, str], first_segments: npt.NDArray[np.int64]) -> Reader:
        return SpanReader(dataset, self._decoder(facts))

    def _names(self, head: bytearray) -> str:
        try:
            [names] = self._parse([head])
        except (ValueError, csv.Error) as error:
            raise Malformed(0, f"the header is not a row of text: {error}") from error
        if len(set(names)) < len(names):
            raise Malformed(0, "a column is named twice in the header; with header=False columns may be named here")
        return json.dumps(names)

    def _parse(self, rows: Sequence[memoryview | bytearray]) -> list[list[str]]:
        texts = [str(row, "utf-8").lstrip("\r\n") for row in rows]
        if not self.quote:
            return list(csv.reader(texts, delimiter=self.delimiter, quoting=csv.QUOTE_NONE))
        return list(csv.reader(texts, delimiter=self.delimiter, quotechar=self.quote))

    def _decoder(self, facts: Mapping[str, str]) -> _Decoder:
        if not self.header:
            return _Decoder(self._parse, self.columns, None)
        if len(facts) > 1:
            (one, first), (other, second), *_ = facts.items()
            raise InvalidInput(f"{first!r} has the columns {one}, but {second!r} has {other}; open them one by one")
        names: tuple[str, ...] = tuple(json.loads(next(iter(facts), "[]")))
        chosen = names if self.columns is None else self.columns
        if unknown := set(chosen).difference(names):
            raise InvalidInput(f"there is no column {min(unknown)!r}; there are {', '.join(names)}")
        return _Decoder(self._parse, names, None if chosen == names else [(name, names.index(name)) for name in chosen])


class _Decoder:
    """Makes rows out of their bytes."""

    def __init__(self, parse: Any, names: tuple[str, ...] | None, chosen: list[tuple[str, int]] | None) -> None:
        self._parse = parse
        self._names = names
        self._chosen = chosen

    def __call__(self, views: list[memoryview]) -> list[Any]:
        try:
            rows = self._parse(views)
        except (ValueError, csv.Error):
            rows = []
        if len(rows) != len(views):
            rows = [self._alone(place, view) for place, view in enumerate(views)]  # which one is it?
        names, chosen = self._names, self._chosen
        if names is None:
            return list(rows)
        for place, row in enumerate(rows):
            if len(row) != len(names):
                raise Malformed(place, f"a row of {len(row)} fields; there are {len(names)} columns")
        if chosen is None:
            return [dict(zip(names, row, strict=True)) for row in rows]
        return [{name: row[index] for name, index in chosen} for row in rows]

    def _alone(self, place: int, view: memoryview) -> list[str]:
        try:
            [row] = self._parse([view])
        except (ValueError, csv.Error) as error:
            raise Malformed(place, f"this is not a row of text: {error}") from error
        return list(row)


class _Rows:
    """Finds the ends of rows, chunk by chunk."""

    def __init__(self, delimiter: str, quote: str) -> None:
        self._delimiter = ord(delimiter)
        self._quote = ord(quote) if quote else None
        self.open = False  #: whether a quote is open
        self.before = _NEWLINE  #: the last byte
        self._closed = False  # whether it was a quote that closed

    def ends(self, chunk: memoryview, start: int) -> tuple[Indices, Indices]:
        """Behind which bytes of the chunk a line ends outside of quotes, and which of these are ends of rows: the others are
        ends of blank lines. ``start``: where the current line begins, relative to the chunk.
        """
        data = np.frombuffer(chunk, np.uint8)
        newlines = np.flatnonzero(data == _NEWLINE)
        toggles = np.empty(0, np.intp) if self._quote is None else self._toggles(data)
        if len(toggles) or self.open:
            newlines = newlines[(np.searchsorted(toggles, newlines) + self.open) % 2 == 0]
        lengths = np.diff(newlines, prepend=start - 1)
        blank = (lengths == 1) | ((lengths == 2) & (self._before(data, newlines) == _RETURN))
        self.open ^= bool(len(toggles) % 2)
        self._closed = bool(len(toggles)) and toggles[-1] == len(data) - 1 and not self.open
        self.before = int(data[-1])
        return newlines + 1, newlines[~blank] + 1

    def _toggles(self, data: npt.NDArray[np.uint8]) -> Indices:
        """The quotes that open or close. Most often all of them do: then each one that opens stands at the beginning of a
        field, or behind one that closed (a quote that is doubled closes and opens again).
        """
        quotes = np.flatnonzero(data == self._quote)
        opening = quotes[int(self.open) :: 2]
        before = self._before(data, opening)
        fine = (before == self._delimiter) | (before == _NEWLINE) | (before == self._quote)
        if len(opening) and opening[0] == 0 and before[0] == self._quote:
            fine[0] = self._closed
        return quotes if fine.all() else np.array(list(self._those_that_count(data, quotes)), np.intp)

    def _those_that_count(self, data: npt.NDArray[np.uint8], quotes: Indices) -> Iterator[int]:
        """The same where quotes stand in the middle of fields that began without one."""
        inside = self.open
        closed = -1 if self._closed else -2
        for quote, before in zip(quotes.tolist(), self._before(data, quotes).tolist(), strict=True):
            if inside:
                inside, closed = False, quote
                yield quote
            elif quote == closed + 1 or before in (self._delimiter, _NEWLINE):
                inside = True
                yield quote

    def _before(self, data: npt.NDArray[np.uint8], places: Indices) -> npt.NDArray[np.uint8]:
        """The byte before each of these."""
        before: npt.NDArray[np.uint8] = data[places - 1]
        if len(places) and places[0] == 0:
            before[0] = self.before
        return before


def _without_mark(stream: Stream) -> Iterator[memoryview]:
    first = stream.take(len(_MARK))
    if first != _MARK:
        yield first
    while chunk := stream.chunk():
        yield chunk

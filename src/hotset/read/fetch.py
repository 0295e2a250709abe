"""The slow way to the bytes: what is not in a complete pack is looked up unit by unit, and asked of the filler."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from hotset.errors import Changed, Corrupt, HotsetError, Unavailable
from hotset.fill.client import FillClient
from hotset.snapshot import Snapshot
from hotset.tier.node.shelf import UnitReader

__all__ = ["Fetching", "OnChanged", "ReadOptions"]

OnChanged = Literal["raise", "skip", "newest"]

#: Bytes that one request to the filler asks for: keeps answers small and several workers served in turn.
REQUEST_BYTES = 16 * 2**20
#: Objects, or stripes of an object, that one request asks for at most: keeps requests and answers within a frame.
REQUEST_OBJECTS = 4096
REQUEST_STRIPES = 32
#: So many reads of a dataset that is still filling are told to the filler at once.
NOTICE_EVERY = 32
#: Seconds after which a read that is slow anyway also lets go of what was evicted: its room is not free before, in no process.
LET_GO_EVERY = 10.0


@dataclass(frozen=True)
class ReadOptions:
    """``lookahead``: bytes that a followed order is fetched ahead of the reading. ``on_changed``: see `hotset.open`."""

    on_changed: OnChanged = "raise"
    lookahead: int = 2**30


class Fetching:
    """Reads of one `Dataset` that may have to wait."""

    def __init__(
        self,
        name: str,
        snapshot: Snapshot,
        reader: UnitReader,
        fill: FillClient,
        options: ReadOptions,
    ) -> None:
        self._name = name
        self._snapshot = snapshot
        self._reader = reader
        self._fill = fill
        self._options = options
        self._sizes = snapshot.sizes
        self._noticed: list[int] = []
        self._let_go_at = time.monotonic() + LET_GO_EVERY
        self.count_from_zero()

    def count_from_zero(self) -> None:
        #: Counters, see `ReadStats`.
        self.reads = self.waits = self.bytes = self.bytes_through = 0
        self.wait_seconds = 0.0

    def range(self, position: int, start: int, end: int) -> memoryview:
        """Bytes of one object, fetched if necessary."""
        if start >= end:
            return memoryview(b"")
        number, units = self._snapshot.units_of(position, start, end)
        parts: list[memoryview] = []
        for first in range(0, len(units), REQUEST_STRIPES):
            for part in self._units([(number, unit) for unit in units[first : first + REQUEST_STRIPES]]):
                if isinstance(part, HotsetError):
                    data = self._newest(position, part)
                    return data if (start, end) == (0, self._sizes[position]) else data[start:end]
                parts.append(part)
        base = self._snapshot.unit_range(number, units[0])[1]
        whole = parts[0] if len(parts) == 1 else memoryview(b"".join(parts)).toreadonly()
        return whole[start - base : end - base]

    def _newest(self, position: int, error: HotsetError) -> memoryview:
        """What to give in place of an object that cannot be had; raises ``error`` where nothing can be."""
        if isinstance(error, Changed) and self._options.on_changed == "newest":
            return self._fill.newest(self._snapshot.digest, position)
        raise error

    def many(self, absent: Sequence[tuple[int, int]], found: list[bytes | None]) -> None:
        """Fill the gaps that ``absent`` (place in ``found``, index) names, a bounded number of bytes at a time."""
        batch: list[tuple[int, int]] = []
        size = 0
        for place, index in absent:
            position = int(index) % len(self._snapshot)
            batch.append((place, position))
            size += self._sizes[position]
            if size >= REQUEST_BYTES or len(batch) >= REQUEST_OBJECTS:
                self._batch(batch, found)
                batch, size = [], 0
        if batch:
            self._batch(batch, found)

    def _batch(self, batch: Sequence[tuple[int, int]], found: list[bytes | None]) -> None:
        """Ask for all objects at once but those that are striped (one of them is a request of its own) or empty."""
        units = {}
        for _, position in batch:
            number, of_object = self._snapshot.units_of(position)
            if len(of_object) == 1 and self._sizes[position]:
                units[position] = (number, of_object[0])
        parts = dict(zip(units, self._units(list(units.values())), strict=True))
        for place, position in batch:
            try:
                part = parts.get(position)
                if part is None:
                    part = self.range(position, 0, self._sizes[position])
                elif isinstance(part, HotsetError):
                    part = self._newest(position, part)
                found[place] = bytes(part)
            except Changed:
                if self._options.on_changed != "skip":
                    raise

    def _units(self, units: Sequence[tuple[int, int]]) -> list[memoryview | HotsetError]:
        """The bytes of these units, from the cache, else by asking the filler; or why one cannot be had."""
        self._let_go()
        parts: list[memoryview | HotsetError | None] = [self._local(*unit) for unit in units]
        absent = [place for place, part in enumerate(parts) if part is None]
        for (number, unit), part in zip(units, parts, strict=True):
            if part is not None:
                self._notice(self._snapshot.unit_range(number, unit)[0])
        self.reads += len(units)
        if absent:
            started = time.perf_counter()
            self.waits += len(absent)
            self._tell_noticed()
            for _ in range(10):  # an eviction may take away what was just fetched, but not again and again
                answers = self._fill.want(self._snapshot.digest, [units[place] for place in absent])
                for place, answer in zip(absent, answers, strict=True):
                    parts[place] = self._arrived(*units[place]) if answer is None else answer
                    if isinstance(answer, memoryview):
                        self.bytes_through += len(answer)
                absent = [place for place in absent if parts[place] is None]
                if not absent:
                    break
            else:
                raise Unavailable(f"{len(absent)} objects of {self._name!r} are evicted faster than they are read")
            self.wait_seconds += time.perf_counter() - started
        whole = [part for part in parts if part is not None]
        self.bytes += sum(len(part) for part in whole if isinstance(part, memoryview))
        return whole

    def _arrived(self, number: int, unit: int) -> memoryview | None:
        """A unit that the filler says is in the cache now: in the file that is mapped, or in a new one."""
        data = self._local(number, unit)
        if data is None:
            self._reader.forget(number)
            data = self._local(number, unit)
        return data

    def _local(self, number: int, unit: int) -> memoryview | None:
        try:
            return self._reader.unit(number, unit)
        except Corrupt:
            self._reader.forget(number)  # the filler finds the damage as well, and fetches anew
            return None

    def _let_go(self) -> None:
        """Now and then, of maps of packs that were evicted."""
        if time.monotonic() >= self._let_go_at:
            self._reader.forget_unlinked()
            self._let_go_at = time.monotonic() + LET_GO_EVERY

    def _notice(self, position: int) -> None:
        """Remember a read for the filler, whose window moves on with the reading."""
        self._noticed.append(position)
        if len(self._noticed) >= NOTICE_EVERY:
            self._tell_noticed()

    def _tell_noticed(self) -> None:
        noticed, self._noticed = self._noticed, []
        if noticed and self._fill.running:
            self._fill.advance(self._snapshot.digest, noticed)

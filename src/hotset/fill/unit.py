"""The work on one unit: claim it, look again, get its bytes, put them in their place."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

from hotset.errors import Changed, HotsetError, NotFound
from hotset.fill.agenda import Unit
from hotset.fill.claims import Claims
from hotset.fill.donors import Donors
from hotset.snapshot import Snapshot
from hotset.source.base import Buffer, Source
from hotset.tier.node.shelf import Shelf

__all__ = ["Elsewhere", "Outcome", "Result", "UnitWork"]

Outcome = Buffer | None
"""What a waiter gets: None if the unit is in the cache now, else its bytes."""


class Elsewhere(Enum):
    """Another filler of this machine is fetching the unit."""

    CONTESTED = 1


class Result(NamedTuple):
    """How the work on one unit ended, and what it cost."""

    outcome: Outcome | HotsetError | Elsewhere
    fetched: int = -1  #: bytes that the source gave; -1 if it was not asked
    copied: int = 0
    damaged: Sequence[Unit] = ()


class UnitWork:
    """Thread-safe, as long as no two threads work on one unit."""

    def __init__(
        self, snapshot: Snapshot, shelf: Shelf, source: Source, claims: Claims, donors: Donors | None = None
    ) -> None:
        self._snapshot = snapshot
        self._shelf = shelf
        self._source = source
        self._claims = claims
        self._donors = donors

    def fetch(self, number: int, unit: int, *, patient: bool) -> Result:
        """Bring one unit into the cache, or get its bytes if it has no place there.

        ``patient``: leave the unit to another filler that has claimed it; else that one counts as stalled.
        """
        name = self._snapshot.pack_name(number)
        admitted = self._shelf.admit(number)
        claimed = admitted and self._claims.take(name, (number, unit))
        if admitted and not claimed and patient:
            return Result(Elsewhere.CONTESTED)
        try:
            if admitted and self._shelf.present(number, unit):
                return Result(None)  # somebody finished it between our look and our lock
            data = self._copied(number, unit)
            copied, fetched = len(data or b""), -1
            if data is None:
                data = self._read(number, unit)
                fetched = len(data)
            if not admitted or not self._shelf.write(number, unit, data):
                return Result(data, fetched, copied)
        finally:
            if claimed or self._claims.holds((number, unit)):
                self._claims.release(name, (number, unit))
        damaged = self._shelf.finish(number)
        return Result(None, fetched, copied, [(number, bad) for bad in damaged])

    def newest(self, position: int) -> Buffer:
        """An object as the source has it now. Never stored: it is not the snapshot's."""
        key = self._snapshot.key(position)
        try:
            return self._source.newest(key)
        except NotFound as error:
            raise _removed(key) from error

    def _copied(self, number: int, unit: int) -> Buffer | None:
        if not self._donors or self._snapshot.pack(number).stripe:
            return None
        return self._donors.find(self._snapshot, self._snapshot.pack_first[number] + unit)

    def _read(self, number: int, unit: int) -> Buffer:
        position, start, end = self._snapshot.unit_range(number, unit)
        info = self._snapshot.info(position)
        try:
            return self._source.read(info.key, start, end, info)
        except NotFound as error:
            raise _removed(info.key) from error


def _removed(key: str) -> Changed:
    return Changed(f"{key!r} was removed from the source; reload the dataset")

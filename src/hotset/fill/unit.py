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

__all__ = ["Elsewhere", "Fetched", "Outcome", "Result", "UnitWork", "defect"]

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


class Fetched(NamedTuple):
    """Bytes on their way to their place in the cache, which is claimed for them."""

    data: Buffer
    fetched: int
    copied: int


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

    def fetch(self, unit: Unit, *, patient: bool) -> Result | Fetched:
        """Get the bytes of a unit, unless they are here. What is `Fetched` must be given to `store`.

        ``patient``: leave the unit to another filler that has claimed it; else that one counts as stalled.
        """
        try:
            return self._fetch(*unit, patient=patient)
        except HotsetError as error:
            return Result(error)
        except Exception as error:  # noqa: BLE001  a defect must reach whoever waits instead of ending a thread
            return Result(defect(error))

    def store(self, units: Sequence[Unit], got: Sequence[Result | Fetched]) -> list[Result]:
        """Put into place what was fetched, neighbours in one write: each system call costs a turn of the interpreter lock."""
        results: list[Result] = []
        while len(results) < len(got):
            first = len(results)
            end = first
            fetched: list[Fetched] = []
            while (
                end < len(got)
                and isinstance(each := got[end], Fetched)
                and _follow(units[first], units[end], end - first)
            ):
                fetched.append(each)
                end += 1
            if fetched:
                results += self._store(units[first], fetched)
            else:
                result = got[first]
                assert isinstance(result, Result)
                results.append(result)
        return results

    def _fetch(self, number: int, unit: int, *, patient: bool) -> Result | Fetched:
        name = self._snapshot.pack_name(number)
        admitted = self._shelf.admit(number)
        claimed = admitted and self._claims.take(name, (number, unit))
        if admitted and not claimed and patient:
            return Result(Elsewhere.CONTESTED)
        keep = False
        try:
            if admitted and self._shelf.present(number, unit):
                return Result(None)  # somebody finished it between our look and our lock
            data = self._copied(number, unit)
            copied, fetched = len(data or b""), -1
            if data is None:
                data = self._read(number, unit)
                fetched = len(data)
            keep = admitted
            return Fetched(data, fetched, copied) if admitted else Result(data, fetched, copied)
        finally:
            if not keep and (claimed or self._claims.holds((number, unit))):
                self._claims.release(name, (number, unit))

    def _store(self, first: Unit, fetched: Sequence[Fetched]) -> list[Result]:
        """Units of one pack that follow one another."""
        number, unit = first
        stored = False
        try:
            try:
                stored = self._shelf.write(number, unit, *(each.data for each in fetched))
            finally:
                name = self._snapshot.pack_name(number)
                for place in range(unit, unit + len(fetched)):
                    self._claims.release(name, (number, place))
            damaged = [(number, bad) for bad in self._shelf.finish(number)] if stored else []
        except Exception as error:  # noqa: BLE001  as above
            failure = error if isinstance(error, HotsetError) else defect(error)
            return [Result(failure, each.fetched, each.copied) for each in fetched]
        results = [Result(None if stored else each.data, each.fetched, each.copied) for each in fetched]
        if damaged:
            results[-1] = results[-1]._replace(damaged=damaged)
        return results

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


def _follow(first: Unit, unit: Unit, distance: int) -> bool:
    return unit[0] == first[0] and unit[1] == first[1] + distance


def defect(error: Exception) -> HotsetError:
    """What is not an error of ours, as one that can be handed to whoever waits."""
    failure = HotsetError(f"the filler failed: {type(error).__name__}: {error}")
    failure.__cause__ = error
    return failure


def _removed(key: str) -> Changed:
    return Changed(f"{key!r} was removed from the source; reload the dataset")

"""Who fetches what on this machine: one lock byte a unit, in one claims file a dataset.

The kernel keeps the locks and ends them with their holder. A load walks along a pack, so it claims the absent units ahead
of it in one call and lets them go in one; everything else is claimed unit by unit.
"""

from __future__ import annotations

import threading
from collections.abc import Container, Sequence
from pathlib import Path

from hotset.base.locks import RangeLocks
from hotset.fill.agenda import Unit

__all__ = ["AHEAD", "Claims", "place_of"]

#: Units that a load claims at once. Another process that wants one of them waits for as long as these take.
AHEAD = 32

_UNIT_BITS = 22


def place_of(name: bytes, unit: int) -> int:
    """The byte that stands for a unit of the pack of that name, in whichever snapshot it is. A chance meeting of two
    packs costs a wait, no more.
    """
    return (int.from_bytes(name[:5], "little") << _UNIT_BITS) + unit


class Claims:
    """The claims of one filler. Thread-safe; its own threads must not ask for one unit at the same time."""

    def __init__(self, path: Path, *, mode: int) -> None:
        self._locks = RangeLocks(path, mode=mode)
        self._lock = threading.Lock()
        self._runs: dict[Unit, _Run] = {}

    def holds(self, unit: Unit) -> bool:
        """Whether the unit belongs to a run that was taken and is not released yet."""
        return unit in self._runs

    def take(self, name: bytes, unit: Unit) -> bool:
        """Claim a unit, unless another filler has it. True as well if it belongs to a run that was taken."""
        with self._lock:
            if unit in self._runs:
                return True
        return self._locks.try_acquire(place_of(name, unit[1]))

    def take_run(self, name: bytes, units: Sequence[Unit]) -> bool:
        """Claim neighbouring units of one pack together; False if another filler has some of them. Each is then released
        on its own.
        """
        first, last = units[0][1], units[-1][1]
        if not self._locks.try_acquire(place_of(name, first), last - first + 1):
            return False
        run = _Run(place_of(name, first), units)
        with self._lock:
            self._runs.update(dict.fromkeys(units, run))
        return True

    def release(self, name: bytes, unit: Unit) -> None:
        """The unit is done. A run is let go as a whole, after its last unit."""
        with self._lock:
            run = self._runs.pop(unit, None)
            over = run is not None and run.over_without(unit)
        if run is None:
            self._locks.release(place_of(name, unit[1]))
        elif over:
            self._release_rest(run)

    def release_ahead(self, unit: Unit) -> None:
        """Let go of a unit that belongs to a run and is not fetched now."""
        with self._lock:
            run = self._runs.pop(unit, None)
            if run is None:
                return
            # At once, and not again with the run: by then it may be claimed for another one.
            self._locks.release(run.place(unit))
            run.given_up.add(run.place(unit))
            over = run.over_without(unit)
        if over:
            self._release_rest(run)

    def release_runs(self, keep: Container[Unit]) -> None:
        """Let go of units that were claimed ahead and are not being fetched."""
        for unit in list(self._runs):
            if unit not in keep:
                self.release_ahead(unit)

    def _release_rest(self, run: _Run) -> None:
        start = run.start
        for end in sorted(run.given_up | {run.start + run.length}):
            if end > start:
                self._locks.release(start, end - start)
            start = end + 1

    def close(self) -> None:
        self._locks.close()


class _Run:
    """Neighbouring units whose bytes were locked in one call."""

    __slots__ = ("_first", "given_up", "length", "start", "units")

    def __init__(self, start: int, units: Sequence[Unit]) -> None:
        self.start = start
        self.length = units[-1][1] - units[0][1] + 1
        self.units = set(units)  #: that are not done
        self.given_up: set[int] = set()  #: bytes that are not the run's any more
        self._first = units[0][1]

    def place(self, unit: Unit) -> int:
        return self.start + unit[1] - self._first

    def over_without(self, unit: Unit) -> bool:
        """Cross a unit off; whether it was the last one."""
        self.units.discard(unit)
        return not self.units

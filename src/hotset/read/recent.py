"""The stripes that were read through last: of an object that has no place in the cache, parts are read one after another."""

from __future__ import annotations

from contextlib import suppress

__all__ = ["Recent"]


class Recent:
    """The bytes of a few units, the ones used longest ago forgotten first. Threads may share it: the worst is a miss."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._units: dict[tuple[int, int], memoryview] = {}

    def get(self, unit: tuple[int, int]) -> memoryview | None:
        data = self._units.pop(unit, None)
        if data is not None:
            self._units[unit] = data  # now the youngest
        return data

    def put(self, unit: tuple[int, int], data: memoryview) -> None:
        self._units[unit] = data
        with suppress(StopIteration, RuntimeError):  # another thread may be making room as well
            while sum(map(len, list(self._units.values()))) > self._capacity:
                self._units.pop(next(iter(self._units)), None)

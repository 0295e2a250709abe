"""Bytes that were fetched ahead but have no place in the cache: they wait here, in bounded memory, until they are read."""

from __future__ import annotations

from collections import OrderedDict

from hotset.fill.agenda import Unit
from hotset.source.base import Buffer

__all__ = ["Staging"]


class Staging:
    """Units waiting to be read once. Not thread-safe: the engine's lock protects it."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.used = 0
        self._promised: OrderedDict[Unit, int] = OrderedDict()
        self._units: dict[Unit, Buffer] = {}

    def __len__(self) -> int:
        return len(self._units)

    def __contains__(self, unit: Unit) -> bool:
        return unit in self._units

    def promise(self, unit: Unit, size: int) -> bool:
        """Set room aside for a unit that is about to be fetched. An empty staging takes anything, so that an object
        larger than all of it does not stop the order for ever.
        """
        if unit in self._promised:
            return True
        if self.used + size > self.capacity and self.used:
            return False
        self._promised[unit] = size
        self.used += size
        return True

    def put(self, unit: Unit, data: Buffer) -> bool:
        """Keep a promised unit; False if there was no promise (then whoever waits for it takes it)."""
        if unit not in self._promised:
            return False
        self._units[unit] = data
        return True

    def withdraw(self, unit: Unit) -> None:
        """The promised unit is not coming, or not needed any more."""
        self._units.pop(unit, None)
        self.used -= self._promised.pop(unit, 0)

    def take(self, unit: Unit) -> Buffer | None:
        """Hand the unit over, if it is here; its room is free again."""
        data = self._units.get(unit)
        if data is not None:
            self.withdraw(unit)
        return data

    def oldest(self) -> Unit | None:
        """The unit that was promised first of those that are here or coming."""
        return next(iter(self._promised), None)

    def units(self) -> list[Unit]:
        return list(self._promised)

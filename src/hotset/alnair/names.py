"""Names of objects: those that a job wants, cut into windows that fit into its memory. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Protocol, Self, overload

import numpy as np
import numpy.typing as npt

from hotset.errors import NotFound

__all__ = ["Names", "Positions", "Reference", "Window", "cut", "select"]

Positions = npt.NDArray[np.int64]


class Names(Protocol):
    """Sorted names; `hotset.Dataset.keys` is one."""

    def __len__(self) -> int: ...

    def index(self, key: str) -> int:
        """ValueError if there is no such name."""

    def prefix(self, prefix: str) -> range: ...

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[str]: ...


class Reference(str):
    """The name of an object that knows where the object is: what lazy data consist of."""

    __slots__ = ("position",)
    position: int

    def __new__(cls, name: str, position: int) -> Self:
        reference = super().__new__(cls, name)
        reference.position = position
        return reference

    def __getnewargs__(self) -> tuple[Any, ...]:
        return str(self), self.position


def select(names: Names, prefixes: Sequence[str], *, where: str) -> Positions:
    """The positions of all names that begin with one of ``prefixes``: prefix by prefix, sorted within each, each once.

    Without prefixes all of them. `NotFound` names the prefix with which nothing begins.
    """
    if not prefixes:
        return np.arange(len(names))
    parts = []
    for prefix in prefixes:
        found = names.prefix(prefix)
        if not found:
            raise NotFound(f"{where} has no object whose name begins with {prefix!r}: check the spelling")
        parts.append(np.arange(found.start, found.stop))
    together: Positions = np.concatenate(parts)
    if len(parts) > 1:  # an object may lie below several of them
        _, first = np.unique(together, return_index=True)
        together = together[np.sort(first)]
    return together


def cut(sizes: Sequence[int], limit: int) -> list[range]:
    """Runs of objects, in their order, of at most ``limit`` bytes each; 0: one run of all.

    No object is left out: one that is larger than the limit has a run of its own.
    """
    if not limit:
        return [range(len(sizes))]
    starts = [0]
    total = 0
    for place, size in enumerate(sizes):
        if place > starts[-1] and total + size > limit:
            starts.append(place)
            total = 0
        total += size
    return [range(start, stop) for start, stop in pairwise([*starts, len(sizes)])]


class Named(Protocol):
    """What has names."""

    @property
    def names(self) -> Names: ...


class Window(Sequence[dict[str, Any]]):
    """The records of objects that are in memory together, each ``{"name", "key", "size"}``; made when they are looked at."""

    def __init__(self, objects: Named, positions: Positions, sizes: Sequence[int]) -> None:
        self._objects = objects
        self.positions = positions
        self.sizes = sizes

    def __len__(self) -> int:
        return len(self.positions)

    @overload
    def __getitem__(self, index: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, index: slice) -> list[dict[str, Any]]: ...
    def __getitem__(self, index: int | slice) -> dict[str, Any] | list[dict[str, Any]]:
        if isinstance(index, slice):
            return [self[place] for place in range(*index.indices(len(self)))]
        name = self._objects.names[int(self.positions[index])]
        return {"name": name, "key": name, "size": int(self.sizes[index])}

    def names(self) -> list[str]:
        names = self._objects.names
        return [names[position] for position in self.positions.tolist()]

    def references(self) -> list[Reference]:
        names = self._objects.names
        return [Reference(names[position], position) for position in self.positions.tolist()]

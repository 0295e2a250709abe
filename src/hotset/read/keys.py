"""The keys of a dataset as a sequence, decoded one by one from the mapped index."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import overload

from hotset.errors import NotFound
from hotset.snapshot import Snapshot

__all__ = ["Keys"]


class Keys(Sequence[str]):
    """Sorted; ``in`` and `index` are look-ups in the index, not scans. Holds no memory of its own."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def __len__(self) -> int:
        return len(self._snapshot)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self._snapshot.key(position) for position in range(*index.indices(len(self)))]
        count = len(self)
        if not -count <= index < count:
            raise IndexError(f"object {index} of {count}")
        return self._snapshot.key(index % count)

    def __iter__(self) -> Iterator[str]:
        return self._snapshot.keys()

    def __contains__(self, key: object) -> bool:
        if not isinstance(key, str):
            return False
        try:
            self._snapshot.find(key)
        except NotFound:
            return False
        return True

    def index(self, key: str, start: int = 0, stop: int | None = None) -> int:
        """The position of ``key``; ValueError (as of any sequence) if there is no such object."""
        try:
            position = self._snapshot.find(key)
        except NotFound as error:
            raise ValueError(str(error)) from error
        if not start <= position < (len(self) if stop is None else stop):
            raise ValueError(f"{key!r} is not between {start} and {stop}")
        return position

    def prefix(self, prefix: str) -> range:
        """The positions of all keys that begin with ``prefix``."""
        return self._snapshot.prefix(prefix)

    def __repr__(self) -> str:
        return f"<{len(self)} keys>"

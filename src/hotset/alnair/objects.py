"""The objects of a job: through the cache of this machine, or straight from the source."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import hotset
from hotset.alnair.direct import DirectObjects
from hotset.alnair.job import Place
from hotset.alnair.names import Names, Positions
from hotset.errors import NotFound
from hotset.read.dataset import Dataset
from hotset.source import display_uri, literal_pattern

__all__ = ["CachedObjects", "Objects", "open_objects"]


class Objects(Protocol):
    """Sorted by name, known by their positions. May be forked and pickled into workers; closed once by its owner."""

    @property
    def names(self) -> Names: ...

    def size(self, position: int) -> int: ...

    def read(self, position: int) -> bytes: ...

    def read_many(self, positions: Sequence[int]) -> list[bytes]: ...

    @property
    def near(self) -> bool:
        """Whether each object is at hand, so that nothing is gained by reading several together."""

    def follow(self, positions: Positions) -> None:
        """The order in which objects are going to be read one by one, here or in workers."""

    def stage(self, positions: Positions) -> None:
        """These objects are going to be read together, by this process: begin. Does not wait."""

    def close(self) -> None: ...


class CachedObjects:
    """Through `hotset.open`: each object is fetched once by this machine, in the order that was told."""

    def __init__(self, dataset: Dataset) -> None:
        self.dataset = dataset

    @property
    def names(self) -> Names:
        return self.dataset.keys

    @property
    def near(self) -> bool:
        return self.dataset.complete

    def size(self, position: int) -> int:
        return self.dataset.size(position)

    def read(self, position: int) -> bytes:
        return self.dataset[position]

    def read_many(self, positions: Sequence[int]) -> list[bytes]:
        return self.dataset.read_many(positions)

    def follow(self, positions: Positions) -> None:
        self.dataset.prefetch(positions)

    def stage(self, positions: Positions) -> None:
        # Into the cache and not into this process, which so never holds two windows.
        self.dataset.prefetch(positions)

    def close(self) -> None:
        self.dataset.close()


def open_objects(place: Place, *, cached: bool) -> Objects:
    """List the objects at ``place``. Raises `NotFound` if there are none, and whatever else the source says."""
    patterns = [literal_pattern(prefix) for prefix in place.prefixes]
    try:
        if not cached:
            return DirectObjects.listed(place)
        return CachedObjects(hotset.open(place.uri, include=patterns, options=place.options()))
    except NotFound as error:
        wanted = " or ".join(map(repr, place.prefixes))
        begins = f", no object whose name begins with {wanted}" if wanted else ""
        raise NotFound(f"nothing to read at {display_uri(place.uri)}{begins} ({error})") from error

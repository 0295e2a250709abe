"""How much of a snapshot is in the cache, whoever put it there."""

from __future__ import annotations

import threading
from collections.abc import Callable

from hotset.fill.progress import FillStats, Progress
from hotset.snapshot import Snapshot
from hotset.tier.node.shelf import Shelf

__all__ = ["Coverage"]

#: Counting looks at every pack; with many packs it is done less often, so that it takes this part of the time at most.
LARGEST_PART = 0.05


class Coverage:
    """Objects and bytes that are here. Thread-safe."""

    def __init__(self, snapshot: Snapshot, shelf: Shelf, clock: Callable[[], float]) -> None:
        self._snapshot = snapshot
        self._shelf = shelf
        self._clock = clock
        self._lock = threading.Lock()
        self._known = (0, 0)
        self._again = float("-inf")

    def progress(self, stats: FillStats, *, finished: bool) -> Progress:
        """Of a moment ago unless ``finished``. Packs that are filling count by their share of units."""
        objects, size = self._count(exactly=finished)
        return Progress(
            objects=objects,
            total_objects=len(self._snapshot),
            bytes=size,
            total_bytes=self._snapshot.total_bytes,
            failed=stats.failed,
            objects_per_second=stats.objects_per_second,
            bytes_per_second=stats.bytes_per_second,
            finished=finished,
        )

    def _count(self, *, exactly: bool) -> tuple[int, int]:
        with self._lock:
            started = self._clock()
            if exactly or started >= self._again:
                self._known = self._look()
                now = self._clock()
                self._again = now + (now - started) / LARGEST_PART
            return self._known

    def _look(self) -> tuple[int, int]:
        objects = size = 0
        for number in range(self._snapshot.pack_count):
            held = self._shelf.held(number)
            if held:
                pack = self._snapshot.pack(number)
                objects += pack.objects * held // pack.units
                size += pack.size * held // pack.units
        return objects, size

"""What a filler can tell of its work: counters since its start, and how much of the snapshot is here."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass

from hotset.errors import HotsetError

__all__ = ["Counters", "Failures", "FillStats", "Progress"]

#: Rates are averages over this many seconds.
WINDOW = 5.0


@dataclass(frozen=True)
class FillStats:
    """Counters of one filler since it started, and its state now. Rates are per second, over the last five."""

    fetched_objects: int = 0  #: requests to the source that brought a unit
    fetched_bytes: int = 0
    copied_bytes: int = 0  #: taken from an older snapshot instead
    retried: int = 0
    throttled: int = 0
    changed: int = 0
    damaged: int = 0  #: units found damaged when a pack was sealed, and fetched again
    failed: int = 0  #: units whose last fetch failed
    running: int = 0  #: requests under way
    waiting: int = 0  #: units that some reader waits for
    limit: int = 0
    staged_bytes: int = 0
    objects_per_second: float = 0.0
    bytes_per_second: float = 0.0

    def encoded(self) -> dict[str, int | float]:
        return asdict(self)


@dataclass(frozen=True)
class Progress:
    """How much of a snapshot is in the cache. Counts what all processes of the machine have put there."""

    objects: int
    total_objects: int
    bytes: int
    total_bytes: int
    failed: int = 0
    objects_per_second: float = 0.0
    bytes_per_second: float = 0.0
    finished: bool = False  #: nothing is left to do, though some objects may have failed or had no place

    @property
    def share(self) -> float:
        return self.bytes / self.total_bytes if self.total_bytes else 1.0

    @property
    def seconds_left(self) -> float | None:
        """At the present rate; None while there is none."""
        if self.bytes_per_second <= 0:
            return None
        return (self.total_bytes - self.bytes) / self.bytes_per_second


@dataclass(frozen=True)
class Failures:
    """What a load could not fetch."""

    objects: int
    changed: int  #: how many of them because they are another version at the source now
    first: list[HotsetError]  #: a few reasons, those that are no change before those that are


class Counters:
    """Mutable counters; the engine's lock protects them."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._recent: deque[tuple[float, int, int]] = deque()  # per tenth of a second: time, objects, bytes
        self.fetched_objects = 0
        self.fetched_bytes = 0
        self.copied_bytes = 0
        self.retried = 0
        self.throttled = 0
        self.changed = 0
        self.damaged = 0

    def fetched(self, size: int) -> None:
        self.fetched_objects += 1
        self.fetched_bytes += size
        now = self._clock()
        if self._recent and now - self._recent[-1][0] < 0.1:
            since, objects, total = self._recent[-1]
            self._recent[-1] = (since, objects + 1, total + size)
        else:
            self._recent.append((now, 1, size))
            self._forget(now)

    def _forget(self, now: float) -> None:
        while self._recent and now - self._recent[0][0] > WINDOW:
            self._recent.popleft()

    def stats(self, *, running: int, waiting: int, limit: int, staged: int, failed: int) -> FillStats:
        now = self._clock()
        self._forget(now)
        span = max(0.1, now - self._recent[0][0]) if self._recent else 1.0
        return FillStats(
            fetched_objects=self.fetched_objects,
            fetched_bytes=self.fetched_bytes,
            copied_bytes=self.copied_bytes,
            retried=self.retried,
            throttled=self.throttled,
            changed=self.changed,
            damaged=self.damaged,
            failed=failed,
            running=running,
            waiting=waiting,
            limit=limit,
            staged_bytes=staged,
            objects_per_second=sum(entry[1] for entry in self._recent) / span,
            bytes_per_second=sum(entry[2] for entry in self._recent) / span,
        )

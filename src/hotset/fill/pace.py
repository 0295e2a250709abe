"""How many requests may run now: the decisions of `hotset.fill.limit`, fed with measurements."""

from __future__ import annotations

from collections.abc import Callable

from hotset.fill.limit import LimitState, after_measurement, after_throttle

__all__ = ["Pace"]

#: Seconds of one measurement of the throughput.
PERIOD = 0.4
#: What a request costs beside its bytes, expressed in bytes: lets one number measure small and large objects.
REQUEST_WEIGHT = 2**16


class Pace:
    """Measures the throughput and moves the limit. Not thread-safe: the engine's lock protects it."""

    def __init__(self, state: LimitState, clock: Callable[[], float]) -> None:
        self._state = state
        self._clock = clock
        self._start = clock()
        self._work = 0
        self._saturated = True

    @property
    def limit(self) -> int:
        return self._state.limit

    def fetched(self, size: int) -> None:
        """A request brought ``size`` bytes."""
        self._work += size + REQUEST_WEIGHT
        now = self._clock()
        if now - self._start < PERIOD:
            return
        if self._saturated:
            self._state = after_measurement(self._state, self._work / (now - self._start))
        self._start, self._work, self._saturated = now, 0, True

    def idle(self) -> None:
        """There was less to do than the limit allows: this period says nothing about the limit."""
        self._saturated = False

    def throttled(self) -> None:
        """The source asked for fewer requests."""
        self._state = after_throttle(self._state)
        self._saturated = False

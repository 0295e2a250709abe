"""How many requests run at once: grows while that helps, shrinks when the source asks for it.

A climb along the measured throughput: more requests are tried, and kept only if they brought more. The decision is a
pure function of a state and a measurement, so that a test can walk it through any weather.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

__all__ = ["LimitState", "after_measurement", "after_throttle"]

#: More requests must bring at least this much more throughput to be kept.
WORTHWHILE = 1.05
#: Measurements to wait before trying to grow again after growth did not help, or after a throttle.
PATIENCE = 8


@dataclass(frozen=True, slots=True)
class LimitState:
    """``limit`` requests may run. ``before`` is the throughput at the last smaller limit while growth is on trial."""

    limit: int = 16
    lowest: int = 1
    highest: int = 256
    smaller: int = 0  #: the limit to return to if growth does not help; 0 if nothing is on trial
    before: float = 0.0
    rest: int = 0  #: measurements to wait before the next trial

    @classmethod
    def at_most(cls, highest: int) -> LimitState:
        """Where to begin if there may never be more than ``highest`` requests."""
        return cls(limit=min(cls().limit, highest), highest=highest)


def after_measurement(state: LimitState, throughput: float) -> LimitState:
    """The state after one period in which the limit was reached all the time, with ``throughput`` (any unit)."""
    if state.smaller:
        if throughput >= state.before * WORTHWHILE:
            return _grown(state, throughput)
        return replace(state, limit=state.smaller, smaller=0, rest=PATIENCE)
    if state.rest:
        return replace(state, rest=state.rest - 1)
    return _grown(state, throughput)


def after_throttle(state: LimitState) -> LimitState:
    """The state after the source said "slow down": half, and some time without trials."""
    return replace(state, limit=max(state.lowest, state.limit // 2), smaller=0, rest=PATIENCE * 2)


def _grown(state: LimitState, throughput: float) -> LimitState:
    grown = min(state.highest, max(state.limit + 1, state.limit * 3 // 2))
    if grown == state.limit:
        return replace(state, smaller=0, rest=PATIENCE)
    return replace(state, limit=grown, smaller=state.limit, before=throughput)

"""The clock: contestants take turns, each turn in the opposite order, and the best turn counts.

A shared machine slows everybody down now and then. Taking turns spreads that over all contestants; the best of several
runs is the least disturbed one. Where a requirement is about the median, all samples are kept.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

__all__ = ["Samples", "seconds", "take_turns"]


@dataclass(frozen=True)
class Samples:
    """What one contestant needed in each turn, in seconds (or seconds for one unit of work)."""

    values: tuple[float, ...]

    @property
    def best(self) -> float:
        return min(self.values)

    @property
    def median(self) -> float:
        return statistics.median(self.values)


def seconds(work: Callable[[], object]) -> float:
    """Wall time of one call, without a garbage collection that an earlier contestant caused."""
    gc.collect()
    gc.disable()
    try:
        start = time.perf_counter()
        work()
        return time.perf_counter() - start
    finally:
        gc.enable()


def take_turns(contestants: Mapping[str, Callable[[], float]], turns: int) -> dict[str, Samples]:
    """Run all contestants ``turns`` times, forwards and backwards in turn. A contestant returns its own seconds."""
    taken: dict[str, list[float]] = {name: [] for name in contestants}
    names = list(contestants)
    for turn in range(turns):
        for name in names if turn % 2 == 0 else reversed(names):
            taken[name].append(contestants[name]())
    return {name: Samples(tuple(values)) for name, values in taken.items()}

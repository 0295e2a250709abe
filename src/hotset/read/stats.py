"""What a reader counts."""

from __future__ import annotations

from dataclasses import dataclass

from hotset.fill.progress import FillStats

__all__ = ["ReadStats"]


@dataclass(frozen=True)
class ReadStats:
    """Counters of one `Dataset` in one process (a forked or spawned worker begins at zero), and those of its filler."""

    reads: int
    hits: int  #: reads that found their object in the cache and did not wait
    waits: int  #: reads that waited for the filler
    wait_seconds: float
    bytes_from_cache: int
    bytes_read_through: int  #: of objects that have no place in the cache
    fill: FillStats

    @property
    def hit_rate(self) -> float:
        return self.hits / self.reads if self.reads else 1.0

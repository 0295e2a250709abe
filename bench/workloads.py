"""The data of the benchmarks: generated, the same in every run, incompressible, no two objects alike."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from functools import cache

__all__ = ["IMAGES", "LARGE", "RECORDS", "Workload"]

_BLOCK = 1 << 20
_PRIME = 7919  # the step between the starts of two objects inside the random block; odd, so that all starts are used


@dataclass(frozen=True)
class Workload:
    """``count`` objects of ``size`` bytes. The order of the keys is the order of the numbers, so that object ``i`` of the
    workload is sample ``i`` of the dataset."""

    name: str
    count: int
    size: int

    @property
    def total_bytes(self) -> int:
        return self.count * self.size

    @property
    def label(self) -> str:
        return f"{self.count:,} x {_readable(self.size)}"

    def key(self, index: int) -> str:
        return f"{index // 1000:04d}/{index:08d}.bin"

    def all_keys(self) -> list[str]:
        return [self.key(index) for index in range(self.count)]

    def body(self, index: int) -> bytes:
        """The content of object ``index``: its number, then random bytes."""
        start = index * _PRIME % _BLOCK
        block = _random_block()
        rest = self.size - 8
        head = index.to_bytes(8, "little")[: self.size]
        if rest <= _BLOCK:
            return head + block[start : start + max(rest, 0)]
        turns, tail = divmod(rest, _BLOCK)
        return head + block[start : start + _BLOCK] * turns + block[start : start + tail]

    def scaled(self, share: float) -> Workload:
        """The same kind of objects, ``share`` times as many."""
        return replace(self, count=max(4, round(self.count * share)))


@cache
def _random_block() -> bytes:
    return random.Random(20261118).randbytes(_BLOCK) * 2


def _readable(size: int) -> str:
    if size >= 10**6:
        return f"{size // 10**6} MB"
    return f"{size // 1000} KB"


#: The images of the study that hotset's design starts from: 128,660 of about 33 KB; here a part of them.
IMAGES = Workload("images", 20_000, 33_000)
#: Many small samples: text, embeddings, table rows.
RECORDS = Workload("records", 200_000, 1_000)
#: Few large objects: videos, archives, weights.
LARGE = Workload("large", 64, 64_000_000)

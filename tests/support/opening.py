"""Opening datasets in tests: as users do it, or with a filler that gives up soon, or with an engine in this process."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from hotset.base.retry import RetryPolicy
from hotset.config.builder import Build, open_dataset
from hotset.fill.engine import Engine
from hotset.fill.limit import LimitState
from hotset.fill.service import FillService
from hotset.read.dataset import Dataset
from hotset.snapshot import PlanParameters
from hotset.source.base import Source
from hotset.tier.node.dataset import Layout

SOON = RetryPolicy(attempts=3, first=0.01, longest=0.02, deadline=20.0)
"""Tries again, but not for long: for tests in which trying again is in vain."""

SMALL_PACKS = PlanParameters(limit=64 * 1024, stripe=32 * 1024)
"""Many packs, and striped objects, out of little data."""


def give_up_soon(
    uri: Any,
    name: str | None = None,
    *,
    retry: RetryPolicy = SOON,
    parameters: PlanParameters | None = None,
    **said: Any,
) -> Dataset:
    """`hotset.open` with another patience, and smaller packs if ``parameters`` are given."""
    how = {key: said.pop(key) for key in ("refresh", "snapshot", "on_changed") if key in said}

    def make() -> Build:
        build = Build(uri, name, **said)
        changes = {"retry": retry, **({"parameters": parameters} if parameters else {})}
        build.fill_settings = replace(build.fill_settings, **changes)
        return build

    return open_dataset(make=make, **{"refresh": "auto", "snapshot": None, "on_changed": "raise", **how})


@contextmanager
def service_over(
    source: Source,
    root: Path,
    *,
    quota: int | None = None,
    layout: Layout | None = None,
    identity: str = "memory",
    **settings: Any,
) -> Iterator[FillService]:
    """A filler in this process over a source made by the test; small packs unless said otherwise."""
    env = {**os.environ, "HOTSET_CACHE": str(root)}
    place = root.parent / f"{root.name}-place-{identity}"
    place.mkdir(exist_ok=True)
    build = Build(str(place), cache=root, quota=quota, layout=layout)
    chosen = replace(build.fill_settings, **{"parameters": SMALL_PACKS, "retry": SOON, **settings})
    service = FillService(chosen, env, source=source)
    try:
        yield service
    finally:
        service.close()


def engine_of(service: FillService) -> Engine:
    """List, publish, and the engine of what was published."""
    return service.engine(service.refresh(not_before_ns=2**63 - 1).digest)


def read_all(dataset: Dataset, order: Iterable[int] | None = None) -> dict[str, bytes]:
    """Key -> bytes, read one by one."""
    return {dataset.keys[index]: dataset[index] for index in (range(len(dataset)) if order is None else order)}


class Gate:
    """Holds up whoever calls `pass_through` for a key until the test opens it, and says who waits there."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._open: set[str] = set()
        self._all = False
        self.waiting: list[str] = []

    def pass_through(self, key: str) -> None:
        with self._changed:
            self.waiting.append(key)
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._all or key in self._open)

    def open(self, *keys: str) -> None:
        """For these keys; for all, now and later, if none is named."""
        with self._changed:
            self._open.update(keys)
            self._all = self._all or not keys
            self._changed.notify_all()

    def wait_for(self, count: int, timeout: float = 30.0) -> list[str]:
        """The keys of those who came, once there are so many."""
        with self._changed:
            if not self._changed.wait_for(lambda: len(self.waiting) >= count, timeout):
                raise TimeoutError(f"only {len(self.waiting)} of {count} came: {self.waiting}")
            return list(self.waiting)


def limit_of(requests: int) -> LimitState:
    """So many parallel requests, and never another number."""
    return LimitState(limit=requests, lowest=requests, highest=requests)


def use(monkeypatch: Any, env: Mapping[str, str]) -> None:
    """Make these variables part of the test's environment."""
    for name, value in env.items():
        monkeypatch.setenv(name, value)

"""What is measured: one file a group of rows, each with a ``run(session)`` that yields them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from bench.report import Row
from bench.scenarios import (
    dataloader,
    first_epoch,
    half_cache,
    index,
    load,
    processes,
    reload,
    small,
    startup,
    training,
    view,
    warm,
)
from bench.session import Session

__all__ = ["SCENARIOS"]

SCENARIOS: dict[str, Callable[[Session], Iterator[Row]]] = {
    "startup": startup.run,
    "index": index.run,
    "warm": warm.run,
    "small": small.run,
    "dataloader": dataloader.run,
    "training": training.run,
    "view": view.run,
    "load": load.run,
    "first-epoch": first_epoch.run,
    "reload": reload.run,
    "processes": processes.run,
    "half-cache": half_cache.run,
}

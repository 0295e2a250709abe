"""Listing and loading in this process, with progress, and an end in good order when the user has had enough.

Used by every command that fetches. The commands never fork: the service's client for object stores would hang in a child.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from hotset.base.sizes import format_size
from hotset.cli.output import Interrupted
from hotset.cli.progress import Reporter, Status, listing, loading
from hotset.cli.text import count, plural

if TYPE_CHECKING:
    from hotset.errors import HotsetError
    from hotset.fill.progress import FillStats, Progress
    from hotset.fill.service import FillService
    from hotset.snapshot import Snapshot
    from hotset.tier.node.records import Current

__all__ = ["Filled", "attended", "fill", "list_source", "serving"]

T = TypeVar("T")

#: Seconds that requests under way have to end after Ctrl-C. Cutting them off costs only their bytes.
PATIENCE = 5.0
TICK = 0.1


@dataclass(frozen=True)
class Filled:
    """What a load did."""

    progress: Progress
    stats: FillStats
    failures: dict[str, HotsetError]  #: key -> why it is not here
    seconds: float

    def encoded(self) -> dict[str, object]:
        """For ``--json``."""
        return {
            "objects": self.progress.total_objects,
            "bytes": self.progress.total_bytes,
            "cached_objects": self.progress.objects,
            "cached_bytes": self.progress.bytes,
            "complete": self.progress.objects == self.progress.total_objects,
            "fetched_objects": self.stats.fetched_objects,
            "fetched_bytes": self.stats.fetched_bytes,
            "copied_bytes": self.stats.copied_bytes,
            "retried": self.stats.retried,
            "throttled": self.stats.throttled,
            "failed": [
                {"key": key, "kind": type(error).__name__, "message": str(error)}
                for key, error in sorted(self.failures.items())
            ],
            "seconds": round(self.seconds, 3),
        }


@contextmanager
def serving(service: FillService, report: Reporter, *, again: Callable[[], str]) -> Iterator[FillService]:
    """The service, closed in the end. Ctrl-C ends it in good order and becomes `Interrupted`; ``again`` is then asked for
    the command that goes on where this one stopped.
    """
    try:
        yield service
    except KeyboardInterrupt as stop:
        report.close()
        attend_briefly(service.close)
        kept = str(stop) or "what was fetched"
        raise Interrupted(f"stopped; {kept} stays in the cache. Go on with: {again()}") from None
    except BaseException:
        report.close()
        service.close()
        raise
    report.close()
    service.close()


def attend_briefly(action: Callable[[], None]) -> None:
    """Run ``action``, but wait for it no longer than `PATIENCE`, and not at all after a second Ctrl-C."""
    thread = threading.Thread(target=action, name="hotset-stop", daemon=True)
    thread.start()
    with suppress(KeyboardInterrupt):
        thread.join(PATIENCE)


def attended(action: Callable[[], T], tick: Callable[[], None]) -> T:
    """The result of ``action``, which runs in a thread of its own, so that Ctrl-C is heard while it waits for a server."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(action())
        except BaseException as error:  # noqa: BLE001  (whatever it is, it is raised below)
            future.set_exception(error)

    threading.Thread(target=run, name="hotset-work", daemon=True).start()
    while True:
        try:
            return future.result(TICK)
        except TimeoutError:
            if future.done():
                raise
            tick()


def list_source(service: FillService, report: Reporter, *, not_before_ns: int) -> Current:
    """`FillService.refresh`, shown."""
    seen = 0

    def listed(objects: int) -> None:
        nonlocal seen
        seen = objects

    report.show(listing(0))
    current = attended(
        lambda: service.refresh(not_before_ns=not_before_ns, on_listed=listed), lambda: report.show(listing(seen))
    )
    report.show(listing(seen))
    return current


def fill(service: FillService, digest: str, report: Reporter) -> Filled:
    """Load a snapshot; returns when nothing more can be done. What failed is in the result."""
    started = time.monotonic()
    engine = attended(lambda: service.engine(digest), lambda: report.show(Status("opening", "the snapshot")))
    try:
        engine.load()
        while not engine.wait_loaded(TICK):
            report.show(loading(engine.progress(), engine.stats()))
    except KeyboardInterrupt:
        report.close()
        here = engine.progress()
        engine.cancel()
        raise Interrupted(_so_far(here)) from None
    progress, stats = engine.progress(), engine.stats()
    report.show(loading(progress, stats))
    failures = _by_key(engine.snapshot, engine.failures())
    return Filled(progress, stats, failures, time.monotonic() - started)


def _so_far(progress: Progress) -> str:
    return f"{count(progress.objects)} of {plural(progress.total_objects, 'object')} ({format_size(progress.bytes)})"


def _by_key(snapshot: Snapshot, failures: dict[tuple[int, int], HotsetError]) -> dict[str, HotsetError]:
    return {snapshot.key(snapshot.unit_range(*unit)[0]): error for unit, error in failures.items()}

"""All that a filler does for one dataset: list and publish, and fetch units of its snapshots.

Used directly by the command line, and by `hotset.fill.process` for readers. Owns the source's connections.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hotset.errors import InvalidInput, NotFound, Unavailable
from hotset.fill.claims import Claims
from hotset.fill.donors import Donors
from hotset.fill.engine import Engine
from hotset.fill.limit import LimitState
from hotset.fill.settings import FillSettings
from hotset.snapshot import Listing, Plan, PlanParameters, Snapshot, plan, prepare, write_index
from hotset.source import ObjectInfo, Source, key_beginnings, open_source
from hotset.source.wrappers import CombinedSource, RateLimited, Retrying, filtered
from hotset.tier.node import CacheDirectory, DatasetDirectory, Lease
from hotset.tier.node.collect import outlived
from hotset.tier.node.records import Current
from hotset.tier.node.shelf import Shelf, open_shelf

__all__ = ["FillService", "ListingProgress"]

#: Snapshots that are kept besides the current, the pinned and the open ones, to go back to.
OLD_SNAPSHOTS = 3

ListingProgress = Callable[[int], None]
"""Called with the number of objects listed so far."""


class FillService:
    """Thread-safe. Sends no request before it is asked for something; `close` ends everything."""

    def __init__(
        self, settings: FillSettings, env: Mapping[str, str], *, source: Source | None = None, recount: bool = True
    ) -> None:
        """``source`` replaces the one that the settings name (for tests and generated listings)."""
        self.settings = settings
        self.cache = CacheDirectory(Path(settings.cache))
        self.dataset: DatasetDirectory = self.cache.by_id(settings.dataset)
        self._env = env
        self._given = source
        self._cancel = threading.Event()
        self._lock = threading.RLock()
        self._source: Source | None = None
        self._engines: dict[str, _Attached] = {}
        self._claims: Claims | None = None
        if recount:
            self.cache.space.recount()

    def refresh(self, *, not_before_ns: int, on_listed: ListingProgress | None = None) -> Current:
        """List the source and make the result the current snapshot, unless that was done since ``not_before_ns``.

        One process of a machine lists at a time; those who waited take its result.
        """
        with self.dataset.listing_lock():
            current = self.dataset.current()
            if current is not None and current.listed_ns >= not_before_ns:
                return current
            started_ns = time.time_ns()
            listing, packs = self._list(started_ns, on_listed)
            current = self.dataset.publish(listing, packs, listed_ns=started_ns)
            self._forget_old_snapshots()
            return current

    def preview(self, directory: Path, *, on_listed: ListingProgress | None = None) -> Snapshot:
        """List the source and write what `refresh` would publish into ``directory``; the cache stays as it is."""
        write_index(directory, *self._list(time.time_ns(), on_listed))
        return Snapshot(directory)

    def _list(self, started_ns: int, on_listed: ListingProgress | None) -> tuple[Listing, Plan]:
        prepare()
        listing = Listing.of(_counted(self._open().list(), on_listed), listed_ns=started_ns)
        if not len(listing):
            where = ", ".join(source.uri for source in self.dataset.record().sources)
            raise NotFound(f"no objects at {where}: check the prefix, and --include and --exclude")
        return listing, plan(listing, self.dataset.record().identity, self.settings.parameters or PlanParameters())

    def _forget_old_snapshots(self) -> None:
        """A dataset that is reloaded every day must not fill the cache with its indexes."""
        doomed = outlived(self.dataset.snapshots(), keep=OLD_SNAPSHOTS)
        if sum(self.dataset.remove_snapshot(digest) for digest in doomed):
            self.cache.space.recount()

    def engine(self, digest: str) -> Engine:
        """The engine of one snapshot, made at the first call. Holds a lease on the snapshot until closed."""
        with self._lock:
            attached = self._engines.get(digest)
            if attached is None:
                attached = self._engines[digest] = self._attach(digest)
            return attached.engine

    def shelf(self, digest: str) -> Shelf:
        """Where the engine of that snapshot puts units."""
        self.engine(digest)
        return self._engines[digest].shelf

    def close(self) -> None:
        self._cancel.set()  # ends all pauses between retries
        with self._lock:
            engines, self._engines = list(self._engines.values()), {}
        for attached in engines:
            attached.close()
        if self._claims is not None:
            self._claims.close()
            self._claims = None
        if self._source is not None:
            self._source.close()

    def _attach(self, digest: str) -> _Attached:
        snapshot, lease = self.dataset.open(digest)
        try:
            if self._claims is None:
                self._claims = Claims(self.dataset.claims, mode=self.cache.file_mode)
            shelf = open_shelf(self.dataset, snapshot)
            donors = Donors(self.dataset, digest)
            engine = Engine(
                snapshot, shelf, self._open(), self._claims,
                donors=donors, staging=self.settings.staging, limit=LimitState.at_most(self.settings.max_requests),
            )  # fmt: skip
        except BaseException:
            lease.release()
            raise
        return _Attached(snapshot, lease, shelf, donors, engine)

    def _open(self) -> Source:
        with self._lock:
            if self._source is None:
                self._source = self._given or self._build()
            return self._source

    def _build(self) -> Source:
        """Retries right around each source, then one combined, chosen and limited source."""
        mounts = []
        for entry, recorded in zip(self.settings.sources, self.dataset.record().sources, strict=True):
            beginnings = key_beginnings(self.settings.include, entry.path)
            source = open_source(entry.uri, options=entry.options, env=self._env, beginnings=beginnings)
            if source.identity != recorded.identity:
                raise InvalidInput(
                    f"{recorded.uri} now means {source.identity}, but the dataset was made of {recorded.identity}: "
                    "give the endpoint (and the like) as when it was loaded"
                )
            mounts.append(
                (entry.path, Retrying(source, self.settings.retry, cancel=self._cancel, on_retry=self._note_retry))
            )
        [(path, first), *others] = mounts
        whole: Source = CombinedSource(mounts) if path or others else first  # a layer less around each read
        whole = filtered(whole, include=self.settings.include, exclude=self.settings.exclude)
        if self.settings.max_rate:
            whole = RateLimited(whole, self.settings.max_rate, cancel=self._cancel)
        return whole

    def _note_retry(self, error: Unavailable, _pause: float) -> None:
        for attached in list(self._engines.values()):
            attached.engine.note_retry(throttled=error.throttled)


@dataclass(frozen=True)
class _Attached:
    snapshot: Snapshot
    lease: Lease
    shelf: Shelf
    donors: Donors
    engine: Engine

    def close(self) -> None:
        self.engine.close()
        self.donors.close()
        self.shelf.close()
        self.lease.release()


def _counted(
    batches: Iterator[Sequence[ObjectInfo]], on_listed: ListingProgress | None
) -> Iterator[Sequence[ObjectInfo]]:
    total = 0
    for batch in batches:
        total += len(batch)
        if on_listed is not None:
            on_listed(total)
        yield batch

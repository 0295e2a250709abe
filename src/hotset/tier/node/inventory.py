"""What a dataset in the cache looks like from outside, without opening it for reading."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict, dataclass

from hotset.base.files import usage_of
from hotset.errors import NotFound
from hotset.snapshot import Snapshot
from hotset.tier.node.cache import CacheDirectory
from hotset.tier.node.shelf import open_reader

__all__ = ["DatasetInfo", "describe"]


@dataclass(frozen=True)
class DatasetInfo:
    """One name in the cache. Times are in nanoseconds since 1970, 0 for never."""

    name: str
    identifier: str
    sources: dict[str, str]  #: mount path -> URI
    layout: str
    snapshot: str | None  #: digest of the current one
    objects: int
    bytes: int
    packs: int
    cached_units: int
    units: int
    cached_bytes: int  #: of the current snapshot; exact for complete packs, by share of units for others
    disk_bytes: int  #: what the dataset's directory takes, older snapshots included
    listed_ns: int
    last_used_ns: int
    in_use: bool
    snapshots: int

    @property
    def cached_share(self) -> float:
        return self.cached_bytes / self.bytes if self.bytes else float(self.cached_units == self.units)

    def encoded(self) -> dict[str, object]:
        return {**asdict(self), "cached_share": self.cached_share}


def describe(cache: CacheDirectory, name: str) -> DatasetInfo:
    """`NotFound` if there is no such name."""
    dataset = cache.dataset(name)
    record = dataset.record()
    current = dataset.current()
    snapshot: Snapshot | None = None
    if current is not None:
        with suppress(NotFound):
            snapshot = Snapshot(dataset.snapshot_path(current.digest))
    cached_units = cached_bytes = 0
    if snapshot is not None:
        reader = open_reader(dataset, snapshot)
        for number in range(snapshot.pack_count):
            held = reader.held(number)
            cached_units += held
            cached_bytes += snapshot.pack_sizes[number] * held // max(1, snapshot.pack_units[number])
    return DatasetInfo(
        name=name,
        identifier=dataset.identifier,
        sources={source.path: source.uri for source in record.sources},
        layout=record.layout,
        snapshot=None if snapshot is None else snapshot.digest,
        objects=0 if snapshot is None else len(snapshot),
        bytes=0 if snapshot is None else snapshot.total_bytes,
        packs=0 if snapshot is None else snapshot.pack_count,
        cached_units=cached_units,
        units=0 if snapshot is None else sum(snapshot.pack_units),
        cached_bytes=cached_bytes,
        disk_bytes=usage_of(dataset.path),
        listed_ns=0 if current is None else current.listed_ns,
        last_used_ns=dataset.last_used_ns(),
        in_use=any(dataset.leased(digest) for digest in dataset.digests()),
        snapshots=len(dataset.digests()),
    )

"""What a dataset in the cache looks like from outside, without opening it for reading."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import pairwise

from hotset.base.files import usage_of
from hotset.errors import Corrupt, NotFound
from hotset.snapshot import Changes, Snapshot, diff
from hotset.tier.node.cache import CacheDirectory
from hotset.tier.node.dataset import DatasetDirectory
from hotset.tier.node.records import DatasetRecord, SnapshotRecord
from hotset.tier.node.shelf import open_reader

__all__ = ["DatasetInfo", "describe", "describe_all", "last_changes"]


@dataclass(frozen=True)
class DatasetInfo:
    """One name in the cache. Times are in nanoseconds since 1970, 0 for never."""

    name: str
    identifier: str
    sources: dict[str, str]  #: mount path -> URI; empty if not even that can be read
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
    damage: str | None = None  #: what cannot be read of it, so that the numbers are zeros, and what mends it

    @property
    def cached_share(self) -> float:
        whole = self.snapshot is not None and self.cached_units == self.units
        return self.cached_bytes / self.bytes if self.bytes else float(whole)

    def encoded(self) -> dict[str, object]:
        return {**asdict(self), "cached_share": self.cached_share}


def describe_all(cache: CacheDirectory) -> list[DatasetInfo]:
    """Every name, but for those whose dataset is gone: a drop that was cut off, or that happens at this moment."""
    infos = []
    for name in cache.names():
        with suppress(NotFound):
            infos.append(describe(cache, name))
    return infos


def describe(cache: CacheDirectory, name: str) -> DatasetInfo:
    """`NotFound` if there is no such name, or its dataset is gone. Damage is no error here, but told."""
    dataset = cache.dataset(name)
    current = dataset.current()
    record: DatasetRecord | None = None
    snapshot: Snapshot | None = None
    cached_units = cached_bytes = 0
    damage: str | None = None
    try:
        record = dataset.record()
        snapshot = dataset.look()
        if snapshot is not None:
            cached_units, cached_bytes = _held(dataset, snapshot)
    except Corrupt as error:
        damage = str(error)
    return DatasetInfo(
        name=name,
        identifier=dataset.identifier,
        sources={} if record is None else {source.path: source.uri for source in record.sources},
        layout="unknown" if record is None else record.layout,
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
        damage=damage,
    )


def last_changes(dataset: DatasetDirectory, snapshots: Sequence[SnapshotRecord]) -> Changes | None:
    """What the current one of ``snapshots``, which are all of them, changed against the one before it; None if that is not
    here (any more).
    """
    for before, record in pairwise(snapshots):
        if record.current:
            with suppress(NotFound, Corrupt):
                old, new = (Snapshot(dataset.snapshot_path(digest)) for digest in (before.digest, record.digest))
                return diff(old, new)
    return None


def _held(dataset: DatasetDirectory, snapshot: Snapshot) -> tuple[int, int]:
    """How many units, and about how many bytes, of a snapshot are here."""
    reader = open_reader(dataset, snapshot)
    units = size = 0
    for number in range(snapshot.pack_count):
        held = reader.held(number)
        units += held
        size += snapshot.pack_sizes[number] * held // max(1, snapshot.pack_units[number])
    return units, size

"""Caches, datasets and snapshots in them, made without a source."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from hotset.snapshot import Listing, PlanParameters, Snapshot, plan
from hotset.source.base import FingerprintKind, ObjectInfo
from hotset.tier.node import CacheDirectory, DatasetDirectory, DatasetRecord, SourceRecord
from hotset.tier.node.records import Layout
from hotset.tier.node.shelf import Shelf, UnitReader, open_shelf
from tests.support.datasets import content

#: Packs of at most 10,000 bytes: many of them out of little data, and stripes of 3,000 bytes.
SMALL = PlanParameters(limit=10_000, stripe=3_000)
LISTED = 1_700_000_000 * 10**9

Contents = Mapping[str, bytes]


def contents(count: int = 60, *, size: int = 700, seed: int = 0) -> dict[str, bytes]:
    """Small objects, an empty one, and one of four stripes."""
    made = {f"dir{n % 3}/{n:04}": content(f"{n}", size + 13 * n % 400, seed=seed) for n in range(count)}
    return made | {"dir0/empty": b"", "large": content("large", 11_000, seed=seed)}


def record_of(name: str = "memory", *, layout: Layout = "packs") -> DatasetRecord:
    return DatasetRecord((SourceRecord(f"s3://{name}/data", f"s3://host/{name}/data"),), layout=layout)


def dataset_in(cache: CacheDirectory, name: str = "memory", *, layout: Layout = "packs") -> DatasetDirectory:
    return cache.register(name, record_of(name, layout=layout))


def by_content(data: bytes) -> tuple[FingerprintKind, bytes]:
    return FingerprintKind.ETAG, hashlib.md5(data).hexdigest().encode()


def publish(
    dataset: DatasetDirectory,
    objects: Contents,
    *,
    listed_ns: int = LISTED,
    parameters: PlanParameters = SMALL,
    fingerprint: Callable[[bytes], tuple[FingerprintKind, bytes]] = by_content,
) -> Snapshot:
    """The snapshot of these objects, now the current one."""
    infos = [ObjectInfo(key, len(data), *fingerprint(data)) for key, data in objects.items()]
    listing = Listing.of([infos], listed_ns=listed_ns)
    current = dataset.publish(listing, plan(listing, dataset.record().identity, parameters), listed_ns=listed_ns)
    return Snapshot(dataset.snapshot_path(current.digest))


def unit_of(snapshot: Snapshot, objects: Contents, number: int, unit: int) -> bytes:
    """What a unit must hold."""
    position, start, end = snapshot.unit_range(number, unit)
    return objects[snapshot.key(position)][start:end]


def all_units(snapshot: Snapshot) -> list[tuple[int, int]]:
    return [(number, unit) for number in range(snapshot.pack_count) for unit in range(snapshot.pack_units[number])]


def fill(shelf: Shelf, snapshot: Snapshot, objects: Contents) -> int:
    """Store everything that has a place, as a filler does; how many units that were."""
    stored = 0
    for number, unit in all_units(snapshot):
        if shelf.admit(number) and not shelf.present(number, unit):
            stored += shelf.write(number, unit, unit_of(snapshot, objects, number, unit))
            assert shelf.finish(number) == []
    return stored


def filled(dataset: DatasetDirectory, objects: Contents, **how: Any) -> Snapshot:
    """Publish and fill, as a filler with a lease does."""
    digest = publish(dataset, objects, **how).digest
    snapshot, lease = dataset.open(digest)
    shelf = open_shelf(dataset, snapshot)
    fill(shelf, snapshot, objects)
    shelf.close()
    lease.release()
    return snapshot


def check(reader: UnitReader, snapshot: Snapshot, objects: Contents) -> int:
    """Every unit that is here has the right bytes; how many are."""
    here = 0
    for number, unit in all_units(snapshot):
        data = reader.unit(number, unit)
        if data is not None:
            assert data == unit_of(snapshot, objects, number, unit)
            here += 1
    return here


def hidden_files(root: Path) -> list[Path]:
    """What a killed process would leave behind."""
    return [path for path in root.rglob(".*") if path.name.startswith(".")]

"""Compare all that a dataset has in the cache with its checksums, and drop what does not match."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from hotset.errors import Corrupt, NotFound
from hotset.snapshot import Snapshot
from hotset.tier.node.dataset import DatasetDirectory
from hotset.tier.node.packreader import PackReader
from hotset.tier.node.packs import PackShelf
from hotset.tier.node.shelf import open_reader, open_shelf
from hotset.tier.node.treepaths import ledger_of
from hotset.tier.node.treereader import TreeReader
from hotset.tier.node.trees import TreeShelf

__all__ = ["Damage", "Verified", "verify_dataset"]

Advance = Callable[[int, int], object]
"""Called with bytes checked and bytes to check."""


@dataclass(frozen=True)
class Damage:
    """An object whose bytes were not what had been stored."""

    snapshot: str
    key: str


@dataclass
class Verified:
    """What was looked at, and what was damaged (and is absent now)."""

    units: int = 0
    bytes: int = 0
    damaged: list[Damage] = field(default_factory=list)


def verify_dataset(dataset: DatasetDirectory, advance: Advance) -> Verified:
    """Check every present unit of every snapshot; packs that snapshots share are read once."""
    verified = Verified()
    seen: set[bytes] = set()
    todo = 0
    snapshots = []
    try:
        for digest in dataset.digests():
            try:
                snapshots.append(dataset.open(digest))
            except NotFound:
                continue  # collected meanwhile
        for snapshot, _ in snapshots:
            todo += snapshot.total_bytes
        passed = 0
        for snapshot, _ in snapshots:
            passed = _verify_snapshot(dataset, snapshot, seen, verified, lambda done: advance(done, todo), passed)
    finally:
        for _, lease in snapshots:
            lease.release()
    return verified


def _verify_snapshot(
    dataset: DatasetDirectory,
    snapshot: Snapshot,
    seen: set[bytes],
    verified: Verified,
    advance: Callable[[int], object],
    passed: int,
) -> int:
    if dataset.record().layout == "files" and not ledger_of(dataset.trees / snapshot.digest).exists():
        return passed + snapshot.total_bytes  # nothing of it is here, and looking must not make a tree
    reader = open_reader(dataset, snapshot)
    with suppress(Corrupt):
        reader.held(0)  # has the ledger of a tree mapped as it is before a shelf takes out what it finds damaged
    shelf = open_shelf(dataset, snapshot)
    try:
        for number in range(snapshot.pack_count):
            name = snapshot.pack_name(number)
            if isinstance(shelf, TreeShelf) or name not in seen:
                seen.add(name)
                _verify_pack(shelf, _marked(reader, snapshot, number), snapshot, number, verified)
            passed += snapshot.pack_sizes[number]
            advance(passed)
    finally:
        shelf.close()
        reader.close()
    return passed


def _verify_pack(
    shelf: PackShelf | TreeShelf, units: Sequence[int], snapshot: Snapshot, number: int, verified: Verified
) -> None:
    shelf.repair(number)
    damaged = {unit for unit in units if not shelf.present(number, unit)}
    verified.units += len(units)
    for unit in units:
        _, start, end = snapshot.unit_range(number, unit)
        verified.bytes += end - start
    positions = sorted({snapshot.unit_range(number, unit)[0] for unit in damaged})
    verified.damaged += [Damage(snapshot.digest, snapshot.key(position)) for position in positions]


def _marked(reader: PackReader | TreeReader, snapshot: Snapshot, number: int) -> list[int]:
    """The units that should be here: those marked present; all of them if even the marks cannot be read."""
    if isinstance(reader, TreeReader):
        return reader.marked(number)
    everything = range(snapshot.pack_units[number])
    reader.forget(number)
    try:
        mapped = reader.open(number)
    except Corrupt:
        return list(everything)
    return [] if mapped is None else sorted(set(everything).difference(mapped.missing_units()))

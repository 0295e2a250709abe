"""Garbage collection: what nothing in a cache directory refers to any more.

Eviction makes room when room is needed; this removes, now, what would go first then, and what killed processes left. What
is garbage is decided from facts, by small pure functions; the rest of the module gathers the facts and removes.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from hotset.base.files import usage_of
from hotset.base.locks import FileLock
from hotset.errors import HotsetError, NotFound
from hotset.snapshot import Snapshot
from hotset.tier.node.cache import CacheDirectory
from hotset.tier.node.dataset import DatasetDirectory
from hotset.tier.node.records import SnapshotRecord
from hotset.tier.node.treepaths import beside_tree

__all__ = ["Garbage", "collect", "is_leftover", "outlived", "unreferenced"]

#: A temporary name lives for the length of one write; one that is older than this belongs to nobody who still lives.
LEFTOVER_AGE = 3600.0
_PARTIAL = re.compile(r"\.([0-9a-f]{64})\.\d+\.part")

Kind = Literal["dataset", "name", "snapshot", "pack", "tree", "leftover"]


@dataclass(frozen=True)
class Garbage:
    """One thing that nothing refers to. ``dataset`` is an identifier, empty for what belongs to none."""

    kind: Kind
    dataset: str
    path: Path
    bytes: int


# -- decisions ---------------------------------------------------------------------------------------------------------


def unreferenced(snapshots: Iterable[SnapshotRecord]) -> list[str]:
    """The digests that nobody needs: not current, not pinned, not open in any process."""
    return [record.digest for record in snapshots if not (record.current or record.pinned or record.leased)]


def outlived(snapshots: Sequence[SnapshotRecord], *, keep: int) -> list[str]:
    """Of snapshots, oldest first: the digests that nobody needs, but for the ``keep`` newest of them (to go back to)."""
    digests = unreferenced(snapshots)
    return digests[: max(0, len(digests) - keep)]


def is_leftover(name: str, age: float, living: Iterable[str]) -> bool:
    """Whether a hidden entry, ``age`` seconds old, was left by a process that died.

    A large object on its way into a tree has a hidden file that outlives its filler on purpose: the next one goes on with
    it. It is garbage only without its snapshot.
    """
    if (partial := _PARTIAL.fullmatch(name)) is not None:
        return partial[1] not in set(living)
    return name.startswith(".") and age >= LEFTOVER_AGE


# -- facts and deeds ---------------------------------------------------------------------------------------------------


def collect(cache: CacheDirectory, *, now: float, dry_run: bool = False) -> list[Garbage]:
    """Remove the garbage of a cache directory (``now`` is the wall clock); what was, or with ``dry_run`` would be, removed.

    What somebody uses, lists or fills at this moment is left alone.
    """
    removed: list[Garbage] = []
    with cache.space.locked():
        removed += _names_and_orphans(cache, dry_run=dry_run)
        gone = {entry.dataset for entry in removed if entry.kind == "dataset"}
        for dataset in cache.all():
            if dataset.identifier not in gone:
                with suppress(HotsetError):  # damaged or dropped meanwhile; `hotset doctor` tells
                    removed += _collect_dataset(dataset, now=now, dry_run=dry_run)
        for directory in (cache.root, cache.root / "names", cache.root / "datasets"):
            removed += _leftovers(directory, "", (), now=now, dry_run=dry_run)
        if not dry_run:
            cache.space.recount()
    return removed


def _names_and_orphans(cache: CacheDirectory, *, dry_run: bool) -> list[Garbage]:
    """Names of datasets that are gone, and datasets whose last name is gone: a drop that was cut off in the middle."""
    found = []
    with FileLock(cache.root / "setup.lock", mode=cache.file_mode):  # nobody registers a name meanwhile
        for name in list(cache.names()):
            link = cache.root / "names" / name
            if not link.exists():
                found.append(Garbage("name", "", link, 0))
                if not dry_run:
                    link.unlink(missing_ok=True)
        for dataset in list(cache.all()):
            if cache.names_of(dataset.identifier) or any(dataset.leased(digest) for digest in dataset.digests()):
                continue
            found.append(Garbage("dataset", dataset.identifier, dataset.path, _size_of(dataset.path)))
            if not dry_run:
                dataset.drop()
    return found


def _collect_dataset(dataset: DatasetDirectory, *, now: float, dry_run: bool) -> Iterator[Garbage]:
    lock = dataset.listing_lock()
    if not lock.try_acquire():
        return  # a snapshot that is being published is not current yet
    try:
        dataset.look()  # a damaged index names no packs, but nothing here may be taken for garbage for that
        doomed = set()
        for entry in _snapshots(dataset, dry_run=dry_run):
            doomed.add(entry.path.name)
            yield entry
        living = [digest for digest in dataset.digests() if digest not in doomed]
        yield from _packs(dataset, living, dry_run=dry_run)
        yield from _trees(dataset, living, doomed, dry_run=dry_run)
        for directory in (dataset.path, dataset.path / "snapshots", dataset.packs, dataset.trees):
            yield from _leftovers(directory, dataset.identifier, (*living, *doomed), now=now, dry_run=dry_run)
    finally:
        lock.release()


def _snapshots(dataset: DatasetDirectory, *, dry_run: bool) -> Iterator[Garbage]:
    for digest in unreferenced(dataset.snapshots()):
        tree = dataset.trees / digest
        paths = (dataset.snapshot_path(digest), tree, *beside_tree(tree))
        size = sum(_size_of(path) for path in paths)
        if dry_run or dataset.remove_snapshot(digest):
            yield Garbage("snapshot", dataset.identifier, dataset.snapshot_path(digest), size)


def _packs(dataset: DatasetDirectory, living: Sequence[str], *, dry_run: bool) -> Iterator[Garbage]:
    """Packs that no living snapshot contains; all of them where the layout has none."""
    kept: set[str] = set()
    for digest in living:
        if dataset.record().layout == "packs" or dataset.leased(digest):
            with suppress(NotFound):
                kept.update(name.hex() for name in Snapshot(dataset.snapshot_path(digest)).pack_names())
    for entry in _entries(dataset.packs):
        if not entry.name.startswith(".") and entry.name not in kept:
            yield from _remove("pack", dataset.identifier, Path(entry.path), dry_run=dry_run)


def _trees(dataset: DatasetDirectory, living: Sequence[str], doomed: set[str], *, dry_run: bool) -> Iterator[Garbage]:
    """Trees, and their ledgers, whose snapshot is gone; all of them where the layout has none (a conversion that was
    killed). Those of ``doomed`` snapshots go, and are counted, with these.
    """
    kept = doomed.union(living if dataset.record().layout == "files" else ())
    for entry in _entries(dataset.trees):
        if not entry.name.startswith(".") and entry.name.removesuffix(".ledger") not in kept:
            yield from _remove("tree", dataset.identifier, Path(entry.path), dry_run=dry_run)


def _leftovers(directory: Path, dataset: str, kept: Sequence[str], *, now: float, dry_run: bool) -> Iterator[Garbage]:
    for entry in _entries(directory):
        with suppress(FileNotFoundError):
            # The time of the last change of the inode: a rename into a hidden name counts, the content's age does not.
            age = now - entry.stat(follow_symlinks=False).st_ctime
            if entry.name.startswith(".") and is_leftover(entry.name, age, kept):
                yield from _remove("leftover", dataset, Path(entry.path), dry_run=dry_run)


def _size_of(path: Path) -> int:
    """What removing ``path`` gives back; 0 if it is not there."""
    if path.is_dir() and not path.is_symlink():
        return usage_of(path)
    with suppress(FileNotFoundError):
        return path.lstat().st_blocks * 512
    return 0


def _entries(directory: Path) -> list[os.DirEntry[str]]:
    try:
        return sorted(os.scandir(directory), key=lambda entry: entry.name)
    except FileNotFoundError:
        return []


def _remove(kind: Kind, dataset: str, path: Path, *, dry_run: bool) -> Iterator[Garbage]:
    try:
        size = _size_of(path)
        if not dry_run:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
    except FileNotFoundError:
        return  # somebody was faster
    yield Garbage(kind, dataset, path, size)

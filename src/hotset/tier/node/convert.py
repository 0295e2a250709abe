"""From packs to plain files, for a view of a dataset that was loaded for the library."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, suppress

from hotset.errors import Busy, Corrupt, NotFound
from hotset.snapshot import Snapshot
from hotset.tier.node.dataset import DatasetDirectory
from hotset.tier.node.packreader import PackReader
from hotset.tier.node.trees import TreeShelf

__all__ = ["convert_to_files"]

Advance = Callable[[int, int], object]
"""Called with bytes copied and bytes to copy."""


def convert_to_files(dataset: DatasetDirectory, advance: Advance) -> int:
    """Copy what the current snapshot has in packs into plain files, then remove the packs; the bytes copied.

    `Busy` while another process has a snapshot of the dataset open, since its reader looks for packs; who comes meanwhile
    waits, and finds files. Needs room for both copies (`Full` if the quota has none). Killed on its way it leaves the
    packs as they are, and files that the next attempt adopts. A dataset that has files already is left alone.
    """
    if dataset.record().layout == "files":
        return 0
    with ExitStack() as locks:
        locks.enter_context(dataset.listing_lock())  # no new snapshot meanwhile
        for digest in dataset.digests():
            lock = dataset.exclusive(digest)
            if lock is None:
                raise Busy("the dataset is in use, and its readers look for packs; end them before it is converted")
            locks.callback(lock.release)
        current = dataset.current()
        if current is None:
            raise NotFound(f"the dataset in {dataset.path} has no snapshot yet; load it first")
        copied = _copy(dataset, Snapshot(dataset.snapshot_path(current.digest)), advance)
        dataset.set_layout("files")
        with dataset.cache.space.locked():
            # All of them: older snapshots have no files, and nobody looks for packs any more.
            for path in dataset.packs.iterdir():
                path.unlink(missing_ok=True)
            dataset.cache.space.recount()
    return copied


def _copy(dataset: DatasetDirectory, snapshot: Snapshot, advance: Advance) -> int:
    reader = PackReader(dataset, snapshot)
    shelf = TreeShelf(dataset, snapshot)
    try:
        total = sum(_held_bytes(reader, snapshot, number) for number in range(snapshot.pack_count))
        copied = 0
        for number in range(snapshot.pack_count):
            for unit in range(snapshot.pack_units[number]):
                copied += _copy_unit(reader, shelf, number, unit)
            shelf.finish(number)
            reader.forget(number)
            advance(copied, total)
        return copied
    finally:
        shelf.close()
        reader.close()


def _copy_unit(reader: PackReader, shelf: TreeShelf, number: int, unit: int) -> int:
    if shelf.present(number, unit):
        return 0
    with suppress(Corrupt):  # what is damaged is fetched anew
        data = reader.unit(number, unit)
        mapped = reader.mapped(number)
        if data is None or mapped is None:
            return 0
        start, end = reader.extents(number)[unit]
        if mapped.check(unit, start, end) and shelf.write(number, unit, data):
            return len(data)
    return 0


def _held_bytes(reader: PackReader, snapshot: Snapshot, number: int) -> int:
    return snapshot.pack_sizes[number] * reader.held(number) // max(1, snapshot.pack_units[number])

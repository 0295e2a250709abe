"""Older snapshots of the same dataset that are still in the cache: what did not change is copied from them, not fetched."""

from __future__ import annotations

from contextlib import suppress

from hotset.base.checksum import checksum
from hotset.errors import HotsetError, NotFound
from hotset.snapshot import Snapshot
from hotset.tier.node.dataset import DatasetDirectory
from hotset.tier.node.packreader import PackReader

__all__ = ["Donors"]


class Donors:
    """The other snapshots. Used by one engine's threads.

    Holds no lease on them: what was thrown away when the new snapshot needed its room is fetched, since a donor that
    kept the new snapshot out of the cache would cost more than it gives.
    """

    def __init__(self, dataset: DatasetDirectory, digest: str) -> None:
        self._open: list[tuple[Snapshot, PackReader]] = []
        for other in dataset.digests():
            if other != digest:
                with suppress(HotsetError):  # collected or damaged: then it is no donor
                    snapshot, lease = dataset.open(other)
                    lease.release()
                    self._open.append((snapshot, PackReader(dataset, snapshot)))

    def __bool__(self) -> bool:
        return bool(self._open)

    def find(self, snapshot: Snapshot, position: int) -> bytes | None:
        """The bytes of an object of ``snapshot`` if an older pack has them in the same version; checked by CRC."""
        key, version = snapshot.key(position), snapshot.stored_fingerprint(position)
        for older, reader in self._open:
            with suppress(NotFound):
                there = older.find(key)
                if older.stored_fingerprint(there) != version or older.sizes[there] != snapshot.sizes[position]:
                    continue
                number, units = older.units_of(there)
                if older.pack(number).stripe:
                    continue  # a large object that did not change has not changed its pack either
                with suppress(HotsetError):
                    view = reader.unit(number, units[0])
                    mapped = reader.mapped(number)
                    if view is not None and mapped is not None and checksum(view) == mapped.words[units[0]]:
                        return bytes(view)
        return None

    def close(self) -> None:
        for _, reader in self._open:
            reader.close()
        self._open.clear()

"""Which keys can be paths of plain files below one directory, and what the directories take."""

from __future__ import annotations

from collections import Counter

from hotset.base.files import rounded
from hotset.errors import InvalidInput
from hotset.snapshot import Snapshot

__all__ = ["check_keys", "directories_cost"]

#: Bytes of a directory's entry beside its name; doubled below, since half-full blocks are usual.
_ENTRY = 24


def check_keys(snapshot: Snapshot) -> None:
    """`InvalidInput` if some key cannot be the path of a plain file below one directory."""
    keys = list(snapshot.keys())
    directories: set[str] = set()
    for key in keys:
        parts = key.split("/")
        if any(part in ("", ".", "..") or len(part.encode()) > 255 or not part.isprintable() for part in parts):
            raise InvalidInput(
                f"the key {key!r} cannot be a path in a view; exclude it (--exclude), or read the dataset with the library"
            )
        for depth in range(len(parts) - 1, 0, -1):
            parent = "/".join(parts[:depth])
            if parent in directories:
                break
            directories.add(parent)
    for key in keys:
        if key in directories:
            raise InvalidInput(
                f"the keys {key!r} and {key + '/…'!r} collide in a view: one path cannot be a file and a directory; "
                "exclude one of them (--exclude)"
            )


def directories_cost(snapshot: Snapshot) -> int:
    """What the directories of a tree take on a disk, estimated from above."""
    entries = Counter({"": 4096})
    for key in map(snapshot.key, range(len(snapshot))):
        while key:
            parent, _, name = key.rpartition("/")
            known = parent in entries
            entries[parent] += 2 * (len(name.encode()) + _ENTRY)
            if known:
                break
            key = parent
    return sum(map(rounded, entries.values()))

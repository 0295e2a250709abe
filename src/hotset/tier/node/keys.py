"""Which keys can be paths of plain files below one directory."""

from __future__ import annotations

from hotset.errors import InvalidInput
from hotset.snapshot import Snapshot

__all__ = ["check_keys"]


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

"""Which keys can be paths of plain files below one directory, and what the directories take."""

from __future__ import annotations

import re
from collections import Counter

from hotset.base.files import rounded
from hotset.errors import InvalidInput
from hotset.snapshot import Snapshot

__all__ = ["check_keys", "directories_cost", "possible_name"]

#: Unicode's control characters (category Cc), and surrogates, which cannot be encoded.
_REFUSED = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
#: Bytes of a directory's entry beside its name; doubled below, since half-full blocks are usual.
_ENTRY = 24


def possible_name(part: str) -> bool:
    """Whether a file may be called so. What merely does not print (blanks of other scripts, marks of direction) may be part
    of a name; whoever shows it escapes it.
    """
    return part not in ("", ".", "..") and not _REFUSED.search(part) and len(part.encode()) <= 255


def check_keys(snapshot: Snapshot) -> None:
    """`InvalidInput` if some key cannot be the path of a plain file below one directory."""
    keys = list(snapshot.keys())
    directories: set[str] = set()
    for key in keys:
        parts = key.split("/")
        if not all(map(possible_name, parts)):
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

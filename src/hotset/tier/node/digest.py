"""A large object that is known by its SHA-256 only: its stripes cannot tell one by one whose they are."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256

from hotset.errors import Changed
from hotset.snapshot import Snapshot
from hotset.source.base import Buffer, FingerprintKind

__all__ = ["check_digest"]


def check_digest(snapshot: Snapshot, number: int, stripes: Iterable[Buffer]) -> None:
    """`Changed` if the stripes of a pack, all of them, are not the object that they should be. Others are not looked at."""
    if not snapshot.pack(number).stripe:
        return
    info = snapshot.info(snapshot.pack_first[number])
    if info.kind is not FingerprintKind.SHA256:
        return
    found = sha256()
    for stripe in stripes:
        found.update(stripe)
    if found.hexdigest().encode() != info.fingerprint:
        raise Changed(f"{info.key!r}: another content (by its SHA-256) than when it was listed; reload the dataset")

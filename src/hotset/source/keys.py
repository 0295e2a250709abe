"""Small pure rules about keys, entity tags and times that every kind of source needs."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from hotset.source.base import FingerprintKind, ObjectInfo

__all__ = [
    "alias_possible",
    "awkward",
    "epoch_ns",
    "make_info",
    "modified_value",
    "same_time",
    "shown",
    "strong_tag",
]

_AWKWARD = re.compile(r"[\x00-\x1f\x7f]|(?:\A|/)\.{0,2}(?:/|\Z)")
_MD5 = re.compile(r"[0-9a-f]{32}")
_MULTIPART = re.compile(r"[0-9a-f]{32}-[0-9]+")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND = 1_000_000_000


def awkward(key: str) -> bool:
    """Whether HTTP clients that treat keys as paths would refuse ``key`` or ask for another object.

    True for empty, ``.`` and ``..`` parts (also a leading or trailing slash) and for control characters.
    """
    return _AWKWARD.search(key) is not None


def shown(key: str) -> str:
    """A key as it may stand in a message: on one line and without effects on a terminal."""
    return key if key.isprintable() else ascii(key)


def strong_tag(etag: str | None) -> str | None:
    """An entity tag without its quotes; None if there is none or it is weak."""
    if not etag or etag.startswith(("W/", "w/")):
        return None
    return etag.strip('"') or None


def alias_possible(listed: str, got: str) -> bool:
    """Whether two different entity tags may name the same content.

    Some servers give another kind of tag in a listing than in an answer to GET: the sum of an object's parts, or of its
    whole. Two different tags of one kind always mean two versions, whatever the times say: they may lie in one second.
    """
    return _kind(listed) != _kind(got)


def _kind(tag: str) -> str:
    if _MD5.fullmatch(tag):
        return "md5"
    return f"parts {tag.rpartition('-')[2]}" if _MULTIPART.fullmatch(tag) else "other"


def same_time(first: int, second: int) -> bool:
    """Whether two times in ns are equal in the coarser of their precisions. Unknown (0) equals nothing."""
    if first == 0 or second == 0:
        return False
    if first % _SECOND == 0 or second % _SECOND == 0:
        return first // _SECOND == second // _SECOND
    return first == second


def epoch_ns(moment: datetime) -> int:
    """Nanoseconds since 1970, exactly (no floating point)."""
    delta = moment - _EPOCH
    return ((delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds) * 1_000


def modified_value(modified_ns: int) -> bytes:
    """The fingerprint of the kind MODIFIED; the size is kept beside it."""
    return b"%d" % modified_ns


def make_info(key: str, size: int, etag: str | None, modified_ns: int) -> ObjectInfo:
    """An object as a store lists it: by its strong tag if it has one, else by its time."""
    tag = strong_tag(etag)
    if tag is None:
        return ObjectInfo(key, size, FingerprintKind.MODIFIED, modified_value(modified_ns), modified_ns)
    return ObjectInfo(key, size, FingerprintKind.ETAG, tag.encode(), modified_ns)

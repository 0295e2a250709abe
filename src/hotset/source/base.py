"""What a source is: something that can list its objects and read byte ranges of them.

Lifecycle: a `Source` is made by `hotset.source.open_source`, used from any number of threads of one process that
never forks afterwards (obstore's runtime hangs in forked children), and closed once. Objects are immutable for as
long as their fingerprint is: `Source.read` either returns bytes that belong to the fingerprint it was given or raises
`Changed`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple, Protocol

__all__ = ["Buffer", "Fingerprint", "FingerprintKind", "ObjectInfo", "Source"]

#: Anything with the buffer protocol whose bytes nobody changes; obstore hands out its own type.
Buffer = bytes | memoryview


class FingerprintKind(IntEnum):
    """How an object's version is recognised, from the strongest to the weakest. The numbers are stored."""

    SHA256 = 1  #: digest of the content, from a manifest
    ETAG = 2  #: strong entity tag, normalised (no quotes)
    MODIFIED = 3  #: weak: (size, modification time); `Fingerprint.value` is the time in the precision the store gives


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """What tells that an object changed. Two fingerprints of one key are equal exactly if its content is the same
    version (together with the size, which the snapshot keeps beside it).
    """

    kind: FingerprintKind
    value: bytes

    @property
    def weak(self) -> bool:
        return self.kind is FingerprintKind.MODIFIED


class ObjectInfo(NamedTuple):
    """One object of a listing. ``key`` is relative to the dataset's root; ``modified_ns`` is 0 where unknown.

    A tuple and not a class, because a listing makes millions of them.
    """

    key: str
    size: int
    kind: FingerprintKind
    fingerprint: bytes
    modified_ns: int = 0


class Source(Protocol):
    """Where data comes from. Five members; anything else (retries, rates, several sources in one) wraps this."""

    @property
    def identity(self) -> str:
        """Scheme, endpoint, account, bucket and root: what must be equal for two sources to be the same place.

        Contains no credential, no query string and no user name or password of a URL.
        """

    def list(self) -> Iterator[Sequence[ObjectInfo]]:
        """All objects below the root, in batches, in any order, without directory markers and without a request per
        object (only a manifest without sizes needs one).

        Raises `NotFound` if the place does not exist, `Denied` without permission, `Unavailable` if a retry may help.
        """

    def read(self, key: str, start: int, end: int, expect: ObjectInfo) -> Buffer:
        """The bytes ``[start, end)`` of the version that ``expect`` names, exactly ``end - start`` of them.

        Raises `Changed` if the object is another version now, `NotFound` if it is gone, `Denied`, `Unavailable`.
        ``start == end`` is answered without a request.
        """

    def newest(self, key: str) -> Buffer:
        """The whole object as it is now, whatever version that is; for callers that prefer it to `Changed`.

        Raises `NotFound` if the object is gone, `Denied`, `Unavailable`.
        """

    def close(self) -> None:
        """Release connections. Idempotent."""

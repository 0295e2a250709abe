"""Every error that hotset raises on purpose.

One tree, so that a caller can write ``except hotset.HotsetError`` and a tier can decide by type what to do next:
only `NotFound` and `Unavailable` fall through to the next tier; `Corrupt` drops the copy and then falls through;
everything else surfaces. Messages name the thing and say what to do; they never contain a secret.

``exit_code`` is what the command line returns: 2 for something the caller must write differently, 1 for a failure.
"""

from __future__ import annotations

__all__ = [
    "AlreadyExists",
    "Busy",
    "Changed",
    "Closed",
    "Corrupt",
    "Denied",
    "Full",
    "HotsetError",
    "InvalidInput",
    "NotFound",
    "Unavailable",
]


class HotsetError(Exception):
    """The root of the tree."""

    exit_code = 1


class InvalidInput(HotsetError, ValueError):
    """What the caller wrote cannot be right: an unknown scheme, a missing bucket, a name with a slash."""

    exit_code = 2


class NotFound(HotsetError, LookupError):
    """The named thing does not exist (any more): an object, a dataset, a snapshot, a pack."""


class AlreadyExists(HotsetError):
    """The name is taken by something else."""


class Changed(HotsetError):
    """The source no longer holds the version of an object that the snapshot names. A reload fixes it."""


class Corrupt(HotsetError):
    """Stored bytes are not the bytes that were stored. The copy is dropped; the source still has them."""


class Unavailable(HotsetError):
    """A peer did not answer well just now; the same call may succeed later.

    ``throttled`` says that the peer asked for fewer requests (429, 503, slow down) or took too long to answer: whoever
    controls the number of parallel requests must shrink it, while any other transient error is only retried.
    """

    def __init__(self, message: str, *, throttled: bool = False, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.throttled = throttled
        self.retry_after = retry_after


class Denied(HotsetError):
    """Credentials are missing, wrong, or not sufficient; says which variable or secret to set."""


class Full(HotsetError):
    """No room: the quota or the disk cannot take what must be stored."""


class Busy(HotsetError):
    """Somebody uses the thing, so it is not taken away (``--force`` where the caller knows better)."""


class Closed(HotsetError):
    """The dataset, file system or filler was closed before this call."""

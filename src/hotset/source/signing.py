"""Keys to sign requests with, and keeping them for as long as they are valid."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

__all__ = ["Credentials", "Provider", "Renewed"]

#: Renewed this long before the end, so that a request on its way does not meet an expired token.
_EARLY = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class Credentials:
    """Keys to sign with. ``expires`` is None for those that last."""

    access_key: str = field(repr=False)
    secret_key: str = field(repr=False)
    session_token: str | None = field(default=None, repr=False)
    expires: datetime | None = None


#: Where credentials come from. Raises `hotset.errors.Denied` or `Unavailable`.
Provider = Callable[[], Credentials]


class Renewed:
    """A provider that keeps the answer of another one until it is about to expire. Thread-safe."""

    def __init__(self, provider: Provider, *, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._provider = provider
        self._now = now
        self._lock = threading.Lock()
        self._kept: Credentials | None = None

    def __call__(self) -> Credentials:
        kept = self._kept
        if kept is None or self._ends(kept):
            with self._lock:
                kept = self._kept
                if kept is None or self._ends(kept):
                    kept = self._kept = self._provider()
        return kept

    def _ends(self, credentials: Credentials) -> bool:
        return credentials.expires is not None and self._now() >= credentials.expires - _EARLY

"""When to try again: the decision as a pure function, the loop around it, and a limit on a rate.

Time, randomness and waiting are handed in, so that tests need no time. Waiting is `threading.Event.wait` of an event
that means "stop": whoever sets it ends every wait at once.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from hotset.errors import Closed, Unavailable

__all__ = ["Cancel", "RateLimit", "RetryPolicy", "call", "next_wait"]

T = TypeVar("T")


class Cancel(Protocol):
    """What `threading.Event` offers for waiting: True as soon as it is set, False when the time is over."""

    def wait(self, timeout: float | None = None) -> bool: ...


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often and how long. Times in seconds.

    The pause before retry n is random between 0 and ``first * 2**n``, at most ``longest`` (full jitter: clients that
    failed together do not come back together). ``deadline`` bounds the trying again, pauses included: no attempt begins
    later than that after the first failure. It does not count from the start of the call, because a first attempt that
    took long (a slow line, a machine that was suspended) before it broke off deserves a second one as much as any. So a
    call takes at most ``deadline`` and two attempts, each of which its action must bound.
    """

    attempts: int = 8
    first: float = 0.2
    longest: float = 20.0
    deadline: float = 120.0


def next_wait(
    policy: RetryPolicy, *, failures: int, elapsed: float, jitter: float, retry_after: float | None = None
) -> float | None:
    """Seconds to wait after the ``failures``-th failure, or None: give up. ``jitter`` is random in [0, 1).

    A peer that names a time is not asked earlier; the jitter then comes on top.
    """
    if failures >= policy.attempts:
        return None
    pause = jitter * min(policy.longest, policy.first * 2.0 ** min(failures - 1, 60))
    if retry_after is not None:
        pause += max(0.0, retry_after)
    return pause if elapsed + pause < policy.deadline else None


def call(
    action: Callable[[], T],
    policy: RetryPolicy,
    *,
    cancel: Cancel,
    on_retry: Callable[[Unavailable, float], None] | None = None,
    clock: Callable[[], float] = time.monotonic,
    jitter: Callable[[], float] = random.random,
) -> T:
    """``action()``, again after each `Unavailable` for as long as ``policy`` allows.

    ``on_retry`` is told each failure and the pause that follows, before the pause. The last failure is raised with the
    number of attempts in its message. Raises `Closed` if ``cancel`` ends a pause.
    """
    failures = 0
    started = 0.0
    while True:
        try:
            return action()
        except Unavailable as error:
            now = clock()
            started = started if failures else now
            failures += 1
            pause = next_wait(
                policy, failures=failures, elapsed=now - started, jitter=jitter(), retry_after=error.retry_after
            )
            if pause is None:
                raise Unavailable(
                    f"{error} (gave up after {failures} attempts)",
                    throttled=error.throttled,
                    retry_after=error.retry_after,
                ) from error
            if on_retry is not None:
                on_retry(error, pause)
            if cancel.wait(pause):
                raise Closed(f"stopped while waiting to try again: {error}") from error


class RateLimit:
    """At most ``per_second`` units on average, with bursts of at most one second. Thread-safe.

    A request larger than a burst is admitted at once after a pause and charged to those after it, so that a large
    object needs no bucket of its own size.
    """

    def __init__(self, per_second: float, *, cancel: Cancel, clock: Callable[[], float] = time.monotonic) -> None:
        if per_second <= 0:
            raise ValueError("a rate must be positive")
        self._per_second = per_second
        self._cancel = cancel
        self._clock = clock
        self._lock = threading.Lock()
        self._paid_until = clock() - 1.0  # all that was taken so far is paid for at this moment

    def take(self, amount: int) -> None:
        """Wait until ``amount`` units may be used. Raises `Closed` if cancelled while waiting."""
        with self._lock:
            now = self._clock()
            start = max(self._paid_until, now - 1.0)
            self._paid_until = start + amount / self._per_second
            pause = start - now
        if pause > 0 and self._cancel.wait(pause):
            raise Closed("stopped while waiting for the rate limit")

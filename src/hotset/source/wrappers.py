"""Sources made of sources: retries, a rate limit, a choice of keys, several sources in one.

Order matters in one point: `Retrying` goes right around the source itself, because it continues an interrupted listing
where it stopped, which it can only do while it sees the source's own iterator.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from itertools import pairwise
from typing import TypeVar

from hotset.base.retry import Cancel, RateLimit, RetryPolicy, call
from hotset.errors import InvalidInput, NotFound, Unavailable
from hotset.source.base import Buffer, ObjectInfo, Source
from hotset.source.globs import key_filter
from hotset.source.keys import awkward
from hotset.source.listing import Pages

__all__ = ["CombinedSource", "Filtered", "RateLimited", "Retrying", "filtered"]

T = TypeVar("T")


class _Around:
    """Forwards everything to the source within; subclasses override what they change."""

    def __init__(self, source: Source) -> None:
        self._source = source

    @property
    def identity(self) -> str:
        return self._source.identity

    def list(self) -> Iterator[Sequence[ObjectInfo]]:
        return self._source.list()

    def read(self, key: str, start: int, end: int, expect: ObjectInfo) -> Buffer:
        return self._source.read(key, start, end, expect)

    def newest(self, key: str) -> Buffer:
        return self._source.newest(key)

    def close(self) -> None:
        self._source.close()


class Retrying(_Around):
    """Tries again what is `Unavailable`, as ``policy`` says.

    ``on_retry(error, pause)`` is told of each failure at once, so that a pool can shrink when it is throttled. Setting
    ``cancel`` ends every pause with `Closed`.
    """

    def __init__(
        self,
        source: Source,
        policy: RetryPolicy,
        *,
        cancel: Cancel | None = None,
        on_retry: Callable[[Unavailable, float], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        super().__init__(source)
        self._policy = policy
        self._cancel: Cancel = threading.Event() if cancel is None else cancel
        self._on_retry = on_retry
        self._clock = clock
        self._jitter = jitter

    def list(self) -> Iterator[Sequence[ObjectInfo]]:
        batches = self._again(self._source.list)
        if isinstance(batches, Pages):
            while (batch := self._again(lambda: next(batches, None))) is not None:
                yield batch
            return
        # Any other iterator is finished by its exception; asked again it would pretend to have listed everything. So
        # it is made anew, which is right only while nothing has been handed out.
        unused: list[Iterator[Sequence[ObjectInfo]]] = [batches]

        def begin() -> tuple[Sequence[ObjectInfo] | None, Iterator[Sequence[ObjectInfo]]]:
            current = unused.pop() if unused else self._source.list()
            return next(current, None), current

        first, rest = self._again(begin)
        if first is not None:
            yield first
            yield from rest

    def read(self, key: str, start: int, end: int, expect: ObjectInfo) -> Buffer:
        return self._again(lambda: self._source.read(key, start, end, expect))

    def newest(self, key: str) -> Buffer:
        return self._again(lambda: self._source.newest(key))

    def _again(self, action: Callable[[], T]) -> T:
        return call(
            action,
            self._policy,
            cancel=self._cancel,
            on_retry=self._on_retry,
            clock=self._clock,
            jitter=self._jitter,
        )


class RateLimited(_Around):
    """Reads at most ``bytes_per_second`` on average, over all threads. A listing is not charged."""

    def __init__(
        self,
        source: Source,
        bytes_per_second: float,
        *,
        cancel: Cancel | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(source)
        self._limit = RateLimit(bytes_per_second, cancel=threading.Event() if cancel is None else cancel, clock=clock)

    def read(self, key: str, start: int, end: int, expect: ObjectInfo) -> Buffer:
        self._limit.take(end - start)
        return self._source.read(key, start, end, expect)

    def newest(self, key: str) -> Buffer:
        data = self._source.newest(key)
        self._limit.take(len(data))  # its size was unknown before
        return data


class Filtered(_Around):
    """Lists only the keys that ``wanted`` accepts. Reading is not restricted: a snapshot holds nothing else anyway."""

    def __init__(self, source: Source, wanted: Callable[[str], bool]) -> None:
        super().__init__(source)
        self._wanted = wanted

    def list(self) -> Iterator[Sequence[ObjectInfo]]:
        wanted = self._wanted
        for batch in self._source.list():
            yield [info for info in batch if wanted(info.key)]


def filtered(source: Source, *, include: Sequence[str] = (), exclude: Sequence[str] = ()) -> Source:
    """``source`` with only the keys that `hotset.source.globs.key_filter` accepts; itself if there are no patterns."""
    wanted = key_filter(include=include, exclude=exclude)
    return source if wanted is None else Filtered(source, wanted)


class CombinedSource:
    """Several sources as one: every key begins with the mount path of its source.

    One source alone may be mounted at the empty path. No path may lie within another, so that a key says which source
    it belongs to.
    """

    def __init__(self, mounts: Sequence[tuple[str, Source]]) -> None:
        if not mounts:
            raise InvalidInput("a dataset needs at least one source")
        self._mounts = {_mount_prefix(path): source for path, source in mounts}
        if len(self._mounts) != len(mounts):
            raise InvalidInput("two sources are mounted at the same path; give each one a path of its own")
        ordered = sorted(self._mounts)
        for outer, inner in pairwise(ordered):
            if inner.startswith(outer):
                raise InvalidInput(f"the mount path {inner!r} lies within {outer!r}; give sources separate paths")

    @property
    def identity(self) -> str:
        if "" in self._mounts:
            return self._mounts[""].identity
        return json.dumps([[prefix, source.identity] for prefix, source in sorted(self._mounts.items())])

    def list(self) -> Iterator[Sequence[ObjectInfo]]:
        for prefix, source in self._mounts.items():
            for batch in source.list():
                yield [info._replace(key=prefix + info.key) for info in batch] if prefix else batch

    def read(self, key: str, start: int, end: int, expect: ObjectInfo) -> Buffer:
        source, own = self._mounted(key)
        return source.read(own, start, end, expect._replace(key=own))

    def newest(self, key: str) -> Buffer:
        source, own = self._mounted(key)
        return source.newest(own)

    def _mounted(self, key: str) -> tuple[Source, str]:
        for prefix, source in self._mounts.items():
            if key.startswith(prefix):
                return source, key[len(prefix) :]
        raise NotFound(f"{key}: no source is mounted there")

    def close(self) -> None:
        with ExitStack() as stack:  # closes all, also when one of them fails
            for source in self._mounts.values():
                stack.callback(source.close)


def _mount_prefix(path: str) -> str:
    cleaned = path.strip("/")
    if not cleaned:
        return ""
    if awkward(cleaned):
        raise InvalidInput(f"the mount path {path!r} has empty, '.' or '..' parts or control characters")
    return f"{cleaned}/"

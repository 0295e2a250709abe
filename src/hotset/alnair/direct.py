"""Objects straight from their source, without a cache on this machine: what ``usecache: false`` means.

Listed once. Every process reads with connections of its own, which it makes when it first reads: forked workers share
none with their parent, spawned ones read the credentials where their parent did.
"""

from __future__ import annotations

import os
import threading
import time
from bisect import bisect_left
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, overload

from hotset.alnair.job import Place
from hotset.alnair.names import Positions
from hotset.base.retry import RetryPolicy
from hotset.config.settings import environment
from hotset.errors import Changed, Closed, NotFound
from hotset.snapshot import Listing
from hotset.snapshot.fingerprint import decode
from hotset.source import ObjectInfo, Retrying, Source, filtered, key_beginnings, literal_pattern, open_source

__all__ = ["DirectObjects"]

#: Requests at a time when several objects are read together.
REQUESTS = 16
#: A larger object is read in parts of this size.
PART = 64 * 2**20


class DirectObjects:
    """See `hotset.alnair.objects.Objects`."""

    def __init__(self, place: Place, listing: Listing) -> None:
        self.names = _ListedNames(listing)
        self.near = False
        self._place = place
        self._listing = listing
        self._connected: _Connected | None = None
        self._closed = False

    @classmethod
    def listed(cls, place: Place) -> DirectObjects:
        """List the place. Raises `NotFound` if nothing is there."""
        connected = _Connected(place)
        try:
            listing = Listing.of(connected.source.list(), listed_ns=time.time_ns())
        finally:
            connected.close()
        if not len(listing):
            raise NotFound("the listing is empty")
        return cls(place, listing)

    def size(self, position: int) -> int:
        return int(self._listing.sizes[position])

    def read(self, position: int) -> bytes:
        return _read(self._connection().source, self._info(position))

    def read_many(self, positions: Sequence[int]) -> list[bytes]:
        connected = self._connection()
        wanted = list(positions)
        staged = connected.staged
        if staged is not None and staged.positions == wanted:
            wait([staged.future])
            connected.staged = None  # not before: whoever is interrupted meanwhile still closes it
            return staged.future.result()
        return self._read_all(connected, wanted, connected.cancel)

    def follow(self, positions: Positions) -> None:
        """What this process fetched ahead would be of no use to its workers."""

    def stage(self, positions: Positions) -> None:
        connected = self._connection()
        wanted = positions.tolist()
        if connected.staged is not None:
            if connected.staged.positions == wanted:
                return
            connected.staged.cancel.set()
        staged = connected.staged = _Staged(wanted)

        def run() -> None:
            try:
                staged.future.set_result(self._read_all(connected, wanted, staged.cancel))
            except BaseException as error:  # noqa: BLE001  for whoever asks for the result
                staged.future.set_exception(error)

        staged.thread = threading.Thread(target=run, name="hotset-stage", daemon=True)
        staged.thread.start()

    def close(self) -> None:
        self._closed = True
        connected, self._connected = self._connected, None
        if connected is not None and connected.pid == os.getpid():
            connected.close()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_connected": None}

    def _connection(self) -> _Connected:
        if self._closed:
            raise Closed("the dataset was closed")
        if self._connected is None or self._connected.pid != os.getpid():
            self._connected = _Connected(self._place)
        return self._connected

    def _read_all(self, connected: _Connected, positions: Sequence[int], cancel: threading.Event) -> list[bytes]:
        def read(position: int) -> bytes:
            if cancel.is_set():
                raise Closed("the dataset was closed")
            return _read(connected.source, self._info(position))

        pool = ThreadPoolExecutor(min(REQUESTS, max(1, len(positions))), thread_name_prefix="hotset-read")
        try:
            return list(pool.map(read, positions))
        finally:
            pool.shutdown(cancel_futures=True)

    def _info(self, position: int) -> ObjectInfo:
        listing = self._listing
        first, end = listing.fingerprint_offsets[position : position + 2]
        version = decode(int(listing.kinds[position]), listing.fingerprints[first:end])
        modified_ns = int(listing.modified_ns[position])
        return ObjectInfo(self.names[position], self.size(position), version.kind, version.value, modified_ns)


class _Connected:
    """What one process reads with."""

    def __init__(self, place: Place) -> None:
        self.pid = os.getpid()
        self.cancel = threading.Event()
        self.staged: _Staged | None = None
        patterns = [literal_pattern(prefix) for prefix in place.prefixes]
        source = open_source(
            place.uri,
            options=place.options(),
            env=environment(),
            beginnings=key_beginnings(patterns),
            forkable=True,
        )
        self.source: Source = filtered(Retrying(source, RetryPolicy(), cancel=self.cancel), include=patterns)

    def close(self) -> None:
        self.cancel.set()
        if self.staged is not None:
            self.staged.cancel.set()
            if self.staged.thread is not None:
                self.staged.thread.join()
        self.source.close()


class _Staged:
    """Objects that are being read before they are asked for."""

    def __init__(self, positions: list[int]) -> None:
        self.positions = positions
        self.future: Future[list[bytes]] = Future()
        self.cancel = threading.Event()
        self.thread: threading.Thread | None = None


class _ListedNames(Sequence[str]):
    """The names of a listing; see `hotset.alnair.names.Names`."""

    def __init__(self, listing: Listing) -> None:
        self._keys = listing.keys
        self._offsets = listing.key_offsets

    def __len__(self) -> int:
        return len(self._offsets) - 1

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self._name(place).decode() for place in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(f"object {index} of {len(self)}")
        return self._name(index % len(self)).decode()

    def index(self, key: str, start: int = 0, stop: int | None = None) -> int:
        place = self._bisect(key.encode())
        if start <= place < (len(self) if stop is None else stop) and self[place] == key:
            return place
        raise ValueError(f"no object {key!r} among {len(self)}")

    def prefix(self, prefix: str) -> range:
        low = prefix.encode()
        # No byte of UTF-8 is 0xff, so nothing that begins with the prefix lies beyond.
        return range(self._bisect(low), self._bisect(low + b"\xff"))

    def _name(self, place: int) -> bytes:
        return self._keys[self._offsets[place] : self._offsets[place + 1]]

    def _bisect(self, wanted: bytes) -> int:
        return bisect_left(range(len(self)), wanted, key=self._name)


def _read(source: Source, info: ObjectInfo) -> bytes:
    starts = range(0, info.size, PART)
    try:
        parts = [source.read(info.key, start, min(start + PART, info.size), info) for start in starts]
    except NotFound as error:  # it was there when it was listed
        raise Changed(f"{info.key!r} was removed from the source; open the dataset again") from error
    return bytes(parts[0]) if len(parts) == 1 else b"".join(parts)

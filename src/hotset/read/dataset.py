"""`Dataset`: what `hotset.open` returns."""

from __future__ import annotations

import io
import operator
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt

from hotset.errors import AlreadyExists, Changed, Closed, Corrupt, HotsetError, InvalidInput, Unavailable
from hotset.fill.client import FillClient
from hotset.fill.progress import Progress
from hotset.read.file import ObjectFile
from hotset.read.keys import Keys
from hotset.read.stats import ReadStats
from hotset.snapshot import Changes, Snapshot, diff
from hotset.tier.node import CacheDirectory, DatasetDirectory, Lease
from hotset.tier.node.packs import PackReader
from hotset.tier.node.shelf import open_reader

__all__ = ["Dataset", "OnChanged", "ReadOptions"]

OnChanged = Literal["raise", "skip", "newest"]

#: Bytes that one request to the filler asks for: keeps answers small and several workers served in turn.
REQUEST_BYTES = 16 * 2**20
#: Objects, or stripes of an object, that one request asks for at most: keeps requests and answers within a frame.
REQUEST_OBJECTS = 4096
REQUEST_STRIPES = 32
#: So many reads of a dataset that is still filling are told to the filler at once.
NOTICE_EVERY = 32


@dataclass(frozen=True)
class ReadOptions:
    """``lookahead``: bytes that a followed order is fetched ahead of the reading. ``on_changed``: see `hotset.open`."""

    on_changed: OnChanged = "raise"
    lookahead: int = 2**30


class Dataset(Sequence[bytes]):
    """The objects of one snapshot, in key order, from the cache where they are there and from the source where not.

    Bound to its snapshot for life: length, order and content never change while it is open. Safe to use from several
    threads, to fork (DataLoader workers) and to pickle (spawned ones). Close it, or use it in a ``with`` block.
    """

    def __init__(
        self,
        name: str,
        directory: DatasetDirectory,
        snapshot: Snapshot,
        lease: Lease,
        fill: FillClient,
        options: ReadOptions,
    ) -> None:
        self.name = name
        self.keys = Keys(snapshot)
        self._directory = directory
        self._snapshot = snapshot
        self._lease = lease
        self._fill = fill
        self._options = options
        self._reader = open_reader(directory, snapshot)
        self._closed = False
        # The read path: one view a complete pack, and the index columns.
        self._views: list[memoryview | None] = [None] * snapshot.pack_count
        self._packs = snapshot.packs
        self._offsets = snapshot.offsets
        self._sizes = snapshot.sizes
        self._noticed: list[int] = []
        self._reset_counters()
        self._map_complete_packs()

    def _reset_counters(self) -> None:
        self._reads = self._waits = self._bytes = self._bytes_through = 0
        self._wait_seconds = 0.0

    # -- reading -------------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._snapshot)

    def __getitem__(self, index: int) -> bytes:  # type: ignore[override]  # one object at a time; see read_many
        view = self._views[self._packs[index]]
        if view is None:
            return bytes(self._fetch(index))
        offset = self._offsets[index]
        size = self._sizes[index]
        self._reads += 1
        self._bytes += size
        return view[offset : offset + size].tobytes()

    def slice(self, index: int) -> memoryview:
        """The bytes of an object without a copy: a read-only view of the mapped cache (or of the fetched copy of an
        object that has no place there). Stays valid after `close` and after an eviction.
        """
        view = self._views[self._packs[index]]
        if view is None:
            return self._fetch(index)
        offset = self._offsets[index]
        size = self._sizes[index]
        self._reads += 1
        self._bytes += size
        return view[offset : offset + size]

    def read(self, key: str, start: int | None = None, end: int | None = None) -> bytes:
        """The bytes ``[start, end)`` of an object, by key. Of a large object only the stripes in question are fetched."""
        position = self._snapshot.find(key)
        size = self._sizes[position]
        start, end, _ = slice(start, end).indices(size)
        return bytes(self._range(position, start, max(start, end)))

    def read_many(self, indices: Iterable[int]) -> list[bytes]:
        """Many objects at once, in the order of ``indices``; absent ones are fetched in parallel. The way to read batches.

        With ``on_changed="skip"`` objects that changed at the source are left out, so the result may be shorter.
        """
        views, packs, offsets, sizes = self._views, self._packs, self._offsets, self._sizes
        found: list[bytes | None] = []
        absent: list[tuple[int, int]] = []
        total = 0
        for index in indices:
            view = views[packs[index]]
            if view is None:
                absent.append((len(found), index))
                found.append(None)
                continue
            offset = offsets[index]
            size = sizes[index]
            total += size
            found.append(view[offset : offset + size].tobytes())
        self._reads += len(found) - len(absent)
        self._bytes += total
        if absent:
            self._fetch_many(absent, found)
        return [data for data in found if data is not None]

    def open(self, key: str) -> io.BufferedReader:
        """The object as a read-only binary file. Reads only what is asked for."""
        position = self._snapshot.find(key)
        file = ObjectFile(key, self._sizes[position], lambda start, end: self._range(position, start, end))
        return io.BufferedReader(file, 2**17)

    def __iter__(self) -> Iterator[bytes]:
        for index in range(len(self)):
            yield self[index]

    def __contains__(self, item: object) -> bool:
        raise TypeError("ask `key in dataset.keys`")

    # -- filling -------------------------------------------------------------------------------------------------------

    @property
    def complete(self) -> bool:
        """Whether every object is in the cache (as far as this process has looked; `load` looks again)."""
        return None not in self._views if isinstance(self._reader, PackReader) else self._reader.complete

    def load(self, progress: Callable[[Progress], object] | None = None, *, wait: bool = True) -> Progress:
        """Fetch everything that the quota has room for. ``progress`` is called a few times a second.

        With ``wait=False`` the filler goes on in the background, behind whatever is read or prefetched meanwhile.
        Raises the first failure, after all other objects were fetched.
        """
        self._check_open()
        digest = self._snapshot.digest
        self._map_complete_packs()
        if self.complete:
            done = Progress(len(self), len(self), self.total_bytes, self.total_bytes, finished=True)
            if progress is not None:
                progress(done)
            return done
        self._fill.load(digest)
        while True:
            state = self._fill.progress(digest, wait=0.25 if wait else 0.0)
            if progress is not None:
                progress(state)
            if state.finished or not wait:
                break
        self._map_complete_packs()
        if state.finished and state.failed:
            count, errors = self._fill.failures(digest)
            if errors and not (self._options.on_changed != "raise" and isinstance(errors[0], Changed)):
                raise type(errors[0])(f"{count} objects could not be loaded; the first: {errors[0]}")
        return state

    def prefetch(self, order: Iterable[int], *, lookahead: int | None = None) -> None:
        """Tell the order of the reads to come (indices): absent objects are fetched in that order, ahead of the reading.

        Replaces an earlier order. ``lookahead`` bounds in bytes how far ahead.
        """
        self._check_open()
        positions = _positions(order, len(self))
        self._drop_evicted()
        self._map_complete_packs()
        if self.complete:
            return
        self._fill.follow(self._snapshot.digest, positions, self._options.lookahead if lookahead is None else lookahead)

    def reload(self) -> Changes:
        """List the source again and make the result the current snapshot, for those who open the dataset from now on.

        This `Dataset` stays as it is. What did not change is kept; nothing is fetched here (use `load` on the new one).
        """
        self._check_open()
        current = self._fill.refresh(not_before_ns=time.time_ns())
        if current.digest == self._snapshot.digest:
            return diff(self._snapshot, self._snapshot)
        after, lease = self._directory.open(current.digest)
        try:
            return diff(self._snapshot, after)
        finally:
            lease.release()

    def view(self, path: str | os.PathLike[str]) -> Path:
        """Make ``path`` a symbolic link to a directory tree with the dataset's own names, complete and read-only.

        For datasets of the layout "files"; loads what is missing first.
        """
        if isinstance(self._reader, PackReader):
            raise InvalidInput(
                f"{self.name} keeps its objects in packs; for a view load it with the layout 'files', or convert it with "
                f"`hotset view {self.name} DIR --convert` (copies {self.total_bytes} bytes)"
            )
        self.load()
        link = Path(path).absolute()
        if link.is_symlink():
            link.unlink()
        elif link.exists():
            raise AlreadyExists(f"{link} exists and is not a view; choose another path")
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(self._reader.root, target_is_directory=True)
        return link

    # -- facts ---------------------------------------------------------------------------------------------------------

    @property
    def snapshot(self) -> str:
        """The digest of the snapshot: the same for all who see the same objects."""
        return self._snapshot.digest

    @property
    def total_bytes(self) -> int:
        return self._snapshot.total_bytes

    def size(self, index: int) -> int:
        """The size of an object in bytes, without reading it."""
        return self._sizes[index]

    def stats(self) -> ReadStats:
        """Counters of this process's reads and of the filler."""
        return ReadStats(
            reads=self._reads,
            hits=self._reads - self._waits,
            waits=self._waits,
            wait_seconds=self._wait_seconds,
            bytes_from_cache=self._bytes,
            bytes_read_through=self._bytes_through,
            fill=self._fill.stats(self._snapshot.digest),
        )

    def __repr__(self) -> str:
        return f"<hotset.Dataset {self.name!r}: {len(self)} objects, snapshot {self.snapshot[:12]}>"

    # -- life ----------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Let go of the filler, the maps and the lease. Views that were handed out stay valid. Idempotent."""
        if not self._closed:
            self._closed = True
            self._views = [None] * len(self._views)
            self._fill.close()
            self._reader.close()
            self._lease.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        self._check_open()
        if not self.complete:
            self._fill.start()  # workers connect to it; only this process can start it with its credentials
        return (
            _reopen,
            (
                str(self._directory.cache.root),
                self._directory.identifier,
                self.name,
                self._snapshot.digest,
                self._fill,
                self._options,
            ),
        )

    def _check_open(self) -> None:
        if self._closed:
            raise Closed(f"the dataset {self.name!r} was closed")

    # -- the slow path: what is not in a complete pack -----------------------------------------------------------------

    def _fetch(self, index: int) -> memoryview:
        count = len(self)
        if not -count <= index < count:
            raise IndexError(f"object {index} of {count}")
        position = int(index) % count
        return self._range(position, 0, self._sizes[position])

    def _range(self, position: int, start: int, end: int) -> memoryview:
        """Bytes of one object, fetched if necessary."""
        self._check_open()
        if start >= end:
            return memoryview(b"")
        number, units = self._snapshot.units_of(position, start, end)
        parts: list[memoryview] = []
        for first in range(0, len(units), REQUEST_STRIPES):
            for part in self._units([(number, unit) for unit in units[first : first + REQUEST_STRIPES]]):
                if isinstance(part, HotsetError):
                    data = self._newest(position, part)
                    return data if (start, end) == (0, self._sizes[position]) else data[start:end]
                parts.append(part)
        base = self._snapshot.unit_range(number, units[0])[1]
        whole = parts[0] if len(parts) == 1 else memoryview(b"".join(parts)).toreadonly()
        return whole[start - base : end - base]

    def _newest(self, position: int, error: HotsetError) -> memoryview:
        """What to give in place of an object that cannot be had; raises ``error`` where nothing can be."""
        if isinstance(error, Changed) and self._options.on_changed == "newest":
            return self._fill.newest(self._snapshot.digest, position)
        raise error

    def _fetch_many(self, absent: Sequence[tuple[int, int]], found: list[bytes | None]) -> None:
        """Fill the gaps that ``absent`` (place in ``found``, index) names, a bounded number of bytes at a time."""
        self._check_open()
        batch: list[tuple[int, int]] = []
        size = 0
        for place, index in absent:
            position = int(index) % len(self)
            batch.append((place, position))
            size += self._sizes[position]
            if size >= REQUEST_BYTES or len(batch) >= REQUEST_OBJECTS:
                self._fetch_batch(batch, found)
                batch, size = [], 0
        if batch:
            self._fetch_batch(batch, found)

    def _fetch_batch(self, batch: Sequence[tuple[int, int]], found: list[bytes | None]) -> None:
        """Ask for all objects at once but those that are striped (one of them is a request of its own) or empty."""
        units = {}
        for _, position in batch:
            number, of_object = self._snapshot.units_of(position)
            if len(of_object) == 1 and self._sizes[position]:
                units[position] = (number, of_object[0])
        parts = dict(zip(units, self._units(list(units.values())), strict=True))
        for place, position in batch:
            try:
                part = parts.get(position)
                if part is None:
                    part = self._range(position, 0, self._sizes[position])
                elif isinstance(part, HotsetError):
                    part = self._newest(position, part)
                found[place] = bytes(part)
            except Changed:
                if self._options.on_changed != "skip":
                    raise

    def _units(self, units: Sequence[tuple[int, int]]) -> list[memoryview | HotsetError]:
        """The bytes of these units, from the cache, else by asking the filler; or why one cannot be had."""
        parts: list[memoryview | HotsetError | None] = [self._local(*unit) for unit in units]
        absent = [place for place, part in enumerate(parts) if part is None]
        for (number, unit), part in zip(units, parts, strict=True):
            if part is not None:
                self._notice(self._snapshot.unit_range(number, unit)[0])
        self._reads += len(units)
        if absent:
            started = time.perf_counter()
            self._waits += len(absent)
            self._tell_noticed()
            for _ in range(10):  # an eviction may take away what was just fetched, but not again and again
                answers = self._fill.want(self._snapshot.digest, [units[place] for place in absent])
                for place, answer in zip(absent, answers, strict=True):
                    parts[place] = self._arrived(*units[place]) if answer is None else answer
                    if isinstance(answer, memoryview):
                        self._bytes_through += len(answer)
                absent = [place for place in absent if parts[place] is None]
                if not absent:
                    break
            else:
                raise Unavailable(f"{len(absent)} objects of {self.name!r} are evicted faster than they are read")
            self._wait_seconds += time.perf_counter() - started
        whole = [part for part in parts if part is not None]
        self._bytes += sum(len(part) for part in whole if isinstance(part, memoryview))
        return whole

    def _arrived(self, number: int, unit: int) -> memoryview | None:
        """A unit that the filler says is in the cache now: in the file that is mapped, or in a new one."""
        data = self._local(number, unit)
        if data is None:
            self._reader.forget(number)
            data = self._local(number, unit)
        return data

    def _local(self, number: int, unit: int) -> memoryview | None:
        try:
            data = self._reader.unit(number, unit)
        except Corrupt:
            self._reader.forget(number)  # the filler finds the damage as well, and fetches anew
            return None
        if data is not None and isinstance(self._reader, PackReader):
            mapped = self._reader.mapped(number)
            if mapped is not None and mapped.sealed:
                self._views[number] = mapped.data
        return data

    def _notice(self, position: int) -> None:
        """Remember a read for the filler, whose window moves on with the reading."""
        self._noticed.append(position)
        if len(self._noticed) >= NOTICE_EVERY:
            self._tell_noticed()

    def _tell_noticed(self) -> None:
        noticed, self._noticed = self._noticed, []
        if noticed and self._fill.running:
            self._fill.advance(self._snapshot.digest, noticed)

    def _map_complete_packs(self) -> None:
        """Look which packs are complete now; their objects are then read without any further check."""
        if not isinstance(self._reader, PackReader):
            return
        for number, view in enumerate(self._views):
            if view is None:
                try:
                    mapped = self._reader.open(number)
                except Corrupt:
                    continue  # found again, and repaired, when it is read
                if mapped is not None and mapped.sealed:
                    self._views[number] = mapped.data

    def _drop_evicted(self) -> None:
        """Give back the memory of packs that were evicted while we had them mapped."""
        if isinstance(self._reader, PackReader) and self._reader.forget_unlinked():
            self._views = [
                view if self._reader.mapped(number) is not None else None for number, view in enumerate(self._views)
            ]


def _positions(order: Iterable[int], count: int) -> npt.NDArray[np.uint64]:
    """An order as an array; `InvalidInput` unless all of it are indices of ``count`` objects."""
    given = order if isinstance(order, np.ndarray) else np.array([operator.index(index) for index in order], np.int64)
    if len(given) and (given.dtype.kind not in "iu" or given.ndim != 1):
        raise InvalidInput(f"an order is a row of whole numbers, not {given.ndim} dimensions of {given.dtype}")
    wrong = given[(given < -count) | (given >= count)]
    if len(wrong):
        raise InvalidInput(f"the order names object {wrong[0]}, but there are only {count}")
    return np.where(given < 0, given + count, given).astype(np.uint64)


def _reopen(root: str, identifier: str, name: str, digest: str, fill: FillClient, options: ReadOptions) -> Dataset:
    """In a spawned worker: the same snapshot, the owner's filler."""
    directory = CacheDirectory(Path(root)).by_id(identifier)
    snapshot, lease = directory.open(digest)
    return Dataset(name, directory, snapshot, lease, fill, options)

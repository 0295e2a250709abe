"""`Dataset`: what `hotset.open` returns."""

from __future__ import annotations

import operator
import os
import time
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from hotset.errors import Closed, Corrupt, HotsetError, InvalidInput
from hotset.fill.client import FillClient
from hotset.fill.progress import Failures, FillStats, Progress
from hotset.read.fetch import Fetching, OnChanged, ReadOptions
from hotset.read.file import ObjectFile, ObjectReader
from hotset.read.keys import Keys
from hotset.read.stats import ReadStats
from hotset.snapshot import Changes, Snapshot, diff
from hotset.tier.node import CacheDirectory, DatasetDirectory, Lease
from hotset.tier.node.packreader import PackReader
from hotset.tier.node.shelf import open_reader
from hotset.tier.node.view import link_view

__all__ = ["Dataset", "OnChanged", "ReadOptions"]


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
        self._views = self._reader.views
        self._packs = snapshot.packs
        self._offsets = snapshot.offsets
        self._sizes = snapshot.sizes
        self._fetching = Fetching(name, snapshot, self._reader, fill, options)
        self._count_from_zero()
        self._reader.scan()
        _opened.add(self)
        self._when_dropped(warn=True)

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
            self._check_open()
            self._fetching.many(absent, found)
        return [data for data in found if data is not None]

    def open(self, key: str) -> ObjectReader:
        """The object as a read-only binary file. Reads only what is asked for."""
        position = self._snapshot.find(key)
        return ObjectReader(
            ObjectFile(key, self._sizes[position], lambda start, end: self._range(position, start, end))
        )

    def __iter__(self) -> Iterator[bytes]:
        for index in range(len(self)):
            yield self[index]

    def __contains__(self, item: object) -> bool:
        raise TypeError("ask `key in dataset.keys`")

    # -- filling -------------------------------------------------------------------------------------------------------

    @property
    def complete(self) -> bool:
        """Whether every object is in the cache (as far as this process has looked; `load` looks again)."""
        return self._reader.complete

    def load(self, progress: Callable[[Progress], object] | None = None, *, wait: bool = True) -> Progress:
        """Fetch everything that the quota has room for. ``progress`` is called a few times a second.

        With ``wait=False`` the filler goes on in the background, behind whatever is read or prefetched meanwhile.
        Raises the first failure, after all other objects were fetched. Ctrl-C ends the load as `cancel` does.
        """
        self._check_open()
        self._reader.scan()
        if self.complete:
            done = Progress(len(self), len(self), self.total_bytes, self.total_bytes, finished=True)
            if progress is not None:
                progress(done)
            return done
        failures = None
        try:
            self._fill.load(self._snapshot.digest)
            while True:
                state = self._fill.progress(self._snapshot.digest, wait=0.25 if wait else 0.0)
                if progress is not None:
                    progress(state)
                if state.finished and state.failed:
                    failures = self._fill.failures(self._snapshot.digest)
                    if failures.objects:
                        break  # else this is another filler than that which failed, and it goes on
                elif state.finished or not wait:
                    break
        except HotsetError:
            raise
        except BaseException:
            with suppress(HotsetError):
                self.cancel()  # of Ctrl-C, or of what ``progress`` raised, the filler knows nothing
            raise
        self._reader.scan()
        if failures is not None:
            self._raise(failures)
        return state

    def _raise(self, failures: Failures) -> None:
        """What a load ends with, unless it failed at nothing but what may be left out."""
        lost = failures.objects - (0 if self._options.on_changed == "raise" else failures.changed)
        if lost:
            first = failures.first[0]
            raise type(first)(f"{lost} objects could not be loaded; the first: {first}")

    def cancel(self) -> None:
        """Fetch nothing ahead any more: forget the order of `prefetch`, and a `load`, also of another thread, which returns.

        What somebody waits for is still fetched, and what was fetched stays.
        """
        self._check_open()
        self._fill.cancel(self._snapshot.digest)

    def prefetch(self, order: Iterable[int], *, lookahead: int | None = None) -> None:
        """Tell the order of the reads to come (indices): absent objects are fetched in that order, ahead of the reading.

        Replaces an earlier order. ``lookahead`` bounds in bytes how far ahead.
        """
        self._check_open()
        positions = _positions(order, len(self))
        self._reader.forget_unlinked()
        self._reader.scan()
        if self.complete:
            return
        self._fill.follow(self._snapshot.digest, positions, self._options.lookahead if lookahead is None else lookahead)

    def reload(self) -> Changes:
        """List the source again and make the result the current snapshot, for those who open the dataset from now on.

        This `Dataset` stays as it is. What did not change is kept; nothing is fetched here (use `load` on the new one).
        """
        self._check_open()
        try:
            self._directory.look()
        except Corrupt as error:
            warnings.warn(f"{self.name} is listed again: {error}", stacklevel=2)
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

        For datasets of the layout "files"; loads what is missing first, and makes no view (`NotFound`) of what is not
        complete then. A view that is there already is replaced; anything else is not (`AlreadyExists`).
        """
        if isinstance(self._reader, PackReader):
            raise InvalidInput(
                f"{self.name} keeps its objects in packs; for a view load it with the layout 'files', or convert it with "
                f"`hotset view {self.name} DIR --convert` (copies {self.total_bytes} bytes)"
            )
        self.load()
        return link_view(Path(path).absolute(), self._directory, self._snapshot)

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

    def stats(self, *, filler: bool = True) -> ReadStats:
        """Counters of this process's reads and of the filler, which is not asked (and its counters are zero) if it is not
        wanted: then this costs a microsecond.
        """
        slow = self._fetching
        reads = self._reads + slow.reads
        return ReadStats(
            reads=reads,
            hits=reads - slow.waits,
            waits=slow.waits,
            wait_seconds=slow.wait_seconds,
            bytes_from_cache=self._bytes + slow.bytes - slow.bytes_through,
            bytes_read_through=slow.bytes_through,
            fill=self._fill.stats(self._snapshot.digest) if filler else FillStats(),
        )

    def _count_from_zero(self) -> None:
        self._reads = self._bytes = 0
        self._fetching.count_from_zero()

    def __repr__(self) -> str:
        return f"<hotset.Dataset {self.name!r}: {len(self)} objects, snapshot {self.snapshot[:12]}>"

    # -- life ----------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Let go of the filler, the maps and the lease. Views that were handed out stay valid. Idempotent."""
        if not self._closed:
            self._closed = True
            self._finalizer.detach()
            self._fill.close()
            self._reader.close()
            self._lease.release()

    def may_be_dropped(self) -> None:
        """Nobody is going to call `close`, and that is no mistake: dropping it does the same, without a ResourceWarning."""
        self._finalizer.detach()
        self._when_dropped(warn=False)

    def _when_dropped(self, *, warn: bool) -> None:
        self._finalizer = weakref.finalize(self, _abandon, self.name, self._fill, self._lease, warn=warn)
        self._finalizer.atexit = False  # the filler sees by itself that this process ends

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        self._check_open()
        if not self.complete:
            self._fill.start()  # workers connect to it; only its owner can start it with its credentials
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
        self._check_open()
        return self._fetching.range(position, start, end)


def _abandon(name: str, fill: FillClient, lease: Lease, *, warn: bool) -> None:
    """A dataset was dropped that nobody closed. May run in any thread, at any moment. In a forked child it only lets go of
    the child's part; neither there nor in a spawned worker is there a good place to close it, so nobody is warned.
    """
    warn = warn and fill.owner
    fill.close(wait=False)
    lease.release()
    if warn:
        message = f"the dataset {name!r} was not closed; call close(), or open it in a `with` block"
        warnings.warn(message, ResourceWarning, stacklevel=3)


_opened: weakref.WeakSet[Dataset] = weakref.WeakSet()


def _count_anew() -> None:
    """A forked worker counts its own reads: whoever adds up the counters of all workers counts none twice."""
    for dataset in _opened:
        dataset._count_from_zero()


os.register_at_fork(after_in_child=_count_anew)


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

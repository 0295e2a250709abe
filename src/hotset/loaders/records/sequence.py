"""`hotset.records` and the `Records` that it returns."""

from __future__ import annotations

import json
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from types import TracebackType
from typing import Any, Literal, NamedTuple, Self, overload

import numpy as np
import numpy.typing as npt

import hotset
from hotset.base.sizes import parse_size
from hotset.errors import Closed, Corrupt, InvalidInput, NotFound
from hotset.loaders.records.build import OnProgress, build_index
from hotset.loaders.records.format import Format, make_format
from hotset.loaders.records.index import Damage, RecordIndex
from hotset.read.dataset import Dataset
from hotset.read.keys import Keys
from hotset.read.order import SampleOrder, WindowedOrder
from hotset.read.ranges import Places, Ranges
from hotset.read.stats import ReadStats

__all__ = ["Origin", "Records", "records"]

_INDEX_FORMAT = 1
#: Records that are looked up at once where all of them are.
_CHUNK = 2**18

FormatName = Literal["lines", "csv", "parquet", "tfrecord", "tar"]
Integers = npt.NDArray[np.int64]


def records(
    data: str | Mapping[str, str] | Sequence[tuple[str, str]] | Dataset | None = None,
    format: FormatName = "lines",  # noqa: A002  (as others call it)
    *,
    columns: Sequence[str] | None = None,
    delimiter: str | None = None,
    quote: str | None = None,
    header: bool | None = None,
    example: bool | None = None,
    group: bool | None = None,
    on_damaged: Literal["raise", "skip"] = "raise",
    progress: OnProgress | None = None,
    **how: Any,
) -> Records:
    """The records of large files as one indexed, shufflable dataset.

    The first call reads all objects once to find the records, and keeps their places beside the snapshot in the cache;
    later calls and other processes find them there at once. If it is interrupted, the next call goes on. Empty objects have
    no records; leave out what is no data with ``exclude``.

    Parameters
    ----------
    data:
        A URI (or several, or None with ``name=...``) as `hotset.open` takes it, or a `Dataset`, which stays the caller's
        to close.
    format:
        ``"lines"``: the bytes of a line without its end. ``"csv"``: a row, as a dict, or as a list if columns have no
        names. ``"parquet"``: a row, as a dict. ``"tfrecord"``: the payload. ``"tar"``: (name, bytes) of a regular file.
    columns:
        CSV and Parquet: the columns to keep. CSV without a header: the names of all columns.
    delimiter, quote, header:
        CSV: ``","``, ``'"'`` (``""``: quotes mean nothing) and whether the first row of each object names the columns (True).

    Example:
        TFRecord: parse each payload as a `tf.train.Example`, a dict of lists of bytes and arrays of float32 and int64.
    group:
        Tar: a record is a WebDataset sample: a dict of extension -> bytes, and ``"__key__"``.
    on_damaged:
        ``"raise"`` `InvalidInput` with key and offset for what is cut off or has a wrong checksum, or ``"skip"`` it; see
        `Records.damage`.
    progress:
        Called a few times a second while records are looked for.
    how:
        As in `hotset.open`: ``name``, ``cache``, ``include``, ...; not ``on_changed="newest"``.
    """
    given = {
        "columns": None if columns is None else tuple(columns),
        "delimiter": delimiter,
        "quote": quote,
        "header": header,
        "example": example,
        "group": group,
    }
    options = {name: value for name, value in given.items() if value is not None}
    form = make_format(format, options)
    if on_damaged not in ("raise", "skip"):
        raise InvalidInput(f"on_damaged is 'raise' or 'skip', not {on_damaged!r}")
    if not isinstance(data, Dataset):
        dataset = hotset.open(data, **how)
    elif how:
        raise InvalidInput(f"{min(how)!r} says how to open a dataset, but this one is open already")
    else:
        dataset = data
    try:
        return Records(dataset, form, skip_damaged=on_damaged == "skip", owner=dataset is not data, progress=progress)
    except BaseException:
        if dataset is not data:
            dataset.close()
        raise


class Origin(NamedTuple):
    """Where a record lies: in the bytes ``[start, end)`` of an object (of Parquet: its row group)."""

    key: str
    start: int
    end: int


class Records(Sequence[Any]):
    """All records of a snapshot, in the order of keys and in each object of offsets.

    Bound to its snapshot for life. Safe to use from several threads, to fork (DataLoader workers) and to pickle (spawned
    ones). Close it, or use it in a ``with`` block. Made by `hotset.records`.
    """

    def __init__(
        self,
        dataset: Dataset,
        form: Format,
        *,
        skip_damaged: bool = False,
        owner: bool = False,
        progress: OnProgress | None = None,
        verified: bool = False,
    ) -> None:
        """``owner``: close the dataset with the records; ``verified``: another process has checked the index."""
        self.dataset = dataset  #: of the objects that the records lie in
        self._form = form
        self._skip_damaged = skip_damaged
        self._owner = owner
        self._closed = False
        self._ranges = Ranges(dataset)
        if self._ranges.gives_newest:
            raise InvalidInput("on_changed='newest' is not for records: in other bytes they have other places")
        self._index = self._open_index(progress, verified=verified)
        if not len(self._index):
            raise NotFound(f"there are no records in {dataset.name!r}: {len(dataset)} objects, all of them empty")
        keyed = {fact: dataset.keys[position] for fact, position in self._index.notes.facts.items()}
        self._reader = form.reader(dataset, keyed, self._index.first_segments())

    # -- reading -------------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._index)

    @overload
    def __getitem__(self, item: int) -> Any: ...
    @overload
    def __getitem__(self, item: slice) -> list[Any]: ...
    def __getitem__(self, item: int | slice) -> Any:
        if isinstance(item, slice):
            return self.read_many(range(*item.indices(len(self))))
        self._check_open()
        return self._reader.one(*self._index.find(self._number(item)))

    def read_many(self, records: Iterable[int]) -> list[Any]:
        """Many records at once, in the order given; what is absent is fetched in parallel. The way to read batches.

        With ``on_changed="skip"`` records of objects that changed at the source are left out.
        """
        self._check_open()
        return self._reader.many(self._index.find_many(self._numbers(records)))

    def __getitems__(self, records: Iterable[int]) -> list[Any]:
        """What a torch DataLoader fetches a batch with."""
        return self.read_many(records)

    def __iter__(self) -> Iterator[Any]:
        for first in range(0, len(self), 256):
            yield from self.read_many(range(first, min(first + 256, len(self))))

    def __contains__(self, item: object) -> bool:
        raise TypeError(
            "whether a record is among the others takes reading them all; write `any(...)` if that is meant"
        )

    def prefetch(self, order: Iterable[int], *, lookahead: int | None = None) -> None:
        """Tell the order of the reads to come (of records): the objects, and stripes of large objects, that are absent are
        fetched in that order. As `Dataset.prefetch`, whose order it replaces.
        """
        self._check_open()
        numbers = self._numbers(order)
        self._ranges.prefetch(self._places(numbers), lookahead=lookahead)

    def order(self, *, seed: int = 0, shuffle: bool = True, window: int | str | None = None) -> SampleOrder:
        """The order of each epoch: a pure function of (snapshot, seed, epoch), which also says how to resume.

        Without a ``window`` all records are shuffled: then already the first batch of an epoch needs all over the data,
        which is free once that is in the cache. With one (``"512MiB"``), what is fetched together is read at about the same
        time: records are shuffled in a window of that many bytes of blocks (stripes, small objects, row groups), which come
        in shuffled order themselves. For the first epoch, for data that does not fit the quota, and for Parquet.
        """
        if not shuffle or window is None:
            return SampleOrder(self.snapshot, len(self), seed, shuffle)
        starts, sizes = self._index.blocks(self._ranges.stripes())
        return WindowedOrder(self.snapshot, len(self), seed, starts=starts, sizes=sizes, window=parse_size(window))

    # -- facts ---------------------------------------------------------------------------------------------------------

    @property
    def snapshot(self) -> str:
        """The digest of the snapshot: the same for all who see the same objects."""
        return self.dataset.snapshot

    @property
    def keys(self) -> Keys:
        """Of the objects."""
        return self.dataset.keys

    @property
    def damage(self) -> list[Damage]:
        """What was left out with ``on_damaged="skip"``: the first thousand places."""
        return [Damage(self.keys[position], offset, reason) for position, offset, reason in self._index.notes.damage]

    def origin(self, record: int) -> Origin:
        """Where a record lies."""
        _, _, position, start, end = self._index.find(self._number(record))
        return Origin(self.keys[position], start, min(end, self.dataset.size(position)))

    def of(self, key: str) -> range:
        """The records of one object; `NotFound` if there is none of that key."""
        if key not in self.keys:
            raise NotFound(f"no object {key!r} in {self.dataset.name!r}")
        return self._index.of(self.keys.index(key))

    def stats(self) -> ReadStats:
        """Counters of the dataset in this process."""
        return self.dataset.stats()

    def __repr__(self) -> str:
        return f"<hotset.Records {self.dataset.name!r}: {len(self)} in {len(self.dataset)} objects>"

    # -- life ----------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Let go of the index, and of the dataset unless it was the caller's. Idempotent."""
        self._closed = True
        if self._owner:
            self.dataset.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        self._check_open()
        return _reopen, (self.dataset, self._form, self._skip_damaged)

    def _check_open(self) -> None:
        if self._closed:
            raise Closed(f"the records of {self.dataset.name!r} were closed")

    # -- the index -----------------------------------------------------------------------------------------------------

    def _open_index(self, progress: OnProgress | None, *, verified: bool) -> RecordIndex:
        identity = json.dumps([_INDEX_FORMAT, self._form.identity, self._skip_damaged])
        side = self.dataset.side_file(f"records-{sha256(identity.encode()).hexdigest()[:16]}")
        data = side.map(verify=not verified)
        if data is None:
            with side.draft() as draft:
                if draft is not None:  # else another process has just finished it
                    build_index(
                        self.dataset,
                        self._form,
                        draft,
                        identity=identity,
                        skip_damaged=self._skip_damaged,
                        progress=progress,
                    )
            data = side.map()
        if data is None:
            raise Corrupt(f"{side.path} was written just now and cannot be read; check the disk of the cache directory")
        return RecordIndex(data)

    def _number(self, record: int) -> int:
        count = len(self._index)
        number = operator.index(record)
        if not -count <= number < count:
            raise IndexError(f"record {number} of {count}")
        return number % count

    def _numbers(self, records: Iterable[int]) -> Integers:
        if isinstance(records, np.ndarray) and records.dtype.kind in "iu" and records.ndim == 1:
            numbers = records.astype(np.int64)
        else:
            numbers = np.fromiter(map(operator.index, records), np.int64)
        count = len(self._index)
        if len(numbers) and not -count <= numbers.min() <= numbers.max() < count:
            wrong = numbers[(numbers < -count) | (numbers >= count)]
            raise IndexError(f"record {wrong[0]} of {count}")
        return np.where(numbers < 0, numbers + count, numbers)

    def _places(self, numbers: Integers) -> Iterator[Places]:
        for first in range(0, len(numbers), _CHUNK):
            yield self._index.find_many(numbers[first : first + _CHUNK]).places


def _reopen(dataset: Dataset, form: Format, skip_damaged: bool) -> Records:  # noqa: FBT001  (as pickle calls it)
    """In a spawned worker: the same snapshot; the index was checked by who made it."""
    return Records(dataset, form, skip_damaged=skip_damaged, owner=True, verified=True)

"""Parquet files: a record is a row, as a dict. What is read and decoded together is a row group, so neighbours are cheap.

The index has an entry a row group. Decoded groups are kept, the ones used longest ago forgotten first; an order that comes
back to a group after too many others (a shuffle of all rows) decodes it again, so shuffle in windows.
"""

from __future__ import annotations

import json
import os
import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from hotset.errors import Changed, HotsetError, InvalidInput
from hotset.loaders.records.format import Found, Out, Reader, damage
from hotset.loaders.records.stream import Stream
from hotset.read.dataset import Dataset
from hotset.read.ranges import Ranges

__all__ = ["Parquet"]

#: What the end of a file that a scan reads will seldom be longer than.
_FOOTER = 65_536
#: Bytes of decoded row groups that are kept, and files whose footers are.
GROUP_BYTES = 256 * 2**20
_FILES = 64

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Parquet:
    """``columns``: those to read; by default all."""

    columns: tuple[str, ...] | None = None

    identity = "parquet"

    def extent(self, size: int) -> tuple[int, int]:
        return max(0, size - _FOOTER), size

    def scan(self, stream: Stream, out: Out) -> str:
        try:
            metadata = pq.read_metadata(stream.file())
        except (pa.ArrowException, OSError) as error:
            out.damaged(0, f"this is not a whole Parquet file: {error}")
            return ""
        for number in range(metadata.num_row_groups):
            group = metadata.row_group(number)
            parts = [_extent(group.column(column)) for column in range(group.num_columns)] or [(0, 0)]
            out.group(min(start for start, _ in parts), max(end for _, end in parts), group.num_rows)  # also of none
        return json.dumps(metadata.schema.to_arrow_schema().names)

    def reader(self, dataset: Dataset, facts: Mapping[str, str], first_segments: Integers) -> Reader:
        for names, key in facts.items():
            if unknown := set(self.columns or ()).difference(json.loads(names)):
                raise InvalidInput(f"{key!r} has no column {min(unknown)!r}; it has {', '.join(json.loads(names))}")
        return RowReader(dataset, first_segments, self.columns)


def _extent(column: Any) -> tuple[int, int]:
    start = column.data_page_offset
    if column.has_dictionary_page and column.dictionary_page_offset is not None:
        start = min(start, column.dictionary_page_offset)
    return start, start + column.total_compressed_size


class RowReader:
    """Decodes row groups, one at a time, and keeps some of them."""

    def __init__(self, dataset: Dataset, first_segments: Integers, columns: tuple[str, ...] | None) -> None:
        self._dataset = dataset
        self._skip_changed = Ranges(dataset).skips_changed
        self._first_segments = first_segments
        self._columns = None if columns is None else list(columns)
        self._forget()

    def one(self, segment: int, inside: int, position: int, start: int, end: int) -> Any:
        return self._group(segment, position).slice(inside, 1).to_pylist()[0]

    def many(self, found: Found) -> list[Any]:
        records: list[Any] = [None] * len(found.segments)
        for segment in np.unique(found.segments).tolist():
            [rows] = np.nonzero(found.segments == segment)
            try:
                group = self._group(segment, int(found.places.objects[rows[0]]))
            except Changed:
                if not self._skip_changed:
                    raise
                continue
            for row, record in zip(rows.tolist(), group.take(pa.array(found.inside[rows])).to_pylist(), strict=True):
                records[row] = record
        return [record for record in records if record is not None]

    def _forget(self) -> None:
        """As it is at first, and after a fork: a file and a lock belong to one process."""
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._files: OrderedDict[int, pq.ParquetFile] = OrderedDict()
        self._groups: OrderedDict[int, pa.Table] = OrderedDict()

    def _group(self, segment: int, position: int) -> pa.Table:
        if self._pid != os.getpid():
            self._forget()
        with self._lock:
            group = self._groups.pop(segment, None)
            if group is None:
                group = self._decode(segment, position)
            self._groups[segment] = group
            while len(self._groups) > 1 and sum(each.nbytes for each in self._groups.values()) > GROUP_BYTES:
                self._groups.popitem(last=False)
            return group

    def _decode(self, segment: int, position: int) -> pa.Table:
        number = segment - int(self._first_segments[segment])
        try:
            # Without threads: the workers are the parallelism, and Arrow's own would not live through a fork.
            return self._file(position).read_row_group(number, columns=self._columns, use_threads=False)
        except HotsetError:
            raise
        except (pa.ArrowException, OSError) as error:
            raise damage(self._dataset.keys[position], 0, f"row group {number} cannot be decoded: {error}") from error

    def _file(self, position: int) -> pq.ParquetFile:
        file = self._files.pop(position, None)
        if file is None:
            file = pq.ParquetFile(self._dataset.open(self._dataset.keys[position]), pre_buffer=False)
        self._files[position] = file
        while len(self._files) > _FILES:
            self._files.popitem(last=False)
        return file

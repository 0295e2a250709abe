"""TFRecord files: a record is the payload of a frame, bytes; or the `tf.train.Example` in it, as a dict.

    length (8 bytes), masked CRC-32C of the length (4), payload, masked CRC-32C of the payload (4)

Both checksums are looked at when the file is indexed. Later reads trust the checksums of the cache.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from crc32c import crc32c

from hotset.loaders.records.example import parse_example
from hotset.loaders.records.format import Malformed, Out, Reader, SpanReader
from hotset.loaders.records.stream import Stream
from hotset.read.dataset import Dataset

__all__ = ["TFRecord"]

_HEADER = struct.Struct("<QI")
_FOOTER = struct.Struct("<I")
#: A payload up to this size is looked at in one piece.
_SMALL = 2**16
#: Ends that are handed on at once.
_BATCH = 65_536


@dataclass(frozen=True)
class TFRecord:
    """``example``: parse each payload as a `tf.train.Example`."""

    example: bool = False

    identity = "tfrecord"

    def extent(self, size: int) -> tuple[int, int]:
        return 0, size

    def scan(self, stream: Stream, out: Out) -> str:
        out.begin(0)
        ends: list[int] = []
        while (start := stream.offset) < stream.size:
            try:
                good = _frame(stream, start)
            except Malformed as error:
                out.ends(ends)
                out.damaged(error.at, str(error))
                return ""  # where the next frame begins cannot be known
            if not good:
                out.ends(ends)
                ends = []
                out.damaged(start, "the checksum of the record's payload is wrong")
                out.begin(stream.offset)
                continue
            ends.append(stream.offset)
            if len(ends) >= _BATCH:
                out.ends(ends)
                ends = []
        out.ends(ends)
        return ""

    def reader(self, dataset: Dataset, facts: Mapping[str, str], first_segments: npt.NDArray[np.int64]) -> Reader:
        decode = _examples if self.example else _payloads
        return SpanReader(dataset, decode, head=_HEADER.size, tail=_FOOTER.size)


def _frame(stream: Stream, start: int) -> bool:
    """Walk over one frame; whether its payload matches its checksum. `Malformed` if it is not a whole frame."""
    header = stream.take(_HEADER.size)
    if len(header) < _HEADER.size:
        raise Malformed(start, "the file is cut off in the header of a record")
    length, check = _HEADER.unpack(header)
    if _masked(crc32c(header[:8])) != check:
        what = "this is not a TFRecord file" if start == 0 else "the checksum of the record's length is wrong"
        raise Malformed(start, what)
    total = 0
    for piece in [stream.take(length)] if length <= _SMALL else stream.pieces(length):
        total = crc32c(piece, total)
    footer = stream.take(_FOOTER.size)
    if len(footer) < _FOOTER.size:
        raise Malformed(start, f"the file is cut off in a record of {length} bytes")
    return bool(_FOOTER.unpack(footer)[0] == _masked(total))


def _masked(check: int) -> int:
    """As TensorFlow stores it, so that a checksum of data with checksums in it is no trouble."""
    return (((check >> 15) | (check << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def _payloads(views: list[memoryview]) -> list[Any]:
    return [view.tobytes() for view in views]


def _examples(views: list[memoryview]) -> list[Any]:
    records = []
    for place, view in enumerate(views):
        try:
            records.append(parse_example(view))
        except ValueError as error:
            raise Malformed(place, f"this is not a tf.train.Example: {error}") from error
    return records

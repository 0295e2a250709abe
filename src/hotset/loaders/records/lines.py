"""Lines of text: a record is the bytes of a line without its end, a newline or a carriage return and a newline.

As in a text editor: an empty line is a record of no bytes, the last line may lack its newline, and what is behind the last
newline is a line only if there is something.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hotset.loaders.records.format import Out, Reader, SpanReader
from hotset.loaders.records.stream import Stream
from hotset.read.dataset import Dataset

__all__ = ["Lines"]

_NEWLINE, _RETURN = 10, 13
_SOME_RETURN = "carriage returns"


@dataclass(frozen=True)
class Lines:
    """There is nothing to say about lines."""

    identity = "lines"

    def extent(self, size: int) -> tuple[int, int]:
        return 0, size

    def scan(self, stream: Stream, out: Out) -> str:
        facts = ""
        before = 0  # the byte before the chunk
        end = 0
        out.begin(0)
        while chunk := stream.chunk():
            data = np.frombuffer(chunk, np.uint8)
            ends = np.flatnonzero(data == _NEWLINE)
            if not facts and _returns(data, ends, before):
                facts = _SOME_RETURN
            before = int(data[-1])
            end = stream.offset
            out.ends(ends + (end - len(chunk) + 1))
        if before != _NEWLINE:
            out.ends([end + 1])  # as if its newline were there: the reader leaves that byte out
            facts = _SOME_RETURN if before == _RETURN else facts
        return facts

    def reader(self, dataset: Dataset, facts: Mapping[str, str], first_segments: npt.NDArray[np.int64]) -> Reader:
        return SpanReader(dataset, _without_return if _SOME_RETURN in facts else _as_they_are, tail=1)


def _returns(data: npt.NDArray[np.uint8], ends: npt.NDArray[np.intp], before: int) -> bool:
    """Whether a carriage return stands before one of these newlines."""
    if len(ends) and ends[0] == 0:
        if before == _RETURN:
            return True
        ends = ends[1:]
    return bool((data[ends - 1] == _RETURN).any())


def _as_they_are(views: list[memoryview]) -> list[Any]:
    return [view.tobytes() for view in views]


def _without_return(views: list[memoryview]) -> list[Any]:
    return [view.tobytes().removesuffix(b"\r") for view in views]

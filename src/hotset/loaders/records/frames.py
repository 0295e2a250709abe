"""What is written of an index while it is made: frames with checksums, so that the next process can go on with them.

A frame is a header and a payload: the numbers of a segment, or the mark behind the last segment of an object, which
carries what the scan said about it. Only what has a mark behind it counts.
"""

from __future__ import annotations

import json
import struct
from array import array
from collections.abc import Iterable
from hashlib import sha256

import numpy as np
import numpy.typing as npt
from crc32c import crc32c

from hotset.loaders.records.format import Malformed
from hotset.loaders.records.index import Notes, Table, encode_end
from hotset.tier.node.side import Draft

__all__ = ["Frames", "ObjectOut"]

_MAGIC = b"HOTSETRX"
_HEAD = struct.Struct("<8s32s24x")
_FRAME = struct.Struct(
    "<4sIQQQQ"
)  # kind, CRC-32C of the rest and the payload, object, base, records, length of payload
_SEGMENT, _GROUP, _MARK = b"SEGM", b"GRUP", b"MARK"
#: A segment has at most so many records, and all of them end less than so many bytes behind its base.
SEGMENT_RECORDS = 2**20
SEGMENT_BYTES = 2**32
#: Frames are written when they are so many bytes.
_WRITE = 2**20
#: A dataset that is nothing but damage must not fill the notes.
_MOST_DAMAGE = 1000

Integers = npt.NDArray[np.int64]


class Frames:
    """The draft of an index file, as a row of frames. `resume` first, `publish` last. ``identity``: of what it is an index."""

    def __init__(self, draft: Draft, identity: str) -> None:
        self._draft = draft
        self._head = _HEAD.pack(_MAGIC, sha256(identity.encode()).digest())
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._groups = False
        self._objects, self._bases, self._words = array("q"), array("q"), array("q")
        self._first = array("q", [0])
        self._notes = Notes({}, [])
        self.objects_done = 0

    @property
    def records(self) -> int:
        return self._first[-1]

    def resume(self) -> None:
        """Take over what an earlier process left and vouched for with a mark."""
        good = len(self._head)
        if self._draft.read(0, good) == self._head:
            at = good
            unmarked: list[tuple[bytes, int, int, int, int]] = []
            while (frame := self._read(at)) is not None:
                kind, position, base, records, payload = frame
                end = at + _FRAME.size + _padded(len(payload))
                if kind == _MARK:
                    for segment in unmarked:
                        self._add(*segment)
                    unmarked = []
                    self._take_note(position, payload)
                    good = end
                else:
                    unmarked.append((kind, position, base, records, at + _FRAME.size))
                at = end
        else:
            self._draft.truncate(0)
            self._draft.append(self._head)
        self._draft.truncate(good)

    def segment(self, position: int, base: int, words: npt.NDArray[np.uint32]) -> None:
        """A run of records that end at these numbers, but for the first one, which is where they begin."""
        self._add(
            _SEGMENT, position, base, len(words) - 1, self._write(_SEGMENT, position, base, len(words) - 1, words)
        )

    def group(self, position: int, start: int, end: int, records: int) -> None:
        """Records that are read together."""
        words = np.array([0, min(end - start, SEGMENT_BYTES - 1)], np.uint32)  # only what is fetched depends on the end
        self._add(_GROUP, position, start, records, self._write(_GROUP, position, start, records, words))

    def mark(self, position: int, facts: str, damage: list[tuple[int, str]]) -> None:
        """The object is complete."""
        note = json.dumps([facts, damage]).encode()
        self._write(_MARK, position, 0, 0, np.frombuffer(note, np.uint8))
        self._take_note(position, note)

    def publish(self) -> None:
        self._flush()
        columns = [np.frombuffer(column, np.int64) for column in (self._first, self._objects, self._bases, self._words)]
        self._draft.append(*encode_end(Table(*columns), self._notes, at=self._draft.size, groups=self._groups))
        self._draft.publish()

    def _write(self, kind: bytes, position: int, base: int, records: int, data: npt.NDArray[np.generic]) -> int:
        """Append a frame; the offset of its payload."""
        payload = data.tobytes()
        fields = _FRAME.pack(kind, 0, position, base, records, len(payload))
        check = crc32c(payload, crc32c(fields))
        at = self._draft.size + self._pending_bytes + _FRAME.size
        self._pending += [
            fields[:4],
            check.to_bytes(4, "little"),
            fields[8:],
            payload.ljust(_padded(len(payload)), b"\0"),
        ]
        self._pending_bytes += _FRAME.size + _padded(len(payload))
        if self._pending_bytes >= _WRITE:
            self._flush()
        return at

    def _flush(self) -> None:
        pending, self._pending, self._pending_bytes = b"".join(self._pending), [], 0
        self._draft.append(pending)

    def _read(self, at: int) -> tuple[bytes, int, int, int, bytes] | None:
        header = self._draft.read(at, _FRAME.size)
        if len(header) < _FRAME.size:
            return None
        kind, check, position, base, records, length = _FRAME.unpack(header)
        payload = self._draft.read(at + _FRAME.size, length) if length <= self._draft.size else b""
        if len(payload) < length or crc32c(payload, crc32c(header[:4] + bytes(4) + header[8:])) != check:
            return None
        return kind, position, base, records, payload

    def _add(self, kind: bytes, position: int, base: int, records: int, payload_at: int) -> None:
        self._groups = kind == _GROUP
        self._objects.append(position)
        self._bases.append(base)
        self._words.append(payload_at // 4)
        self._first.append(self._first[-1] + records)

    def _take_note(self, position: int, note: bytes) -> None:
        facts, damage = json.loads(note)
        if facts:
            self._notes.facts.setdefault(facts, position)
        room = _MOST_DAMAGE - len(self._notes.damage)
        self._notes.damage.extend((position, offset, reason) for offset, reason in damage[:room])
        self.objects_done = position + 1


class ObjectOut:
    """Takes what the scan of one object finds; an `Out`. Call `close` behind it."""

    def __init__(self, frames: Frames, position: int, *, skip_damaged: bool) -> None:
        self._frames = frames
        self._position = position
        self._skip_damaged = skip_damaged
        self._base = self._last = 0
        self._waiting: list[Integers] = []  # ends behind the base that are not in a segment yet
        self._count = 0
        self.damage: list[tuple[int, str]] = []

    def begin(self, offset: int) -> None:
        self._flush()
        self._base = self._last = offset

    def ends(self, offsets: Iterable[int] | Integers) -> None:
        ends = np.asarray(offsets, np.int64)
        while len(ends):
            fit = int(np.searchsorted(ends, self._base + SEGMENT_BYTES))
            if not fit and not self._count:
                length = int(ends[0]) - self._base
                raise Malformed(self._base, f"a record of {length} bytes; the longest has {SEGMENT_BYTES - 1}")
            part = ends[: min(fit, SEGMENT_RECORDS - self._count)]
            if len(part):
                self._waiting.append(part)
                self._count += len(part)
                self._last = int(part[-1])
            ends = ends[len(part) :]
            if len(ends):
                self._flush()

    def group(self, start: int, end: int, records: int) -> None:
        self._frames.group(self._position, start, end, records)

    def damaged(self, offset: int, reason: str) -> None:
        if not self._skip_damaged:
            raise Malformed(offset, reason)
        self.damage.append((offset, reason))

    def close(self) -> None:
        self._flush()

    def _flush(self) -> None:
        if self._count:
            words = np.concatenate([np.array([self._base]), *self._waiting]) - self._base
            self._frames.segment(self._position, self._base, words.astype(np.uint32))
            self._waiting, self._count = [], 0
        self._base = self._last


def _padded(length: int) -> int:
    """Numbers lie at multiples of their own size."""
    return -(-length // 8) * 8

"""`tf.train.Example` without TensorFlow: just enough of the protocol buffers' wire format.

Example { Features features = 1 }    Features { map<string, Feature> feature = 1 }
Feature { oneof { BytesList = 1, FloatList = 2, Int64List = 3 } }    each list: repeated value = 1
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

__all__ = ["parse_example"]

Value = list[bytes] | npt.NDArray[np.float32] | npt.NDArray[np.int64]

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


def parse_example(data: memoryview) -> dict[str, Value]:
    """Feature -> its values: a list of bytes, or an array of float32 or int64. ValueError if it is not an Example."""
    features: dict[str, Value] = {}
    try:
        for features_field in _messages(data, 1):
            for entry in _messages(features_field, 1):
                name = b"".join(_messages(entry, 1)).decode()
                features[name] = _values(next(iter(_messages(entry, 2)), memoryview(b"")))
    except (IndexError, OverflowError) as error:
        raise ValueError("cut off") from error
    return features


def _values(feature: memoryview) -> Value:
    found: Value = []
    for number, kind, values in _fields(feature):
        if isinstance(values, int):
            raise ValueError(f"field {number} of wire type {kind} in a feature")  # noqa: TRY004  (of bytes, not of types)
        if number == 1:
            found = [value.tobytes() for value in _messages(values, 1)]
        elif number == 2:
            found = np.concatenate([np.empty(0, np.float32), *(_floats(value) for _, _, value in _fields(values))])
        elif number == 3:
            integers = [integer for _, _, value in _fields(values) for integer in _integers(value)]
            found = np.array(integers, np.uint64).astype(np.int64)
    return found


def _floats(value: memoryview | int) -> npt.NDArray[np.float32]:
    """Packed, or one of them."""
    if isinstance(value, int):
        value = memoryview(value.to_bytes(4, "little"))
    if len(value) % 4:
        raise ValueError("a list of floats that is not a multiple of four bytes long")
    return np.frombuffer(value, "<f4")


def _integers(value: memoryview | int) -> Iterator[int]:
    if isinstance(value, int):
        yield value
        return
    at = 0
    while at < len(value):
        integer, at = _varint(value, at)
        yield integer


def _messages(data: memoryview, number: int) -> Iterator[memoryview]:
    """The fields of that number, which are messages, strings or bytes."""
    for found, _, value in _fields(data):
        if found == number:
            if not isinstance(value, memoryview):
                raise ValueError(f"field {number} is a number")
            yield value


def _fields(data: memoryview) -> Iterator[tuple[int, int, memoryview | int]]:
    """(number, wire type, value) of each field of a message."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, kind = tag >> 3, tag & 7
        if kind == _VARINT:
            value, at = _varint(data, at)
            yield number, kind, value
        elif kind in (_FIXED64, _FIXED32):
            width = 8 if kind == _FIXED64 else 4
            if at + width > len(data):
                raise ValueError("cut off")
            yield number, kind, int.from_bytes(data[at : at + width], "little")
            at += width
        elif kind == _BYTES:
            length, at = _varint(data, at)
            if at + length > len(data):
                raise ValueError("cut off")
            yield number, kind, data[at : at + length]
            at += length
        else:
            raise ValueError(f"wire type {kind}")


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, at
        shift += 7
        if shift > 63:
            raise ValueError("a number of more than 64 bits")

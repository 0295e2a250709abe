"""The language between a reader and its filler: frames over a Unix stream socket.

A frame is a version byte, the length of a JSON header, the length of a payload, then both. Requests carry ``op``; answers
carry either a result or ``error`` and ``message``, which become the same exception on the other side. Lengths are bounded,
so that a confused or hostile peer costs an error and not the memory; an answer that is longer comes in several frames.
"""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Iterator, Sequence
from typing import Any

import hotset.errors
from hotset.errors import HotsetError, InvalidInput, Unavailable
from hotset.source.base import Buffer

__all__ = [
    "MAX_PAYLOAD",
    "ConnectionLost",
    "encode_error",
    "error_of",
    "receive",
    "receive_whole",
    "result_of",
    "send",
    "send_whole",
]

VERSION = 1
MAX_HEADER = 4 * 2**20
MAX_PAYLOAD = 2**30  #: an order of 100 million positions; data travels in much smaller frames
#: In place of the length of a unit that was asked for: it is in the cache now; it cannot be had.
PRESENT, FAILED = -1, -2
_PREFIX = struct.Struct("<BIQ")

Header = dict[str, Any]


class ConnectionLost(Exception):
    """The other side is gone."""


def send(connection: socket.socket, header: Header, payload: Sequence[Buffer] = ()) -> None:
    """Send one frame; the buffers of ``payload`` are joined by the kernel, not by a copy. `InvalidInput`, and nothing is
    sent, if the other side would refuse it: it could only close the connection, which looks like its end.
    """
    encoded = json.dumps(header, separators=(",", ":")).encode()
    views = [memoryview(part).cast("B") for part in payload if len(part)]
    length = sum(view.nbytes for view in views)
    _check(len(encoded), length)
    parts = [memoryview(_PREFIX.pack(VERSION, len(encoded), length) + encoded), *views]
    try:
        while parts:
            sent = connection.sendmsg(parts[:64])
            while parts and sent >= parts[0].nbytes:
                sent -= parts.pop(0).nbytes
            if sent:
                parts[0] = parts[0][sent:]
    except OSError as error:
        raise ConnectionLost(str(error)) from error


def receive(connection: socket.socket) -> tuple[Header, memoryview]:
    """The next frame. `ConnectionLost` at the end of the stream, `InvalidInput` if it is not our language."""
    version, header_length, length = _PREFIX.unpack(_exactly(connection, _PREFIX.size))
    if version != VERSION:
        raise InvalidInput(f"the other side speaks version {version} of the filler's protocol, this one {VERSION}")
    _check(header_length, length)
    header = json.loads(bytes(_exactly(connection, header_length)))
    if not isinstance(header, dict):
        raise InvalidInput("a frame's header is not an object")
    return header, _exactly(connection, length)


def send_whole(connection: socket.socket, header: Header, payload: Sequence[Buffer]) -> None:
    """`send` for a payload of any length: all frames but the last say only that ``more`` follows."""
    *first, last = _frames(payload)
    for frame in first:
        send(connection, {"more": True}, frame)
    send(connection, header, last)


def receive_whole(connection: socket.socket) -> tuple[Header, memoryview]:
    """What `send_whole` sent. Only from a peer that is trusted with the memory: the filler, never a reader."""
    header, payload = receive(connection)
    if "more" not in header:
        return header, payload
    whole = bytearray(payload)
    while "more" in header:
        header, payload = receive(connection)
        whole += payload
    return header, memoryview(whole).toreadonly()


def encode_error(error: BaseException) -> Header:
    header: Header = {"error": type(error).__name__, "message": str(error)}
    if isinstance(error, Unavailable):
        header["throttled"] = error.throttled
    return header


def error_of(header: Header) -> HotsetError:
    """The exception that `encode_error` wrote down."""
    kind = getattr(hotset.errors, str(header["error"]), HotsetError)
    message = str(header["message"])
    if kind is Unavailable:
        return Unavailable(message, throttled=bool(header.get("throttled")))
    return kind(message) if isinstance(kind, type) and issubclass(kind, HotsetError) else HotsetError(message)


def result_of(header: Header) -> Header:
    """The header itself; raises the exception that it stands for."""
    if "error" in header:
        raise error_of(header)
    return header


def _frames(payload: Sequence[Buffer]) -> Iterator[list[memoryview]]:
    """The same bytes in pieces that fit a frame each; at least one."""
    frame: list[memoryview] = []
    room = MAX_PAYLOAD
    for part in payload:
        view = memoryview(part).cast("B") if len(part) else memoryview(b"")
        while view.nbytes > room:
            yield [*frame, view[:room]]
            view, frame, room = view[room:], [], MAX_PAYLOAD
        frame.append(view)
        room -= view.nbytes
    yield frame


def _check(header: int, payload: int) -> None:
    if header > MAX_HEADER or payload > MAX_PAYLOAD:
        raise InvalidInput(f"a frame of {header} + {payload} bytes is too large")


def _exactly(connection: socket.socket, length: int) -> memoryview:
    buffer = memoryview(bytearray(length))
    filled = 0
    while filled < length:
        try:
            got = connection.recv_into(buffer[filled:])
        except OSError as error:
            raise ConnectionLost(str(error)) from error
        if not got:
            raise ConnectionLost("closed by the other side")
        filled += got
    return buffer.toreadonly()

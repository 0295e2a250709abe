"""HTTP/1.1 messages as a `FaultProxy` reads, changes and writes them. Pure functions over bytes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self
from urllib.parse import unquote_to_bytes

from tests.support.faults import KEEP, Fault, Request
from tests.support.signature import sign

_HEADER = re.compile(rb"\r\n([^:\r]+):[ \t]*([^\r]*)")
_LISTED_ETAG = re.compile(rb"<ETag>[^<]*</ETag>")

_FRAMING = {b"content-length", b"transfer-encoding"}

Headers = dict[bytes, bytes]


@dataclass
class Answer:
    """A collected answer: its declared length and its body may be made to differ."""

    line: bytes
    headers: Headers
    length: int
    body: bytes

    @classmethod
    def of(cls, head: bytes, headers: Headers, body: bytes) -> Self:
        others = {name: value for name, value in headers.items() if name not in _FRAMING}
        # An answer to HEAD declares the length of a body that it does not have.
        declared = length_of_body(headers) or 0
        return cls(head[: head.index(b"\r\n")], others, max(declared, len(body)), body)

    def head(self) -> bytes:
        lines = [self.line, *(name + b": " + value for name, value in self.headers.items())]
        return b"\r\n".join([*lines, b"content-length: %d" % self.length, b"", b""])


def read_headers(head: bytes) -> Headers:
    return {name.lower(): value for name, value in _HEADER.findall(head)}


def read_request(head: bytes, headers: Headers) -> Request:
    method, target, _ = head.split(b" ", 2)
    path = unquote_to_bytes(target.partition(b"?")[0]).decode(errors="replace")
    _, bucket, key = f"{path}/".split("/", 2)
    key = key.removesuffix("/")
    kind = "LIST" if method == b"GET" and not key else method.decode()
    return Request(kind, bucket, key, _text(headers.get(b"range")), _text(headers.get(b"if-match")))


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode(errors="replace")


def without_condition(message: bytes) -> bytes:
    """The request without If-Match, signed anew because the signature covers that header."""
    head = message[: message.index(b"\r\n\r\n")]
    line = head[: head.index(b"\r\n")]
    headers = read_headers(head)
    del headers[b"if-match"]
    if b"authorization" in headers:
        method, target, _ = line.decode().split(" ")
        path, _, query = target.partition("?")
        signed = sign(method, headers[b"host"].decode(), path, query, headers[b"x-amz-content-sha256"].decode())
        headers |= {name.encode(): value.encode() for name, value in signed.items()}
    lines = [line, *(name + b": " + value for name, value in headers.items()), b"", b""]
    return b"\r\n".join(lines) + message[len(head) + 4 :]


def length_of_body(headers: Headers) -> int | None:
    """What the headers declare; None for a body in chunks, or one that lasts as long as the connection."""
    length = headers.get(b"content-length")
    return None if length is None else int(length)


def whole_body(data: bytes, headers: Headers, length: int | None, *, ended: bool) -> bytes | None:
    """The body, decoded; None as long as it is not complete."""
    if length is not None:
        return data if len(data) >= length else None
    if headers.get(b"transfer-encoding", b"").lower() != b"chunked":
        return data if ended else None
    pieces: list[bytes] = []
    start = 0
    while (line := data.find(b"\r\n", start)) >= 0:
        size = int(data[start:line].partition(b";")[0], 16)
        start = line + 2 + size + 2
        if start > len(data):
            return None
        if size == 0:
            return b"".join(pieces)
        pieces.append(data[line + 2 : line + 2 + size])
    return None


def spoil(answer: Answer, fault: Fault, *, is_list: bool) -> None:
    """Change what the answer says: its ETag (or those in a listing), one byte, its length."""
    if fault.etag != KEEP:
        answer.headers.pop(b"etag", None)
        if fault.etag is not None:
            answer.headers[b"etag"] = fault.etag.encode()
        if is_list:
            listed = b"" if fault.etag is None else b"<ETag>%s</ETag>" % fault.etag.encode()
            answer.body = _LISTED_ETAG.sub(lambda _: listed, answer.body)
            answer.length = len(answer.body)
    if fault.corrupt_at is not None and answer.body:
        spoilt = bytearray(answer.body)
        spoilt[fault.corrupt_at % len(spoilt)] ^= 0xFF
        answer.body = bytes(spoilt)
    if fault.length is not None:
        answer.length = fault.length
        answer.body = answer.body[: fault.length]

"""An S3 server whose objects exist only as numbers: a bucket of a million objects without a million files.

It answers what a reader asks (ListObjectsV2, GET, HEAD, ranges), signs and checks nothing, and runs in a process of
its own.
"""

from __future__ import annotations

import contextlib
import re
import socketserver
from collections.abc import Iterator
from io import BufferedIOBase
from urllib.parse import parse_qs, urlsplit

from bench.daemons import accepts
from bench.workloads import Workload
from tests.support.processes import call, free_port, wait_until

__all__ = ["synthetic"]

_PAGE = 1000
_MODIFIED = "2026-01-01T00:00:00.000Z"
_HTTP_DATE = "Thu, 01 Jan 2026 00:00:00 GMT"


@contextlib.contextmanager
def synthetic(workload: Workload) -> Iterator[str]:
    """The endpoint of a server with one bucket, named as the workload, that holds its objects."""
    port = free_port()
    with call(_serve, workload, port, env={}):
        wait_until(lambda: accepts(f"127.0.0.1:{port}"), what="the synthetic server to answer")
        yield f"http://127.0.0.1:{port}"


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 512


def _serve(workload: Workload, port: int) -> None:
    class Handler(socketserver.StreamRequestHandler):
        disable_nagle_algorithm = True

        def handle(self) -> None:
            with contextlib.suppress(ConnectionError):
                while request := _request(self.rfile):
                    self.wfile.write(_answer(workload, *request))

    with _Server(("127.0.0.1", port), Handler) as server:
        server.serve_forever()


def _request(stream: BufferedIOBase) -> tuple[str, str, bytes | None] | None:
    """Method, target and the value of the Range header of the next request; None at the end of the connection."""
    line = stream.readline()
    if not line:
        return None
    method, target, _ = line.decode().split()
    span = None
    while (header := stream.readline()) not in {b"\r\n", b""}:
        if header[:6].lower() == b"range:":
            span = header[6:].strip()
    return method, target, span


def _answer(workload: Workload, method: str, target: str, span: bytes | None) -> bytes:
    url = urlsplit(target)
    _, _, key = url.path.lstrip("/").partition("/")
    if not key:
        return _response("200 OK", _page(workload, parse_qs(url.query).get("continuation-token", ["0"])[0]))
    found = re.fullmatch(r"\d{4}/(\d{8})\.bin", key)
    if found is None or int(found[1]) >= workload.count:
        return _response("404 Not Found", b"<Error><Code>NoSuchKey</Code></Error>")
    index = int(found[1])
    headers = f'ETag: "{index:032x}"\r\nLast-Modified: {_HTTP_DATE}\r\nAccept-Ranges: bytes\r\n'
    if method == "HEAD":
        return f"HTTP/1.1 200 OK\r\nContent-Length: {workload.size}\r\n{headers}\r\n".encode()
    body = workload.body(index)
    if span is None:
        return _response("200 OK", body, headers)
    first, _, last = span.removeprefix(b"bytes=").partition(b"-")
    start, end = int(first), min(int(last or workload.size - 1), workload.size - 1)
    part = f"{headers}Content-Range: bytes {start}-{end}/{workload.size}\r\n"
    return _response("206 Partial Content", body[start : end + 1], part)


def _response(status: str, body: bytes, headers: str = "") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{headers}\r\n".encode() + body


def _page(workload: Workload, token: str) -> bytes:
    """The listing from the object whose number is the continuation token."""
    start = int(token)
    end = min(start + _PAGE, workload.count)
    contents = "".join(
        f"<Contents><Key>{workload.key(index)}</Key><LastModified>{_MODIFIED}</LastModified>"
        f"<ETag>&quot;{index:032x}&quot;</ETag><Size>{workload.size}</Size></Contents>"
        for index in range(start, end)
    )
    more = end < workload.count
    next_token = f"<NextContinuationToken>{end}</NextContinuationToken>" if more else ""
    return (
        '<?xml version="1.0" encoding="UTF-8"?>'
        '<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
        f"<Name>{workload.name}</Name><Prefix></Prefix><KeyCount>{end - start}</KeyCount><MaxKeys>{_PAGE}</MaxKeys>"
        f"<IsTruncated>{str(more).lower()}</IsTruncated>{next_token}{contents}</ListBucketResult>"
    ).encode()

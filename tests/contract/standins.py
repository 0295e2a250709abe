"""Small servers that stand for services which cannot be installed, and that hold any key.

`Shelf` is a web server over a dictionary of exact request paths. With ``bucket`` set it also answers the listing that
Amazon S3 and the XML interface of Google Cloud Storage share; that, and that no path is normalised, is all it stands
for: neither service's errors, limits or signatures.
"""

from __future__ import annotations

import hashlib
import http.server
import ssl
import sys
import threading
from collections.abc import Callable
from typing import Self
from urllib.parse import parse_qs, quote, unquote, urlsplit
from xml.sax.saxutils import escape

DATE = "Mon, 01 Jan 2024 00:00:00 GMT"


class Shelf:
    """Context manager. ``objects`` maps keys to bytes; `seen` are (method, path, headers) of all requests."""

    def __init__(self, bucket: str = "") -> None:
        self.bucket = bucket
        self.objects: dict[str, bytes] = {}
        self.seen: list[tuple[str, str, dict[str, str]]] = []
        self.page_size = 1000
        self.encodes_keys = True  #: when asked to
        self.etags = True
        self.conditions = True  #: else If-Match is ignored
        self.date = DATE
        self.ranges = True  #: else a range is answered with everything, as by `python -m http.server`
        #: Answers a request instead of the shelf if it returns (status, headers, body).
        self.override: Callable[[str, str], tuple[int, dict[str, str], bytes] | None] = lambda _method, _path: None
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.daemon_threads = True
        self._server.shelf = self
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), name="shelf", daemon=True)

    def serve_tls(self, context: ssl.SSLContext) -> None:
        """Call it before entering."""
        # The handshake is left to the first read, in the connection's own thread.
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self._server.handle_error = lambda *_: None  # clients that do not trust us hang up
        self.endpoint = self.endpoint.replace("http://", "https://")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def answer(self, method: str, target: str, headers: dict[str, str]) -> tuple[int, dict[str, str], bytes]:
        self.seen.append((method, target, headers))
        raw_path, _, query = target.partition("?")
        path = unquote(raw_path)
        overridden = self.override(method, target)
        if overridden is not None:
            return overridden
        asked = parse_qs(query, keep_blank_values=True)
        if self.bucket and path.rstrip("/") == f"/{self.bucket}" and "list-type" in asked:
            return 200, {"content-type": "application/xml"}, self._page({k: v[0] for k, v in asked.items()})
        prefix = f"/{self.bucket}/" if self.bucket else "/"
        content = self.objects.get(path.removeprefix(prefix))
        if content is None or not path.startswith(prefix):
            return 404, {}, b"<Error><Code>NoSuchKey</Code></Error>"
        tag = etag(content)
        if self.etags and self.conditions and headers.get("if-match", tag) != tag:
            return 412, {}, b"<Error><Code>PreconditionFailed</Code></Error>"
        said = {"last-modified": self.date, "accept-ranges": "bytes"} | ({"etag": tag} if self.etags else {})
        wanted = headers.get("range")
        if wanted is None or not self.ranges:
            return 200, said, content
        first, last = wanted.removeprefix("bytes=").split("-")
        part = content[int(first) : int(last) + 1]
        if not part:
            return 416, said, b""
        return 206, said | {"content-range": f"bytes {first}-{int(first) + len(part) - 1}/{len(content)}"}, part

    def _page(self, asked: dict[str, str]) -> bytes:
        after = asked.get("continuation-token") or asked.get("start-after") or ""
        keys = sorted(key for key in self.objects if key.startswith(asked.get("prefix", "")) and key > after)
        page, rest = keys[: self.page_size], keys[self.page_size :]
        encode = self.encodes_keys and asked.get("encoding-type") == "url"
        parts = ['<?xml version="1.0" encoding="UTF-8"?><ListBucketResult>']
        if encode:
            parts.append("<EncodingType>url</EncodingType>")
        parts.append(f"<IsTruncated>{'true' if rest else 'false'}</IsTruncated>")
        if rest:
            parts.append(f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>")
        for key in page:
            content = self.objects[key]
            shown = quote(key, safe="/").replace("%20", "+") if encode else escape(key, {"\r": "&#13;"})
            if not encode:
                shown = "".join(c if c >= " " or c in "\t\n" else "\ufffd" for c in shown)
            tag = f"<ETag>{escape(etag(content))}</ETag>" if self.etags else ""
            parts.append(
                f"<Contents><Key>{shown}</Key><LastModified>2024-01-01T00:00:00.000Z</LastModified>{tag}"
                f"<Size>{len(content)}</Size><StorageClass>STANDARD</StorageClass></Contents>"
            )
        return "".join([*parts, "</ListBucketResult>"]).encode()


def etag(content: bytes) -> str:
    return f'"{hashlib.md5(content, usedforsecurity=False).hexdigest()}"'


class _Server(http.server.ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """Clients may hang up."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1  # headers and body in one packet

    def do_GET(self) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        body = self.rfile.read(int(headers.get("content-length", 0)))
        if body:
            headers["body"] = body.decode()
        target = urlsplit(self.path)._replace(scheme="", netloc="").geturl() if "://" in self.path else self.path
        status, said, content = self.server.shelf.answer(self.command, target, headers)
        self.send_response(status)
        for name, value in said.items():
            self.send_header(name, value)
        if not said.keys() & {"content-length", "transfer-encoding"}:
            self.send_header("content-length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    do_HEAD = do_PUT = do_POST = do_CONNECT = do_GET  # noqa: N815

    def log_message(self, *args: object) -> None:
        """Tests read `Shelf.seen`."""

"""Plain HTTP requests, for what obstore cannot say: URLs with a query, keys that are no paths, headers as they are.

Built on urllib3, whose pools are safe to share between threads. Nothing is retried and no redirect is followed here.
"""

from __future__ import annotations

import io
import ssl
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import unquote_to_bytes, urlsplit

import urllib3

from hotset.errors import InvalidInput, Unavailable
from hotset.source.client import ca_file_of, proxy_for
from hotset.source.errors import explain_status, timed_out, untrusted
from hotset.source.options import SourceOptions

__all__ = ["Reply", "Web", "retry_after_of"]

_PIECE = 1 << 18
#: What may take `SourceOptions.request_timeout`: about a stripe. More comes only from servers that know no ranges.
_STRIDE = 7 << 20


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back, whatever its status."""

    status: int
    headers: Mapping[str, str]  #: names are matched in any case
    body: bytes
    #: If a part was asked for and the server sent everything: the size of that. ``body`` is the part all the same.
    cut_from: int | None = None

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300


def retry_after_of(headers: Mapping[str, str]) -> float | None:
    """Seconds of a Retry-After header; a date is not worth a clock and counts as absent."""
    text = headers.get("Retry-After", "")
    return float(text) if text.isascii() and text.isdigit() else None


class Web:
    """A pool of connections with the proxies, certificates and time limits of one source."""

    def __init__(self, options: SourceOptions, env: Mapping[str, str]) -> None:
        self._options = options
        self._env = env
        self._timeout = urllib3.Timeout(connect=options.connect_timeout, read=options.read_timeout)
        self._managers: dict[tuple[str | None, bool], urllib3.PoolManager] = {}
        self._tls: ssl.SSLContext | None = None

    def request(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str],
        what: str,
        body: bytes | None = None,
        limit: int,
        part: tuple[int, int] | None = None,
    ) -> Reply:
        """Send one request. ``what`` names it in errors; a body longer than ``limit`` is refused unread.

        ``part`` is what a Range header among ``headers`` asks for; a server that sends everything instead may send more
        than ``limit``, and is heard only to the end of the part. The path of ``url`` is sent as it is, ``..`` and
        double slashes included. Raises `Unavailable` if no complete answer comes, whatever its status would be.
        """
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidInput(f"{what}: not an http or https URL")
        proxy = proxy_for(url, self._options, self._env)
        manager = self._manager(proxy, tls=parts.scheme == "https" or (proxy or "").startswith("https:"))
        pool = manager.connection_from_host(parts.hostname, parts.port, parts.scheme)
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        if proxy is not None and parts.scheme == "http":
            target = f"http://{parts.netloc}{target}"
        try:
            response = pool.urlopen(
                method,
                target,
                body=body,
                headers={"Host": parts.netloc, "User-Agent": "hotset", "Accept-Encoding": "identity", **headers},
                retries=False,
                redirect=False,
                assert_same_host=False,
                timeout=self._timeout,
                preload_content=False,
                decode_content=False,
            )
            try:
                size = response.length_remaining  # as declared; 0 for HEAD, whatever it declares
                pieces = _pieces(response, self._options.request_timeout, what)
                if part is not None and _is_everything(response):
                    content, whole = _cut_out(pieces, size, part)
                else:
                    content, whole = _read(pieces, size or 0, limit, what), None
            finally:
                # A connection whose answer was heard to its end is back in its pool already. Any other ends here: what
                # is left of the body must not be taken for the next answer.
                response.close()
        except (urllib3.exceptions.HTTPError, OSError) as error:
            if "CERTIFICATE_VERIFY_FAILED" in str(error):
                raise untrusted(what) from error
            if "Tunnel connection failed: 407" in str(error):
                raise explain_status(407, "", what=what, hint="") from error
            if _is_timeout(error):
                raise timed_out(what) from error
            raise Unavailable(f"{what}: {_failure(error)}") from error
        return Reply(response.status, response.headers, content, whole)

    def _manager(self, proxy: str | None, *, tls: bool) -> urllib3.PoolManager:
        """Without TLS there is no context: to read the certificates of all authorities takes as long as a page of a listing."""
        manager = self._managers.get((proxy, tls))
        if manager is None:
            maxsize, context = self._options.max_connections, self._context() if tls else None
            if proxy is None:
                manager = urllib3.PoolManager(maxsize=maxsize, ssl_context=context)
            else:
                url, headers = _proxy(proxy)
                manager = urllib3.ProxyManager(url, maxsize=maxsize, ssl_context=context, proxy_headers=headers)
            manager = self._managers.setdefault((proxy, tls), manager)
        return manager

    def _context(self) -> ssl.SSLContext:
        if self._tls is None:
            context = ssl.create_default_context()
            ca_file = ca_file_of(self._options, self._env)
            if ca_file is not None:
                try:
                    context.load_verify_locations(ca_file)
                except OSError as error:
                    raise InvalidInput(f"{ca_file}: not a readable file of PEM certificates") from error
            self._tls = context
        return self._tls

    def close(self) -> None:
        for manager in self._managers.values():
            manager.clear()


def _proxy(given: str) -> tuple[str, Mapping[str, str]]:
    """A proxy's URL without the name and the password in it, which urllib3 would ignore, and a header with them."""
    try:
        parts = urlsplit(given)
        user, at, address = parts.netloc.rpartition("@")
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        # Not the URL itself: there may be a password in it.
        raise InvalidInput(
            "the proxy (HTTPS_PROXY, HTTP_PROXY, ALL_PROXY, or as given) is not a URL like http://host:port"
        )
    # The library encodes this as Latin-1, which gives back any bytes.
    login = unquote_to_bytes(user).decode("latin-1")
    return f"{parts.scheme}://{address}", urllib3.make_headers(proxy_basic_auth=login) if at else {}


def _is_everything(response: urllib3.BaseHTTPResponse) -> bool:
    """Whether the answer to a range request is good, and not a range."""
    return 200 <= response.status < 300 and response.status != 206 and "Content-Range" not in response.headers


def _read(pieces: Iterator[bytes], declared: int, limit: int, what: str) -> bytes:
    content = io.BytesIO()
    for piece in pieces if declared <= limit else ():
        content.write(piece)
        if content.tell() > limit:
            break
    if max(declared, content.tell()) > limit:
        raise Unavailable(f"{what}: the answer is longer than expected (more than {limit} bytes)")
    return content.getvalue()


def _cut_out(pieces: Iterator[bytes], size: int | None, part: tuple[int, int]) -> tuple[bytes, int]:
    """Only this part of a body, and the size of the whole. What comes before the part is let go as it comes."""
    content = io.BytesIO()
    start, end = part
    position = 0
    for piece in pieces:
        content.write(piece[max(0, start - position) : max(0, end - position)])
        position += len(piece)
        if position >= end and size is not None:  # else only the end tells the size
            break
    return content.getvalue(), position if size is None else size


def _pieces(response: urllib3.BaseHTTPResponse, patience: float, what: str) -> Iterator[bytes]:
    """The body as it comes. `Unavailable` if it trickles: the time limit of the library is for a single byte."""
    until, step = time.monotonic() + patience, 0
    while piece := response.read1(_PIECE):
        yield piece
        step += len(piece)
        if step >= _STRIDE:
            until, step = time.monotonic() + patience, 0
        elif time.monotonic() > until:
            raise timed_out(what)


def _is_timeout(error: Exception) -> bool:
    """urllib3 counts connections that are refused among them."""
    return isinstance(error, urllib3.exceptions.TimeoutError | TimeoutError) and not isinstance(
        error, urllib3.exceptions.NewConnectionError
    )


def _failure(error: Exception) -> str:
    """A few words without addresses: a URL in the library's text may be signed."""
    if isinstance(error, urllib3.exceptions.NameResolutionError):
        return "the name of the host cannot be resolved"
    if isinstance(error, urllib3.exceptions.NewConnectionError):
        return "cannot connect"
    if isinstance(error, urllib3.exceptions.SSLError):
        return "the TLS handshake failed"
    if isinstance(error, urllib3.exceptions.IncompleteRead):
        return "the body ended early"
    if isinstance(error, urllib3.exceptions.ProxyError):
        return "the proxy refuses or does not answer"
    return "the connection broke"

"""HDFS through its web interface, with fsspec's client (the extra ``hdfs``).

``hdfs://`` goes the same way: the native protocol would need a Java machine in every process. The name node's web port
is 9870 unless the URI (``webhdfs://host:port/``) or the endpoint says otherwise. HDFS has no entity tags: a version is
known by size and modification time, compared before and after each read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from hotset.errors import Changed, Denied, HotsetError, InvalidInput, NotFound, Unavailable
from hotset.source.base import Buffer, FingerprintKind, ObjectInfo, Source
from hotset.source.client import ca_file_of
from hotset.source.endpoint import normal_endpoint
from hotset.source.errors import timed_out
from hotset.source.keys import modified_value
from hotset.source.listing import Pages
from hotset.source.options import SourceOptions
from hotset.source.uri import Location

if TYPE_CHECKING:
    from fsspec.implementations.webhdfs import WebHDFS

__all__ = ["WebHdfsSource", "open_webhdfs"]

_PORT = 9870


def open_webhdfs(location: Location, options: SourceOptions, env: Mapping[str, str]) -> Source:
    try:
        from fsspec.implementations.webhdfs import WebHDFS
    except ImportError as error:
        raise InvalidInput(f"{location.scheme}:// needs an extra: install hotset[hdfs]") from error
    host, _, port = location.bucket.partition(":")
    # In hdfs:// the port is that of the native protocol.
    named = f"{host}:{port if port and location.scheme == 'webhdfs' else _PORT}"
    url = urlsplit(normal_endpoint(options.endpoint or named, scheme="http"))
    user = options.user or env.get("HADOOP_USER_NAME") or None
    client = WebHDFS(
        url.hostname,
        port=url.port or _PORT,
        user=user,
        use_https=url.scheme == "https",
        session_cert=None,
        session_verify=ca_file_of(options, env) or True,
        use_listings_cache=False,
        skip_instance_cache=True,
    )
    # requests waits for ever unless each call says otherwise, and fsspec's client never does.
    client.session.request = partial(client.session.request, timeout=(options.connect_timeout, options.read_timeout))
    return WebHdfsSource(client, f"/{location.root}", f"webhdfs://{url.netloc}")


class WebHdfsSource:
    """The files below ``root``."""

    def __init__(self, client: WebHDFS, root: str, server: str) -> None:
        self._client = client
        self._root = root.rstrip("/")
        self._server = server

    @property
    def identity(self) -> str:
        return f"{self._server}{self._root}/"

    def list(self) -> Iterator[Sequence[ObjectInfo]]:
        start: tuple[str, ...] = ("",)
        return Pages(self._directory, start)

    def _directory(self, pending: tuple[str, ...]) -> tuple[Sequence[ObjectInfo], tuple[str, ...] | None]:
        """The files of the last directory of ``pending``, and what is pending afterwards: a position of the listing."""
        *others, directory = pending
        files: list[ObjectInfo] = []
        for entry in self._ask(self._client.ls, f"{self._root}/{directory}", detail=True):
            name = str(entry["name"]).rstrip("/").rpartition("/")[2]
            if entry["type"] == "directory":
                others.append(f"{directory}{name}/")
            elif entry["type"] == "file":
                files.append(_info(f"{directory}{name}", entry))
        return files, tuple(others) or None

    def read(self, key: str, start: int, end: int, expect: ObjectInfo) -> Buffer:
        if start == end:
            return b""
        path = f"{self._root}/{key}"
        self._compare(path, expect)
        data: bytes = self._ask(self._client.cat_file, path, start=start, end=end)
        self._compare(path, expect)
        if len(data) != end - start:
            raise Unavailable(f"{self._server}{path}: the body ended early")
        return data

    def newest(self, key: str) -> Buffer:
        data: bytes = self._ask(self._client.cat_file, f"{self._root}/{key}")
        return data

    def _compare(self, path: str, expect: ObjectInfo) -> None:
        found = _info("", self._ask(self._client.info, path))
        if (found.size, found.modified_ns) != (expect.size, expect.modified_ns):
            raise Changed(f"{self._server}{path}: changed since it was listed; reload the dataset")

    def _ask(self, action: Any, path: str, **arguments: Any) -> Any:
        """Call the client and translate its errors: builtin ones, and those of requests, which are `OSError` too."""
        try:
            return action(path, **arguments)
        except (OSError, ValueError, RuntimeError) as error:
            raise _ours(error, f"{self._server}{path}") from error

    def close(self) -> None:
        session = getattr(self._client, "session", None)
        if session is not None:
            session.close()


def _info(key: str, entry: Mapping[str, Any]) -> ObjectInfo:
    modified = int(entry.get("modificationTime", 0)) * 1_000_000
    return ObjectInfo(key, int(entry["size"]), FingerprintKind.MODIFIED, modified_value(modified), modified)


def _ours(error: Exception, what: str) -> HotsetError:
    if isinstance(error, FileNotFoundError):
        return NotFound(f"{what}: no such file or directory")
    if isinstance(error, PermissionError):
        return Denied(f"{what}: access denied; set HADOOP_USER_NAME or the option user")
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status in (401, 403):
        return Denied(f"{what}: access denied (HTTP {status}); set HADOOP_USER_NAME or the option user")
    if "timed out" in str(error):  # of several types, depending on what was waited for
        return timed_out(what)
    throttled = status in (429, 503)
    return Unavailable(f"{what}: the name node or a data node does not answer as it should", throttled=throttled)

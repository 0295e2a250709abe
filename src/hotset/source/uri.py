"""What a dataset's URI means: pure text work, no files, no network.

`parse_uri` turns every spelling that hotset accepts into one `Location`. Object-store URIs are taken literally, as the
clouds' own tools do: nothing in them is percent-decoded, so a prefix may hold any character but ``?``. ``file://`` URIs
are decoded, so that what ``pathlib.Path.as_uri`` writes can be read back.

No message repeats a user name, a password or a query string of a URI.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from hotset.errors import InvalidInput
from hotset.source.dialects import DIALECTS

__all__ = ["Location", "display_uri", "known_schemes", "parse_uri"]

#: Other spellings of a scheme.
_ALIASES = {
    "s3a": "s3",
    "s3n": "s3",
    "gcs": "gs",
    "azure": "az",
    "abfs": "az",
    "abfss": "az",
    "wasb": "az",
    "wasbs": "az",
    "cosn": "cos",
    "local": "file",
}

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(//)?")


@dataclass(frozen=True, slots=True)
class Location:
    """Where a source lies.

    ``scheme`` is canonical (``s3a`` is ``s3``, ``local`` is ``file``). ``bucket`` is the bucket or container, or the
    ``host:port`` of a name node; empty for files and manifests. ``root`` is the prefix inside the bucket without
    the slash at its end, a path for files, and the URL without its query for manifests. ``endpoint`` and ``region`` are
    what the URI itself says, else None.
    """

    scheme: str
    bucket: str
    root: str
    endpoint: str | None = None
    region: str | None = None
    account: str | None = None  #: of Azure
    query: str = field(default="", repr=False)  #: of a manifest's URL; often a signature, hence a secret

    @property
    def prefix(self) -> str:
        """What every key of the bucket starts with if it belongs to the dataset: the root and a slash, or nothing."""
        return f"{self.root}/" if self.root else ""


def known_schemes() -> tuple[str, ...]:
    """Every scheme that `parse_uri` accepts, sorted."""
    return tuple(sorted({*_PARSERS, *_ALIASES}))


def display_uri(uri: str) -> str:
    """``uri`` as it may be shown: without user name, password and query."""
    match = _SCHEME.match(uri)
    if match is None or match[2] is None:
        return uri
    rest = uri[match.end() :].partition("?")[0]
    authority, slash, path = rest.partition("/")
    if "@" in authority and (":" in authority.rpartition("@")[0] or _ALIASES.get(match[1], match[1]) != "az"):
        authority = authority.rpartition("@")[2]
    return f"{match[0]}{authority}{slash}{path}"


def parse_uri(uri: str) -> Location:
    """The `Location` that ``uri`` names. Raises `InvalidInput` with what is wrong and what would be right."""
    if not uri or not uri.strip():
        raise InvalidInput("the source is empty: give a path or a URI such as s3://bucket/prefix")
    if "\0" in uri:
        raise InvalidInput("the source contains a NUL character, which no path and no URI can have")
    match = _SCHEME.match(uri)
    if match is None:
        return Location("file", "", uri)
    scheme = _ALIASES.get(match[1].lower(), match[1].lower())
    if match[2] is None:
        if scheme in _PARSERS:
            raise InvalidInput(f"{display_uri(uri)!r}: write {match[1]}:// with two slashes after the colon")
        return Location("file", "", uri)  # a file name with a colon
    parser = _PARSERS.get(scheme)
    if parser is None:
        raise InvalidInput(_unknown_scheme(match[1]))
    return parser(scheme, uri, uri[match.end() :])


def _unknown_scheme(scheme: str) -> str:
    close = difflib.get_close_matches(scheme.lower(), known_schemes(), n=1, cutoff=0.5)
    guess = f"; did you mean {close[0]}://" if close else ""
    return f"unknown scheme {scheme}://{guess}? Known: {', '.join(known_schemes())}, or a plain path"


def _bucket_and_root(scheme: str, uri: str, rest: str) -> tuple[str, str]:
    if "?" in rest:
        raise InvalidInput(
            f"{display_uri(uri)}: a {scheme}:// URI takes no query (?...); give options and credentials separately"
        )
    bucket, _, path = rest.partition("/")
    if "@" in bucket:
        raise InvalidInput(
            f"{display_uri(uri)}: take the user name and password out of the URI; "
            "give credentials in the environment or as options"
        )
    if not bucket:
        raise InvalidInput(f"{uri}: the bucket is missing; write {scheme}://bucket/prefix")
    if path == "/":
        raise InvalidInput(f"{uri}: a prefix of nothing but a slash; write {scheme}://{bucket} for the whole bucket")
    return bucket, path.removesuffix("/")


def _parse_bucket(scheme: str, uri: str, rest: str) -> Location:
    bucket, root = _bucket_and_root(scheme, uri, rest)
    return Location(scheme, bucket, root)


def _parse_dialect(scheme: str, uri: str, rest: str) -> Location:
    """``bos://bucket/prefix``, or with the service's host name: ``bos://bucket.bj.bcebos.com/prefix``."""
    host, root = _bucket_and_root(scheme, uri, rest)
    dialect = DIALECTS[scheme]
    match = dialect.host.fullmatch(host)
    if match is not None:
        return Location(scheme, match["bucket"], root, dialect.endpoint_of(match), match["region"])
    if host.endswith(dialect.domain):
        raise InvalidInput(f"{uri}: cannot find bucket and region in the host name; write {dialect.example}")
    return Location(scheme, host, root)


def _parse_azure(scheme: str, uri: str, rest: str) -> Location:
    """``az://container/prefix``, or ``abfss://container@account.dfs.core.windows.net/prefix``."""
    authority, slash, path = rest.partition("/")
    container, at, host = authority.partition("@")
    if not at:
        return _parse_bucket(scheme, uri, rest)
    if "?" in host:
        raise InvalidInput(f"{display_uri(uri)}: an az:// URI takes no query (?...); give a signature separately")
    if ":" in container:
        raise InvalidInput(
            f"{display_uri(uri)}: take the password out of the URI; give it as AZURE_STORAGE_ACCOUNT_KEY"
        )
    account = host.partition(".")[0]
    if not container or not account:
        raise InvalidInput(f"{display_uri(uri)}: write az://container@account.blob.core.windows.net/prefix")
    container, root = _bucket_and_root(scheme, uri, f"{container}{slash}{path}")
    endpoint = f"https://{host.replace('.dfs.', '.blob.', 1)}" if "." in host else None
    return Location(scheme, container, root, endpoint, account=account)


def _parse_web(scheme: str, uri: str, rest: str) -> Location:
    authority = rest.partition("/")[0].partition("?")[0]
    if "@" in authority:
        raise InvalidInput(
            f"{display_uri(uri)}: take the user name and password out of the URL; use a header or a signed URL"
        )
    if not authority:
        raise InvalidInput(f"{display_uri(uri)}: the host is missing; write {scheme}://host/manifest.jsonl")
    plain, _, query = uri.partition("#")[0].partition("?")
    return Location(scheme, "", plain, query=query)


def _parse_hdfs(scheme: str, uri: str, rest: str) -> Location:
    host, root = _bucket_and_root(scheme, uri, rest)
    return Location(scheme, host, root)


def _parse_file(scheme: str, uri: str, rest: str) -> Location:
    host = urlsplit(uri).netloc
    if host not in ("", "localhost"):
        raise InvalidInput(
            f"{display_uri(uri)}: {host!r} is taken for a host name; write file:///{rest} with three slashes"
        )
    path = unquote(rest[len(host) :])
    if not path:
        raise InvalidInput(f"{uri}: the path is missing; write file:///path")
    if "\0" in path:
        raise InvalidInput("the path contains a NUL character (%00)")
    return Location(scheme, "", path)


_PARSERS: dict[str, Callable[[str, str, str], Location]] = {
    "s3": _parse_bucket,
    "gs": _parse_bucket,
    "az": _parse_azure,
    "http": _parse_web,
    "https": _parse_web,
    "file": _parse_file,
    "webhdfs": _parse_hdfs,
    "hdfs": _parse_hdfs,
    **dict.fromkeys(DIALECTS, _parse_dialect),
}

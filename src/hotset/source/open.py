"""From a URI to a `Source`: the only place that knows all kinds."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from hotset.errors import InvalidInput
from hotset.source.base import Source
from hotset.source.dialects import DIALECTS
from hotset.source.globs import EVERYTHING
from hotset.source.local import LocalSource
from hotset.source.options import SourceOptions
from hotset.source.place import resolve
from hotset.source.uri import Location, display_uri, parse_uri

__all__ = ["identify", "open_source"]

Builder = Callable[[Location, SourceOptions, Mapping[str, str]], Source]


def open_source(
    uri: str,
    *,
    options: SourceOptions | None = None,
    env: Mapping[str, str],
    beginnings: tuple[str, ...] = EVERYTHING,
    forkable: bool = False,
) -> Source:
    """The source that ``uri`` names. Sends no request.

    ``env`` stands for the environment variables; what ``options`` leaves open is taken from it. ``beginnings`` is what the
    keys in question begin with (`key_beginnings`): a store that can lists nothing else, others list all. A ``forkable``
    source may be made and used by a process that forks and by its children, at some cost for many small requests.
    Raises `InvalidInput` for a URI that cannot be right and `Denied` if no credentials can be found.
    """
    location = parse_uri(uri)
    options = options or SourceOptions()
    if _speaks_s3(location):
        from hotset.source.s3 import open_s3

        return open_s3(location, options, env, beginnings=beginnings, forkable=forkable)
    if forkable and location.scheme in _OBSTORE_ONLY:
        raise InvalidInput(f"{display_uri(uri)}: this kind of store cannot be read by forked processes without a cache")
    return _BUILDERS[location.scheme](location, options, env)


def identify(uri: str, *, options: SourceOptions | None = None, env: Mapping[str, str]) -> str:
    """`Source.identity` of the source that ``uri`` names, without credentials and, for S3 and files, without its client."""
    location = parse_uri(uri)
    if _speaks_s3(location):
        return resolve(location, options or SourceOptions(), env).identity
    source = _BUILDERS[location.scheme](location, options or SourceOptions(), env)
    try:
        return source.identity
    finally:
        source.close()


def _speaks_s3(location: Location) -> bool:
    return location.scheme == "s3" or location.scheme in DIALECTS


# Each builder imports its client when it is needed: a local dataset must not pay for a cloud's library.


def _open_file(location: Location, _options: SourceOptions, _env: Mapping[str, str]) -> Source:
    return LocalSource(location.root)


def _open_gcs(location: Location, options: SourceOptions, env: Mapping[str, str]) -> Source:
    from hotset.source.gcs import open_gcs

    return open_gcs(location, options, env)


def _open_azure(location: Location, options: SourceOptions, env: Mapping[str, str]) -> Source:
    from hotset.source.azure import open_azure

    return open_azure(location, options, env)


def _open_manifest(location: Location, options: SourceOptions, env: Mapping[str, str]) -> Source:
    from hotset.source.manifest import open_manifest

    return open_manifest(location, options, env)


def _open_webhdfs(location: Location, options: SourceOptions, env: Mapping[str, str]) -> Source:
    from hotset.source.webhdfs import open_webhdfs

    return open_webhdfs(location, options, env)


_BUILDERS: dict[str, Builder] = {
    "file": _open_file,
    "gs": _open_gcs,
    "az": _open_azure,
    "http": _open_manifest,
    "https": _open_manifest,
    "webhdfs": _open_webhdfs,
    "hdfs": _open_webhdfs,
}

#: Read through obstore alone, whose threads do not exist in a forked child.
_OBSTORE_ONLY = ("gs", "az")

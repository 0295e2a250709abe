"""Options that several commands share, and what they are turned into."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hotset.errors import InvalidInput, NotFound

if TYPE_CHECKING:
    from hotset.config.builder import Build
    from hotset.tier.node import CacheDirectory

__all__ = [
    "Anonymous",
    "AsJson",
    "Debug",
    "Endpoint",
    "Name",
    "Profile",
    "Region",
    "RequesterPays",
    "Show",
    "ShowProgress",
    "cache_of",
    "existing",
    "existing_cache",
    "mounts",
]


class Show(StrEnum):
    """How progress is shown."""

    auto = "auto"
    bar = "bar"
    lines = "lines"
    json = "json"
    none = "none"


def complete_name(incomplete: str) -> list[str]:
    """Names in the cache that begin so, for the shell. Says nothing where there is nothing to say."""
    from hotset.config.settings import Settings, environment
    from hotset.errors import HotsetError

    try:
        names = Settings.of(environment()).cache / "names"
        return sorted(entry.name for entry in names.iterdir() if entry.name.startswith(incomplete))
    except (HotsetError, OSError):
        return []


Name = Annotated[str, typer.Argument(help="Name of a dataset (see `hotset ls`).", autocompletion=complete_name)]
ShowProgress = Annotated[
    Show,
    typer.Option(
        "--progress",
        help="A bar on a terminal and a line every few seconds elsewhere (auto), or always: bar, lines, json (one "
        "document a line), none. Goes to standard error.",
    ),
]
Endpoint = Annotated[str | None, typer.Option(metavar="URL", help="Of an S3-compatible service.")]
Region = Annotated[str | None, typer.Option(metavar="NAME", help="Of the bucket.")]
Anonymous = Annotated[bool, typer.Option("--anonymous", help="Do not sign requests (public buckets).")]
RequesterPays = Annotated[bool, typer.Option("--requester-pays", help="Pay for the requests.")]
Profile = Annotated[str | None, typer.Option(metavar="NAME", help="Profile of ~/.aws.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as one JSON document.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show where in the program an error comes from.")]


def mounts(uri: str | None, sources: Sequence[str]) -> str | list[tuple[str, str]] | None:
    """What to load: one URI, or several sources written ``PATH=URI``."""
    if uri is not None and sources:
        raise InvalidInput("give one URI, or several sources as --source PATH=URI, but not both")
    if not sources:
        return uri
    pairs = []
    for entry in sources:
        path, equals, place = entry.partition("=")
        if not equals or not path or not place or "://" in path:
            raise InvalidInput(f"--source {entry!r}: write PATH=URI, e.g. --source images=s3://bucket/images")
        pairs.append((path, place))
    twice = sorted({path for path, _ in pairs if [other for other, _ in pairs].count(path) > 1})
    if twice:
        raise InvalidInput(f"two sources have the path {twice[0]!r}; give each a path of its own")
    return pairs


def existing(name: str) -> Build:
    """The dataset of that name; `NotFound` if there is none."""
    from hotset.config.builder import Build

    cache_of(name)
    return Build(None, name)


def cache_of(name: str) -> CacheDirectory:
    """The cache directory in which a dataset is looked for; `NotFound` if there is none yet."""
    cache = existing_cache()
    if cache is None:
        raise NotFound(f"no dataset {name!r}: there is no cache yet; begin with: hotset load URI")
    return cache


def existing_cache() -> CacheDirectory | None:
    """The cache directory, or None if there is none yet; looking must not make one."""
    from hotset.config.settings import Settings, environment
    from hotset.tier.node import CacheDirectory

    root: Path = Settings.of(environment()).cache
    return CacheDirectory(root) if root.exists() else None

"""hotset: one cache that keeps the dataset of a deep-learning job hot, near the GPU.

    import hotset

    with hotset.open("s3://bucket/train") as ds:
        first = ds[0]                    # bytes, from the cache or the source
        ds.prefetch(order)               # the order of the reads to come
        batch = ds.read_many(order[:256])

Importing this package costs milliseconds: whatever is heavy comes when it is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from hotset.errors import (
    AlreadyExists,
    Busy,
    Changed,
    Closed,
    Corrupt,
    Denied,
    Full,
    HotsetError,
    InvalidInput,
    NotFound,
    Unavailable,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hotset.fill.progress import Progress
    from hotset.read.dataset import Dataset
    from hotset.snapshot import Changes
    from hotset.source import SourceOptions
    from hotset.tier.node import CacheDirectory
    from hotset.tier.node.inventory import DatasetInfo
    from hotset.tier.node.records import SnapshotRecord

__all__ = [
    "AlreadyExists",
    "Busy",
    "Changed",
    "Changes",
    "Closed",
    "Corrupt",
    "Dataset",
    "DatasetInfo",
    "Denied",
    "Full",
    "HotsetError",
    "InvalidInput",
    "NotFound",
    "Progress",
    "SnapshotRecord",
    "SourceOptions",
    "Unavailable",
    "__version__",
    "datasets",
    "open",
    "pin",
    "snapshots",
]

__version__ = "0.1.0"

_LAZY = {
    "Changes": "hotset.snapshot",
    "Dataset": "hotset.read.dataset",
    "DatasetInfo": "hotset.tier.node.inventory",
    "Progress": "hotset.fill.progress",
    "SnapshotRecord": "hotset.tier.node.records",
    "SourceOptions": "hotset.source",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        from importlib import import_module

        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'hotset' has no attribute {name!r}")


def open(  # noqa: A001  (as in `gzip.open`; meant to be used with the package's name)
    uri: str | Mapping[str, str] | Sequence[tuple[str, str]] | None = None,
    name: str | None = None,
    *,
    cache: str | Path | None = None,
    quota: int | str | None = None,
    layout: Literal["packs", "files"] | None = None,
    refresh: Literal["auto", "always", "never"] = "auto",
    snapshot: str | None = None,
    on_changed: Literal["raise", "skip", "newest"] = "raise",
    include: str | Sequence[str] = (),
    exclude: str | Sequence[str] = (),
    options: SourceOptions | None = None,
    max_rate: int | str | None = None,
) -> Dataset:
    """Open a dataset: list its source (if no recent listing is in the cache) and be ready to read at once.

    Parameters
    ----------
    uri:
        ``s3://bucket/prefix`` or any other source; several as ``{"images": uri, "labels": uri}`` or pairs, each under a
        path of its own. May be left out to open a dataset by its ``name``.
    name:
        A name for the dataset in the cache. By default made from the URI. The same name for another source is an error.
    cache, quota:
        The cache directory and how large it may become (``"200GiB"``); by default as HOTSET_CACHE and HOTSET_QUOTA say.
    layout:
        ``"packs"`` (the default) for reading through this library; ``"files"`` keeps plain files, for views. A dataset that
        is in the cache keeps the one it has there; the other is an error.
    refresh:
        ``"auto"`` lists the source if the last listing is older than HOTSET_FRESH_FOR seconds, and goes on with the last
        snapshot if the source cannot be reached; ``"always"`` lists now; ``"never"`` takes the last snapshot.
    snapshot:
        The digest (or its beginning) of the snapshot to open instead of the current one; nothing is listed.
    on_changed:
        What becomes of an object that is another version at the source than the snapshot says: ``"raise"`` `Changed`;
        ``"skip"`` it in `read_many` and `load`; or give its ``"newest"`` bytes, which are then not kept in the cache.
    include, exclude:
        Glob patterns of keys (``**`` for any depth). Part of the dataset's identity: with a ``name`` alone they need not be
        said, and others than it was made with are an error.
    options:
        Endpoint, credentials and the like, if they are not to come from the environment.
    max_rate:
        Bytes a second that may be fetched, e.g. ``"100MB"``.
    """
    from hotset.config.builder import Build, open_dataset

    return open_dataset(
        refresh=refresh,
        snapshot=snapshot,
        on_changed=on_changed,
        make=lambda: Build(
            uri,
            name,
            cache=cache,
            quota=quota,
            layout=layout,
            include=include,
            exclude=exclude,
            options=options,
            max_rate=max_rate,
        ),
    )


def datasets(*, cache: str | Path | None = None) -> list[DatasetInfo]:
    """What is in the cache: one entry a name. Damage of a dataset is told in its entry."""
    from hotset.tier.node.inventory import describe_all

    directory = _cache_directory(cache)
    return [] if directory is None else describe_all(directory)


def snapshots(name: str, *, cache: str | Path | None = None) -> list[SnapshotRecord]:
    """The snapshots of a dataset that are in the cache, oldest first; open one with ``hotset.open(..., snapshot=digest)``."""
    directory = _cache_directory(cache)
    if directory is None:
        raise NotFound(f"no dataset {name!r}: the cache directory does not exist yet")
    return directory.dataset(name).snapshots()


def pin(name: str, snapshot: str, *, pinned: bool = True, cache: str | Path | None = None) -> None:
    """Keep a snapshot (a digest, or its beginning) and its packs until it is unpinned, whoever needs room."""
    directory = _cache_directory(cache)
    if directory is None:
        raise NotFound(f"no dataset {name!r}: the cache directory does not exist yet")
    directory.dataset(name).pin(snapshot, pinned=pinned)


def _cache_directory(cache: str | Path | None) -> CacheDirectory | None:
    from hotset.config.settings import Settings, environment
    from hotset.tier.node import CacheDirectory

    root = Path(cache).expanduser().absolute() if cache is not None else Settings.of(environment()).cache
    return CacheDirectory(root) if root.exists() else None

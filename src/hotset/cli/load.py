"""`hotset load`: list a source and copy everything into the cache."""

from __future__ import annotations

import shlex
import sys
import time
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from hotset.base.sizes import format_size
from hotset.cli.fill import Filled, fill, list_source, serving
from hotset.cli.options import Anonymous, Endpoint, Profile, Region, RequesterPays, Show, ShowProgress, mounts
from hotset.cli.output import Output
from hotset.cli.progress import Reporter, reporter
from hotset.cli.text import duration, percent, plural, printable, rate
from hotset.errors import Changed, Corrupt, HotsetError, InvalidInput, Unavailable

if TYPE_CHECKING:
    from hotset.config.builder import Build
    from hotset.fill.service import FillService
    from hotset.tier.node.records import Current

__all__ = ["EXAMPLES", "load"]

EXAMPLES = """\
hotset load s3://bucket/train
hotset load s3://bucket/train --name train --include '**/*.jpg' --quota 200GiB
hotset load --name mixed --source images=s3://bucket/images --source labels=/data/labels
hotset load gs://bucket/train --layout files     (plain files, for hotset view)
hotset load --name train                         (go on with a dataset that is in the cache)
"""

#: Reasons of failures that are told one by one.
TOLD = 5


def load(
    out: Output,
    uri: Annotated[str | None, typer.Argument(help="Source, such as s3://bucket/prefix, or a path.")] = None,
    *,
    name: Annotated[str | None, typer.Option(help="Name in the cache [default: made from the URI].")] = None,
    source: Annotated[
        list[str] | None, typer.Option(metavar="PATH=URI", help="One of several sources, under a path of its own.")
    ] = None,
    layout: Annotated[
        Literal["packs", "files"] | None,
        typer.Option(help="packs (default) for the library; files for programs that read paths."),
    ] = None,
    include: Annotated[
        list[str] | None, typer.Option(metavar="GLOB", help="Only keys that match one of these.")
    ] = None,
    exclude: Annotated[list[str] | None, typer.Option(metavar="GLOB", help="No keys that match one of these.")] = None,
    quota: Annotated[str | None, typer.Option(metavar="SIZE", help="How large the cache may become: 200GiB.")] = None,
    max_rate: Annotated[str | None, typer.Option(metavar="SIZE", help="Bytes a second to fetch: 100MB.")] = None,
    refresh: Annotated[bool, typer.Option("--refresh", help="List the source even if that was done just now.")] = False,
    endpoint: Endpoint = None,
    region: Region = None,
    anonymous: Anonymous = False,
    requester_pays: RequesterPays = False,
    profile: Profile = None,
    progress: ShowProgress = Show.auto,
) -> int:
    """Copy a dataset into the cache.

    Lists its source, then fetches what is not here yet. Safe to stop (Ctrl-C, kill, power) and to run again: it goes on
    where it was, and nothing is fetched twice.
    """
    from hotset.config.builder import Build
    from hotset.source import SourceOptions
    from hotset.tier.node.cache import check_name

    where = mounts(uri, source or ())
    if where is None and name is None:
        raise InvalidInput("say what to load: a URI, or --name of a dataset that is in the cache")
    if name is not None:
        check_name(name)
    options = SourceOptions(
        endpoint=endpoint, region=region, anonymous=anonymous, requester_pays=requester_pays, profile=profile
    )
    report = reporter(progress, as_json=out.as_json)
    try:
        build = Build(
            where, name, quota=quota, layout=layout, include=include or (), exclude=exclude or (), options=options,
            max_rate=max_rate,
        )  # fmt: skip
        unlisted = not build.directory.digests()
        with serving(build.service(), report, again=_same_command) as service:
            try:
                current = _listed(out, build, service, report, always=refresh)
                filled = fill(service, current.digest, report)
            except HotsetError:
                if unlisted:
                    _forget_empty(build)
                raise
    finally:
        report.close()
    return _conclude(out, build.name, current.digest, filled)


def _listed(out: Output, build: Build, service: FillService, report: Reporter, *, always: bool) -> Current:
    """The snapshot to load; the last one if the source cannot be listed now and need not be."""
    since = build.fresh_since_ns("always" if always else "auto")
    assert since is not None, "only refresh='never' accepts any listing"
    try:
        build.directory.checked_current()
        current = list_source(service, report, not_before_ns=since)
        _, lease = build.directory.open(current.digest)
        lease.release()
    except Unavailable as error:
        last = build.directory.current()
        if last is None or always:
            raise
        out.note(f"note: the source cannot be listed now ({error}); going on with the last snapshot")
        return last
    except Corrupt as error:
        out.note(f"note: {error}; it is being listed again")
        return list_source(service, report, not_before_ns=time.time_ns())
    return current


def _forget_empty(build: Build) -> None:
    """Take away the dataset that this command has begun and that holds nothing: a mistyped URI must not keep its name."""
    lock = build.directory.listing_lock()
    if not lock.try_acquire():
        return  # somebody else lists it at this moment
    try:
        if any(build.directory.leased(digest) for digest in build.directory.digests()):
            return
        if any(build.directory.packs.iterdir()):
            return
        if build.cache.forget(build.name):
            build.directory.drop()
    finally:
        lock.release()


def _same_command() -> str:
    """What the user typed. A URI with a query may be a signed one, and a secret is not repeated."""
    if any("?" in word for word in sys.argv[1:]):
        return "the same command"
    return shlex.join(["hotset", *sys.argv[1:]])


def _conclude(out: Output, name: str, digest: str, filled: Filled) -> int:
    out.result({"name": name, "snapshot": digest, **filled.encoded()}, _summary(name, filled))
    if filled.failures:
        for key, error in sorted(filled.failures.items())[:TOLD]:
            out.note(f"error: {printable(key)}: {error}")
        if len(filled.failures) > TOLD:
            out.note(f"error: ... and {len(filled.failures) - TOLD} more")
        changed = any(isinstance(error, Changed) for error in filled.failures.values())
        what = f"`hotset reload {name}` takes over what changed" if changed else "run the same command to try again"
        out.note(f"error: {plural(len(filled.failures), 'object')} could not be loaded; {what}")
        return 1
    return 0


def _summary(name: str, filled: Filled) -> str:
    progress, stats = filled.progress, filled.stats
    whole = f"{name}: {plural(progress.total_objects, 'object')}, {format_size(progress.total_bytes)}"
    if progress.objects == progress.total_objects:
        state = "all in the cache"
    else:
        state = f"{percent(progress.share)} in the cache"
        if not filled.failures:
            state += " (the quota has no room for more; the rest is read from the source each time)"
    if stats.fetched_objects == 0 and stats.copied_bytes == 0:
        return f"{whole}: {state}; nothing had to be fetched"
    fetched = (
        f"fetched {plural(stats.fetched_objects, 'object')}, {format_size(stats.fetched_bytes)}"
        f" in {duration(filled.seconds)} ({rate(stats.fetched_bytes / max(filled.seconds, 1e-3))})"
    )
    copied = f"; {format_size(stats.copied_bytes)} copied from the snapshot before" if stats.copied_bytes else ""
    return f"{whole}: {state}; {fetched}{copied}"

"""`hotset reload`: see what changed at the source, and bring the cache up to date."""

from __future__ import annotations

import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hotset.base.sizes import format_size
from hotset.cli.fill import Filled, attended, fill, list_source, serving
from hotset.cli.options import Name, Show, ShowProgress, existing
from hotset.cli.output import Output
from hotset.cli.progress import Reporter, listing, reporter
from hotset.cli.text import count, duration, plural, printable
from hotset.errors import Corrupt, NotFound

if TYPE_CHECKING:
    from hotset.config.builder import Build
    from hotset.fill.service import FillService
    from hotset.snapshot import Changes, Snapshot
    from hotset.tier.node import Lease
    from hotset.tier.node.records import Current

__all__ = ["EXAMPLES", "reload"]

EXAMPLES = """\
hotset reload train
hotset reload train --dry-run                    (what would change; nothing is written)
hotset reload train --json | jq .changes.modified
"""

#: Keys of each kind that are told; --json has all.
TOLD = 20


def reload(
    out: Output,
    name: Name,
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would change.")] = False,
    progress: ShowProgress = Show.auto,
) -> int:
    """Take over what changed at the source.

    Lists it again and makes the result the current snapshot; fetches what is new if the dataset was whole. What did not
    change is kept: one changed object costs one request. Who has the dataset open keeps his snapshot.
    """
    build = existing(name)
    before = build.directory.current()

    def again() -> str:
        # Once the new snapshot is current, what is left to do is a load of it.
        return f"hotset load --name {name}" if build.directory.current() != before else f"hotset reload {name}"

    report = reporter(progress, as_json=out.as_json)
    try:
        with serving(build.service(), report, again=again) as service:
            if dry_run:
                changes, filled = _preview(out, build, service, report), None
            else:
                changes, filled = _reload(out, build, service, report)
    finally:
        report.close()
    document = {
        "name": name,
        "dry_run": dry_run,
        "changed": bool(changes),
        "changes": asdict(changes),
        "filled": None if filled is None else filled.encoded(),
    }
    out.result(document, _text(name, changes, filled, dry_run=dry_run))
    for key, error in sorted(filled.failures.items())[:TOLD] if filled is not None else ():
        out.note(f"error: {printable(key)}: {error}")
    return 1 if filled is not None and filled.failures else 0


def _preview(out: Output, build: Build, service: FillService, report: Reporter) -> Changes:
    from hotset.snapshot import diff

    seen = 0

    def listed(objects: int) -> None:
        nonlocal seen
        seen = objects

    with tempfile.TemporaryDirectory(prefix="hotset-") as directory:
        after = attended(lambda: service.preview(Path(directory), on_listed=listed), lambda: report.show(listing(seen)))
        opened = _open_current(out, build)
        if opened is None:
            return _against_nothing(build.directory.current(), after)
        before, lease = opened
        try:
            return diff(before, after)
        finally:
            lease.release()


def _reload(out: Output, build: Build, service: FillService, report: Reporter) -> tuple[Changes, Filled | None]:
    from hotset.snapshot import diff

    opened = _open_current(out, build)
    if opened is None:
        known = build.directory.current()
        current = list_source(service, report, not_before_ns=time.time_ns())
        after, lease = build.directory.open(current.digest)
        lease.release()
        return _against_nothing(known, after), None
    before, lease = opened  # held to the end: what did not change is copied from it
    try:
        whole = _is_whole(build, before)
        current = list_source(service, report, not_before_ns=time.time_ns())
        after, other = build.directory.open(current.digest)
        try:
            changes = diff(before, after)
            return changes, fill(service, current.digest, report) if changes and whole else None
        finally:
            other.release()
    finally:
        lease.release()


def _open_current(out: Output, build: Build) -> tuple[Snapshot, Lease] | None:
    """The current snapshot; None if nothing was listed yet, or if it is damaged, which is told."""
    try:
        return build.directory.open()
    except NotFound:
        return None
    except Corrupt as error:
        out.note(f"note: {error}; what it held is not known, and all counts as added unless nothing changed")
        return None


def _against_nothing(known: Current | None, after: Snapshot) -> Changes:
    """The changes where the snapshot before cannot be read; its digest still tells whether there are any."""
    from hotset.snapshot import diff

    return diff(after if known is not None and known.digest == after.digest else None, after)


def _is_whole(build: Build, snapshot: Snapshot) -> bool:
    from hotset.tier.node.shelf import open_reader

    reader = open_reader(build.directory, snapshot)
    try:
        return all(reader.held(number) == snapshot.pack_units[number] for number in range(snapshot.pack_count))
    finally:
        reader.close()


def _text(name: str, changes: Changes, filled: Filled | None, *, dry_run: bool) -> str:
    if not changes:
        return f"{name}: nothing changed"
    lines = [f"{name}: {changes}"]
    for sign, keys in (("+", changes.added), ("~", changes.modified), ("-", changes.removed)):
        lines += [f"  {sign} {printable(key)}" for key in keys[:TOLD]]
        if len(keys) > TOLD:
            lines.append(f"  {sign} ... and {count(len(keys) - TOLD)} more (--json has all)")
    packs = f"{plural(changes.packs_kept, 'pack')} kept, {count(changes.packs_new)} new"
    if dry_run:
        lines.append(f"would fetch {format_size(changes.bytes_to_fetch)}; {packs}. Nothing was changed here.")
    elif filled is None:
        lines.append(f"{packs}; {format_size(changes.bytes_to_fetch)} to fetch when they are read or loaded")
    else:
        stats = filled.stats
        gets = "1 GET" if stats.fetched_objects == 1 else f"{count(stats.fetched_objects)} GETs"
        lines.append(
            f"{gets}, {format_size(stats.fetched_bytes)} fetched, {format_size(stats.copied_bytes)} copied from the "
            f"snapshot before, in {duration(filled.seconds)}; {packs}"
        )
    return "\n".join(lines)

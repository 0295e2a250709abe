"""`hotset snapshots`: which versions of a dataset are here; keep one, or go back to it."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from hotset.base.sizes import format_size
from hotset.cli.options import Name, existing
from hotset.cli.output import Output
from hotset.cli.text import ago, count, table
from hotset.errors import InvalidInput

if TYPE_CHECKING:
    from hotset.config.builder import Build

__all__ = ["EXAMPLES", "snapshots"]

EXAMPLES = """\
hotset snapshots train
hotset snapshots train --pin 3f2a91c0            (keep it, whoever needs room)
hotset snapshots train --rollback 3f2a91c0       (what `open` gives until the source is listed again)
"""


def snapshots(
    out: Output,
    name: Name,
    *,
    pin: Annotated[str | None, typer.Option(metavar="DIGEST", help="Keep this snapshot and its data.")] = None,
    unpin: Annotated[str | None, typer.Option(metavar="DIGEST", help="Let it go when room is needed.")] = None,
    rollback: Annotated[str | None, typer.Option(metavar="DIGEST", help="Make it the current one again.")] = None,
) -> None:
    """List, pin or restore versions.

    Without an option: the snapshots that are here, oldest first. A digest may be shortened as long as it is unambiguous.
    """
    if sum(choice is not None for choice in (pin, unpin, rollback)) > 1:
        raise InvalidInput("--pin, --unpin and --rollback are for one at a time")
    build = existing(name)
    if pin is not None:
        build.directory.pin(pin)
    if unpin is not None:
        build.directory.pin(unpin, pinned=False)
    if rollback is not None:
        _roll_back(build, rollback)
        fresh = f"for the next {build.settings.fresh_for:g} s (HOTSET_FRESH_FOR)"
        out.note(f"note: who opens {name} gets it {fresh}, or for good with snapshot={rollback!r} or refresh='never'")
    records = build.directory.snapshots()
    now = time.time_ns()
    rows = [
        (
            record.digest[:12],
            count(record.objects),
            format_size(record.bytes),
            ago(record.created_ns, now),
            ", ".join(word for word in ("current", "pinned", "leased", "damaged") if getattr(record, word)),
        )
        for record in records
    ]
    listing = table(("DIGEST", "OBJECTS", "SIZE", "LISTED", ""), rows, right="OBJECTS SIZE")
    out.result({"name": name, "snapshots": [asdict(record) for record in records]}, listing)


def _roll_back(build: Build, digest: str) -> None:
    from hotset.tier.node.records import Current

    with build.directory.listing_lock():  # nobody lists meanwhile and makes another one current
        snapshot, lease = build.directory.open(digest)
        try:
            build.directory.set_current(Current(snapshot.digest, time.time_ns()))
        finally:
            lease.release()

"""`hotset show`: one dataset in detail."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import TYPE_CHECKING

from hotset.base.sizes import format_size
from hotset.cli.options import Name, existing
from hotset.cli.output import Output
from hotset.cli.text import ago, count, facts, percent, plural, printable

if TYPE_CHECKING:
    from hotset.snapshot import Changes
    from hotset.tier.node import DatasetRecord
    from hotset.tier.node.inventory import DatasetInfo
    from hotset.tier.node.records import SnapshotRecord

__all__ = ["EXAMPLES", "show"]

EXAMPLES = """\
hotset show train
hotset show train --json | jq .cached_share
"""


def show(out: Output, name: Name) -> None:
    """Show one dataset.

    Its source, size, how much of it is cached, packs, last use, snapshots, and what the last listing changed.
    """
    from hotset.tier.node.inventory import describe, last_changes

    build = existing(name)
    info = describe(build.cache, name)
    record = build.directory.record()
    snapshots = build.directory.snapshots()
    changes = last_changes(build.directory, snapshots)
    document = {
        **info.encoded(),
        "include": list(record.include),
        "exclude": list(record.exclude),
        "path": str(build.directory.path),
        "changes": None if changes is None else _counts(changes),
        "snapshots": [asdict(snapshot) for snapshot in snapshots],
    }
    out.result(document, _text(info, record, snapshots, changes, str(build.directory.path)))


def _counts(changes: Changes) -> dict[str, object]:
    """Numbers alone: there may be a million keys, and `hotset reload` names them."""
    return {
        "before": changes.before,
        "added": len(changes.added),
        "modified": len(changes.modified),
        "removed": len(changes.removed),
    }


def _text(
    info: DatasetInfo, record: DatasetRecord, snapshots: list[SnapshotRecord], changes: Changes | None, path: str
) -> str:
    now = time.time_ns()
    pairs = [("name", info.name)]
    pairs += [
        ("source" if not mount else f"source {printable(mount)}/", printable(uri))
        for mount, uri in info.sources.items()
    ]
    pairs += [("include", printable(pattern)) for pattern in record.include]
    pairs += [("exclude", printable(pattern)) for pattern in record.exclude]
    if info.damage is not None:
        pairs.append(("damaged", info.damage))
    pairs += [
        ("objects", count(info.objects)),
        ("size", format_size(info.bytes)),
        ("cached", f"{percent(info.cached_share)} ({format_size(info.cached_bytes)})"),
        ("on disk", f"{format_size(info.disk_bytes)} in {path}"),
        ("layout", info.layout),
        ("packs", count(info.packs)),
        ("listed", ago(info.listed_ns, now)),
        ("last used", "in use now" if info.in_use else ago(info.last_used_ns, now)),
    ]
    if changes is not None:
        pairs.append(("changes", f"{changes} since snapshot {str(changes.before)[:12]}"))
    for snapshot in snapshots:
        marks = [word for word in ("current", "pinned", "leased", "damaged") if getattr(snapshot, word)]
        about = f"{plural(snapshot.objects, 'object')}, {format_size(snapshot.bytes)}, {ago(snapshot.created_ns, now)}"
        pairs.append(("snapshot", f"{snapshot.digest[:12]}  {about}{', ' if marks else ''}{', '.join(marks)}"))
    return facts(pairs)

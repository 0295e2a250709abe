"""`hotset gc`: remove what nothing refers to any more."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, Annotated

import typer

from hotset.base.sizes import format_size
from hotset.cli.options import existing_cache
from hotset.cli.output import Output
from hotset.cli.text import plural, table

if TYPE_CHECKING:
    from hotset.tier.node.collect import Garbage

__all__ = ["EXAMPLES", "gc"]

EXAMPLES = """\
hotset gc --dry-run
hotset gc
"""


def gc(
    out: Output,
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be removed.")] = False,
) -> None:
    """Remove what nothing refers to.

    Old snapshots that are neither pinned nor in use, packs that no snapshot contains, and what killed processes left
    behind. Room is made by itself when it is needed; this makes it now.
    """
    from hotset.tier.node.collect import collect

    cache = existing_cache()
    found = [] if cache is None else collect(cache, now=time.time(), dry_run=dry_run)
    freed = sum(entry.bytes for entry in found)
    document = {
        "dry_run": dry_run,
        "freed_bytes": freed,
        "removed": [
            {"kind": entry.kind, "dataset": entry.dataset, "path": str(entry.path), "bytes": entry.bytes}
            for entry in found
        ],
    }
    out.result(document, _text(found, freed, dry_run=dry_run))


def _text(found: list[Garbage], freed: int, *, dry_run: bool) -> str:
    if not found:
        return "nothing to remove"
    numbers, sizes = Counter[str](), Counter[str]()
    for entry in found:
        numbers[entry.kind] += 1
        sizes[entry.kind] += entry.bytes
    rows = [(plural(numbers[kind], kind), format_size(sizes[kind])) for kind in numbers]
    verb = "would be free" if dry_run else "are free again"
    return f"{table(('WHAT', 'SIZE'), rows, right='SIZE')}\n\n{format_size(freed)} {verb}"

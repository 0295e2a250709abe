"""`hotset verify`: compare everything that is here with its checksums."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hotset.base.sizes import format_size
from hotset.cli.fill import attended
from hotset.cli.options import Name, Show, ShowProgress, existing
from hotset.cli.output import Output
from hotset.cli.progress import checking, reporter
from hotset.cli.text import plural, printable

if TYPE_CHECKING:
    from hotset.tier.node.verify import Verified

__all__ = ["EXAMPLES", "verify"]

EXAMPLES = """\
hotset verify train
hotset verify train --json | jq '.damaged[].key'
"""

#: Damaged objects that are told; --json has all.
TOLD = 20


def verify(out: Output, name: Name, *, progress: ShowProgress = Show.auto) -> int:
    """Check a dataset against its checksums.

    Reads every object that is in the cache. What is damaged is dropped and will be fetched again. The exit code is 1 if
    anything was damaged.
    """
    from hotset.tier.node.verify import verify_dataset

    build = existing(name)
    report = reporter(progress, as_json=out.as_json)
    done, total = 0, 0

    def advance(checked: int, of: int) -> None:
        nonlocal done, total
        done, total = checked, of

    try:
        verified = attended(
            lambda: verify_dataset(build.directory, advance),
            lambda: report.show(checking("checking", done, total)),
        )
    finally:
        report.close()
    document = {
        "name": name,
        "checked_units": verified.units,
        "checked_bytes": verified.bytes,
        "damaged": [{"snapshot": entry.snapshot, "key": entry.key} for entry in verified.damaged],
    }
    out.result(document, _text(name, verified))
    return 1 if verified.damaged else 0


def _text(name: str, verified: Verified) -> str:
    checked = f"{name}: checked {plural(verified.units, 'unit')}, {format_size(verified.bytes)}"
    if not verified.damaged:
        return f"{checked}: all as they were stored"
    lines = [f"{checked}: {plural(len(verified.damaged), 'object')} damaged"]
    lines += [f"  {printable(entry.key)}" for entry in verified.damaged[:TOLD]]
    if len(verified.damaged) > TOLD:
        lines.append(f"  ... and {len(verified.damaged) - TOLD} more (--json has all)")
    lines.append(
        f"The damaged copies are dropped and will be fetched again when they are read, or by: hotset load --name {name}"
    )
    return "\n".join(lines)

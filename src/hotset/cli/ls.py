"""`hotset ls`: what is in the cache."""

from __future__ import annotations

import time

from hotset.base.sizes import format_size
from hotset.cli.options import existing_cache
from hotset.cli.output import Output
from hotset.cli.text import ago, count, percent, table

__all__ = ["EXAMPLES", "ls"]

EXAMPLES = """\
hotset ls
hotset ls --json | jq -r '.datasets[] | select(.cached_share < 1) | .name'
"""


def ls(out: Output) -> None:
    """List the datasets in the cache.

    Says how large they are, how much of them is here, and when they were last used.
    """
    from hotset.config.settings import Settings, environment
    from hotset.tier.node.inventory import describe_all

    cache = existing_cache()
    if cache is None:
        root = Settings.of(environment()).cache
        document: dict[str, object] = {"cache": str(root), "quota": None, "used": 0, "datasets": []}
        out.result(document, f"There is no cache at {root} yet; begin with: hotset load URI")
        return
    infos = describe_all(cache)
    used = cache.usage()
    document = {
        "cache": str(cache.root),
        "quota": cache.quota,
        "used": used,
        "datasets": [info.encoded() for info in infos],
    }
    footer = f"{cache.root}: {format_size(used)} of {format_size(cache.quota)} used"
    if not infos:
        out.result(document, f"No datasets yet; begin with: hotset load URI\n{footer}")
        return
    now = time.time_ns()
    rows = [
        (
            info.name, count(info.objects), format_size(info.bytes),
            percent(info.cached_share) if info.damage is None else "damaged",
            format_size(info.disk_bytes), info.layout, "now" if info.in_use else ago(info.last_used_ns, now),
        )
        for info in infos
    ]  # fmt: skip
    head = ("NAME", "OBJECTS", "SIZE", "CACHED", "DISK", "LAYOUT", "USED")
    damaged = "".join(f"{info.name}: {info.damage}\n" for info in infos if info.damage is not None)
    out.result(document, f"{table(head, rows, right='OBJECTS SIZE CACHED DISK')}\n\n{damaged}{footer}")

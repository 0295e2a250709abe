"""`hotset drop`: take a dataset out of the cache."""

from __future__ import annotations

from typing import Annotated

import typer

from hotset.base.sizes import format_size
from hotset.cli.options import Name, cache_of
from hotset.cli.output import Output
from hotset.errors import Busy

__all__ = ["EXAMPLES", "drop"]

EXAMPLES = """\
hotset drop train
hotset drop train --force
"""


def drop(
    out: Output,
    name: Name,
    *,
    force: Annotated[
        bool, typer.Option("--force", help="Also while it is in use; its readers fetch from the source from then on.")
    ] = False,
) -> None:
    """Remove a dataset from the cache.

    The source is not touched. Refused while a process uses the dataset.
    """
    from hotset.base.files import usage_of

    cache = cache_of(name)
    dataset = cache.dataset(name)  # and no more than that: what cannot be read any more can be dropped all the same
    others = [other for other in cache.names_of(dataset.identifier) if other != name]
    if others:
        cache.forget(name)
        document = {"name": name, "removed": False, "freed_bytes": 0, "other_names": others}
        out.result(document, f"dropped the name {name}; the data stays, it is also called {', '.join(others)}")
        return
    size = usage_of(dataset.path)
    try:
        dataset.drop(force=force)
    except Busy as error:
        raise Busy(f"{name} is in use; end the processes that read or load it, or use --force") from error
    cache.forget(name)
    document = {"name": name, "removed": True, "freed_bytes": size, "other_names": []}
    out.result(document, f"dropped {name}: {format_size(size)} are free again")

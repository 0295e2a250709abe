"""`hotset drop`: take a dataset out of the cache."""

from __future__ import annotations

from typing import Annotated

import typer

from hotset.base.sizes import format_size
from hotset.cli.options import Name, existing
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

    build = existing(name)
    others = [other for other in build.cache.names_of(build.directory.identifier) if other != name]
    if others:
        build.cache.forget(name)
        document = {"name": name, "removed": False, "freed_bytes": 0, "other_names": others}
        out.result(document, f"dropped the name {name}; the data stays, it is also called {', '.join(others)}")
        return
    size = usage_of(build.directory.path)
    try:
        build.directory.drop(force=force)
    except Busy as error:
        raise Busy(f"{name} is in use; end the processes that read or load it, or use --force") from error
    build.cache.forget(name)
    document = {"name": name, "removed": True, "freed_bytes": size, "other_names": []}
    out.result(document, f"dropped {name}: {format_size(size)} are free again")

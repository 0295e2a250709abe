"""`hotset view`: a dataset as a directory of plain files."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hotset.base.sizes import format_size
from hotset.cli.fill import attended, fill, serving
from hotset.cli.options import Name, Show, ShowProgress, existing
from hotset.cli.output import Interrupted, Output
from hotset.cli.progress import Reporter, checking, reporter
from hotset.cli.text import plural
from hotset.errors import InvalidInput

if TYPE_CHECKING:
    from hotset.config.builder import Build

__all__ = ["EXAMPLES", "view"]

EXAMPLES = """\
hotset load s3://bucket/train --name train --layout files && hotset view train ./train
hotset view train ./train --convert              (a dataset that was loaded in packs)
"""


def view(
    out: Output,
    name: Name,
    directory: Annotated[Path, typer.Argument(help="Where the tree shall appear (a symbolic link is made there).")],
    *,
    convert: Annotated[
        bool, typer.Option("--convert", help="Turn packs into plain files first; copies what is in the cache.")
    ] = False,
    progress: ShowProgress = Show.auto,
) -> int:
    """Show a dataset as plain files.

    Makes a directory tree with the dataset's own names, read-only and complete, for programs that read paths. The tree
    lies in the cache; DIRECTORY becomes a symbolic link to it. What is missing is fetched first.
    """
    from hotset.tier.node.view import check_place, link_view

    build = existing(name)
    check_place(directory.absolute())
    report = reporter(progress, as_json=out.as_json)
    try:
        copied = _converted(out, build, directory, report) if convert else _refuse_packs(build, directory)
        snapshot, lease = build.directory.open()
        try:
            with serving(build.service(), report, again=lambda: _command(name, directory)) as service:
                filled = fill(service, snapshot.digest, report)
            if filled.failures:
                key, error = min(filled.failures.items())
                raise type(error)(
                    f"{plural(len(filled.failures), 'object')} could not be loaded, {key!r} first: {error}"
                )
            link = link_view(directory.absolute(), build.directory, snapshot)
        finally:
            lease.release()
    finally:
        report.close()
    document = {
        "name": name,
        "view": str(link),
        "tree": str(build.directory.trees / snapshot.digest),
        "snapshot": snapshot.digest,
        "converted_bytes": copied,
        **filled.encoded(),
    }
    pin = f"keep it while others need room: hotset snapshots {name} --pin {snapshot.digest[:12]}"
    out.result(document, f"{link}: {plural(len(snapshot), 'file')}, {format_size(snapshot.total_bytes)}\n{pin}")
    return 0


def _refuse_packs(build: Build, directory: Path) -> int:
    if build.directory.record().layout == "packs":
        from hotset.tier.node.inventory import describe

        info = describe(build.cache, build.name)
        raise InvalidInput(
            f"{build.name} keeps its objects in packs, and a view needs plain files; "
            f"`{_command(build.name, directory)} --convert` copies {format_size(info.cached_bytes)} inside the cache "
            f"and fetches the other {format_size(info.bytes - info.cached_bytes)}"
        )
    return 0


def _command(name: str, directory: Path) -> str:
    return shlex.join(["hotset", "view", name, str(directory)])


def _converted(out: Output, build: Build, directory: Path, report: Reporter) -> int:
    from hotset.tier.node.convert import convert_to_files

    done, total = 0, 0

    def advance(copied: int, of: int) -> None:
        nonlocal done, total
        done, total = copied, of

    try:
        copied = attended(
            lambda: convert_to_files(build.directory, advance),
            lambda: report.show(checking("converting", done, total)),
        )
    except KeyboardInterrupt:
        report.close()
        command = f"{_command(build.name, directory)} --convert"
        raise Interrupted(f"stopped; the packs are as they were. Go on with: {command}") from None
    if copied:
        out.note(f"note: {build.name} has the layout 'files' now; {format_size(copied)} were copied inside the cache")
    return copied

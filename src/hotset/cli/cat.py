"""`hotset cat`: the bytes of one object."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from hotset.cli.fill import attended
from hotset.cli.options import Name, existing
from hotset.cli.output import Output
from hotset.errors import Corrupt

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hotset.config.builder import Build
    from hotset.snapshot import Snapshot
    from hotset.source.base import Buffer
    from hotset.tier.node.shelf import UnitReader

__all__ = ["EXAMPLES", "cat"]

EXAMPLES = """\
hotset cat train n01440764/n01440764_10026.JPEG > image.jpg
hotset cat train labels.json | jq length
hotset cat train labels.json --json              (its size and version instead of its bytes)
"""


def cat(
    out: Output,
    name: Name,
    key: Annotated[str, typer.Argument(help="Key of an object, relative to the dataset's root.")],
) -> None:
    """Write the bytes of one object.

    They come from the cache, else from the source (and are then in the cache), and go to standard output.
    """
    from hotset.tier.node.shelf import open_reader

    build = existing(name)
    snapshot, lease = build.directory.open()
    reader = open_reader(build.directory, snapshot)
    try:
        position = snapshot.find(key)
        if out.as_json:
            out.result(_facts(snapshot, reader, position), "")
            return
        for data in _units(build, snapshot, reader, position):
            sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    finally:
        reader.close()
        lease.release()


def _units(build: Build, snapshot: Snapshot, reader: UnitReader, position: int) -> Iterator[Buffer]:
    """One unit after the other, so that an object of any size needs little memory."""
    number, units = snapshot.units_of(position)
    service = None
    try:
        for unit in units:
            data: Buffer | None = _here(reader, number, unit)
            if data is None:
                service = service or build.service()
                engine = service.engine(snapshot.digest)
                [future] = engine.want([(number, unit)])
                fetched = attended(future.result, lambda: None)
                reader.forget(number)
                data = fetched if fetched is not None else _here(reader, number, unit)
                if data is None:
                    raise Corrupt(
                        f"the cache loses its packs faster than they are read; see `hotset verify {build.name}`"
                    )
            yield data
    finally:
        if service is not None:
            service.close()


def _here(reader: UnitReader, number: int, unit: int) -> memoryview | None:
    try:
        return reader.unit(number, unit)
    except Corrupt:
        return None  # the filler drops what is damaged, and fetches it again


def _facts(snapshot: Snapshot, reader: UnitReader, position: int) -> dict[str, object]:
    info = snapshot.info(position)
    number, units = snapshot.units_of(position)
    return {
        "key": info.key,
        "size": info.size,
        "version": info.fingerprint.decode(errors="replace"),
        "version_kind": info.kind.name.lower(),
        "modified_ns": info.modified_ns,
        "pack": snapshot.pack_name(number).hex(),
        "cached": all(_here(reader, number, unit) is not None for unit in units),
    }

"""A view: a symbolic link, at a place of the user's choice, to the tree of plain files in the cache."""

from __future__ import annotations

import os
from pathlib import Path

from hotset.base.files import temporary_name
from hotset.errors import AlreadyExists, Denied, NotFound
from hotset.snapshot import Snapshot
from hotset.tier.node.dataset import DatasetDirectory
from hotset.tier.node.treereader import TreeReader
from hotset.tier.node.trees import TreeShelf

__all__ = ["check_place", "link_view"]


def check_place(link: Path) -> None:
    """`AlreadyExists` if something else than a view is at ``link``: it must not be lost."""
    if link.is_symlink():
        target = Path(os.readlink(link))
        if target.parent.name == "trees" and target.is_absolute():
            return
        raise AlreadyExists(f"{link} is a link to {target}, which is not a view; choose another path")
    if link.exists():
        raise AlreadyExists(f"{link} exists and is not a view; choose another path")


def link_view(link: Path, dataset: DatasetDirectory, snapshot: Snapshot) -> Path:
    """Make ``link`` show the tree of ``snapshot``; an older view there is replaced in one step, so that the path is never
    absent. `NotFound`, and nothing is changed, if objects are missing: who reads paths could not tell.
    """
    check_place(link)
    tree = _complete_tree(dataset, snapshot)
    try:
        link.parent.mkdir(parents=True, exist_ok=True)
        temporary = temporary_name(link)
        temporary.symlink_to(tree, target_is_directory=True)
        temporary.rename(link)
    except OSError as error:
        raise Denied(f"cannot make a view at {link}: {error.strerror}") from error
    return link


def _complete_tree(dataset: DatasetDirectory, snapshot: Snapshot) -> Path:
    reader = TreeReader(dataset, snapshot)
    if not reader.complete and not _missing(reader, snapshot):
        # The filler that wrote the last object reads all of them once more, or was killed before: do it here.
        TreeShelf(dataset, snapshot).close()
        reader.scan()
    if not reader.complete:
        missing = _missing(reader, snapshot)
        some = ", ".join(map(repr, missing[:3])) + (", ..." if len(missing) > 3 else "")
        raise NotFound(
            f"{len(missing)} of {len(snapshot)} objects are not in the cache ({some}), and a view shows all or nothing: load "
            "the dataset again; if they changed at the source, reload it before"
        )
    return reader.tree.root


def _missing(reader: TreeReader, snapshot: Snapshot) -> list[str]:
    missing = {
        snapshot.unit_range(number, unit)[0]
        for number in range(snapshot.pack_count)
        for unit in set(range(snapshot.pack_units[number])).difference(reader.marked(number))
    }
    return [snapshot.key(position) for position in sorted(missing)]

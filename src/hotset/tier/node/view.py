"""A view: a symbolic link, at a place of the user's choice, to the tree of plain files in the cache."""

from __future__ import annotations

import os
from pathlib import Path

from hotset.base.files import temporary_name
from hotset.errors import AlreadyExists, Denied

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


def link_view(link: Path, tree: Path) -> Path:
    """Make ``link`` show ``tree``; an older view there is replaced in one step, so that the path is never absent."""
    check_place(link)
    try:
        link.parent.mkdir(parents=True, exist_ok=True)
        temporary = temporary_name(link)
        temporary.symlink_to(tree, target_is_directory=True)
        temporary.rename(link)
    except OSError as error:
        raise Denied(f"cannot make a view at {link}: {error.strerror}") from error
    return link

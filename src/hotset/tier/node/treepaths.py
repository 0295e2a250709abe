"""What a tree of plain files consists of: a directory named by its snapshot and, beside it, its ledger and the large objects
on their way into it.
"""

from __future__ import annotations

from pathlib import Path

from hotset.base.files import remove_directory

__all__ = ["beside_tree", "ledger_of", "partial_of", "remove_tree"]


def ledger_of(tree: Path) -> Path:
    return tree.with_name(f"{tree.name}.ledger")


def partial_of(tree: Path, number: int) -> Path:
    """A large object, the only one of pack ``number``, before all of it is here."""
    return tree.with_name(f".{tree.name}.{number}.part")


def beside_tree(tree: Path) -> list[Path]:
    """All that belongs to a tree and does not lie in it."""
    return [path for path in (ledger_of(tree), *tree.parent.glob(f".{tree.name}.*.part")) if path.exists()]


def remove_tree(tree: Path) -> None:
    """Remove a tree and what lies beside it. FileNotFoundError if its directory is not there.

    The ledger goes first: it must never promise files that are gone. The directory goes last: as long as it is there,
    somebody comes back to what a killed process left beside it.
    """
    for path in beside_tree(tree):
        path.unlink(missing_ok=True)
    remove_directory(tree)

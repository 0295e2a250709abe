"""What the filler and the reader need of a layout. `packs.py` and `trees.py` are the two that there are."""

from __future__ import annotations

from typing import Protocol

from hotset.snapshot import Snapshot
from hotset.source.base import Buffer
from hotset.tier.node.dataset import DatasetDirectory
from hotset.tier.node.packreader import PackReader
from hotset.tier.node.packs import PackShelf
from hotset.tier.node.treereader import TreeReader
from hotset.tier.node.trees import TreeShelf

__all__ = ["Shelf", "UnitReader", "open_reader", "open_shelf"]


class UnitReader(Protocol):
    """Reads what is here; never fetches, never writes."""

    views: list[memoryview | None]
    """The data of each pack that can be read without asking again; None for the others. The same list for life."""

    @property
    def complete(self) -> bool:
        """Whether everything is here, as far as was looked."""

    def scan(self) -> None:
        """Look again what is complete."""

    def unit(self, number: int, unit: int) -> memoryview | None:
        """The bytes of one unit of pack ``number``; None if they are not (all) here. `Corrupt` if they are damaged."""

    def held(self, number: int) -> int:
        """How many units of a pack are here."""

    def forget(self, number: int) -> None:
        """Look at the file system again at the next call for this pack."""

    def forget_unlinked(self) -> list[int]:
        """Let go of what was evicted but is still mapped here; which packs that was."""

    def close(self) -> None: ...


class Shelf(Protocol):
    """Where fillers put the units of one snapshot. Thread-safe, and safe beside other processes' shelves."""

    @property
    def reader(self) -> UnitReader: ...

    def admit(self, number: int) -> bool:
        """Whether units of this pack may be stored; makes room. False means: read through, do not keep."""

    def admissible(self, number: int) -> bool:
        """Whether `admit` is expected to say yes: a guess that costs next to nothing, and makes no room."""

    def reconsider(self) -> None:
        """Ask again for packs that were refused; room may have come free."""

    def present(self, number: int, unit: int) -> bool: ...

    def held(self, number: int) -> int:
        """How many units of a pack are here."""

    def let_go(self) -> None:
        """Let the room of evicted files be really free: keep none of them mapped."""

    def verify_presence(self, number: int, unit: int) -> bool:
        """Do not trust what is remembered of a unit and its pack: somebody could not find it, or not read it. False if it
        was here and damaged; it is absent now.
        """

    def write(self, number: int, unit: int, *data: Buffer) -> bool:
        """Store a unit, or several that follow one another; False if their place is gone (evicted, or the disk is full), so
        that they can only be read through.
        """

    def finish(self, number: int) -> list[int]:
        """Called after writes: seals what is complete. Units that turned out damaged and are absent again."""

    def repair(self, number: int) -> list[int]:
        """Check every present unit of a pack; the damaged ones, which are absent again."""

    def close(self) -> None: ...


def open_reader(dataset: DatasetDirectory, snapshot: Snapshot) -> PackReader | TreeReader:
    return (TreeReader if dataset.record().layout == "files" else PackReader)(dataset, snapshot)


def open_shelf(dataset: DatasetDirectory, snapshot: Snapshot) -> PackShelf | TreeShelf:
    return (TreeShelf if dataset.record().layout == "files" else PackShelf)(dataset, snapshot)

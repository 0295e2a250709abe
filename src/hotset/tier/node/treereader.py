"""Reading a dataset of the layout "files" through the library: from the plain files of one snapshot's tree."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from hotset.errors import Corrupt
from hotset.snapshot import Snapshot
from hotset.tier.node.dataset import DatasetDirectory
from hotset.tier.node.packfile import count_words
from hotset.tier.node.treefiles import TreeFiles

__all__ = ["TreeReader"]


class TreeReader:
    """Reads objects from the plain files of one snapshot's tree."""

    def __init__(self, dataset: DatasetDirectory, snapshot: Snapshot) -> None:
        self.tree = TreeFiles(dataset, snapshot)
        #: As of `PackReader`: there are no packs here.
        self.views: list[memoryview | None] = [None] * snapshot.pack_count

    def scan(self) -> None:
        """Look at the ledger again."""
        self.tree.ledger = None

    def unit(self, number: int, unit: int) -> memoryview | None:
        ledger = self.tree.open_ledger()
        if ledger is None or not ledger.trusted or not ledger.words[self.tree.bases[number] + unit]:
            return None
        return self.tree.read(number, unit)

    @property
    def complete(self) -> bool:
        with suppress(Corrupt):  # a filler makes it anew
            ledger = self.tree.open_ledger()
            return ledger is not None and ledger.sealed
        return False

    def held(self, number: int) -> int:
        """How many units of a pack are here."""
        with suppress(Corrupt):
            ledger = self.tree.open_ledger()
            if ledger is not None and ledger.trusted:
                base = self.tree.bases[number]
                return count_words(ledger.words[base : base + self.tree.snapshot.pack_units[number]])
        return 0

    def marked(self, number: int) -> list[int]:
        """The units of a pack that should be here, whether or not a crash of the machine makes that doubtful."""
        ledger = self.tree.open_ledger()
        if ledger is None:
            return []
        words = ledger.words[self.tree.bases[number] : self.tree.bases[number + 1]]
        return [unit for unit, word in enumerate(words.tolist()) if word]

    def stored_check(self, number: int, unit: int) -> int | None:
        """The CRC of a unit that is present; None if it is not."""
        ledger = self.tree.open_ledger()
        at = self.tree.bases[number] + unit
        if ledger is None or not ledger.trusted or not ledger.words[at]:
            return None
        return ledger.words[at]

    def file(self, position: int) -> Path:
        return self.tree.root / self.tree.snapshot.key(position)

    def forget(self, number: int) -> None:
        self.tree.ledger = None

    def forget_unlinked(self) -> list[int]:
        return []  # nothing is kept mapped but the ledger

    def close(self) -> None:
        self.tree.ledger = None

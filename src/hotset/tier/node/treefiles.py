"""Where the files of one snapshot's tree lie, and its ledger: what is present, with which checksum.

A ledger is a pack file without data. While its tree fills it is a sparse file as long as what is still missing, so that
the account of space sees all of the tree from the first moment on. It gets shorter as files arrive: what is here counts
with its files, and must not count twice.
"""

from __future__ import annotations

import os
from contextlib import suppress
from functools import cached_property
from itertools import accumulate
from pathlib import Path

import numpy as np
import numpy.typing as npt

from hotset.base.checksum import checksum
from hotset.base.files import BLOCK
from hotset.base.maps import map_readonly, populate
from hotset.errors import Corrupt
from hotset.snapshot import Snapshot
from hotset.tier.node.dataset import DatasetDirectory
from hotset.tier.node.keys import directories_cost
from hotset.tier.node.packfile import MappedPack
from hotset.tier.node.space import cost_of
from hotset.tier.node.treepaths import ledger_of, partial_of

__all__ = ["TreeFiles"]


class TreeFiles:
    """Paths of one snapshot's tree, and its ledger."""

    def __init__(self, dataset: DatasetDirectory, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.root = dataset.trees / snapshot.digest
        self.ledger_path = ledger_of(self.root)
        self.name = bytes.fromhex(snapshot.digest)
        self.bases = [0, *accumulate(snapshot.pack_units)]
        self.ledger: MappedPack | None = None
        self._on_disk = dataset.cache.durable

    def open_ledger(self) -> MappedPack | None:
        ledger = self.ledger  # looked at once: another thread may let go of it meanwhile
        if ledger is None:
            with suppress(FileNotFoundError):
                ledger = self.ledger = MappedPack.open_ledger(str(self.ledger_path), self.name, self.bases[-1])
        return ledger

    def path(self, number: int, unit: int) -> Path:
        position, _, _ = self.snapshot.unit_range(number, unit)
        return self.root / self.snapshot.key(position)

    def partial(self, number: int) -> Path:
        return partial_of(self.root, number)

    def striped(self, number: int) -> bool:
        return self.snapshot.pack(number).stripe > 0

    def files(self, number: int, unit: int) -> list[Path]:
        """Where the bytes of a unit may be: in its file, or in that of a large object on its way."""
        return [self.path(number, unit), *([self.partial(number)] if self.striped(number) else [])]

    def read(self, number: int, unit: int) -> memoryview | None:
        """Map the bytes of a unit from its file, if the file is there. `Corrupt` if it is too short, or its disk fails."""
        _, start, end = self.snapshot.unit_range(number, unit)
        for path in self.files(number, unit):
            with suppress(FileNotFoundError, NotADirectoryError):
                fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                break
        else:
            return None
        try:
            if os.fstat(fd).st_size < end:
                raise Corrupt(f"{path} is shorter than the object it holds")
            low = start - start % BLOCK
            view = map_readonly(fd, end - low, low)[start - low :]
        finally:
            os.close(fd)
        if self._on_disk:
            try:
                populate(view)
            except OSError as error:
                raise Corrupt(f"{path} cannot be read from its disk: {error.strerror}") from error
        return view

    def holds(self, number: int, unit: int, check: int) -> bool:
        """Whether the bytes of a unit are there, and those that were stored."""
        with suppress(Corrupt):
            view = self.read(number, unit)
            return view is not None and checksum(view) == check
        return False

    def bad_units(self, ledger: MappedPack, number: int) -> list[int]:
        """The units of a pack that are marked as present and are not."""
        words = ledger.words[self.bases[number] : self.bases[number + 1]]
        return [unit for unit, word in enumerate(words.tolist()) if word and not self.holds(number, unit, word)]

    def missing(self, ledger: MappedPack) -> int:
        """What the absent files, and their directories, will take. A large object on its way has a file as long as itself
        already.
        """
        absent = np.frombuffer(ledger.words, np.uint32) == 0
        total = self._directories + int(self._costs[absent].sum())
        for number in self._large:
            all_absent = absent[self.bases[number] : self.bases[number + 1]].all()
            if all_absent and not any(path.exists() for path in self.files(number, 0)):
                total += cost_of(self.snapshot.pack_sizes[number])
        return total

    def account(self) -> None:
        """Make the ledger's file as long as what is missing, under the lock of the space. No reader has mapped more of it
        than its header.
        """
        self.ledger = None  # the path may name a newer one
        ledger = self.open_ledger()
        if ledger is not None and not ledger.sealed:
            os.truncate(self.ledger_path, ledger.geometry.data_at + self.missing(ledger))

    @cached_property
    def _directories(self) -> int:
        return directories_cost(self.snapshot)

    @cached_property
    def _large(self) -> list[int]:
        return [number for number in range(self.snapshot.pack_count) if self.striped(number)]

    @cached_property
    def _costs(self) -> npt.NDArray[np.int64]:
        """What the file of each unit takes; nothing for stripes, which have one together."""
        sizes = self.snapshot.size_array().astype(np.int64)
        costs = np.zeros(self.bases[-1], np.int64)
        for number, first in enumerate(self.snapshot.pack_first):
            if not self.striped(number):
                low, high = self.bases[number], self.bases[number + 1]
                costs[low:high] = -(-sizes[first : first + high - low] // BLOCK) * BLOCK
        return costs

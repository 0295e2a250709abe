"""The listing of a source as sorted columns: the one input of planning.

Columns and not a list of objects, because a million Python objects cost hundreds of megabytes and every later step (cut,
name, write) wants whole columns anyway.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise

import numpy as np
import numpy.typing as npt

from hotset.errors import InvalidInput
from hotset.snapshot.fingerprint import encode
from hotset.source.base import ObjectInfo

__all__ = ["Listing"]

#: A time in the listing closer to its end than this may be given to another version of the same length (rule 2).
SETTLING_NS = 2_000_000_000


@dataclass(frozen=True)
class Listing:
    """Objects in the order of their keys' bytes. Row i of each column is object i; ``*_offsets`` have one row more."""

    keys: bytes
    key_offsets: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.uint64]
    kinds: npt.NDArray[np.uint8]
    fingerprints: bytes
    fingerprint_offsets: npt.NDArray[np.int64]
    modified_ns: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.sizes)

    @property
    def total_bytes(self) -> int:
        return int(self.sizes.sum())

    def key_list(self) -> list[bytes]:
        offsets = self.key_offsets.tolist()
        return [self.keys[a:b] for a, b in pairwise(offsets)]

    @classmethod
    def of(cls, batches: Iterable[Sequence[ObjectInfo]], *, listed_ns: int) -> Listing:
        """The listing made at ``listed_ns`` (wall clock), from batches in any order.

        Directory markers (empty objects whose key ends in a slash) are left out. Raises `InvalidInput` if two objects
        have one key, since only one of them could ever be read.
        """
        keys: list[bytes] = []
        sizes: list[int] = []
        kinds: list[int] = []
        fingerprints: list[bytes] = []
        modified: list[int] = []
        settled_ns = listed_ns - SETTLING_NS
        for batch in batches:
            for key, size, kind, fingerprint, modified_ns in batch:
                if size == 0 and key.endswith("/"):
                    continue
                code, value = encode(kind, fingerprint, listed_ns if modified_ns >= settled_ns else 0)
                keys.append(key.encode())
                sizes.append(size)
                kinds.append(code)
                fingerprints.append(value)
                modified.append(modified_ns)
        order = _order(keys)
        if order is not None:
            keys = [keys[i] for i in order]
            fingerprints = [fingerprints[i] for i in order]
        _refuse_duplicates(keys)
        size_column = np.array(sizes, dtype=np.uint64)
        kind_column = np.array(kinds, dtype=np.uint8)
        modified_column = np.array(modified, dtype=np.int64)
        if order is not None:
            size_column, kind_column, modified_column = size_column[order], kind_column[order], modified_column[order]
        return cls(
            keys=b"".join(keys),
            key_offsets=_offsets(keys),
            sizes=size_column,
            kinds=kind_column,
            fingerprints=b"".join(fingerprints),
            fingerprint_offsets=_offsets(fingerprints),
            modified_ns=modified_column,
        )


def _order(keys: list[bytes]) -> list[int] | None:
    """The permutation that sorts ``keys``; None if they are sorted (object stores list in this order already)."""
    if all(map(bytes.__le__, keys, keys[1:])):
        return None
    return sorted(range(len(keys)), key=keys.__getitem__)


def _refuse_duplicates(keys: list[bytes]) -> None:
    for before, after in pairwise(keys):
        if before == after:
            raise InvalidInput(
                f"two objects have the key {after.decode()!r}; give each source of the dataset a path of its own"
            )


def _offsets(values: list[bytes]) -> npt.NDArray[np.int64]:
    lengths = np.fromiter(chain((0,), map(len, values)), dtype=np.int64, count=len(values) + 1)
    return np.cumsum(lengths, dtype=np.int64)

from __future__ import annotations

import pytest

from hotset.tier.node.collect import LEFTOVER_AGE, is_leftover, unreferenced
from hotset.tier.node.records import SnapshotRecord


def snapshot(digest, *, pinned=False, leased=False, current=False):
    return SnapshotRecord(digest, 0, 1, 1, pinned, leased, current)


def test_only_what_nobody_needs_goes():
    records = [
        snapshot("old"),
        snapshot("pinned", pinned=True),
        snapshot("open", leased=True),
        snapshot("now", current=True),
    ]
    assert unreferenced(records) == ["old"]


DIGEST = "ab" * 32


@pytest.mark.parametrize(
    ("name", "age", "living", "garbage"),
    [
        (".current.0123", LEFTOVER_AGE, (), True),
        (".current.0123", LEFTOVER_AGE - 1, (), False),  # somebody may be writing it
        ("current", 10**9, (), False),
        (f".{DIGEST}.7.part", 10**9, (DIGEST,), False),  # a large object on its way; the next filler goes on with it
        (f".{DIGEST}.7.part", 0, (), True),  # its snapshot is gone
    ],
)
def test_leftovers(name, age, living, garbage):
    assert is_leftover(name, age, living) is garbage

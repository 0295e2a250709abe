"""The account of room: never more than the quota is promised, by however many processes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hotset.tier.node.space import Space, directory_cost, slack_of
from tests.support.processes import call

QUOTA = 32 * 2**20


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "cache").mkdir()
    return tmp_path / "cache"


@pytest.fixture
def space(root: Path) -> Space:
    return Space(root, QUOTA, 0o600)


def test_reserve_and_release(space: Space):
    before = space.committed
    assert space.reserve(5_000_000)
    assert space.committed == before + 5_000_000
    assert space.free == space.capacity - before - 5_000_000
    space.release(5_000_000)
    assert space.committed == before


def test_no_more_than_the_capacity(space: Space):
    assert not space.reserve(space.capacity)
    assert space.reserve(space.free)
    assert space.free == 0
    assert not space.reserve(1)
    assert space.reserve(0)


def test_what_is_missing_after_the_quota_was_made_smaller(root: Path, space: Space):
    assert space.short_of(space.free) == 0
    assert space.short_of(space.free + 7) == 7
    assert space.reserve(space.free)
    smaller = Space(root, QUOTA // 2, 0o600)
    assert smaller.free == 0
    assert smaller.short_of(100) == space.capacity - smaller.capacity + 100


def test_a_part_of_the_quota_is_never_promised(space: Space):
    """Directories, the small files and what a file system takes beside the files have room, too."""
    assert space.capacity == QUOTA - slack_of(QUOTA) < QUOTA - 256 * 1024


def test_the_account_never_falls_below_nothing(space: Space):
    space.release(10**12)
    assert space.committed == 0


def test_the_first_account_is_what_is_there(root: Path, space: Space):
    (root / "file").write_bytes(bytes(1_000_000))
    assert space.committed >= 1_000_000


def test_a_damaged_account_is_counted_anew(root: Path, space: Space):
    assert space.reserve(1_000_000)
    (root / "space").write_bytes(b"\1\2\3")
    assert space.committed < 100_000


def test_a_recount_undoes_what_killed_processes_left(root: Path, space: Space):
    """Reserved, then killed before the file was made; removed, then killed before the release."""
    assert space.reserve(10_000_000)
    space.recount()
    assert space.committed < 100_000
    with (root / "sparse").open("wb") as file:
        file.truncate(3_000_000)
    assert 3_000_000 <= space.recount() < 3_100_000, "a sparse file counts with what it will take"


def test_the_lock_can_be_taken_again_by_its_holder(space: Space):
    with space.locked(), space.locked():
        assert space.reserve(1)


def test_processes_together_promise_no_more_than_there_is(root: Path, space: Space):
    free = space.free
    children = [call(reserve_in_small_parts, str(root), 100_003) for _ in range(3)]
    got = sum(child.result() for child in children)
    for child in children:
        child.close()
    assert got == free // 100_003
    assert space.free == free - got * 100_003


def reserve_in_small_parts(root: str, part: int) -> int:
    space = Space(Path(root), QUOTA, 0o600)
    count = 0
    while space.reserve(part):
        count += 1
    return count


class TestDirectoryCost:
    def test_sparse_files_count_in_full_and_small_ones_in_blocks(self, root: Path):
        empty = directory_cost(root)
        (root / "deep" / "er").mkdir(parents=True)
        (root / "deep" / "one").write_bytes(b"x")
        with (root / "deep" / "er" / "sparse").open("wb") as file:
            file.truncate(10**9)
        cost = directory_cost(root) - empty
        assert 10**9 + 3 * 4096 - 4096 <= cost <= 10**9 + 6 * 4096

    def test_hard_links_count_once(self, root: Path):
        (root / "file").write_bytes(bytes(1_000_000))
        one = directory_cost(root)
        os.link(root / "file", root / "again")
        assert directory_cost(root) == one

    def test_own_files_are_those_without_another_link(self, root: Path):
        """What removing a tree gives back."""
        (root / "tree").mkdir()
        (root / "tree" / "own").write_bytes(bytes(1_000_000))
        (root / "tree" / "shared").write_bytes(bytes(5_000_000))
        os.link(root / "tree" / "shared", root / "elsewhere")
        assert 1_000_000 <= directory_cost(root / "tree", own=True) < 1_100_000

    def test_what_is_gone_costs_nothing_more(self, root: Path):
        assert directory_cost(root / "absent") == 4096

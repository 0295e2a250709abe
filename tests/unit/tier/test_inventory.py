"""What is in a cache, as it is shown: one dataset that is damaged, or half gone, hides none of the others."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from hotset.errors import NotFound
from hotset.tier.node import CacheDirectory
from hotset.tier.node.inventory import describe, describe_all, last_changes
from tests.unit.tier.making import LISTED, contents, dataset_in, filled, publish

OBJECTS = contents()


@pytest.fixture
def cache(tmp_path: Path) -> CacheDirectory:
    made = CacheDirectory(tmp_path / "cache", quota=64 * 2**20)
    for name in ("sick", "well"):
        filled(dataset_in(made, name), OBJECTS)
    return made


def test_all_is_well(cache: CacheDirectory):
    infos = describe_all(cache)
    assert [(info.name, info.objects, info.cached_share, info.damage) for info in infos] == [
        ("sick", len(OBJECTS), 1.0, None),
        ("well", len(OBJECTS), 1.0, None),
    ]


@pytest.mark.parametrize(
    ("what", "said", "known"),
    [
        ("objects.arrow", "`hotset reload`", True),
        ("sums.json", "`hotset reload`", True),
        ("current", "`hotset reload`", True),
        ("dataset.json", "`hotset drop`", False),
    ],
)
def test_a_damaged_one_says_so_and_what_mends_it(cache: CacheDirectory, what: str, said: str, known: bool):
    [path] = cache.dataset("sick").path.rglob(what)
    path.write_bytes(b"{")
    sick, well = describe_all(cache)
    assert (sick.objects, sick.snapshot, sick.cached_share, bool(sick.sources)) == (0, None, 0.0, known)
    assert sick.damage is not None
    assert str(path) in sick.damage or str(path.parent) in sick.damage
    assert said in sick.damage
    assert sick.disk_bytes > 50_000
    assert (well.objects, well.damage) == (len(OBJECTS), None)


def test_a_current_snapshot_that_is_gone(cache: CacheDirectory):
    sick = cache.dataset("sick")
    shutil.rmtree(sick.path / "snapshots")
    damage = describe(cache, "sick").damage
    assert damage is not None
    assert "gone" in damage
    publish(sick, OBJECTS)
    assert describe(cache, "sick").damage is None


def test_a_name_whose_dataset_is_gone_is_left_out(cache: CacheDirectory):
    """A drop that was cut off between the data and the name."""
    cache.dataset("sick").drop()
    assert [info.name for info in describe_all(cache)] == ["well"]
    with pytest.raises(NotFound):
        describe(cache, "sick")


def test_changes_are_those_against_the_one_before(cache: CacheDirectory):
    dataset = cache.dataset("well")
    assert last_changes(dataset, dataset.snapshots()) is None
    publish(dataset, {**OBJECTS, "a": b"1"}, listed_ns=LISTED + 1)
    before = publish(dataset, {**OBJECTS, "a": b"1", "b": b"2"}, listed_ns=LISTED + 2)
    publish(dataset, {"a": b"2", "b": b"2"}, listed_ns=LISTED + 3)
    changes = last_changes(dataset, dataset.snapshots())
    assert changes is not None
    assert (changes.before, changes.added, changes.modified) == (before.digest, [], ["a"])
    assert sorted(changes.removed) == sorted(OBJECTS)
    (dataset.snapshot_path(before.digest) / "objects.arrow").write_bytes(b"damaged")
    assert last_changes(dataset, dataset.snapshots()) is None


def test_one_that_was_never_listed_has_nothing(cache: CacheDirectory):
    dataset_in(cache, "new")
    info = describe(cache, "new")
    assert (info.objects, info.cached_share, info.listed_ns, info.damage) == (0, 0.0, 0, None)

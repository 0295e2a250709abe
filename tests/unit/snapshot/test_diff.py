"""`diff` against the slow and obvious way to compare two snapshots."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotset.snapshot import diff
from tests.unit.snapshot.making import Objects, drawn, objects, one_change, snapshot_of


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory):
    root = tmp_path_factory.mktemp("indexes")
    numbers = iter(range(10**9))
    return lambda: root / str(next(numbers))


def check(directory, before: Objects, after: Objects) -> None:
    changes = diff(snapshot_of(directory(), before), snapshot_of(directory(), after))
    assert changes.added == sorted(after.keys() - before.keys(), key=str.encode)
    assert changes.removed == sorted(before.keys() - after.keys(), key=str.encode)
    assert changes.modified == sorted(
        (key for key in before.keys() & after.keys() if before[key] != after[key]), key=str.encode
    )
    assert changes.bytes_to_fetch == sum(after[key][0] for key in [*changes.added, *changes.modified])
    assert bool(changes) == (before != after)


@given(objects, objects)
def test_two_unrelated_datasets(directory, before: Objects, after: Objects):
    check(directory, before, after)


@given(objects, st.data())
def test_some_objects_changed(directory, before: Objects, data: st.DataObject):
    chosen = data.draw(st.dictionaries(st.sampled_from(sorted(before)), st.integers(0, 30_000))) if before else {}
    after = {key: (chosen.get(key, size), version + (key in chosen)) for key, (size, version) in before.items()}
    gone = data.draw(st.sets(st.sampled_from(sorted(after)))) if after else set()
    check(directory, before, {key: value for key, value in after.items() if key not in gone})


def test_one_change_in_a_larger_dataset(directory):
    for seed in range(40):
        rng = random.Random(seed)
        before = drawn(rng)
        _, after = one_change(rng, before)
        check(directory, before, after)


def test_nothing_changed(directory):
    data = {"a": (1, 0), "b": (2, 0)}
    changes = diff(snapshot_of(directory(), data), snapshot_of(directory(), data))
    assert not changes
    assert str(changes) == "nothing changed"
    assert (changes.packs_kept, changes.packs_new, changes.bytes_to_fetch) == (1, 0, 0)


def test_the_first_snapshot_adds_everything(directory):
    changes = diff(None, snapshot_of(directory(), {"a": (1, 0), "b": (2, 0)}))
    assert changes
    assert (changes.before, changes.added, changes.bytes_to_fetch) == (None, ["a", "b"], 3)
    assert str(changes) == "2 added, 0 modified, 0 removed"


def test_packs_are_counted(directory):
    before = {f"{number:04}": (900, 0) for number in range(200)}
    changes = diff(snapshot_of(directory(), before), snapshot_of(directory(), {**before, "0100": (900, 1)}))
    assert changes.packs_new == 1
    assert changes.packs_kept > 15
    assert changes.modified == ["0100"]

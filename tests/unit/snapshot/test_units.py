"""Units by number: the same units that the snapshot itself names, object by object and range by range."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotset.snapshot import Units
from tests.unit.snapshot.making import snapshot_of

SIZES = [0, 10, 9_999, 30_000, 0, 9_001, 18_000, 1, 3]


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory):
    """Packs of several objects, empty ones among them, and two of stripes."""
    objects = {f"{n:03}": (size, 0) for n, size in enumerate(SIZES * 4)}
    return snapshot_of(tmp_path_factory.mktemp("index") / "one", objects)


def named(snapshot, position: int, start: int, end: int) -> list[tuple[int, int]]:
    number, units = snapshot.units_of(position, start, end)
    return [(number, unit) for unit in units]


def test_all_units_have_numbers_in_the_order_of_their_bytes(snapshot):
    units = Units(snapshot)
    every = [(pack, unit) for pack in range(snapshot.pack_count) for unit in range(snapshot.pack_units[pack])]
    assert len(units) == len(every)
    assert [units.unit(number) for number in range(len(units))] == every
    assert [units.number(*unit) for unit in every] == list(range(len(units)))


def test_sizes(snapshot):
    units = Units(snapshot)
    sizes = units.sizes(np.arange(len(units), dtype=np.uint64))
    for number, size in enumerate(sizes.tolist()):
        _, start, end = snapshot.unit_range(*units.unit(number))
        assert size == end - start
    assert sizes.sum() == sum(snapshot.sizes)
    for wrong in (-1, len(units)):
        with pytest.raises(IndexError):
            units.sizes(np.array([0, wrong]))


@given(st.lists(st.integers(0, len(SIZES) * 4 - 1), max_size=20))
def test_units_of_whole_objects(snapshot, positions):
    units = Units(snapshot)
    wanted = [unit for position in positions for unit in named(snapshot, position, 0, max(1, snapshot.sizes[position]))]
    assert [units.unit(number) for number in units.of_objects(np.array(positions, np.uint64)).tolist()] == wanted


@given(st.data())
def test_units_of_ranges(snapshot, data):
    units = Units(snapshot)
    position = data.draw(st.integers(0, len(SIZES) * 4 - 1))
    size = snapshot.sizes[position]
    start = data.draw(st.integers(0, max(0, size - 1)))
    end = data.draw(st.integers(min(start + 1, size), size))
    numbers = units.of_ranges(np.array([position]), np.array([start]), np.array([end]))
    assert [units.unit(number) for number in numbers.tolist()] == named(snapshot, position, start, max(end, start + 1))

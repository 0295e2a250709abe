"""Claims of two fillers on one file: what one holds the other does not get, whatever was let go and taken again."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotset.fill.agenda import Unit
from hotset.fill.claims import Claims

NAME = bytes(range(32))


@pytest.fixture
def both(tmp_path: Path):
    one, other = Claims(tmp_path / "claims", mode=0o600), Claims(tmp_path / "claims", mode=0o600)
    yield one, other
    one.close()
    other.close()


def run(first: int, end: int) -> list[Unit]:
    return [(7, unit) for unit in range(first, end)]


def free(claims: Claims, end: int = 40) -> set[int]:
    """What another filler could have."""
    got = {unit for unit in range(end) if claims.take(NAME, (7, unit))}
    for unit in got:
        claims.release(NAME, (7, unit))
    return got


def test_a_unit(both):
    one, other = both
    assert one.take(NAME, (7, 3))
    assert not other.take(NAME, (7, 3))
    assert other.take(NAME, (7, 4))
    one.release(NAME, (7, 3))
    assert other.take(NAME, (7, 3))


def test_a_run_is_let_go_after_its_last_unit(both):
    one, other = both
    assert one.take_run(NAME, run(5, 10))
    assert not other.take_run(NAME, run(9, 12))
    for unit in run(5, 9):
        assert one.take(NAME, unit)
        one.release(NAME, unit)
    assert free(other) == set(range(40)) - set(range(5, 10))
    one.release(NAME, (7, 9))
    assert free(other) == set(range(40))


def test_what_is_not_fetched_now_is_free_at_once(both):
    one, other = both
    one.take_run(NAME, run(5, 10))
    one.release_ahead((7, 7))
    one.release_ahead((7, 30))
    assert free(other) == set(range(40)) - {5, 6, 8, 9}
    one.release_runs(keep={(7, 5)})
    assert free(other) == set(range(40)) - {5}


def test_a_run_that_ends_takes_nothing_along_that_was_claimed_anew(both):
    """A unit was put down and then taken again: it is not the old run's any more."""
    one, other = both
    one.take_run(NAME, run(0, 8))
    for unit in run(3, 8):
        one.release_ahead(unit)
    assert one.take_run(NAME, run(3, 6))
    assert one.take(NAME, (7, 7))
    for unit in run(0, 3):
        one.release(NAME, unit)
    assert free(other) == set(range(40)) - {3, 4, 5, 7}


@given(
    st.lists(st.tuples(st.sampled_from(["take", "run", "release", "ahead", "runs"]), st.integers(0, 19)), max_size=60)
)
def test_nobody_else_gets_what_is_held(tmp_path_factory, steps):
    """Against a set: whatever is taken and not released is not to be had, and nothing is left behind."""
    path = tmp_path_factory.mktemp("claims") / "claims"
    one, other = Claims(path, mode=0o600), Claims(path, mode=0o600)
    held: set[int] = set()  # being worked on
    for step, unit in steps:
        if step == "take" and unit not in held:
            assert one.take(NAME, (7, unit))
            held.add(unit)
        elif (
            step == "run"
            and not held & set(range(unit, unit + 5))
            and not any(one.holds(u) for u in run(unit, unit + 5))
        ):
            one.take_run(NAME, run(unit, unit + 5))
        elif step == "release" and unit in held:
            one.release(NAME, (7, unit))
            held.discard(unit)
        elif step == "ahead" and unit not in held:
            one.release_ahead((7, unit))
        elif step == "runs":
            one.release_runs(keep={(7, unit) for unit in held})
        assert not held & free(other)
    for unit in held:
        one.release(NAME, (7, unit))
    one.release_runs(keep=())
    assert free(other) == set(range(40))
    one.close()
    other.close()

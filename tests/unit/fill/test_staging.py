"""Bytes that wait until they are read, in bounded memory."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hotset.fill.staging import Staging

A, B, C = (0, 0), (0, 1), (1, 0)


def test_a_promised_unit_comes_and_is_taken_once():
    staging = Staging(100)
    assert staging.promise(A, 60)
    assert A not in staging
    assert staging.put(A, b"a" * 60)
    assert A in staging
    assert staging.take(A) == b"a" * 60
    assert staging.take(A) is None
    assert (staging.used, len(staging)) == (0, 0)


def test_room_is_set_aside_before_the_bytes_come():
    staging = Staging(100)
    assert staging.promise(A, 60)
    assert not staging.promise(B, 60)
    assert staging.promise(B, 40)
    assert staging.used == 100


def test_a_promise_made_twice_counts_once():
    staging = Staging(100)
    assert staging.promise(A, 60)
    assert staging.promise(A, 60)
    assert staging.used == 60


def test_one_object_larger_than_everything_is_taken_alone():
    staging = Staging(100)
    assert staging.promise(A, 1000)
    assert not staging.promise(B, 1)
    staging.withdraw(A)
    assert staging.promise(B, 1)
    assert not staging.promise(A, 1000)


def test_bytes_without_a_promise_are_not_kept():
    staging = Staging(100)
    assert not staging.put(A, b"a")
    staging.promise(B, 10)
    staging.withdraw(B)
    assert not staging.put(B, b"b" * 10)
    assert staging.used == 0


def test_what_never_came_gives_its_room_back():
    staging = Staging(100)
    staging.promise(A, 100)
    staging.withdraw(A)
    staging.withdraw(A)
    assert staging.promise(B, 100)


def test_the_oldest_is_the_one_that_was_promised_first():
    staging = Staging(100)
    assert staging.oldest() is None
    for unit in (C, A, B):
        staging.promise(unit, 10)
    staging.put(A, b"a" * 10)
    assert staging.oldest() == C
    staging.withdraw(C)
    assert staging.oldest() == A
    assert set(staging.units()) == {A, B}


@given(
    st.integers(0, 50),
    st.lists(st.tuples(st.sampled_from(["promise", "put", "withdraw", "take"]), st.integers(0, 5), st.integers(0, 30))),
)
def test_the_account_is_always_the_sum_of_the_promises(capacity, steps):
    staging = Staging(capacity)
    promised: dict[tuple[int, int], int] = {}
    here: set[tuple[int, int]] = set()
    for what, number, size in steps:
        unit = (0, number)
        if what == "promise":
            fits = unit in promised or not sum(promised.values()) or sum(promised.values()) + size <= capacity
            assert staging.promise(unit, size) == fits
            if fits:
                promised.setdefault(unit, size)
        elif what == "put":
            assert staging.put(unit, b"x" * promised.get(unit, 1)) == (unit in promised)
            here |= {unit} & promised.keys()
        elif what == "take":
            assert (staging.take(unit) is not None) == (unit in here)
            if unit in here:
                here.discard(unit)
                del promised[unit]
        else:
            staging.withdraw(unit)
            promised.pop(unit, None)
            here.discard(unit)
        assert staging.used == sum(promised.values())
        assert len(staging) == len(here)

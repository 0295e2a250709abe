"""How many requests run at once, walked through weathers. The decisions are pure, so the weather is a function."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from hotset.fill.limit import LimitState, after_measurement, after_throttle


def walk(state: LimitState, throughput: Callable[[int], float], periods: int) -> list[LimitState]:
    """The states after each period, in a world where so many requests bring that throughput."""
    states = []
    for _ in range(periods):
        state = after_measurement(state, throughput(state.limit))
        states.append(state)
    return states


def test_grows_while_that_helps():
    states = walk(LimitState(), lambda limit: limit * 10.0, 12)
    assert [state.limit for state in states[:4]] == [24, 36, 54, 81]
    assert states[-1].limit == 256


def test_settles_where_more_requests_bring_nothing():
    """A source that is saturated by 50 requests, whatever comes beyond."""
    states = walk(LimitState(), lambda limit: min(limit, 50) * 10.0, 200)
    settled = [state.limit for state in states[20:]]
    assert set(settled) <= {54, 81}  # one trial now and then, taken back at once
    assert settled.count(81) <= len(settled) // 8


def test_a_trial_that_did_not_help_is_taken_back_and_the_next_one_waits():
    trial = after_measurement(LimitState(), 100.0)
    assert (trial.limit, trial.smaller) == (24, 16)
    back = after_measurement(trial, 101.0)
    assert (back.limit, back.smaller) == (16, 0)
    waiting = walk(back, lambda limit: 100.0, back.rest)
    assert {state.limit for state in waiting} == {16}
    assert after_measurement(waiting[-1], 100.0).limit == 24


def test_more_requests_that_harm_are_taken_back():
    states = walk(LimitState(), lambda limit: 1000.0 / limit, 100)
    assert all(state.limit in {16, 24} for state in states)


def test_half_after_a_throttle_and_no_trial_for_a_while():
    state = after_throttle(LimitState(limit=64))
    assert state.limit == 32
    assert {after.limit for after in walk(state, lambda limit: limit * 10.0, state.rest)} == {32}


def test_a_throttle_in_the_middle_of_a_trial_ends_the_trial():
    trial = after_measurement(LimitState(limit=64), 100.0)
    state = after_throttle(trial)
    assert state.limit == 48
    assert after_measurement(state, 1e9).limit == 48


def test_throttled_again_and_again_it_comes_down_to_the_lowest_and_no_further():
    state = LimitState(limit=256)
    limits = [(state := after_throttle(state)).limit for _ in range(12)]
    assert limits[:4] == [128, 64, 32, 16]
    assert limits[-1] == 1


def test_recovers_when_the_source_does():
    state = LimitState(limit=2, rest=5)
    assert walk(state, lambda limit: limit * 10.0, 40)[-1].limit == 256


def test_from_one_request_it_can_grow_again():
    assert after_measurement(LimitState(limit=1), 10.0).limit == 2


@given(
    st.integers(1, 64),
    st.integers(0, 192),
    st.lists(st.one_of(st.just("throttle"), st.floats(0, 1e9, allow_nan=False)), max_size=80),
)
def test_in_any_weather_it_stays_between_its_bounds(lowest, more, weather):
    state = LimitState(limit=lowest, lowest=lowest, highest=lowest + more)
    for event in weather:
        state = after_throttle(state) if event == "throttle" else after_measurement(state, event)
        assert lowest <= state.limit <= lowest + more
        assert state.rest >= 0


def test_it_never_begins_above_what_is_allowed():
    assert LimitState.at_most(4).limit == 4
    assert walk(LimitState.at_most(4), lambda limit: limit * 10.0, 30)[-1].limit == 4
    assert LimitState.at_most(1000).limit == LimitState().limit

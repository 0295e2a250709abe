"""When to try again, without any time passing."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotset.base.retry import RateLimit, RetryPolicy, call, next_wait
from hotset.errors import Closed, NotFound, Unavailable


class FakeTime:
    """A clock that waiting moves, and a stop that never comes, unless `stop_after` pauses."""

    def __init__(self, stop_after: int | None = None) -> None:
        self.now = 100.0
        self.pauses: list[float] = []
        self._stop_after = stop_after

    def wait(self, timeout: float | None = None) -> bool:
        self.pauses.append(timeout)
        self.now += timeout
        return len(self.pauses) == self._stop_after

    def clock(self) -> float:
        return self.now


class Failing:
    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.calls = 0

    def __call__(self) -> str:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return "done"


DEFAULT = RetryPolicy()


def run(action, policy=DEFAULT, time=None, **kwargs):
    time = time or FakeTime()
    return call(action, policy, cancel=time, clock=time.clock, jitter=lambda: 0.5, **kwargs), time


def test_a_success_does_not_wait():
    result, time = run(Failing())
    assert (result, time.pauses) == ("done", [])


def test_pauses_grow_up_to_the_longest():
    policy = RetryPolicy(attempts=6, first=1, longest=4, deadline=1000)
    _, time = run(Failing(*[Unavailable("x")] * 5), policy)
    assert time.pauses == [0.5, 1, 2, 2, 2]


def test_a_peer_that_names_a_time_is_not_asked_earlier():
    _, time = run(Failing(Unavailable("x", retry_after=7)), RetryPolicy(first=1))
    assert time.pauses == [7.5]


def test_gives_up_after_the_last_attempt_and_says_so():
    action = Failing(*[Unavailable("the source failed", throttled=True, retry_after=0)] * 9)
    with pytest.raises(Unavailable, match=r"the source failed.*after 3 attempts") as caught:
        run(action, RetryPolicy(attempts=3))
    assert action.calls == 3
    assert caught.value.throttled


def test_gives_up_rather_than_pass_the_deadline():
    action = Failing(*[Unavailable("x", retry_after=40)] * 9)
    with pytest.raises(Unavailable, match="after 3 attempts"):
        run(action, RetryPolicy(first=0, deadline=100))


def test_the_deadline_counts_from_the_first_failure_and_no_attempt_begins_after_it():
    """An attempt that took longer than the deadline before it failed is made again; the whole is bounded all the same."""
    time = FakeTime()
    begun = []

    def slow():
        begun.append(time.now)
        time.now += 300
        raise Unavailable("timed out")

    with pytest.raises(Unavailable, match="after 2 attempts"):
        run(slow, RetryPolicy(deadline=120), time)
    assert begun[1] - (begun[0] + 300) < 120
    assert time.now - begun[0] < 300 + 120 + 300


def test_other_errors_are_not_retried():
    action = Failing(NotFound("gone"))
    with pytest.raises(NotFound):
        run(action)
    assert action.calls == 1


def test_tells_each_failure_before_the_pause():
    told = []
    time = FakeTime()
    run(
        Failing(Unavailable("a", throttled=True), Unavailable("b")),
        RetryPolicy(first=2),
        time,
        on_retry=lambda error, pause: told.append((str(error), error.throttled, pause, len(time.pauses))),
    )
    assert told == [("a", True, 1.0, 0), ("b", False, 2.0, 1)]


def test_cancel_ends_the_pause():
    action = Failing(*[Unavailable("x")] * 9)
    with pytest.raises(Closed):
        run(action, RetryPolicy(), FakeTime(stop_after=2))
    assert action.calls == 2


@given(
    st.integers(1, 200),
    st.floats(0, 1e6),
    st.floats(0, 1, exclude_max=True),
    st.none() | st.floats(0, 1e6),
)
def test_a_pause_fits_its_bounds(failures, elapsed, jitter, retry_after):
    policy = RetryPolicy()
    pause = next_wait(policy, failures=failures, elapsed=elapsed, jitter=jitter, retry_after=retry_after)
    if pause is None:
        worst = policy.longest + (retry_after or 0)
        assert failures >= policy.attempts or elapsed + worst >= policy.deadline
    else:
        assert (retry_after or 0) <= pause <= policy.longest + (retry_after or 0)
        assert elapsed + pause < policy.deadline


class TestRateLimit:
    def test_a_burst_of_one_second_is_free(self):
        time = FakeTime()
        limit = RateLimit(100, cancel=time, clock=time.clock)
        limit.take(60)
        limit.take(40)
        assert time.pauses == []

    def test_the_average_holds(self):
        time = FakeTime()
        start = time.now
        limit = RateLimit(100, cancel=time, clock=time.clock)
        for _ in range(50):
            limit.take(30)
        assert 50 * 30 / 100 - 1.5 <= time.now - start <= 50 * 30 / 100

    def test_a_large_request_delays_those_after_it(self):
        time = FakeTime()
        limit = RateLimit(100, cancel=time, clock=time.clock)
        limit.take(1000)
        assert time.pauses == []
        limit.take(1)
        assert time.pauses == [9.0]

    def test_idle_time_is_not_saved_up(self):
        time = FakeTime()
        limit = RateLimit(100, cancel=time, clock=time.clock)
        time.now += 1000
        limit.take(100)
        limit.take(100)
        limit.take(1)
        assert time.pauses == [1.0]

    def test_cancel_ends_the_wait(self):
        stop = threading.Event()
        limit = RateLimit(1, cancel=stop, clock=lambda: 0.0)
        limit.take(10_000)
        with ThreadPoolExecutor(4) as pool:
            waiting = [pool.submit(limit.take, 1) for _ in range(4)]
            stop.set()
            for future in waiting:
                with pytest.raises(Closed):
                    future.result(timeout=30)

    def test_a_rate_must_be_positive(self):
        with pytest.raises(ValueError, match="positive"):
            RateLimit(0, cancel=threading.Event())

"""What is fetched next: a walk through orders, windows and reads, without threads or time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotset.fill.agenda import BATCH_BYTES, Agenda, Batch, Unit
from hotset.snapshot import Listing, PlanParameters, Snapshot, plan, write_index
from hotset.source.base import FingerprintKind, ObjectInfo

EVERYTHING = 2**62


@pytest.fixture(scope="module")
def snapshot_of(tmp_path_factory):
    """A snapshot of objects of these sizes, whose position is the number in their key; four small ones to a pack."""

    def make(sizes: list[int], limit: int = 400) -> Snapshot:
        directory: Path = tmp_path_factory.mktemp("index")
        infos = [ObjectInfo(f"{n:06}", size, FingerprintKind.ETAG, b"%d" % n) for n, size in enumerate(sizes)]
        listing = Listing.of([infos], listed_ns=10**18)
        write_index(directory, listing, plan(listing, b"test", PlanParameters(limit=limit, stripe=limit // 2)))
        return Snapshot(directory)

    return make


@pytest.fixture(scope="module")
def hundred(snapshot_of):
    return snapshot_of([100] * 100)


def always(unit: Unit) -> bool:
    return True


def order_of(*positions: int) -> np.ndarray:
    return np.array(positions, dtype=np.uint64)


class Fetcher:
    """Takes units as an engine does, and remembers what is done."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.agenda = Agenda(snapshot)
        self.fetched: set[Unit] = set()

    def take(self, *, awaited=always, ahead=always, keep=always) -> int | None:
        """The position whose unit comes next."""
        batch = self.take_batch(EVERYTHING, awaited=awaited, ahead=ahead, keep=keep)
        if batch is None:
            return None
        [unit] = batch.units
        return self.snapshot.unit_range(*unit)[0]

    def take_batch(self, threads: int, *, awaited=always, ahead=always, keep=always) -> Batch | None:
        batch = self.agenda.take(
            lambda unit: unit not in self.fetched, awaited=awaited, ahead=ahead, keep=keep, threads=threads
        )
        self.fetched.update(batch.units if batch else ())
        return batch

    def positions(self, batch: Batch) -> list[int]:
        return [self.snapshot.unit_range(*unit)[0] for unit in batch.units]

    def take_all(self, **said) -> list[int]:
        return list(iter(lambda: self.take(**said), None))

    def want(self, *positions: int) -> None:
        for position in positions:
            number, units = self.snapshot.units_of(position)
            self.agenda.want((number, unit) for unit in units)


@pytest.fixture
def fetcher(hundred):
    return Fetcher(hundred)


class TestUrgency:
    def test_an_empty_agenda_has_nothing(self, fetcher):
        assert fetcher.take() is None
        assert not fetcher.agenda.loading
        assert not fetcher.agenda.pending

    def test_what_is_wanted_comes_before_the_order_and_the_order_before_the_load(self, fetcher):
        fetcher.agenda.load(range(3))
        fetcher.agenda.follow(order_of(10, 11), EVERYTHING)
        fetcher.want(50)
        assert fetcher.take_all() == [50, 10, 11, 0, 1, 2]

    def test_a_want_overtakes_an_order_that_is_under_way(self, fetcher):
        fetcher.agenda.follow(order_of(*range(100)), EVERYTHING)
        assert [fetcher.take() for _ in range(3)] == [0, 1, 2]
        fetcher.want(99)
        assert [fetcher.take() for _ in range(3)] == [99, 3, 4]

    def test_what_was_fetched_meanwhile_is_not_fetched_again(self, fetcher):
        fetcher.want(5)
        fetcher.agenda.follow(order_of(5, 6, 5), EVERYTHING)
        fetcher.agenda.load(range(4, 8))
        assert fetcher.take_all() == [5, 6, 4, 7]

    def test_a_younger_order_replaces_an_older_one(self, fetcher):
        fetcher.agenda.follow(order_of(*range(100)), EVERYTHING)
        assert fetcher.take() == 0
        fetcher.agenda.follow(order_of(70, 60), EVERYTHING)
        assert fetcher.take_all() == [70, 60]

    def test_a_want_that_was_met_by_another_way_is_forgotten(self, fetcher):
        fetcher.want(5, 6)
        six = fetcher.snapshot.units_of(6)
        assert fetcher.take_all(awaited=lambda unit: unit == (six[0], six[1][0])) == [6]

    def test_what_was_lost_again_comes_before_the_rest_of_a_load(self, fetcher):
        fetcher.agenda.load(range(3))
        assert fetcher.take() == 0
        number, [unit] = fetcher.snapshot.units_of(9)
        fetcher.agenda.repair([(number, unit)])
        assert fetcher.agenda.loading
        assert fetcher.take_all() == [9, 1, 2]

    def test_a_load_that_meets_another_goes_on_elsewhere_and_comes_back(self, fetcher):
        fetcher.agenda.load(range(10))
        assert fetcher.take() == 0
        fetcher.agenda.jump(0.5)
        assert fetcher.take() == 5
        fetcher.agenda.jump(0.0)
        assert fetcher.take_all() == [6, 7, 8, 9, 1, 2, 3, 4]
        fetcher.agenda.jump(0.5)
        assert fetcher.take() is None

    def test_an_order_of_what_does_not_exist_changes_nothing(self, fetcher):
        fetcher.agenda.follow(order_of(3, 4), EVERYTHING)
        with pytest.raises(IndexError):
            fetcher.agenda.follow(order_of(5, 100), EVERYTHING)
        assert fetcher.take_all() == [3, 4]

    def test_cancel_forgets_order_and_load_but_not_who_waits(self, fetcher):
        fetcher.agenda.follow(order_of(1, 2), EVERYTHING)
        fetcher.agenda.load(range(100))
        fetcher.want(7)
        fetcher.agenda.cancel()
        assert fetcher.take_all() == [7]
        assert not fetcher.agenda.loading

    def test_loading_until_everything_that_was_asked_for_is_taken(self, fetcher):
        fetcher.agenda.load(range(2))
        assert fetcher.agenda.loading
        assert fetcher.take_all() == [0, 1]
        assert not fetcher.agenda.loading

    def test_a_load_leaves_out_what_has_no_place(self, fetcher):
        fetcher.agenda.load(range(100))
        packs = set(range(0, fetcher.snapshot.pack_count, 2))
        taken = fetcher.take_all(keep=lambda unit: unit[0] in packs)
        assert taken == [n for n in range(100) if fetcher.snapshot.packs[n] in packs]
        assert not fetcher.agenda.loading

    def test_loads_of_empty_ranges_are_nothing(self, fetcher):
        fetcher.agenda.load(range(0))
        fetcher.agenda.load(range(3, 4))
        assert fetcher.take_all() == [3]


class TestWindow:
    def test_at_most_so_many_bytes_ahead_of_the_reading(self, fetcher):
        fetcher.agenda.follow(order_of(*range(100)), 1000)
        assert fetcher.take_all() == list(range(10))
        fetcher.agenda.advance([0])
        assert fetcher.take_all() == [10]
        fetcher.agenda.advance([3])
        assert fetcher.take_all() == [11, 12, 13]

    def test_a_single_object_larger_than_the_window_still_goes(self, snapshot_of):
        fetcher = Fetcher(snapshot_of([100, 5000, 100, 5000]))
        fetcher.agenda.follow(order_of(0, 1, 2, 3), 150)
        assert fetcher.take_all() == [0]
        fetcher.agenda.advance([0])
        assert set(fetcher.take_all()) == {1}
        assert len(fetcher.fetched) == 1 + 5000 // 200
        fetcher.agenda.advance([1])
        assert fetcher.take_all() == [2]
        fetcher.agenda.advance([2])
        assert set(fetcher.take_all()) == {3}

    def test_a_window_of_nothing_still_lets_the_next_object_through(self, fetcher):
        fetcher.agenda.follow(order_of(4, 5), 0)
        assert fetcher.take_all() == [4]
        fetcher.agenda.advance([4])
        assert fetcher.take_all() == [5]

    def test_reading_beyond_the_window_moves_it_there(self, fetcher):
        fetcher.agenda.follow(order_of(*range(100)), 500)
        assert fetcher.take_all() == [0, 1, 2, 3, 4]
        fetcher.agenda.advance([50])
        assert fetcher.take_all() == [51, 52, 53, 54, 55]

    def test_a_slow_reader_does_not_move_the_window_back(self, fetcher):
        fetcher.agenda.follow(order_of(*range(100)), 500)
        fetcher.take_all()
        fetcher.agenda.advance([4])
        fetcher.agenda.advance([1])
        assert fetcher.take_all() == [5, 6, 7, 8, 9]

    def test_what_is_not_in_the_order_moves_nothing(self, fetcher):
        fetcher.agenda.follow(order_of(0, 1, 2, 3), 100)
        assert fetcher.take_all() == [0]
        fetcher.agenda.advance([77])
        assert fetcher.take_all() == []

    def test_reads_before_any_order_are_no_matter(self, fetcher):
        fetcher.agenda.advance([1, 2])
        fetcher.agenda.follow(order_of(1, 2), EVERYTHING)
        assert fetcher.take_all() == [1, 2]

    def test_without_a_place_the_order_pauses_at_the_same_object(self, fetcher):
        fetcher.agenda.follow(order_of(8, 9), EVERYTHING)
        assert fetcher.take(ahead=lambda unit: False) is None
        assert fetcher.agenda.pending
        assert fetcher.take() == 8

    def test_an_object_that_was_read_while_the_order_paused_is_not_fetched_for_later(self, fetcher):
        fetcher.agenda.follow(order_of(8, 9), EVERYTHING)
        assert fetcher.take(ahead=lambda unit: False) is None
        fetcher.agenda.advance([8])
        assert fetcher.take_all() == [9]

    def test_pending_only_while_the_window_has_something(self, fetcher):
        fetcher.agenda.follow(order_of(0, 1), 100)
        assert fetcher.agenda.pending
        fetcher.take()
        assert not fetcher.agenda.pending
        fetcher.agenda.advance([0])
        assert fetcher.agenda.pending


class TestOrdersThatRepeat:
    """Samplers with replacement name an object several times."""

    def test_reading_an_object_counts_for_its_next_place(self, fetcher):
        fetcher.agenda.follow(order_of(0, 1, 0, 2, 3, 4, 5, 6, 7, 8), 300)
        assert fetcher.take_all() == [0, 1]
        fetcher.agenda.advance([0])
        assert fetcher.take_all() == [2]  # one place further, not behind the last 0
        fetcher.agenda.advance([1, 0])
        assert fetcher.take_all() == [3, 4]

    def test_a_late_reader_of_a_repeated_object_does_not_move_the_window_to_its_next_place(self, fetcher):
        fetcher.agenda.follow(order_of(0, 1, 2, *range(10, 60), 0, *range(60, 90)), 200)
        fetcher.agenda.advance([1])
        fetcher.agenda.advance([0])  # by another worker, for its first place
        assert fetcher.take_all() == [2, 10]


class TestDue:
    """Which objects are worth keeping until they are read."""

    def test_without_an_order_nothing_is(self, fetcher):
        assert not fetcher.agenda.due(0, late=1000)

    def test_what_stands_in_the_window_is_and_what_lies_behind_it_is_not(self, fetcher):
        fetcher.agenda.follow(order_of(*range(100)), 500)
        assert [n for n in range(100) if fetcher.agenda.due(n, late=0)] == [0, 1, 2, 3, 4]

    def test_what_was_passed_lately_still_is(self, fetcher):
        fetcher.agenda.follow(order_of(*range(100)), 500)
        fetcher.agenda.advance([49])
        assert [n for n in range(100) if fetcher.agenda.due(n, late=300)] == list(range(46, 55))

    def test_a_cancelled_order_makes_nothing_due(self, fetcher):
        fetcher.agenda.follow(order_of(*range(100)), 500)
        fetcher.agenda.cancel()
        assert not fetcher.agenda.due(0, late=1000)


@given(
    order=st.lists(st.integers(0, 99), max_size=60),
    window=st.integers(0, 3000),
    skips=st.sets(st.integers(0, 59)),
)
def test_whoever_reads_in_the_order_never_waits_in_vain_and_nothing_is_taken_twice(hundred, order, window, skips):
    """Whatever the order and however much of it is skipped: fetched ahead within the window, each unit once."""
    fetcher = Fetcher(hundred)
    fetcher.agenda.follow(order_of(*order), window)
    done: list[int] = []
    for place, position in enumerate(order):
        done += fetcher.take_all()
        ahead = set(done) - set(order[:place])
        assert len(ahead) * 100 <= max(window, 100)
        if place in skips:
            continue
        fetcher.want(position)
        done += fetcher.take_all()
        assert position in done
        fetcher.agenda.advance([position])
    assert len(done) == len(set(done))


class TestBatches:
    """Small units are handed out several at a time, from one lane, as long as there is plenty."""

    @pytest.mark.parametrize("lane", ["want", "order", "load"])
    def test_everybody_gets_a_fair_part(self, fetcher, lane):
        if lane == "want":
            fetcher.want(*range(100))
        elif lane == "order":
            fetcher.agenda.follow(order_of(*range(100)), EVERYTHING)
        else:
            fetcher.agenda.load(range(100))
        batches = list(iter(lambda: fetcher.take_batch(4), None))
        assert [position for batch in batches for position in fetcher.positions(batch)] == list(range(100))
        assert len(batches[0].units) == 12
        assert [len(batch.units) for batch in batches[-8:]] == [1] * 8

    def test_a_batch_is_of_one_lane(self, fetcher):
        fetcher.want(*range(50, 60))
        fetcher.agenda.follow(order_of(*range(40)), EVERYTHING)
        batch = fetcher.take_batch(1)
        assert fetcher.positions(batch) == [50, 51, 52, 53]
        assert fetcher.agenda.urgent

    def test_large_units_come_alone(self, snapshot_of):
        fetcher = Fetcher(snapshot_of([BATCH_BYTES] * 100, limit=4 * BATCH_BYTES))
        fetcher.agenda.load(range(100))
        assert len(fetcher.take_batch(1).units) == 1

    def test_no_more_than_the_window(self, fetcher):
        fetcher.agenda.follow(order_of(*range(100)), 1000)
        assert len(fetcher.take_batch(1).units) == 4
        assert fetcher.take_all() == list(range(4, 10))

    def test_an_object_named_twice_is_in_it_once(self, fetcher):
        fetcher.agenda.follow(order_of(*[1, 1, 2] * 20), EVERYTHING)
        assert fetcher.positions(fetcher.take_batch(1)) == [1, 2]

    @pytest.mark.parametrize("lane", ["want", "order", "load"])
    def test_what_is_given_back_comes_first_again(self, fetcher, lane):
        if lane == "want":
            fetcher.want(*range(20))
        elif lane == "order":
            fetcher.agenda.follow(order_of(*range(20)), EVERYTHING)
        else:
            fetcher.agenda.load(range(20))
        batch = fetcher.take_batch(1)
        rest = batch.units[3:]
        fetcher.fetched.difference_update(rest)
        fetcher.agenda.give_back(batch, rest)
        assert fetcher.take_all() == list(range(3, 20))

    @pytest.mark.parametrize("end", ["cancelled", "replaced", "passed"])
    def test_what_nobody_needs_any_more_does_not_come_back(self, fetcher, end):
        fetcher.agenda.follow(order_of(*range(50)), EVERYTHING)
        batch = fetcher.take_batch(1)
        assert not fetcher.agenda.cancelled(batch)
        if end == "cancelled":
            fetcher.agenda.cancel()
        elif end == "replaced":
            fetcher.agenda.follow(order_of(70), EVERYTHING)
        else:
            fetcher.agenda.advance([48])
        assert fetcher.agenda.cancelled(batch)
        fetcher.agenda.give_back(batch, batch.units[1:])
        assert fetcher.take_all() == {"cancelled": [], "replaced": [70], "passed": [49]}[end]


def test_a_million_positions_cost_no_python_object_each(snapshot_of):
    """The order of a large dataset stays in arrays: what `advance` makes for it is two of them."""
    snapshot = snapshot_of([1] * 1000)
    agenda = Agenda(snapshot)
    agenda.follow(np.tile(np.arange(1000, dtype=np.uint64), 1000), 100)
    agenda.advance([5])
    assert agenda.take(always, awaited=always, ahead=always, keep=always, threads=1) is not None
    assert all(isinstance(value, np.ndarray) for value in vars(agenda._occurrences).values())

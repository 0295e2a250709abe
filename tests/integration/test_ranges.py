"""Byte ranges of many objects: absent, present, striped, without a place in the cache, changed at the source."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hotset.errors import Changed, Closed
from hotset.read.fetch import NOTICE_EVERY
from hotset.read.ranges import Places, Ranges
from tests.support.datasets import content
from tests.support.opening import SMALL_PACKS, give_up_soon, use
from tests.support.processes import wait_until

pytestmark = pytest.mark.integration

#: Three striped objects among small ones, and an empty one. A stripe has 32 KiB.
DATA = {f"{n:02}": content(f"{n:02}", size) for n, size in enumerate([300, 200_000, 0, 5_000, 100_000, 70_000, 20])}
KEYS = sorted(DATA)
STRIPE = 32 * 1024


@pytest.fixture
def place(bucket, proxy, monkeypatch):
    use(monkeypatch, proxy.env())
    bucket.put_many(DATA)
    return bucket


@pytest.fixture
def ds(place, no_leaks):
    with give_up_soon(place.url, parameters=SMALL_PACKS) as opened:
        yield opened


def places_of(*ranges: tuple[int, int, int]) -> Places:
    return Places(*np.array(ranges, np.int64).reshape(-1, 3).T)


def wanted(*ranges: tuple[int, int, int]) -> list[bytes]:
    return [DATA[KEYS[position]][start:end] for position, start, end in ranges]


@st.composite
def ranges(draw):
    position = draw(st.integers(0, len(KEYS) - 1))
    size = len(DATA[KEYS[position]])
    start = draw(st.integers(0, size))
    return position, start, draw(st.one_of(st.integers(start, size), st.integers(start, min(size, start + 100))))


class TestReading:
    @pytest.mark.parametrize("load", [False, True], ids=["absent", "complete"])
    def test_one_by_one_and_together(self, ds, load):
        if load:
            ds.load()
        reading = Ranges(ds)
        some = [
            (1, 10, 20),
            (0, 0, 300),
            (1, STRIPE - 5, STRIPE + 5),
            (2, 0, 0),
            (5, 0, 70_000),
            (1, 10, 20),
            (3, 7, 7),
        ]
        assert [bytes(view) for view in reading.many(places_of(*some))] == wanted(*some)
        assert [bytes(reading.one(*each)) for each in some] == wanted(*some)
        assert reading.many(places_of()) == []

    def test_each_unit_is_fetched_once_and_only_those_that_are_needed(self, ds, proxy):
        reading = Ranges(ds)
        some = [(1, at, at + 10) for at in (5, 9, 2 * STRIPE, 2 * STRIPE + 500, 5)]
        assert [bytes(view) for view in reading.many(places_of(*some))] == wanted(*some)
        assert proxy.gets == {KEYS[1]: 2}
        assert ds.stats().fill.fetched_bytes == 2 * STRIPE

    def test_walking_through_an_object(self, ds, proxy):
        reading = Ranges(ds)
        for position, key in enumerate(KEYS):
            at, parts = 0, []
            while part := reading.rest(position, at):
                parts.append(bytes(part))
                at += len(part)
            assert b"".join(parts) == DATA[key]
            assert len(parts) <= 7
        assert proxy.gets == {key: max(1, -(-len(DATA[key]) // STRIPE) if len(DATA[key]) > 65_536 else 1)
                              for key in KEYS if DATA[key]}  # fmt: skip

    def test_closed(self, ds):
        reading = Ranges(ds)
        ds.close()
        for read in (lambda: reading.one(0, 0, 5), lambda: reading.many(places_of((0, 0, 5)))):
            with pytest.raises(Closed):
                read()
        with pytest.raises(Closed):
            reading.prefetch([places_of((0, 0, 5))])

    def test_counters(self, ds):
        ds.load()
        Ranges(ds).one(1, 0, 1)  # which maps the pack
        before = ds.stats()
        Ranges(ds).many(places_of((1, 0, 10), (1, 5, 25)))
        after = ds.stats()
        assert (after.reads - before.reads, after.bytes_from_cache - before.bytes_from_cache) == (2, 30)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(batches=st.lists(st.lists(ranges(), max_size=12), max_size=4))
def test_any_ranges(ds, batches):
    reading = Ranges(ds)
    for batch in batches:
        assert [bytes(view) for view in reading.many(places_of(*batch))] == wanted(*batch)


class TestPrefetch:
    def test_stripes_are_fetched_in_the_order_of_the_ranges(self, ds, proxy):
        order = [
            (1, 5 * STRIPE + 9, 5 * STRIPE + 19),
            (4, 0, 10),
            (1, 0, 10),
            (1, 5 * STRIPE, 5 * STRIPE + 5),
            (3, 1, 2),
        ]
        reading = Ranges(ds)
        reading.prefetch([places_of(*order[:2]), places_of(*order[2:])])
        wait_until(lambda: proxy.gets.total() == 4, what="four units")
        assert [bytes(view) for view in reading.many(places_of(*order))] == wanted(*order)
        assert proxy.gets == {KEYS[1]: 2, KEYS[4]: 1, KEYS[3]: 1}

    def test_no_further_ahead_than_the_lookahead(self, ds, proxy):
        reading = Ranges(ds)
        order = [(1, n * STRIPE, n * STRIPE + 1) for n in (6, 3, 1, 5)]
        reading.prefetch([places_of(*order)], lookahead=STRIPE)
        wait_until(lambda: proxy.gets.total() >= 1, what="the first stripe")
        for read, place in enumerate(order, 1):
            for _ in range(NOTICE_EVERY):
                reading.one(*place)
            wait_until(lambda read=read: proxy.gets.total() >= min(4, read + 1), what="the next stripe")
            assert proxy.gets.total() <= read + 1

    def test_of_what_is_complete_nothing_is_told(self, ds):
        ds.load()

        def never():
            raise AssertionError("asked for the order")
            yield

        Ranges(ds).prefetch(never())


class TestWithoutAPlace:
    def test_neighbours_in_a_stripe_are_fetched_once(self, bucket, proxy, monkeypatch, no_leaks):
        """The smallest quota, and an object larger than it."""
        use(monkeypatch, proxy.env())
        large = content("large", 24 * 2**20)
        bucket.put_many({"large": large})
        with give_up_soon(bucket.url, quota="16MiB") as ds:
            reading = Ranges(ds)
            for at in range(0, 3 * 2**20, 2**18):
                assert reading.one(0, at, at + 10) == large[at : at + 10]
                assert bytes(reading.many(places_of((0, at, at + 100)))[0]) == large[at : at + 100]
            assert proxy.gets.total() == 1
            with ds.open("large") as file:
                assert file.read(2**20) == large[: 2**20]
            assert proxy.gets.total() == 1


class TestChanged:
    @pytest.fixture
    def changed(self, place):
        """Small and striped objects of which one each is another version now."""
        with give_up_soon(place.url, parameters=SMALL_PACKS) as ds:
            ds.close()
        place.put_many({KEYS[1]: content("new", 200_000), KEYS[3]: content("new", 5_000)})
        return place

    def test_is_an_error(self, changed):
        with give_up_soon(changed.url, parameters=SMALL_PACKS, refresh="never") as ds:
            for place in ((1, 0, 5), (3, 0, 5)):
                with pytest.raises(Changed):
                    Ranges(ds).many(places_of((0, 0, 5), place))
                with pytest.raises(Changed):
                    Ranges(ds).one(*place)

    def test_or_skipped(self, changed):
        with give_up_soon(changed.url, parameters=SMALL_PACKS, refresh="never", on_changed="skip") as ds:
            some = [(0, 0, 5), (1, STRIPE - 1, STRIPE + 1), (3, 0, 5), (4, 0, 5)]
            got = Ranges(ds).many(places_of(*some))
            assert [None if view is None else bytes(view) for view in got] == [
                data if place[0] in (0, 4) else None for place, data in zip(some, wanted(*some), strict=True)
            ]

"""`Dataset` as a user meets it, over a real S3 server: every way to read, to fill, to close."""

from __future__ import annotations

import gc
import io
import os
import re
import signal
import subprocess
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import hotset
from hotset.errors import Closed, InvalidInput, NotFound
from hotset.fill.client import FillClient
from hotset.read.dataset import Dataset
from tests.support.datasets import awkward, image_tree, many_small
from tests.support.opening import SMALL_PACKS, give_up_soon, read_all, use
from tests.support.processes import alive, open_fds, wait_until

pytestmark = pytest.mark.integration

DATA = image_tree(60, 2000)
KEYS = sorted(DATA)


@pytest.fixture
def place(bucket, proxy, monkeypatch):
    """A bucket with sixty images, reached through the proxy; its URI."""
    use(monkeypatch, proxy.env())
    bucket.put_many(DATA)
    return bucket.url


@pytest.fixture
def ds(place, no_leaks):
    with hotset.open(place, "images") as opened:
        yield opened


class TestReading:
    def test_every_object_once_absent_and_once_present(self, ds, proxy):
        assert len(ds) == len(DATA)
        for _ in range(2):
            assert read_all(ds) == dict(DATA)
        assert proxy.gets == dict.fromkeys(KEYS, 1)
        assert proxy.lists == 1

    @pytest.mark.parametrize("load", [False, True], ids=["absent", "complete"])
    def test_indices_are_those_of_a_sequence(self, ds, load):
        if load:
            ds.load()
        assert ds[-1] == DATA[KEYS[-1]]
        assert ds[-60] == ds[0] == DATA[KEYS[0]]
        assert ds[np.int64(5)] == ds[np.uint8(5)] == DATA[KEYS[5]]
        for wrong in (60, -61, 10**12):
            with pytest.raises(IndexError):
                ds[wrong]
            with pytest.raises(IndexError):
                ds.slice(wrong)
            with pytest.raises(IndexError):
                ds.read_many([0, wrong])
        for wrong in (1.0, "1", None):
            with pytest.raises(TypeError):
                ds[wrong]

    def test_iterating(self, ds):
        assert list(ds) == [DATA[key] for key in KEYS]

    @pytest.mark.parametrize("load", [False, True], ids=["absent", "complete"])
    def test_a_slice_is_a_view_that_outlives_the_dataset(self, place, load):
        with hotset.open(place) as ds:
            if load:
                ds.load()
            views = [ds.slice(index) for index in (0, 7, -1)]
        assert all(view.readonly for view in views)
        assert [bytes(view) for view in views] == [DATA[KEYS[index]] for index in (0, 7, -1)]

    @pytest.mark.parametrize("load", [False, True], ids=["absent", "complete"])
    def test_read_many_keeps_order_and_duplicates(self, ds, load, proxy):
        if load:
            ds.load()
        order = [5, 5, 59, 0, -1, 17, 5, -60]
        assert ds.read_many(order) == [DATA[KEYS[index]] for index in order]
        assert ds.read_many(np.array(order)) == ds.read_many(iter(order))
        assert ds.read_many([]) == []
        assert max(proxy.gets.values()) == 1

    def test_read_by_key_and_range(self, ds):
        key = KEYS[3]
        whole = DATA[key]
        assert ds.read(key) == whole
        for start, end in [(0, 10), (100, 200), (5, None), (None, 7), (-10, None), (10, 10), (20, 10), (0, 10**9)]:
            assert ds.read(key, start, end) == whole[start:end], (start, end)
        with pytest.raises(NotFound, match="no/such/key"):
            ds.read("no/such/key")

    def test_open_is_a_file(self, ds):
        key = KEYS[3]
        whole = DATA[key]
        with ds.open(key) as file:
            assert (file.readable(), file.seekable(), file.writable()) == (True, True, False)
            assert file.read(10) == whole[:10]
            assert file.tell() == 10
            assert file.seek(-5, io.SEEK_END) == len(whole) - 5
            assert file.read() == whole[-5:]
            assert file.read() == b""
            assert file.seek(100) == 100
            file.seek(10, io.SEEK_CUR)
            assert file.read(3) == whole[110:113]
            file.seek(10**6)
            assert file.read(1) == b""
            with pytest.raises(ValueError, match="before the beginning"):
                file.seek(-(10**6), io.SEEK_END)
            with pytest.raises(io.UnsupportedOperation):
                file.write(b"x")
        with pytest.raises(NotFound):
            ds.open("no/such/key")

    def test_slices_of_the_dataset_are_refused_and_not_misread(self, ds):
        with pytest.raises(TypeError):
            ds[1:3]

    def test_threads_read_together(self, ds, proxy):
        with ThreadPoolExecutor(8) as pool:
            got = list(pool.map(lambda n: ds[n % 60], range(600)))
        assert got == [DATA[KEYS[n % 60]] for n in range(600)]
        assert proxy.gets == dict.fromkeys(KEYS, 1)


class TestAwkwardObjects:
    def test_strange_names_empty_objects_and_striped_ones(self, bucket, proxy, monkeypatch, no_leaks):
        use(monkeypatch, proxy.env())
        data = awkward()
        bucket.put_many(data)
        with give_up_soon(bucket.url, parameters=SMALL_PACKS) as ds:
            assert list(ds.keys) == sorted(data, key=str.encode)
            assert read_all(ds) == data
            order = list(range(len(ds))) * 2
            assert ds.read_many(order) == [data[ds.keys[index]] for index in order]
            assert {key: bytes(ds.slice(ds.keys.index(key))) for key in data} == data
            ds.load()
            assert ds.complete
            assert read_all(ds) == data

    def test_of_a_large_object_only_the_stripes_in_question_are_fetched(self, bucket, proxy, monkeypatch):
        use(monkeypatch, proxy.env())
        large = bytes(np.random.default_rng(1).bytes(10 * SMALL_PACKS.stripe + 5))
        bucket.put_many({"large": large})
        with give_up_soon(bucket.url, parameters=SMALL_PACKS) as ds:
            middle = 4 * SMALL_PACKS.stripe
            assert ds.read("large", middle - 10, middle + 10) == large[middle - 10 : middle + 10]
            assert proxy.count("GET") == 2
            with ds.open("large") as file:
                file.seek(middle)
                assert file.read(100) == large[middle : middle + 100]
            assert ds[0] == large
            assert bytes(ds.slice(0)) == large
            assert proxy.count("GET") == 11

    def test_a_great_many_tiny_objects_at_once(self, bucket, proxy, monkeypatch):
        """More than one request to the filler may name, so it is several."""
        monkeypatch.setattr("hotset.read.fetch.REQUEST_OBJECTS", 50)
        use(monkeypatch, proxy.env())
        data = many_small(220, 10)
        bucket.put_many(data)
        with hotset.open(bucket.url) as ds:
            assert ds.read_many(range(220)) == list(data.values())


class TestKeys:
    def test_a_sequence_with_look_ups(self, ds):
        keys = ds.keys
        assert (len(keys), list(keys), keys[0], keys[-1]) == (60, KEYS, KEYS[0], KEYS[-1])
        assert keys[2:5] == KEYS[2:5]
        assert KEYS[9] in keys
        assert "other" not in keys
        assert 9 not in keys
        assert keys.index(KEYS[9]) == 9
        with pytest.raises(ValueError, match="other"):
            keys.index("other")
        with pytest.raises(IndexError):
            keys[60]
        assert list(reversed(keys)) == KEYS[::-1]

    def test_prefixes_are_ranges(self, ds):
        label = KEYS[25].rpartition("/")[0]
        found = ds.keys.prefix(label + "/")
        assert [KEYS[index] for index in found] == [key for key in KEYS if key.startswith(label + "/")]
        assert ds.keys.prefix("") == range(60)
        assert not ds.keys.prefix("zzz")

    def test_asking_the_dataset_for_a_key_says_where_to_ask(self, ds):
        with pytest.raises(TypeError, match=r"dataset\.keys"):
            "a" in ds  # noqa: B015

    def test_sizes_without_reading(self, ds, proxy):
        assert [ds.size(index) for index in range(60)] == [len(DATA[key]) for key in KEYS]
        assert ds.total_bytes == sum(map(len, DATA.values()))
        assert proxy.count("GET") == 0


class TestFilling:
    def test_load_fetches_everything_and_tells_how_far_it_is(self, ds, proxy):
        seen = []
        assert not ds.complete
        done = ds.load(seen.append)
        assert ds.complete
        assert (done.objects, done.total_objects, done.bytes, done.finished) == (60, 60, ds.total_bytes, True)
        assert seen[-1] == done
        assert done.share == 1.0
        again = ds.load(seen.append)
        assert again.finished
        assert proxy.gets == dict.fromkeys(KEYS, 1)
        assert read_all(ds) == dict(DATA)

    def test_load_in_the_background(self, ds, proxy):
        ds.load(wait=False)
        assert read_all(ds) == dict(DATA)
        assert ds.load().finished
        assert proxy.gets == dict.fromkeys(KEYS, 1)

    def test_a_prefetched_order_is_fetched_before_it_is_read(self, ds, proxy):
        order = np.random.default_rng(3).permutation(60)
        ds.prefetch(order)
        proxy.wait_for("GET", 60)
        assert [ds[index] for index in order] == [DATA[KEYS[index]] for index in order]
        assert proxy.gets == dict.fromkeys(KEYS, 1)

    def test_prefetch_stays_within_its_lookahead(self, ds, proxy):
        sizes = [ds.size(index) for index in range(60)]
        ds.prefetch(range(60), lookahead=10_000)
        for index in range(60):
            assert ds[index] == DATA[KEYS[index]]
            fetched = {KEYS.index(key) for key in proxy.gets}
            assert sum(sizes[n] for n in fetched if n > index) <= 10_000
        assert proxy.gets == dict.fromkeys(KEYS, 1)

    @pytest.mark.parametrize(
        "order", [[60], [0, -61], [1, 2**40], np.array([70]), np.array([-100]), np.array([0.5]), np.zeros((2, 2), int)]
    )
    @pytest.mark.parametrize("load", [False, True], ids=["absent", "complete"])
    def test_an_order_that_cannot_be_is_refused(self, ds, order, load):
        if load:
            ds.load()
        with pytest.raises(InvalidInput):
            ds.prefetch(order)

    def test_orders_of_all_kinds(self, ds, proxy):
        for order in ([], range(3), iter([3, 4]), np.array([5], np.uint8), [-1], [np.int64(6)]):
            ds.prefetch(order)
        proxy.wait_for("GET", 1)
        assert ds[6] == DATA[KEYS[6]]

    def test_a_read_overtakes_the_prefetch(self, place, proxy, monkeypatch):
        monkeypatch.setenv("HOTSET_MAX_REQUESTS", "2")
        hang = proxy.hang(times=2)
        with hotset.open(place) as ds:
            ds.prefetch(range(60))
            wait_until(lambda: hang.hits == 2, what="two requests that hang")
            with ThreadPoolExecutor(1) as pool:
                future = pool.submit(ds.__getitem__, 50)
                wait_until(lambda: ds.stats().fill.waiting, what="the filler knows of the read")
                proxy.release()
                assert future.result(30) == DATA[KEYS[50]]
            arrived = [request.key for request in proxy.requests() if request.kind == "GET"]
            assert arrived.index(KEYS[50]) <= 3  # the two that hung, at most one that was let go meanwhile, then it

    def test_counters(self, ds):
        ds[0], ds[0], ds[1]
        ds.load()
        ds[2], ds.slice(3), ds.read_many([4, 5])
        stats = ds.stats()
        assert (stats.reads, stats.waits, stats.hits) == (7, 2, 5)
        assert stats.hit_rate == pytest.approx(5 / 7)
        assert stats.bytes_from_cache == sum(ds.size(index) for index in (0, 0, 1, 2, 3, 4, 5))
        assert stats.bytes_read_through == 0
        assert stats.fill.fetched_objects == 60

    def test_stats_without_a_filler_are_zeros(self, place):
        with hotset.open(place) as ds:
            ds.load()
        with hotset.open(place, refresh="never") as ds:
            assert ds[0] == DATA[KEYS[0]]
            assert ds.stats().fill.fetched_objects == 0
            assert ds._fill.pid is None


class TestWhichSnapshot:
    def test_a_recent_listing_is_not_made_again(self, place, proxy):
        for _ in range(3):
            hotset.open(place).close()
        assert proxy.lists == 1
        hotset.open(place, refresh="always").close()
        assert proxy.lists == 2

    def test_never_lists_nothing_and_needs_a_snapshot(self, place, proxy):
        with pytest.raises(NotFound, match="no snapshot"):
            hotset.open(place, "images", refresh="never")
        hotset.open(place, "images").close()
        lists = proxy.lists
        hotset.open(name="images", refresh="never").close()
        assert proxy.lists == lists

    def test_a_source_that_cannot_be_reached_is_no_matter_if_a_snapshot_is_there(self, place, proxy, monkeypatch):
        with hotset.open(place, "images") as ds:
            ds.load()
        monkeypatch.setenv("HOTSET_FRESH_FOR", "0")
        fault = proxy.status(500, kind="LIST")
        with pytest.warns(UserWarning, match="cannot be listed"), give_up_soon(None, "images") as ds:
            assert read_all(ds) == dict(DATA)
        with pytest.raises(hotset.Unavailable):
            give_up_soon(None, "images", refresh="always")
        assert fault.hits >= 2

    def test_a_source_that_cannot_be_reached_at_first_is_an_error(self, place, proxy):
        proxy.status(500, kind="LIST")
        with pytest.raises(hotset.Unavailable, match="3 attempts"):
            give_up_soon(place)

    @pytest.mark.parametrize("how", [{"refresh": "sometimes"}, {"on_changed": "ignore"}])
    def test_words_that_we_do_not_know(self, place, how):
        with pytest.raises(InvalidInput):
            hotset.open(place, **how)


class TestManySources:
    def test_each_under_its_path(self, good_server, bucket, proxy, monkeypatch):
        use(monkeypatch, proxy.env())
        bucket.put_many({"a/1": b"a1", "a/2": b"a2", "b/1": b"b1", "c": b"no"})
        both = {"images/train": f"{bucket.url}/a", "labels": f"{bucket.url}/b/"}
        with hotset.open(both, "both") as ds:
            assert read_all(ds) == {"images/train/1": b"a1", "images/train/2": b"a2", "labels/1": b"b1"}
        with hotset.open(name="both") as ds:
            assert len(ds) == 3
        with pytest.raises(hotset.AlreadyExists):
            hotset.open({"labels": f"{bucket.url}/b/"}, "both")

    def test_paths_that_lie_within_one_another_are_refused(self, bucket, proxy, monkeypatch):
        use(monkeypatch, proxy.env())
        bucket.put_many({"a/1": b"a1"})
        with pytest.raises(InvalidInput, match="within"):
            hotset.open({"x": f"{bucket.url}/a", "x/y": f"{bucket.url}/a"}, "nested")

    def test_include_and_exclude(self, place):
        label = KEYS[0].split("/")[1]
        with hotset.open(place, include=f"train/{label}/*", exclude=["**/*_10003.*"]) as ds:
            assert list(ds.keys) == [key for key in KEYS if f"/{label}/" in key and "_10003." not in key]
        with pytest.raises(NotFound, match="--include"):
            hotset.open(place, include="*.png")


class TestLife:
    def test_nothing_is_left_when_it_is_closed(self, place, no_leaks):
        ds = hotset.open(place)
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(ds.__getitem__, range(60)))
            pid, socket = ds._fill.pid, ds._fill._socket
            ds.close()
            assert not any(socket in target for target in open_fds().values())
        wait_until(lambda: not alive(pid), what="the end of the filler")
        wait_until(lambda: not os.path.exists(socket), what="the end of its socket")

    def test_closed_before_its_supervisor_has_begun(self, place, monkeypatch, no_leaks):
        """A busy machine may start a thread late; the filler's end is waited for all the same."""
        hotset.open(place).close()
        told, supervise, terminate = threading.Event(), FillClient._supervise, subprocess.Popen.terminate
        monkeypatch.setattr(FillClient, "_supervise", lambda *args: (told.wait(30), supervise(*args)))
        monkeypatch.setattr(subprocess.Popen, "terminate", lambda process: (told.set(), terminate(process)))
        ds = hotset.open(place)
        filler = ds._fill.pid
        ds.close()
        assert told.is_set()
        assert not alive(filler)

    def test_after_close_everything_says_so(self, place):
        ds = hotset.open(place)
        ds.close()
        ds.close()
        for use_it in (
            lambda: ds[0], lambda: ds.slice(0), lambda: ds.read(KEYS[0]), lambda: ds.read_many([0]), ds.load, ds.reload,
            lambda: ds.prefetch([0]), lambda: ds.open(KEYS[0]).read(), ds.cancel, lambda: next(iter(ds)),
        ):  # fmt: skip
            with pytest.raises(Closed, match=re.escape(ds.name)):
                use_it()
        assert len(ds) == 60
        assert ds._fill.pid is None

    def test_closed_while_a_read_is_on_its_way_to_the_filler(self, place, monkeypatch, no_leaks):
        """It passed the check of the dataset just before; the filler is not started again for it."""
        ds = hotset.open(place)
        want = FillClient.want
        monkeypatch.setattr(FillClient, "want", lambda *args: (ds.close(), want(*args)))
        with pytest.raises(Closed):
            ds[0]
        assert ds._fill.pid is None

    def test_closing_frees_who_waits(self, place, proxy):
        hang = proxy.hang(key=KEYS[0])
        ds = hotset.open(place)
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(ds.__getitem__, 0)
            wait_until(lambda: hang.hits, what="a request that hangs")
            ds.close()
            with pytest.raises(Closed):
                waiting.result(30)

    def test_one_that_is_dropped_lets_go_of_everything_and_is_told_of(self, place, proxy, no_leaks):
        rule = proxy.hang()
        ds = hotset.open(place, "images")
        ds.load(wait=False)
        wait_until(lambda: rule.hits, what="requests that hang")
        pid, socket = ds._fill.pid, ds._fill._socket
        with pytest.warns(ResourceWarning, match="'images' was not closed") as caught:
            del ds
        assert caught[0].filename == __file__
        wait_until(lambda: not alive(pid), what="the end of the filler")
        assert not os.path.exists(socket)
        wait_until(lambda: not hotset.datasets()[0].in_use, what="the end of its leases")

    def test_one_that_was_closed_is_dropped_in_silence(self, place):
        ds = hotset.open(place)
        ds.close()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            del ds
            gc.collect()
        assert not [each for each in caught if "not closed" in str(each.message)]

    def test_a_file_keeps_its_dataset(self, place):
        file = hotset.open(place).open(KEYS[0])
        gc.collect()
        assert file.read() == DATA[KEYS[0]]
        with pytest.warns(ResourceWarning):
            del file

    @pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
    def test_a_forked_child_drops_its_copy_and_nothing_of_its_parents(self, place, no_leaks):
        held = [hotset.open(place, "images")]
        held[0][0]
        pid = held[0]._fill.pid
        child = os.fork()
        if not child:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                held.clear()
                gc.collect()
                os._exit(len(caught))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert hotset.datasets()[0].in_use
        with held[0] as ds:
            assert alive(pid)
            assert ds[1] == DATA[KEYS[1]]
            assert ds._fill.pid == pid

    @pytest.mark.filterwarnings("ignore:the dataset:ResourceWarning")
    def test_dropped_in_the_very_thread_that_starts_its_filler_again(self, place, monkeypatch, no_leaks):
        """The garbage collector runs anywhere."""
        ds = hotset.open(place)
        ds[0]
        spawn, started = FillClient._spawn, []

        def drop_then_spawn(fill):
            ds._finalizer()
            process = spawn(fill)
            started.append(process.pid)
            return process

        monkeypatch.setattr(FillClient, "_spawn", drop_then_spawn)
        os.kill(ds._fill.pid, signal.SIGKILL)
        wait_until(lambda: started and not alive(started[0]), what="the end of the filler that was just started")
        ds.close()

    def test_a_complete_dataset_needs_no_filler(self, place, proxy, no_leaks):
        with hotset.open(place) as ds:
            ds.load()
        threads = threading.active_count()
        with hotset.open(place) as ds:
            ds.prefetch(range(60))
            assert read_all(ds) == dict(DATA)
            assert threading.active_count() == threads
            assert ds._fill.pid is None

    def test_a_complete_dataset_keeps_no_filler_that_was_needed_for_the_listing(
        self, place, proxy, monkeypatch, no_leaks
    ):
        with hotset.open(place) as ds:
            ds.load()
        proxy.forget_counts()
        monkeypatch.setenv("HOTSET_FRESH_FOR", "0")
        threads = threading.active_count()
        with hotset.open(place) as ds:
            assert proxy.lists == 1
            assert (ds._fill.pid, ds._fill.running) == (None, False)
            assert threading.active_count() == threads
            assert ds.stats().fill.fetched_objects == 0
            assert not ds.reload()
            assert proxy.lists == 2
            assert alive(ds._fill.pid)
            assert read_all(ds) == dict(DATA)
        assert proxy.count("GET") == 0

    def test_a_filler_that_was_stopped_begins_anew_when_it_is_asked(self, place, proxy, no_leaks):
        with hotset.open(place) as ds:
            first = ds._fill.pid
            assert ds[0] == DATA[KEYS[0]]
            ds._fill.stop()
            ds._fill.stop()
            assert not alive(first)
            assert read_all(ds) == dict(DATA)
            assert ds._fill.pid not in (None, first)
        assert proxy.gets == dict.fromkeys(KEYS, 1)

    def test_a_filler_that_is_stopped_while_a_request_waits_for_it_is_no_loss(self, place, proxy, no_leaks):
        hang = proxy.hang(key=KEYS[0], times=1)
        with hotset.open(place) as ds, ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(ds.__getitem__, 0)
            wait_until(lambda: hang.hits, what="a request that hangs")
            ds._fill.stop()
            assert waiting.result(30) == DATA[KEYS[0]]
            proxy.release()

    def test_what_it_looks_like(self, ds):
        assert re.fullmatch(r"<hotset\.Dataset 'images': 60 objects, snapshot [0-9a-f]{12}>", repr(ds))
        assert repr(ds.keys) == "<60 keys>"
        assert isinstance(ds, Dataset)

    def test_datasets_lists_what_is_cached(self, place):
        assert hotset.datasets() == []
        with hotset.open(place, "images") as ds:
            ds.load()
            [info] = hotset.datasets()
            assert (info.name, info.objects, info.cached_share, info.in_use) == ("images", 60, 1.0, True)
        assert not hotset.datasets()[0].in_use


def test_the_rate_that_was_set_is_kept(place, proxy):
    """A burst of one second goes out at once; then everything waits. Counted in bytes, not in time."""
    total = sum(map(len, DATA.values()))
    with hotset.open(place, max_rate=total // 4) as ds:
        ds.load(wait=False)
        proxy.wait_for("GET", 10)
        assert sum(len(DATA[key]) for key in proxy.gets) <= total * 3 // 4

"""The filler's process: one fetch for everybody, killed and started again, gone when its parent is."""

from __future__ import annotations

import os
import signal
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import hotset
from hotset.errors import Closed, Denied, InvalidInput, Unavailable
from hotset.fill import client, wire
from hotset.fill.client import FillClient
from hotset.snapshot import PlanParameters
from hotset.tier.node import CacheDirectory
from hotset.tier.node.shelf import open_reader
from tests.support.datasets import content, image_tree
from tests.support.opening import give_up_soon, read_all, use
from tests.support.processes import alive, call, descendants, wait_until, wait_until_gone

pytestmark = pytest.mark.integration

DATA = dict(image_tree(120, 3000))
KEYS = list(DATA)
SMALLEST_QUOTA = "16MiB"
#: Twice that quota.
LARGE = {f"{n:04}": content(f"{n:04}", 64 * 1024) for n in range(512)}


@pytest.fixture
def place(bucket, proxy, monkeypatch):
    use(monkeypatch, proxy.env())
    bucket.put_many(DATA)
    return bucket


def open_and_load(uri: str) -> int:
    with hotset.open(uri, "data") as ds:
        ds.load()
        assert ds.complete
        return len(ds)


def open_and_read(uri: str, seed: int) -> bool:
    with hotset.open(uri, "data") as ds:
        order = np.random.default_rng(seed).permutation(len(ds))
        ds.prefetch(order)
        return [ds[index] for index in order] == [DATA[KEYS[index]] for index in order]


class TestOnce:
    @pytest.mark.parametrize("function", [open_and_load, open_and_read])
    def test_four_processes_on_a_cold_cache_list_once_and_fetch_each_object_once(self, place, proxy, function):
        args = [(place.url,)] * 4 if function is open_and_load else [(place.url, seed) for seed in range(4)]
        children = [call(function, *given, env=proxy.env()) for given in args]
        try:
            assert all(child.result(timeout=90) for child in children)
        finally:
            for child in children:
                child.close()
        assert proxy.lists == 1
        assert proxy.gets == dict.fromkeys(KEYS, 1)

    def test_several_threads_with_an_order_and_a_load(self, place, proxy, no_leaks):
        with hotset.open(place.url) as ds:
            ds.prefetch(np.random.default_rng(1).permutation(120))
            ds.load(wait=False)
            with ThreadPoolExecutor(8) as pool:
                got = list(pool.map(lambda n: ds[n * 7 % 120], range(240)))
            ds.load()
        assert got == [DATA[KEYS[n * 7 % 120]] for n in range(240)]
        assert proxy.gets == dict.fromkeys(KEYS, 1)


class TestHalfTheDataset:
    """What has no place in the cache is fetched ahead, waits in the filler, and comes over the socket."""

    @pytest.fixture
    def half(self, bucket, proxy, monkeypatch):
        use(monkeypatch, proxy.env())
        monkeypatch.setenv("HOTSET_STAGING", "4MiB")
        bucket.put_many(LARGE)
        return give_up_soon(bucket.url, quota=SMALLEST_QUOTA, parameters=PlanParameters(limit=2**20, stripe=2**20))

    def test_each_epoch_hits_what_fits_and_fetches_the_rest_once(self, half, proxy, no_leaks):
        random = np.random.default_rng(5)
        rates = []
        with half as ds:
            for _ in range(3):
                order = random.permutation(len(LARGE))
                before = ds.stats()
                proxy.forget_counts()
                ds.prefetch(order)
                for first in range(0, len(order), 32):
                    batch = order[first : first + 32]
                    assert ds.read_many(batch) == [LARGE[ds.keys[index]] for index in batch]
                after = ds.stats()
                rates.append((after.hits - before.hits) / len(order))
                assert max(proxy.gets.values()) == 1
                assert after.fill.staged_bytes <= 4 * 2**20
                assert ds._directory.cache.usage() <= 16 * 2**20
            assert min(rates[1:]) >= 0.45
            assert after.bytes_read_through > 0

    def test_slice_of_what_has_no_place_is_a_view_of_the_copy(self, half):
        with half as ds:
            views = {index: ds.slice(index) for index in range(0, len(LARGE), 3)}
        assert all(bytes(view) == LARGE[f"{index:04}"] for index, view in views.items())
        assert all(view.readonly for view in views.values())

    def test_a_load_fills_what_fits(self, half, proxy):
        with half as ds:
            done = ds.load()
            assert done.finished
            assert not ds.complete
            assert 0.4 * len(LARGE) <= done.objects <= 0.55 * len(LARGE)
            assert proxy.count("GET") == done.objects


def where(ds, index: int) -> tuple[int, int]:
    number, [unit] = ds._snapshot.units_of(index)
    return number, unit


class TestKilled:
    def test_the_filler_is_started_again_and_nothing_is_fetched_twice(self, place, proxy, no_leaks):
        """What was recorded when it was killed is not asked for again; what was on its way is."""
        kills = []
        with hotset.open(place.url) as ds:
            ds.prefetch(range(120))
            for index in range(120):
                if index in {20, 60}:
                    reader = open_reader(ds._directory, ds._snapshot)
                    recorded = [n for n in range(120) if reader.unit(*where(ds, n)) is not None]
                    assert len(recorded) >= index
                    kills.append(({KEYS[n] for n in recorded}, dict(proxy.gets)))
                    os.kill(ds._fill.pid, signal.SIGKILL)
                assert ds[index] == DATA[KEYS[index]]
            assert ds.load().objects == 120
        for recorded, gets in kills:
            assert {key: proxy.gets[key] for key in recorded} == {key: gets[key] for key in recorded}

    def test_killed_while_nobody_reads_it_goes_on_with_its_orders(self, place, proxy):
        rule = proxy.hang(key=KEYS[60])
        with hotset.open(place.url) as ds:
            ds.prefetch(range(120))
            wait_until(lambda: rule.hits, what="a request that hangs")
            old = ds._fill.pid
            os.kill(old, signal.SIGKILL)
            wait_until(lambda: ds._fill.pid not in {old, None}, what="another filler")
            proxy.release()
            wait_until(lambda: set(proxy.gets) == set(KEYS), what="all objects")
            assert read_all(ds) == DATA

    def test_killed_again_while_it_starts(self, place, proxy):
        """Nobody but the supervisor starts it, so the supervisor must not wait for one that is dead."""
        with hotset.open(place.url) as ds:
            ds.prefetch([0])
            assert ds[0] == DATA[KEYS[0]]
            for _ in range(3):
                old = ds._fill.pid
                os.kill(old, signal.SIGKILL)
                wait_until(lambda: ds._fill.pid != old, what="another filler")  # noqa: B023
            assert ds[1] == DATA[KEYS[1]]

    def test_a_load_waits_for_everything_though_the_new_filler_was_not_told_of_it(self, place, proxy, monkeypatch):
        """Who waits may be faster than the supervisor, whose turn comes here when all is over."""
        told, request = threading.Event(), FillClient._request

        def late(client, *args):
            if threading.current_thread().name == "hotset-supervisor":
                told.wait(60)
            return request(client, *args)

        monkeypatch.setattr(FillClient, "_request", late)
        rule = proxy.hang(key=KEYS[60], times=1)
        with hotset.open(place.url) as ds, ThreadPoolExecutor(1) as pool:
            loading = pool.submit(ds.load)
            wait_until(lambda: rule.hits, what="a request that hangs")
            os.kill(ds._fill.pid, signal.SIGKILL)
            try:
                assert loading.result(60).objects == 120
            finally:
                told.set()
            assert ds.complete

    def test_a_load_fails_though_the_filler_that_failed_is_gone(self, place, proxy, monkeypatch):
        """It is killed between its last word on the load and the question why that failed."""
        proxy.status(403, key=KEYS[3])
        failures = FillClient.failures

        def once_more(client, digest):
            monkeypatch.setattr(FillClient, "failures", failures)
            old = client.pid
            os.kill(old, signal.SIGKILL)
            wait_until(lambda: client.pid not in {old, None}, what="another filler")
            return client.failures(digest)

        monkeypatch.setattr(FillClient, "failures", once_more)
        with hotset.open(place.url) as ds, pytest.raises(Denied, match="1 objects"):
            ds.load()

    def test_one_that_always_ends_is_an_error_and_no_endless_loop(self, place, monkeypatch):
        with hotset.open(place.url) as ds:
            monkeypatch.setattr("hotset.fill.client._PROGRAM", "import sys; sys.exit(3)")
            os.kill(ds._fill.pid, signal.SIGKILL)
            with pytest.raises(Unavailable, match="ended"):
                ds[0]

    def test_it_ends_with_its_parent(self, place, proxy):
        with call(open_and_wait, place.url, env=proxy.env()) as child:
            filler = int(child.expect("filler").split()[1])
            assert alive(filler)
            child.kill()
            wait_until_gone(filler)

    def test_it_ends_with_its_parent_though_a_forked_worker_lives_on(self, place, proxy):
        with call(open_fork_and_wait, place.url, env=proxy.env()) as child:
            worker, filler = (int(word) for word in child.expect("worker").split()[1::2])
            try:
                child.kill()
                wait_until_gone(filler)
                assert alive(worker)
            finally:
                os.kill(worker, signal.SIGKILL)

    def test_control_c_is_for_the_parent(self, place, proxy):
        """SIGINT goes to the whole foreground group: the filler must be there for what the parent does then."""
        with call(read_after_interrupt, place.url, env=proxy.env()) as child:
            child.expect("ready")
            os.kill(child.pid, signal.SIGINT)
            for pid in descendants(child.pid):
                os.kill(pid, signal.SIGINT)
            assert child.result(timeout=60) == len(DATA[KEYS[0]])


def open_and_wait(uri: str) -> None:
    ds = hotset.open(uri)
    ds[0]
    print("filler", ds._fill.pid, flush=True)
    signal.pause()


def open_fork_and_wait(uri: str) -> None:
    ds = hotset.open(uri)
    ds[0]
    worker = os.fork()
    if not worker:
        signal.pause()
    print("worker", worker, "filler", ds._fill.pid, flush=True)
    signal.pause()


def read_after_interrupt(uri: str) -> int:
    with hotset.open(uri) as ds:
        pid = ds._fill.pid
        try:
            ds[1]
            print("ready", flush=True)
            signal.pause()
        except KeyboardInterrupt:
            size = len(ds[0])
        assert ds._fill.pid == pid
        return size


class TestConversation:
    """Straight to the socket: what a confused or hostile peer can do."""

    @pytest.fixture
    def peer(self, place):
        with hotset.open(place.url) as ds:
            ds[0]
            with socket.socket(socket.AF_UNIX) as connection:
                connection.connect(ds._fill._socket)
                connection.settimeout(30)
                yield ds, connection

    def test_the_socket_lies_in_a_directory_of_ours(self, peer):
        ds, _ = peer
        assert Path(ds._fill._socket).parent.stat().st_mode & 0o777 == 0o700

    @pytest.mark.parametrize(
        "header",
        [
            {"op": "sing"}, {}, {"op": "want"}, {"op": "want", "units": [[10**6, 0]]}, {"op": "want", "units": [[0, 10**6]]},
            {"op": "want", "units": "x"}, {"op": "progress", "wait": "long"}, {"op": "follow"}, {"op": "refresh"},
            {"op": "newest", "position": 10**9},
        ],
    )  # fmt: skip
    def test_nonsense_is_an_error_and_the_conversation_goes_on(self, peer, header):
        ds, connection = peer
        wire.send(connection, {"digest": ds.snapshot, **header})
        answer, _ = wire.receive(connection)
        assert "error" in answer
        wire.send(connection, {"op": "stats", "digest": ds.snapshot})
        assert wire.receive(connection)[0]["fetched_objects"] == 1
        assert ds[1] == DATA[KEYS[1]]

    def test_an_order_of_objects_that_do_not_exist(self, peer):
        ds, connection = peer
        order = {"op": "follow", "digest": ds.snapshot, "given": 1, "ahead": 100}
        wire.send(connection, order, [np.array([10**6], np.uint64)])
        assert "out of bounds" in wire.receive(connection)[0]["message"]
        assert ds[2] == DATA[KEYS[2]]

    def test_another_language_is_answered_once(self, peer):
        ds, connection = peer
        connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        answer, _ = wire.receive(connection)
        assert isinstance(wire.error_of(answer), InvalidInput)
        with pytest.raises(wire.ConnectionLost):
            wire.receive(connection)
        assert ds[1] == DATA[KEYS[1]]

    def test_one_who_leaves_in_the_middle(self, peer):
        ds, connection = peer
        connection.sendall(b"\x01\x10")
        connection.close()
        assert ds[1] == DATA[KEYS[1]]

    def test_many_who_come_and_go_leave_nothing_behind(self, place):
        with hotset.open(place.url) as ds:
            ds[0]
            for _ in range(5):
                with ThreadPoolExecutor(8) as pool:
                    list(pool.map(ds.__getitem__, range(8, 120)))
            assert len(ds._fill._connections) <= 1 + 8


class TestCancel:
    def test_cancel_ends_the_fetching_ahead(self, place, proxy, monkeypatch):
        monkeypatch.setenv("HOTSET_MAX_REQUESTS", "2")
        rule = proxy.hang()
        with hotset.open(place.url) as ds:
            ds.prefetch(range(120))
            wait_until(lambda: rule.hits == 2, what="two requests")
            ds.cancel()
            proxy.release()
            assert ds[119] == DATA[KEYS[119]]
            assert ds._fill.progress(ds.snapshot, wait=5).finished
            assert proxy.count("GET") == 3

    def test_control_c_in_a_load_ends_the_load(self, place, proxy, monkeypatch):
        monkeypatch.setenv("HOTSET_MAX_REQUESTS", "2")
        rule = proxy.hang()

        def interrupt(_):
            wait_until(lambda: rule.hits == 2, what="two requests")
            raise KeyboardInterrupt

        with hotset.open(place.url) as ds:
            with pytest.raises(KeyboardInterrupt):
                ds.load(interrupt)
            proxy.release()
            assert ds[119] == DATA[KEYS[119]]
            assert ds._fill.progress(ds.snapshot, wait=5).finished
            assert proxy.count("GET") == 3
            assert ds.load().objects == 120

    def test_a_load_that_another_thread_cancels_returns(self, place, proxy, monkeypatch):
        monkeypatch.setenv("HOTSET_MAX_REQUESTS", "2")
        rule = proxy.hang()
        with hotset.open(place.url) as ds, ThreadPoolExecutor(1) as pool:
            loading = pool.submit(ds.load)
            wait_until(lambda: rule.hits == 2, what="two requests")
            ds.cancel()
            proxy.release()
            done = loading.result(30)
            assert (done.objects, done.finished) == (2, True)

    def test_what_was_cancelled_is_not_begun_again_by_the_next_filler(self, place, proxy, monkeypatch):
        monkeypatch.setenv("HOTSET_MAX_REQUESTS", "2")
        rule = proxy.hang(times=2)
        with hotset.open(place.url) as ds:
            ds.prefetch(range(120))
            ds.load(wait=False)
            wait_until(lambda: rule.hits == 2, what="two requests")
            ds.cancel()
            old = ds._fill.pid
            os.kill(old, signal.SIGKILL)
            wait_until(lambda: ds._fill.pid not in {old, None}, what="another filler")
            assert ds[119] == DATA[KEYS[119]]
            assert ds._fill.progress(ds.snapshot, wait=5).finished
            assert proxy.count("GET") == 3

    def test_without_a_filler_there_is_nothing_to_cancel(self, place):
        open_and_load(place.url)
        with hotset.open(place.url, "data") as ds:
            ds.cancel()
            assert ds._fill.pid is None
        with pytest.raises(Closed):
            ds.cancel()

    def test_close_does_not_wait_for_requests_that_hang(self, place, proxy, no_leaks):
        rule = proxy.hang()
        ds = hotset.open(place.url)
        ds.load(wait=False)
        wait_until(lambda: rule.hits, what="requests that hang")
        pid = ds._fill.pid
        ds.close()
        wait_until_gone(pid)
        with pytest.raises(Closed):
            ds[0]


def test_a_filler_needs_no_more_than_its_share_of_memory_for_an_order(place):
    with hotset.open(place.url) as ds:
        ds.prefetch(np.tile(np.arange(120), 5000))
        assert read_all(ds) == DATA


class TestLongMessages:
    def test_an_order_that_no_frame_can_hold_is_refused_and_forgotten(self, place, proxy, monkeypatch):
        monkeypatch.setattr(wire, "MAX_PAYLOAD", 800)
        with hotset.open(place.url) as ds:
            with pytest.raises(InvalidInput, match=r"101 objects .* at most 100"):
                ds.prefetch(range(101))
            ds.prefetch(range(100))
            proxy.wait_for("GET", 100)

    def test_the_newest_version_may_be_longer_than_a_frame(self, place, monkeypatch):
        small = "import hotset.fill.wire as wire; wire.MAX_PAYLOAD = 100_000; from hotset.fill.process"
        monkeypatch.setattr(client, "_PROGRAM", client._PROGRAM.replace("from hotset.fill.process", small))
        monkeypatch.setattr(wire, "MAX_PAYLOAD", 100_000)
        new = content("new", 1_234_567)
        with hotset.open(place.url, on_changed="newest") as ds:
            place.put_many({KEYS[0]: new})
            assert ds[0] == new
            assert ds[1] == DATA[KEYS[1]]


def test_what_was_recorded_by_a_killed_process_is_not_fetched_again(place, proxy):
    with call(load_some_and_wait, place.url, env=proxy.env()) as child:
        child.expect("loaded")
        child.kill()
    before = dict(proxy.gets)
    with give_up_soon(place.url, "data") as ds:
        ds.load()
        assert read_all(ds) == DATA
    assert {key: proxy.gets[key] for key in KEYS[:50]} == {key: before[key] for key in KEYS[:50]}
    assert CacheDirectory(ds._directory.cache.root).dataset("data").snapshots()[0].objects == 120


def load_some_and_wait(uri: str) -> None:
    ds = hotset.open(uri, "data")
    ds.read_many(range(50))
    print("loaded", flush=True)
    signal.pause()

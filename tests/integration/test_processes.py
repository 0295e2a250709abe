"""Workers, as a DataLoader has them: forked or spawned, before the first fetch and after it, with and without an owner."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import warnings

import numpy as np
import pytest

import hotset
from hotset.errors import Denied
from hotset.fill import client
from hotset.source import SourceOptions
from hotset.tier.node.packreader import PackReader
from tests.support.datasets import image_tree, many_small
from tests.support.opening import SMALL_PACKS, give_up_soon, read_all, use
from tests.support.processes import alive, call, wait_until, wait_until_gone
from tests.support.signature import ACCESS_KEY, REGION, SECRET_KEY

pytestmark = pytest.mark.integration

DATA = dict(image_tree(80, 3000))
KEYS = list(DATA)


@pytest.fixture
def place(bucket, proxy, monkeypatch):
    use(monkeypatch, proxy.env())
    bucket.put_many(DATA)
    return bucket


@pytest.fixture(params=["fork", "spawn", "forkserver"])
def context(request):
    with warnings.catch_warnings():
        # From Python 3.12 on a fork beside threads is warned of; that it works all the same is what is tested here.
        warnings.simplefilter("ignore", DeprecationWarning)
        yield multiprocessing.get_context(request.param)


def read_share(ds, share: int, of: int, answers) -> None:
    """What a worker does: reads every ``of``-th object, in a batch and one by one."""
    places = list(range(share, len(ds), of))
    good = ds.read_many(places) == [DATA[KEYS[place]] for place in places]
    good = good and all(bytes(ds.slice(place)) == DATA[KEYS[place]] for place in places)
    ds.close()
    answers.put((share, good))


def run_workers(context, ds, count: int = 3, target=read_share) -> dict[int, bool]:
    answers = context.SimpleQueue()
    workers = [context.Process(target=target, args=(ds, share, count, answers)) for share in range(count)]
    for worker in workers:
        worker.start()
    got = dict(answers.get() for _ in workers)
    for worker in workers:
        worker.join(30)
        assert worker.exitcode == 0
        worker.close()
    answers.close()
    return got


class TestWorkers:
    @pytest.mark.parametrize("before", ["nothing was read", "something was read", "everything was read"])
    def test_read_everything_once_together(self, place, proxy, context, before):
        with hotset.open(place.url) as ds:
            if before != "nothing was read":
                assert ds[7] == DATA[KEYS[7]]
            if before == "everything was read":
                ds.load()
            assert run_workers(context, ds) == {0: True, 1: True, 2: True}
            # And the parent goes on as if nothing had been.
            assert read_all(ds) == DATA
        assert proxy.gets == dict.fromkeys(KEYS, 1)
        assert proxy.lists == 1

    def test_read_while_the_parent_prefetches(self, place, proxy, context):
        with hotset.open(place.url) as ds:
            ds.prefetch(np.random.default_rng(1).permutation(80), lookahead=20_000)
            assert run_workers(context, ds) == {0: True, 1: True, 2: True}
            assert ds._fill.pid is not None
        assert proxy.gets == dict.fromkeys(KEYS, 1)

    def test_a_worker_that_closes_leaves_the_filler_to_the_others(self, place, context):
        with hotset.open(place.url) as ds:
            ds[0]
            filler = ds._fill.pid
            run_workers(context, ds)
            assert ds._fill.pid == filler
            assert alive(filler)
            assert ds[1] == DATA[KEYS[1]]

    def test_the_filler_is_killed_while_workers_read(self, place, proxy, context):
        """The owner starts it again; the workers notice nothing but a delay."""
        rule = proxy.hang(key=KEYS[40])
        with hotset.open(place.url) as ds:
            ds.prefetch(range(80))
            wait_until(lambda: rule.hits, what="a request that hangs")
            answers = context.SimpleQueue()
            worker = context.Process(target=read_share, args=(ds, 0, 1, answers))
            worker.start()
            wait_until(lambda: ds._fill.stats(ds.snapshot).fetched_objects >= 79, what="all but the one that hangs")
            os.kill(ds._fill.pid, signal.SIGKILL)
            proxy.release()
            assert answers.get() == (0, True)
            worker.join(30)
            assert worker.exitcode == 0
            worker.close()
            answers.close()

    def test_counters_of_a_worker_are_its_own(self, place, context):
        with hotset.open(place.url) as ds:
            ds.read_many(range(80))
            answers = context.SimpleQueue()
            worker = context.Process(target=count_reads, args=(ds, answers))
            worker.start()
            assert answers.get() == (2, 0)
            worker.join(30)
            worker.close()
            answers.close()
            assert ds.stats().reads == 80


class TestEvicted:
    """Packs that another dataset's turn took away while they were mapped here: their room is free when the last map is."""

    @pytest.fixture
    def evicted(self, place, monkeypatch):
        """A dataset of which the first pack was read and is gone, and the last was not read."""
        monkeypatch.setattr("hotset.read.fetch.LET_GO_EVERY", 0.0)
        with give_up_soon(place.url, parameters=SMALL_PACKS) as ds:
            assert ds._packs[0] != ds._packs[79]
            for _ in range(2):
                first = [ds[index] for index in range(80) if ds._packs[index] == ds._packs[0]]
            assert first == list(DATA.values())[: len(first)]
            os.unlink(ds._reader.path(ds._packs[0]))
            assert maps_of_deleted_packs() == 1
            yield ds

    def test_a_read_that_waits_anyway_lets_go_of_them(self, evicted, proxy):
        assert evicted[79] == DATA[KEYS[79]]
        assert maps_of_deleted_packs() == 0
        assert evicted[0] == DATA[KEYS[0]]
        assert (proxy.gets[KEYS[0]], proxy.gets[KEYS[79]]) == (2, 1)
        assert read_all(evicted) == DATA

    def test_so_does_one_in_a_worker_that_has_them_from_its_parent(self, evicted):
        def read() -> bool:
            inherited = maps_of_deleted_packs()
            good = evicted[79] == DATA[KEYS[79]]
            return good and (inherited, maps_of_deleted_packs()) == (1, 0) and evicted[0] == DATA[KEYS[0]]

        assert in_fork(read)

    def test_not_every_time(self, evicted, monkeypatch):
        """It looks at each pack that is mapped, of which there may be thousands."""
        monkeypatch.setattr("hotset.read.fetch.LET_GO_EVERY", 3600.0)
        looked = []
        forget = PackReader.forget_unlinked
        monkeypatch.setattr(PackReader, "forget_unlinked", lambda reader: (looked.append(1), forget(reader)))
        for index in range(79, 60, -1):
            assert evicted[index] == DATA[KEYS[index]]
        assert len(looked) == 1


def maps_of_deleted_packs() -> int:
    with open("/proc/self/maps", encoding="utf-8") as maps:
        return sum("/packs/" in line and line.endswith(" (deleted)\n") for line in maps)


def count_reads(ds, answers) -> None:
    ds[0], ds[1]
    answers.put((ds.stats().reads, ds.stats().waits))
    ds.close()


class TestCopies:
    """Only the client that was made here starts a filler at its socket: a second one would take it from the first."""

    def test_a_worker_that_pickles_leaves_the_filler_to_the_owner(self, place):
        with hotset.open(place.url) as ds:
            ds[0]
            socket = os.stat(ds._fill._socket).st_ino

            def pickle_it() -> bool:
                copy = pickle.loads(pickle.dumps(ds))
                good = copy[1] == DATA[KEYS[1]] and ds[2] == DATA[KEYS[2]]
                return good and ds._fill.pid is None and copy._fill.pid is None

            assert in_fork(pickle_it)
            assert os.stat(ds._fill._socket).st_ino == socket
            assert ds[3] == DATA[KEYS[3]]

    def test_nor_does_a_copy_in_the_process_of_the_owner_start_one(self, place):
        with hotset.open(place.url) as ds:
            ds[0]
            socket = os.stat(ds._fill._socket).st_ino
            copy = pickle.loads(pickle.dumps(ds))
            assert copy[1] == DATA[KEYS[1]]
            assert copy._fill.pid is None
            copy.close()
            assert os.stat(ds._fill._socket).st_ino == socket
            assert ds[2] == DATA[KEYS[2]]

    def test_a_fork_of_one_that_was_closed_is_closed(self, place):
        ds = hotset.open(place.url)
        ds.close()

        def read() -> bool:
            for use_it in (lambda: ds[0], ds._fill.start, lambda: ds._fill.load(ds.snapshot)):
                with pytest.raises(hotset.Closed):
                    use_it()
            return ds._fill.pid is None

        assert in_fork(read)


class TestForksOfForks:
    def test_a_forked_child_of_a_forked_child(self, place):
        """One level deeper than a DataLoader: connections are made anew in each."""
        with hotset.open(place.url) as ds:
            ds[0]
            outcome = in_fork(lambda: in_fork(lambda: ds[1] == DATA[KEYS[1]] and ds[0] == DATA[KEYS[0]]))
            assert outcome
            assert ds[2] == DATA[KEYS[2]]

    def test_a_forked_child_opens_a_dataset_of_its_own(self, place):
        """Nothing that the parent used (obstore hangs in forked children) is used here: the filler is started anew."""
        with hotset.open(place.url) as ds:
            ds[0]

            def open_again() -> bool:
                with hotset.open(place.url, refresh="always") as mine:
                    return mine[1] == DATA[KEYS[1]]

            assert in_fork(open_again)


def in_fork(function) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if not pid:
        try:
            os._exit(0 if function() else 1)
        finally:
            os._exit(2)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


class TestOwnerGone:
    """A worker that outlives the process that opened the dataset."""

    def test_it_helps_itself(self, place, proxy, tmp_path):
        with call(leave_a_worker, place.url, str(tmp_path / "go"), env=proxy.env()) as child:
            worker, filler = (int(word) for word in child.expect("worker").split()[1::2])
            child.kill()
            wait_until_gone(filler)
            (tmp_path / "go").touch()
            assert child.expect("read") == "read all"
            wait_until_gone(worker)

    def test_a_pickled_dataset_is_opened_after_its_owner_closed(self, place, monkeypatch):
        monkeypatch.setattr(client, "OWNER_PATIENCE", 0.1)
        with hotset.open(place.url) as ds:
            data = pickle.dumps(ds)
        copy = pickle.loads(data)
        assert read_all(copy) == DATA
        copy.close()

    def test_threads_of_an_orphan_start_one_filler_together(self, place, monkeypatch):
        from concurrent.futures import ThreadPoolExecutor

        monkeypatch.setattr(client, "OWNER_PATIENCE", 0.1)
        with hotset.open(place.url) as ds:
            data = pickle.dumps(ds)
        copy = pickle.loads(data)
        with ThreadPoolExecutor(8) as pool:
            assert list(pool.map(copy.__getitem__, range(80))) == list(DATA.values())
        copy.close()


def leave_a_worker(uri: str, go: str) -> None:
    client.OWNER_PATIENCE = 0.2
    ds = hotset.open(uri)
    ds[0]
    worker = os.fork()
    if worker:
        print("worker", worker, "filler", ds._fill.pid, flush=True)
        signal.pause()
    wait_until(lambda: os.path.exists(go), what="the word to go on")
    print("read all" if read_all(ds) == DATA else "read nonsense", flush=True)
    ds.close()
    os._exit(0)


class TestPickles:
    def test_a_copy_reads_the_same_snapshot(self, place):
        with hotset.open(place.url) as ds:
            copy = pickle.loads(pickle.dumps(ds))
            assert (copy.snapshot, copy.name, list(copy.keys)) == (ds.snapshot, ds.name, list(ds.keys))
            place.put_many({KEYS[0]: b"changed"})
            ds.reload()
            again = pickle.loads(pickle.dumps(ds))
            assert again.snapshot == ds.snapshot
            copy.close()
            again.close()

    def test_it_holds_no_secret(self, bucket, proxy):
        """Explicit credentials and those of the environment stay with the owner's filler."""
        bucket.put_many(many_small(5, 100))
        options = SourceOptions(
            endpoint=proxy.endpoint, region=REGION, access_key=ACCESS_KEY, secret_key=SECRET_KEY, session_token=None
        )
        with hotset.open(bucket.url, options=options) as ds:
            data = pickle.dumps(ds)
            shown = repr(ds) + repr(vars(ds)) + repr(ds._fill._settings)
            for secret in (SECRET_KEY, ACCESS_KEY):
                assert secret.encode() not in data
                assert secret not in shown
            copy = pickle.loads(data)
            assert copy[0] == next(iter(many_small(5, 100).values()))
            copy.close()
        cache = ds._directory.cache.root
        for path in cache.rglob("*"):
            if path.is_file():
                assert SECRET_KEY.encode() not in path.read_bytes(), path

    def test_credentials_are_neither_in_arguments_nor_in_the_environment_of_the_filler(self, bucket, proxy):
        bucket.put_many(many_small(5, 100))
        options = SourceOptions(endpoint=proxy.endpoint, region=REGION, access_key=ACCESS_KEY, secret_key=SECRET_KEY)
        with hotset.open(bucket.url, options=options) as ds:
            ds[0]
            for file in ("cmdline", "environ"):
                with open(f"/proc/{ds._fill.pid}/{file}", "rb") as content:
                    assert SECRET_KEY.encode() not in content.read()

    def test_an_orphan_without_credentials_says_so(self, bucket, proxy, monkeypatch):
        monkeypatch.setattr(client, "OWNER_PATIENCE", 0.1)
        bucket.put_many(many_small(5, 100))
        options = SourceOptions(endpoint=proxy.endpoint, region=REGION, access_key=ACCESS_KEY, secret_key=SECRET_KEY)
        with hotset.open(bucket.url, options=options) as ds:
            data = pickle.dumps(ds)
        copy = pickle.loads(data)
        with pytest.raises(Denied, match="AWS_ACCESS_KEY_ID"):
            copy[0]
        copy.close()

    def test_a_closed_one_cannot_be_pickled(self, place):
        ds = hotset.open(place.url)
        ds.close()
        with pytest.raises(hotset.Closed):
            pickle.dumps(ds)

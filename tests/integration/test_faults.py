"""What servers do wrong, and what becomes of it: right bytes or a clear error, in bounded time, and never a mixture."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import pytest

import hotset
from hotset.base.retry import RetryPolicy
from hotset.errors import Changed, Denied, InvalidInput, NotFound, Unavailable
from hotset.source import SourceOptions
from tests.support.datasets import content, image_tree
from tests.support.opening import SMALL_PACKS, SOON, give_up_soon, read_all, use
from tests.support.processes import wait_until

pytestmark = pytest.mark.integration

DATA = dict(image_tree(40, 3000))
KEYS = list(DATA)
FIRST = KEYS[0]


@pytest.fixture
def place(bucket, proxy, monkeypatch):
    use(monkeypatch, proxy.env())
    bucket.put_many(DATA)
    return bucket


def opened(place, **said):
    return give_up_soon(place.url, "data", **said)


class TestPassingFaults:
    """Tried again, and then everything is as if nothing had been: all bytes right, nothing fetched needlessly."""

    @pytest.mark.parametrize(
        "fault",
        [
            lambda proxy: proxy.status(500, times=2, key=FIRST),
            lambda proxy: proxy.status(503, times=2, key=FIRST),
            lambda proxy: proxy.status(429, retry_after=0.01, times=2, key=FIRST),
            lambda proxy: proxy.reset(times=2, key=FIRST),
            lambda proxy: proxy.reset(after=1000, times=2, key=FIRST),
            lambda proxy: proxy.truncate(1000, times=2, key=FIRST),
        ],
        ids=["500", "503", "429", "reset", "reset in mid-body", "truncated"],
    )
    def test_one_object_that_fails_twice(self, place, proxy, fault, no_leaks):
        rule = fault(proxy)
        with opened(place) as ds:
            ds.load()
            assert ds.complete
            assert read_all(ds) == DATA
            assert ds.stats().fill.retried >= 2
            assert ds.stats().fill.failed == 0
        assert rule.hits == 2
        assert proxy.gets == {**dict.fromkeys(KEYS, 1), FIRST: 3}

    def test_a_listing_that_fails_twice(self, place, proxy):
        rule = proxy.status(503, kind="LIST", times=2)
        with opened(place) as ds:
            assert len(ds) == 40
        assert (rule.hits, proxy.lists) == (2, 3)

    def test_asked_to_slow_down_there_are_fewer_requests_and_all_objects(self, place, proxy):
        rule = proxy.status(503, retry_after=0.01, every=3, times=20)
        with opened(place, retry=RetryPolicy(attempts=12, first=0.01, longest=0.05)) as ds:
            ds.load()
            stats = ds.stats().fill
            assert stats.throttled == rule.hits
            assert stats.limit < 16
            assert read_all(ds) == DATA

    def test_a_server_that_does_not_answer_in_time_gets_fewer_requests(self, place, proxy):
        rule = proxy.hang(times=5)
        with opened(place, options=SourceOptions(read_timeout=0.5)) as ds:
            ds.load()
            stats = ds.stats().fill
            assert stats.throttled >= rule.hits == 5
            assert stats.limit < 16
            assert read_all(ds) == DATA

    def test_slow_bytes_are_waited_for(self, place, proxy):
        proxy.slow(20_000, key=FIRST)
        with opened(place) as ds:
            assert ds[0] == DATA[FIRST]
            assert read_all(ds) == DATA

    def test_a_server_that_says_nothing_is_asked_again_after_the_time_out(self, place, proxy):
        rule = proxy.hang(times=1, key=FIRST)
        with opened(place, options=SourceOptions(read_timeout=0.5)) as ds:
            assert ds[0] == DATA[FIRST]
        assert rule.hits == 1
        assert proxy.gets[FIRST] == 2

    def test_an_object_that_hangs_holds_up_no_other(self, place, proxy):
        rule = proxy.hang(key=FIRST)
        with opened(place) as ds, ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(ds.__getitem__, 0)
            wait_until(lambda: rule.hits, what="a request that hangs")
            assert ds.read_many(range(1, 40)) == [DATA[key] for key in KEYS[1:]]
            assert not waiting.done()
            proxy.release()
            assert waiting.result(30) == DATA[FIRST]


class TestLastingFaults:
    """An error that says what and how often, for the one object; all others are there."""

    @pytest.mark.parametrize(
        ("fault", "kind", "says"),
        [
            (lambda proxy: proxy.status(500, key=FIRST), Unavailable, "3 attempts"),
            (lambda proxy: proxy.status(503, key=FIRST), Unavailable, "fewer requests.*3 attempts"),
            (lambda proxy: proxy.reset(key=FIRST), Unavailable, "3 attempts"),
            (lambda proxy: proxy.truncate(1000, key=FIRST), Unavailable, "3 attempts"),
            (lambda proxy: proxy.shorten(1000, key=FIRST), Changed, "another size"),
            (lambda proxy: proxy.status(403, key=FIRST), Denied, "AWS_ACCESS_KEY_ID"),
            (lambda proxy: proxy.status(404, key=FIRST), Changed, "reload"),
        ],
        ids=["500", "503", "reset", "truncated", "shortened", "403", "404"],
    )
    def test_one_object_that_always_fails(self, place, proxy, fault, kind, says):
        rule = fault(proxy)
        with opened(place) as ds:
            with pytest.raises(kind, match=says) as caught:
                ds.load()
            assert FIRST.rpartition("/")[2] in str(caught.value)
            assert "1 objects could not be loaded" in str(caught.value)
            with pytest.raises(kind):
                ds[0]
            with pytest.raises(kind):
                ds.read_many([1, 0, 2])
            assert ds.read_many(range(1, 40)) == [DATA[key] for key in KEYS[1:]]
            assert proxy.gets[KEYS[1]] == 1
            rule.end()
            assert ds[0] == DATA[FIRST]
            ds.load()
            assert ds.complete

    def test_no_message_holds_a_secret(self, place, proxy):
        secret = os.environ["AWS_SECRET_ACCESS_KEY"]
        for status in (400, 403, 404, 500):
            rule = proxy.status(status, key=FIRST)
            with opened(place) as ds, pytest.raises(hotset.HotsetError) as caught:
                ds[0]
            rule.end()
            assert secret not in str(caught.value)
            assert "Signature" not in str(caught.value)


class TestChangedObjects:
    """Bytes belong to the snapshot, or they are not given."""

    @pytest.fixture(params=["compares", "ignores If-Match"])
    def server(self, request, place, proxy):
        if request.param != "compares":
            proxy.drop_if_match()
        return place

    @pytest.mark.parametrize("size", [3000, None], ids=["another size", "the same size"])
    def test_one_that_changed_is_refused(self, server, proxy, size):
        with opened(server) as ds:
            server.put_many({FIRST: content("other", size or len(DATA[FIRST]))})
            with pytest.raises(Changed, match="reload"):
                ds[0]
            with pytest.raises(Changed):
                ds.read_many(range(40))
            with pytest.raises(Changed, match="1 objects"):
                ds.load()
            assert ds.stats().fill.changed >= 1
            assert ds.read_many(range(1, 40)) == [DATA[key] for key in KEYS[1:]]

    def test_one_that_changes_between_list_and_get(self, server, proxy):
        with opened(server) as ds:
            proxy.on_request(lambda _: server.put_many({FIRST: b"changed just now"}), key=FIRST, times=1)
            with pytest.raises(Changed):
                ds[0]

    def test_skipping_what_changed(self, server, proxy):
        with opened(server, on_changed="skip") as ds:
            server.put_many({FIRST: b"changed", KEYS[5]: b"changed, too"})
            server.delete(KEYS[9])
            left = [key for key in KEYS if key not in {FIRST, KEYS[5], KEYS[9]}]
            assert ds.read_many(range(40)) == [DATA[key] for key in left]
            done = ds.load()
            assert (done.failed, done.finished) == (3, True)
            with pytest.raises(Changed):
                ds[0]
        assert {key: proxy.gets[key] for key in left} == dict.fromkeys(left, 1)

    @pytest.mark.parametrize("mode", ["raise", "skip", "newest"])
    def test_what_changed_hides_nothing_else_that_failed(self, server, proxy, mode):
        """Of two objects, one in stripes that all fail, the load says so; of fifteen that changed, only if asked to."""
        server.put_many({"zz-large": content("large", 300_000)})
        with opened(server, on_changed=mode, parameters=SMALL_PACKS) as ds:
            server.put_many(dict.fromkeys(KEYS[:15], b"changed"))
            proxy.status(403, key=KEYS[30])
            proxy.status(403, key="zz-large")
            with pytest.raises(Denied, match=f"^{17 if mode == 'raise' else 2} objects"):
                ds.load()
            assert ds.read_many(range(15, 30)) == [DATA[key] for key in KEYS[15:30]]

    @pytest.mark.parametrize("new", [b"short", b"longer than before" * 500, b""], ids=["shorter", "longer", "empty"])
    def test_the_newest_where_that_is_wanted(self, server, proxy, new):
        with opened(server, on_changed="newest") as ds:
            server.put_many({FIRST: new})
            assert ds[0] == bytes(ds.slice(0)) == ds.read(FIRST) == new
            assert ds.read(FIRST, 1, 3) == new[1:3]
            assert ds.read_many([1, 0, 2]) == [DATA[KEYS[1]], new, DATA[KEYS[2]]]
            ds.load()
        # It is not the snapshot's, so it is not in the cache.
        with opened(server, refresh="never") as ds, pytest.raises(Changed):
            ds[0]

    def test_the_newest_of_what_is_gone_is_an_error(self, server):
        with opened(server, on_changed="newest") as ds:
            server.delete(FIRST)
            with pytest.raises(Changed, match="removed"):
                ds[0]
            assert ds[1] == DATA[KEYS[1]]

    def test_what_was_fetched_before_it_changed_is_still_the_snapshots(self, server, proxy):
        with opened(server) as ds:
            ds.load()
            server.put_many(dict.fromkeys(KEYS, b"changed"))
            assert read_all(ds) == DATA

    def test_stripes_of_two_versions_are_never_mixed(self, server, proxy):
        first, second = content("one", 300_000), content("two", 300_000)
        server.put_many({"zz-large": first})
        with opened(server, parameters=SMALL_PACKS) as ds:
            place = ds.keys.index("zz-large")
            proxy.on_request(lambda _: server.put_many({"zz-large": second}), key="zz-large", skip=3, times=1)
            with pytest.raises(Changed):
                ds[place]
            with pytest.raises(Changed):
                ds[place]


class TestEntityTags:
    def test_a_server_that_gives_another_tag_in_answers(self, place, proxy):
        """Unquoted, weak, changed or missing: the content cannot be shown to be the listed version."""
        rule = proxy.replace_etag('"00000000000000000000000000000000"', key=FIRST)
        with opened(place) as ds:
            with pytest.raises((Changed, Unavailable)):
                ds[0]
            assert ds.read_many(range(1, 40)) == [DATA[key] for key in KEYS[1:]]
            rule.end()
            assert ds[0] == DATA[FIRST]

    def test_the_sloppy_server_works_as_well(self, sloppy_bucket, sloppy_proxy, monkeypatch, no_leaks):
        """No conditions, ranges answered with the whole: right all the same."""
        use(monkeypatch, sloppy_proxy.env())
        data = DATA | {"zz-large": content("large", 300_000)}
        sloppy_bucket.put_many(data)
        with give_up_soon(sloppy_bucket.url, parameters=SMALL_PACKS) as ds:
            assert read_all(ds) == data
            ds.load()
            assert ds.complete
            assert read_all(ds) == data
            sloppy_bucket.put_many({FIRST: b"changed"})
            assert str(ds.reload()) == "0 added, 1 modified, 0 removed"
        sloppy_proxy.forget_counts()
        with give_up_soon(sloppy_bucket.url, parameters=SMALL_PACKS) as ds:
            ds.load()
            assert read_all(ds) == {**data, FIRST: b"changed"}
        assert sloppy_proxy.gets == {FIRST: 1}

    def test_an_object_that_changes_on_the_sloppy_server(self, sloppy_bucket, sloppy_proxy, monkeypatch):
        use(monkeypatch, sloppy_proxy.env())
        sloppy_bucket.put_many(DATA)
        with give_up_soon(sloppy_bucket.url) as ds:
            sloppy_bucket.put_many({FIRST: b"another size"})
            with pytest.raises(Changed):
                ds[0]
            assert ds[1] == DATA[KEYS[1]]


class TestBadInput:
    """The table of the design: a clear error, and nothing half-done left behind."""

    def test_an_empty_prefix(self, place):
        with pytest.raises(NotFound, match="prefix"):
            hotset.open(f"{place.url}/nothing/here")

    def test_a_mistyped_uri_does_not_keep_its_name(self, place):
        with pytest.raises(NotFound):
            hotset.open(f"{place.url}/trian", "data")
        assert hotset.datasets() == []
        with hotset.open(f"{place.url}/train", "data") as ds:
            assert len(ds) == 40
        with pytest.raises(NotFound, match="no snapshot"):
            hotset.open(f"{place.url}/train/n01440764", "other", refresh="never")
        assert [info.name for info in hotset.datasets()] == ["data"]

    def test_a_bucket_that_does_not_exist(self, place):
        with pytest.raises(NotFound, match="bucket"):
            hotset.open("s3://no-such-bucket-anywhere/x")

    def test_an_unknown_scheme(self):
        with pytest.raises(InvalidInput, match="ftp"):
            hotset.open("ftp://host/path")
        assert hotset.datasets() == []

    def test_missing_credentials(self, place, monkeypatch):
        monkeypatch.delenv("AWS_ACCESS_KEY_ID")
        monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
        with pytest.raises(Denied, match="AWS_ACCESS_KEY_ID"):
            hotset.open(place.url)

    def test_wrong_credentials(self, place, monkeypatch):
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
        with pytest.raises(Denied):
            hotset.open(place.url)

    def test_a_listing_that_is_denied(self, place, proxy):
        proxy.status(403, kind="LIST")
        with pytest.raises(Denied):
            hotset.open(place.url)

    def test_nobody_at_the_endpoint(self, place, monkeypatch):
        from tests.support.processes import free_port

        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free_port()}")
        with pytest.raises(Unavailable, match="cannot connect"):
            opened(place)

    def test_a_quota_too_small_for_anything(self, place):
        with pytest.raises(hotset.Full, match="at least"):
            hotset.open(place.url, quota="1MiB")

    def test_a_cache_that_is_a_file(self, place, tmp_path):
        (tmp_path / "file").touch()
        with pytest.raises(InvalidInput, match="HOTSET_CACHE"):
            hotset.open(place.url, cache=tmp_path / "file")

    def test_the_name_of_another_dataset(self, place):
        hotset.open(place.url, "data").close()
        with pytest.raises(hotset.AlreadyExists, match=place.name):
            hotset.open(f"{place.url}/train", "data")


def test_patience_is_bounded():
    """What `opened` relies on, so that no test here waits long."""
    assert SOON.attempts * SOON.longest < 1

"""The tools that other tests trust: servers, the fault proxy, generated data, processes."""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import obstore
import pytest
from obstore.exceptions import BaseError, PreconditionError
from obstore.store import S3Store

from tests.support import datasets, processes, s3
from tests.support.faults import Fault, Request, Rule
from tests.support.messages import whole_body
from tests.support.processes import ChildFailed, call
from tests.support.proxy import FaultProxy
from tests.support.tools import tool

pytestmark = pytest.mark.integration


def store_of(bucket: s3.Bucket, proxy: FaultProxy | None = None) -> S3Store:
    """A real client that gives up at the first error."""
    env = (proxy or bucket.server).env()
    return S3Store(
        bucket.name,
        endpoint=env["AWS_ENDPOINT_URL"],
        access_key_id=env["AWS_ACCESS_KEY_ID"],
        secret_access_key=env["AWS_SECRET_ACCESS_KEY"],
        region=env["AWS_REGION"],
        client_options={"allow_http": True, "timeout": "20s"},
        retry_config={"max_retries": 0},
    )


def read(store: S3Store, key: str) -> bytes:
    return bytes(obstore.get(store, key).bytes())


def listing(store: S3Store) -> dict[str, tuple[int, str | None]]:
    return {meta["path"]: (meta["size"], meta["e_tag"]) for page in obstore.list(store) for meta in page}


class TestServers:
    def test_an_object_put_past_the_server_is_as_one_put_through_it(self, any_bucket):
        any_bucket.put("through", b"the same")
        any_bucket.put_many({"past": b"the same"})
        varying = {"date", "last-modified"}

        def head(key):
            named = {name.lower(): value for name, value in any_bucket.head(key).items()}
            return {
                name: value
                for name, value in named.items()
                if name not in varying
                and not name.startswith(("x-amz-id", "x-amz-request", "x-amz-date", "x-amz-content"))
            }

        assert head("through") == head("past")
        listed = listing(store_of(any_bucket))
        assert listed["through"] == listed["past"]

    def test_awkward_objects_come_back_whole(self, any_bucket):
        objects = datasets.awkward()
        assert any_bucket.put_many(objects, threads=2) == len(objects)
        store = store_of(any_bucket)
        assert {key: size for key, (size, _) in listing(store).items()} == {k: len(v) for k, v in objects.items()}
        assert {key: read(store, key) for key in objects} == objects

    def test_changes_behind_the_back_are_seen_at_once(self, any_bucket):
        store = store_of(any_bucket)
        assert listing(store) == {}
        for version in range(3):
            any_bucket.put_many([("a/b", b"x" * version)])
            assert read(store, "a/b") == b"x" * version == any_bucket.get("a/b")
        before = listing(store)
        any_bucket.put_many({"a/b": b"yy"})
        assert listing(store)["a/b"][0] == before["a/b"][0]
        assert listing(store)["a/b"][1] != before["a/b"][1]
        any_bucket.delete("a/b")
        assert listing(store) == {}
        with pytest.raises(FileNotFoundError):
            read(store, "a/b")

    def test_the_good_server_minds_conditions_and_the_sloppy_one_does_not(self, bucket, sloppy_bucket):
        for each in (bucket, sloppy_bucket):
            each.put("a", b"new")
        with pytest.raises(PreconditionError):
            obstore.get(store_of(bucket), "a", options={"if_match": '"stale"'})
        answer = sloppy_bucket.server.request("GET", f"/{sloppy_bucket.name}/a", headers={"if-match": '"stale"'})
        assert (answer.status, answer.body) == (200, b"new")

    def test_buckets_may_be_read_anonymously(self, bucket):
        bucket.put("a", b"1")
        store = S3Store(
            bucket.name,
            endpoint=bucket.server.endpoint,
            region=s3.REGION,
            skip_signature=True,
            client_options={"allow_http": True},
            retry_config={"max_retries": 0},
        )
        with pytest.raises(BaseError):
            read(store, "a")
        bucket.allow_anonymous_reads()
        assert read(store, "a") == b"1"
        assert list(listing(store)) == ["a"]

    @pytest.mark.parametrize("kind", ["versitygw", "rclone_s3"])
    def test_a_server_and_its_proxy_die_with_their_process(self, tmp_path, kind, good_server):
        tools_of_the_user = {"XDG_CACHE_HOME": str(tool("versitygw").parents[3])}  # the child's home is the test's
        with call(serve_for_ever, kind, str(tmp_path / "root"), env=tools_of_the_user) as child:
            pids = [int(pid) for pid in child.expect("serving").split()[1:]]
            assert set(pids) <= set(processes.descendants(child.pid))
            child.signal(signal.SIGKILL)
            child.wait()
            for pid in pids:
                processes.wait_until_gone(pid)


def serve_for_ever(kind: str, root: str) -> None:
    with getattr(s3, kind)(root) as server, FaultProxy(server) as proxy:
        print("serving", server.pid, proxy.pid, flush=True)
        signal.pause()


class TestCounting:
    def test_counts_are_exact_under_concurrency(self, bucket, proxy):
        data = datasets.many_small(1100, 300)
        bucket.put_many(data)
        store = store_of(bucket, proxy)
        with ThreadPoolExecutor(16) as pool:
            for key, found in zip(data, pool.map(lambda key: read(store, key), data), strict=True):
                data.check(key, found)
        counts = proxy.counts()
        assert counts.kinds == {"GET": len(data)}
        assert counts.keys["GET"] == proxy.gets == Counter(list(data))
        assert counts.bytes_sent == {"GET": 300 * len(data)}
        assert 1 < counts.most_at_once <= 16
        assert counts.at_once == 0
        assert len(listing(store)) == len(data)
        assert proxy.lists == 2

    def test_kinds_keys_and_ranges(self, bucket, proxy):
        store = store_of(bucket, proxy)
        obstore.put(store, "a b/é", b"0123456789")
        obstore.head(store, "a b/é")
        assert bytes(obstore.get_range(store, "a b/é", start=2, end=5)) == b"234"
        etag = bucket.head("a b/é")["ETag"]
        obstore.get(store, "a b/é", options={"if_match": etag})
        listing(store)
        obstore.delete(store, "a b/é")
        seen = proxy.requests()
        # Some versions of the client delete with a POST that names the keys in its body.
        assert [(each.kind, each.key) for each in seen[:-1]] == [
            ("PUT", "a b/é"),
            ("HEAD", "a b/é"),
            ("GET", "a b/é"),
            ("GET", "a b/é"),
            ("LIST", ""),
        ]
        assert [each.range for each in seen[2:4]] == ["bytes=2-4", None]
        assert [each.if_match for each in seen[2:4]] == [None, etag]
        assert proxy.count("GET") == proxy.count("GET", "a b/é") == 2
        assert proxy.count("GET", "other") == 0
        proxy.forget_counts()
        assert proxy.counts().kinds == {}
        assert proxy.requests() == []

    def test_large_objects_stream_through_to_slow_readers(self, bucket, proxy):
        data = datasets.content("large", 40 << 20)
        bucket.put_many({"large": data})
        found = b"".join(bytes(chunk) for chunk in obstore.get(store_of(bucket, proxy), "large").stream(1 << 16))
        assert found == data

    def test_the_sloppy_server_works_through_a_proxy(self, sloppy_bucket, sloppy_proxy):
        data = datasets.many_small(20)
        sloppy_bucket.put_many(data)
        store = store_of(sloppy_bucket, sloppy_proxy)
        assert {key: read(store, key) for key in listing(store)} == dict(data)
        assert sloppy_proxy.counts().kinds == {"LIST": 1, "GET": 20}


class TestFaults:
    @pytest.fixture
    def store(self, bucket, proxy):
        bucket.put_many({"a": b"0123456789" * 1000, "b": b"other"})
        return store_of(bucket, proxy)

    @pytest.mark.parametrize("status", [403, 404, 429, 500, 503])
    def test_status(self, store, proxy, status):
        rule = proxy.status(status, key="a", times=2)
        for _ in range(2):
            with pytest.raises((BaseError, FileNotFoundError, PermissionError), match=str(status)):
                read(store, "a")
        assert len(read(store, "a")) == 10_000
        assert read(store, "b") == b"other"
        assert rule.hits == 2
        assert proxy.gets == {"a": 3, "b": 1}

    def test_status_with_headers(self, store, proxy, bucket):
        proxy.status(503, retry_after=2.5, headers={"x-why": "busy"}, kind="*")
        answer = s3.signed_request(proxy.endpoint, "GET", f"/{bucket.name}/a")
        assert (answer.status, answer.headers["retry-after"], answer.headers["x-why"]) == (503, "2.5", "busy")
        assert s3.signed_request(proxy.endpoint, "HEAD", f"/{bucket.name}/a").body == b""

    @pytest.mark.parametrize("after", [None, 0, 4000])
    def test_reset(self, store, proxy, after):
        rule = proxy.reset(after, key="a")
        with pytest.raises(BaseError):
            read(store, "a")
        rule.end()
        assert len(read(store, "a")) == 10_000

    def test_a_reset_is_a_reset_after_the_bytes_before_it(self, store, proxy, bucket):
        proxy.reset(4000)
        with pytest.raises(ConnectionResetError):
            s3.signed_request(proxy.endpoint, "GET", f"/{bucket.name}/a")
        assert proxy.counts().bytes_sent["GET"] == 4000

    def test_truncate(self, store, proxy):
        proxy.truncate(4000)
        with pytest.raises(BaseError):
            read(store, "a")

    def test_shorten(self, store, proxy):
        proxy.shorten(7)
        result = obstore.get(store, "a")
        assert result.meta["size"] == 7
        assert bytes(result.bytes()) == b"0123456"

    def test_corrupt(self, store, proxy):
        proxy.corrupt(3, times=1)
        good = read(store, "b")
        bad = read(store, "b") if good != b"other" else good
        assert {good, bad} == {b"oth" + bytes([ord("e") ^ 0xFF]) + b"r", b"other"}

    def test_slow(self, store, proxy):
        proxy.slow(100_000)
        chunks = [bytes(chunk) for chunk in obstore.get(store, "a").stream(1)]
        assert b"".join(chunks) == b"0123456789" * 1000
        assert len(chunks) > 1  # it came in pieces, which a fast answer of this size does not

    def test_hang_and_release(self, store, proxy):
        proxy.hang(key="a")
        with ThreadPoolExecutor(3) as pool:
            hung = [pool.submit(read, store, "a") for _ in range(3)]
            proxy.wait_for("GET", 3, key="a")
            assert read(store, "b") == b"other"
            assert not any(each.done() for each in hung)
            assert proxy.counts().at_once == 3
            proxy.release()
            assert {len(each.result(timeout=30)) for each in hung} == {10_000}
        assert len(read(store, "a")) == 10_000

    def test_stall_and_release(self, store, proxy):
        proxy.stall(4000)
        stream = iter(obstore.get(store, "a").stream(1))
        begun = b""
        while len(begun) < 4000:
            begun += bytes(next(stream))
        assert len(begun) == 4000
        proxy.release()
        assert len(begun + b"".join(bytes(chunk) for chunk in stream)) == 10_000

    def test_a_client_that_gives_up_leaves_nothing_behind(self, store, proxy, bucket):
        proxy.hang()
        with call(read_directly, proxy.endpoint, f"/{bucket.name}/a") as child:
            proxy.wait_for("GET", 1)
            child.kill()
        processes.wait_until(lambda: proxy.counts().at_once == 0, what="the proxy to notice")
        proxy.clear()
        assert read(store, "b") == b"other"

    def test_latency_does_not_hold_up_others(self, store, proxy):
        proxy.latency(30, key="a")
        with call(read_directly, proxy.endpoint, "/x/a"):
            proxy.wait_for("GET", 1)
            assert read(store, "b") == b"other"

    def test_latency_ends(self, store, proxy):
        rule = proxy.latency(0.001)
        assert len(read(store, "a")) == 10_000
        listing(store)
        assert rule.hits == 2

    @pytest.mark.parametrize("etag", ['"another"', None])
    def test_replace_etag(self, store, proxy, etag):
        proxy.replace_etag(etag, kind="*")
        assert obstore.get(store, "b").meta["e_tag"] == etag
        assert obstore.head(store, "b")["e_tag"] == etag
        assert listing(store) == {"a": (10_000, etag), "b": (5, etag)}

    def test_drop_if_match(self, store, proxy):
        stale = {"if_match": '"stale"', "range": (1, 3)}
        with pytest.raises(PreconditionError):
            obstore.get(store, "b", options=stale)
        proxy.drop_if_match()
        assert bytes(obstore.get(store, "b", options=stale).bytes()) == b"th"

    def test_an_object_changes_between_list_and_get(self, store, proxy, bucket):
        proxy.on_request(lambda request: bucket.put(request.key, b"newer"), key="b", times=1)
        listed = listing(store)["b"]
        result = obstore.get(store, "b")
        assert bytes(result.bytes()) == b"newer"
        assert result.meta["e_tag"] != listed[1]

    def test_a_failing_callback_fails_the_test(self, store, proxy):
        def fail(request):
            raise LookupError(request.key)

        proxy.on_request(fail)
        with pytest.raises(BaseError, match="500"):
            read(store, "b")
        with pytest.raises(LookupError, match="b"):
            proxy.clear()

    def test_rules_choose_by_kind_key_skip_every_and_times(self):
        rule = Rule(Fault(status=503), kind="GET", key="train/*", times=2, skip=1, every=2)
        get = Request("GET", "bucket", "train/x/1")
        assert not rule.claims(Request("HEAD", "bucket", "train/x/1"))
        assert not rule.claims(Request("GET", "bucket", "val/1"))
        assert [rule.claims(get) for _ in range(7)] == [False, True, False, True, False, False, False]

    def test_faults_add_up(self):
        both = Fault(latency=1, status=503).and_also(Fault(latency=2, corrupt_at=3)).and_also(Fault(status=429))
        assert both == Fault(latency=3, status=429, corrupt_at=3)

    @pytest.mark.parametrize("cut", range(1, 28))
    def test_a_body_in_chunks_is_known_only_when_complete(self, cut):
        chunked = b"4\r\nwiki\r\n5;x=y\r\npedia\r\n0\r\n\r\n"
        headers = {b"transfer-encoding": b"chunked"}
        assert whole_body(chunked, headers, None, ended=False) == b"wikipedia"
        assert whole_body(chunked[:-cut], headers, None, ended=False) is None


def read_directly(endpoint: str, path: str) -> int:
    return s3.signed_request(endpoint, "GET", path).status


class TestDatasets:
    @pytest.mark.parametrize("make", [datasets.image_tree, datasets.many_small])
    def test_keys_are_sorted_and_known(self, make):
        data = make(2500, 100)
        keys = list(data)
        assert len(data) == len(keys) == len(set(keys)) == 2500
        assert keys == sorted(keys)
        assert all(key in data for key in keys)
        for stranger in ("", "x", keys[0] + "x", keys[-1].replace("0", "9"), list(make(2501, 100))[-1], 7):
            assert stranger not in data
        with pytest.raises(KeyError):
            data["x"]

    def test_content_follows_from_key_and_seed_on_every_machine(self):
        assert datasets.content("a", 12) == b"a #0\n" + bytes.fromhex("116cccfb520d79")
        assert datasets.content("a", 1000, seed=1) != datasets.content("a", 1000)
        assert [len(datasets.content("a", size)) for size in (0, 1, 7, 8, 9, 4097)] == [0, 1, 7, 8, 9, 4097]

    def test_sizes_vary_around_the_mean(self):
        data = datasets.image_tree(500, 1000)
        sizes = [data.size(key) for key in data]
        assert sizes == [len(content) for content in data.values()]
        assert 500 <= min(sizes) < 700
        assert 900 < sum(sizes) / 500 < 1100
        assert 1300 < max(sizes) <= 1500

    def test_check_says_what_is_wrong(self):
        data = datasets.many_small(2, 100)
        mine, other = data
        data.check(mine, memoryview(data.expected(mine)))
        with pytest.raises(AssertionError, match=rf"99 bytes instead of 100.*{mine}"):
            data.check(mine, data[mine][:-1])
        with pytest.raises(AssertionError, match=rf"the first at .*begins with .*{other}"):
            data.check(mine, data[other])
        spoilt = bytearray(data[mine])
        spoilt[70] ^= 1
        with pytest.raises(AssertionError, match="1 of 100 bytes are wrong, the first at 70"):
            data.check(mine, bytes(spoilt))


class TestProcesses:
    def test_a_function_answers_from_a_clean_environment(self, monkeypatch):
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "of the developer")
        with call(look_around, "x", times=3, env={"HOTSET_TEST": "1"}) as child:
            answer, pid, environment = child.result()
        assert answer == "xxx"
        assert pid == child.pid != os.getpid()
        assert environment["HOTSET_TEST"] == "1"
        assert "AWS_SECRET_ACCESS_KEY" not in environment

    def test_failures_carry_the_other_side(self):
        with (
            call(fail_loudly) as child,
            pytest.raises(ChildFailed, match=r"(?s)in fail_loudly.*LookupError: why.*said before"),
        ):
            child.result()
        with call(os._exit, 3) as child, pytest.raises(ChildFailed, match="ended with status 3, no answer"):
            child.result()
        with call(os._exit, 3) as child, pytest.raises(ChildFailed, match="ended before it printed 'ready'"):
            child.expect("ready")

    def test_talk_and_deadlines(self):
        with call(echo) as child:
            child.tell("one")
            assert child.expect("one") == "echo one"
            with pytest.raises(TimeoutError, match=r"did not print 'two' within 0\.01 s"):
                child.expect("two", timeout=0.01)
            with pytest.raises(TimeoutError, match="did not end"):
                child.wait(timeout=0.01)
        with pytest.raises(TimeoutError, match="in vain for: nothing"):
            processes.wait_until(lambda: None, what="nothing", timeout=0.01)

    def test_kill_at_random(self):
        rng = random.Random(1)
        with call(echo) as child:
            child.tell("up")
            child.expect("up")
            assert processes.kill_at_random(child, rng, within=0.05)
            assert child.wait() == -signal.SIGKILL
        with call(os.getpid) as child:
            child.result()
            assert not processes.kill_at_random(child, rng, within=0.05)

    def test_descendants_and_descriptors(self, tmp_path):
        with call(have_grandchild, str(tmp_path / "held")) as child:
            line = child.expect("up")
            family = processes.descendants(child.pid)
            assert family == [int(pid) for pid in line.split()[1:]]
            assert child.pid in processes.descendants(os.getpid())
            assert str(tmp_path / "held") in processes.open_fds(child.pid).values()
            child.kill()
            for pid in family:  # each program of `dying_with_parent` pulls the next one down
                processes.wait_until_gone(pid)
            assert not processes.alive(child.pid)
            assert processes.descendants(child.pid) == []

    def test_nothing_of_a_child_stays(self, no_leaks):
        with call(echo) as child:
            child.tell("one")
            child.expect("one")
        with pytest.raises(ChildFailed), call(fail_loudly) as child:
            child.result()


class TestLeaks:
    def test_nothing_of_a_proxy_stays(self, good_server, no_leaks):
        with FaultProxy(good_server) as proxy:
            proxy.on_request(print)
            assert proxy.gets == {}
            proxy.clear()

    def test_nothing_of_a_server_stays(self, tmp_path, good_server, no_leaks):
        with s3.versitygw(tmp_path / "root") as server:
            server.make_bucket("bucket").put_many({"a": b"1"})
        assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def look_around(text: str, *, times: int) -> tuple[str, int, dict[str, str]]:
    return text * times, os.getpid(), dict(os.environ)


def fail_loudly() -> None:
    print("said before", file=sys.stderr)
    raise LookupError("why")


def echo() -> None:
    for line in sys.stdin:
        print("echo", line, end="", flush=True)


def have_grandchild(path: str) -> None:
    with Path(path).open("w"), call(echo) as grandchild:
        grandchild.tell("up")
        grandchild.expect("up")
        print("up", grandchild.pid, flush=True)
        threading.Event().wait()

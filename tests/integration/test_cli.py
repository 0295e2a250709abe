"""Every command as a person runs it: a process of its own, real directories and servers, what is said and where."""

from __future__ import annotations

import io
import json
import os
import pty
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import hotset
from hotset.cli import app
from hotset.cli import load as load_command
from hotset.tier.node import CacheDirectory
from hotset.tier.node.convert import convert_to_files
from tests.support.datasets import image_tree
from tests.support.processes import DEADLINE, Child, clean_environment, wait_until

pytestmark = pytest.mark.integration

HOTSET = [sys.executable, "-m", "hotset"]


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def run(*arguments: object, env: Mapping[str, str] | None = None, binary: bool = False) -> Any:
    """One command. Whatever happens, nobody is shown a traceback.

    In a process of its own if it is given an environment, as is right for whatever talks to a server; else in this one,
    which is several times as fast.
    """
    words = [str(argument) for argument in arguments]
    if env is None:
        code, out, errors = call(words)
    else:
        done = subprocess.run(
            [*HOTSET, *words], env=clean_environment(env), capture_output=True, timeout=60, check=False
        )
        code, out, errors = done.returncode, done.stdout, done.stderr
    err = errors.decode()
    assert "Traceback" not in err
    assert "\x1b" not in err, "escape codes in something that is no terminal"
    return (code, out, err) if binary else Done(code, out.decode(), err)


def call(words: list[str]) -> tuple[int, bytes, bytes]:
    with io.TextIOWrapper(io.BytesIO()) as out, io.TextIOWrapper(io.BytesIO()) as err:
        with redirect_stdout(out), redirect_stderr(err):
            code = app.run(words)
        for stream in (out, err):
            stream.flush()
        return code, out.buffer.getvalue(), err.buffer.getvalue()  # type: ignore[attr-defined]


def good(*arguments: object, env: Mapping[str, str] | None = None) -> Done:
    done: Done = run(*arguments, env=env)
    assert done.code == 0, done.err
    return done


def bad(code: int, *arguments: object, env: Mapping[str, str] | None = None) -> str:
    """The error message of a command that must fail: one that begins as all do."""
    done: Done = run(*arguments, env=env)
    errors = [line for line in done.err.splitlines() if line.startswith("error: ")]
    assert (done.code, bool(errors)) == (code, True), (done.code, done.out, done.err)
    return "\n".join(errors)


@pytest.fixture
def place(tmp_path):
    """A directory that is a source: two classes, 40 files."""
    root = tmp_path / "place"
    for index in range(40):
        path = root / f"class{index % 2}" / f"{index:03}.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(20_000))
        os.utime(path, (1e9, 1e9))  # long settled: a reload need not read it again
    return root


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "cache"


def names(cache):
    return sorted(entry.name for entry in (cache / "names").iterdir())


def files_below(root):
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


class TestLoad:
    def test_everything_is_in_the_cache_and_said(self, place):
        done = good("load", place, "--name", "t")
        assert "t: 40 objects, 781.2 KiB: all in the cache; fetched 40 objects" in done.out
        assert "listing: " in done.err
        assert "loading: " in done.err

    def test_json(self, place):
        document = good("load", place, "--name", "t", "--json").json
        said = {
            key: document[key] for key in ("name", "objects", "bytes", "cached_objects", "fetched_objects", "failed")
        }
        assert said == {
            "name": "t",
            "objects": 40,
            "bytes": 800_000,
            "cached_objects": 40,
            "fetched_objects": 40,
            "failed": [],
        }
        assert document["complete"] is True

    def test_json_is_alone_unless_progress_is_asked_for(self, place):
        assert good("load", place, "--json").err == ""
        lines = good("load", place, "--json", "--progress", "json").err.splitlines()
        assert {json.loads(line)["phase"] for line in lines} >= {"listing", "loading"}

    def test_again_fetches_nothing(self, place):
        good("load", place, "--name", "t")
        assert "nothing had to be fetched" in good("load", place, "--name", "t").out
        assert "nothing had to be fetched" in good("load", "--name", "t").out

    def test_a_name_is_made_of_the_uri(self, place, cache):
        good("load", place)
        [name] = names(cache)
        assert name.rpartition("-")[0].endswith("place")

    def test_a_choice_of_keys(self, place):
        assert good("load", place, "--include", "class1/**", "--exclude", "**/*1.bin", "--json").json["objects"] == 16

    def test_several_sources(self, place, cache):
        more = place.parent / "labels"
        more.mkdir()
        (more / "a.txt").write_text("cat")
        good("load", "--name", "m", "--source", f"images={place}", "--source", f"labels={more}")
        assert good("cat", "m", "labels/a.txt").out == "cat"
        assert good("show", "m", "--json").json["sources"] == {"images": str(place), "labels": str(more)}

    def test_a_quota_that_holds_a_part_is_no_failure(self, tmp_path):
        root = tmp_path / "large"
        root.mkdir()
        for index in range(30):
            (root / str(index)).write_bytes(bytes([index]) * 2**20)
        done = good("load", root, "--quota", "18MiB")
        assert "the quota has no room for more" in done.out

    def test_a_limited_rate(self, place):
        assert good("load", place, "--max-rate", "100MB", "--json").json["complete"]

    def test_a_terminal_gets_a_bar(self, place):
        leader, follower = pty.openpty()
        process = subprocess.Popen(
            [*HOTSET, "load", str(place)],
            env=clean_environment({"TERM": "xterm-256color"}),
            stdout=subprocess.PIPE,
            stderr=follower,
        )
        os.close(follower)
        shown = b""
        while True:
            try:
                data = os.read(leader, 4096)
            except OSError:  # EIO: the other end was closed
                break
            shown += data
        out, _ = process.communicate(timeout=DEADLINE)
        os.close(leader)
        assert process.returncode == 0
        assert b"\x1b[" in shown
        assert b"all in the cache" in out
        assert b"\x1b" not in out


class TestBadInput:
    """Section 8 of the design: what shows at the command line. An error names the thing and says what to do."""

    @pytest.mark.parametrize(
        ("uri", "said"),
        [
            ("s4://bucket/x", "did you mean s3://"),
            ("s3://", "bucket is missing"),
            ("s3://user:secret@bucket/x", "take the user name and password out"),
            ("", "empty"),
        ],
    )
    def test_a_uri_that_cannot_be_right(self, uri, said, cache):
        message = bad(2, "load", uri)
        assert said in message
        assert "secret" not in message
        assert not (cache / "names").exists() or names(cache) == []

    def test_missing_credentials_name_the_variable(self):
        message = bad(1, "load", "s3://bucket/x", env={"AWS_ENDPOINT_URL": "http://127.0.0.1:9"})
        assert "AWS_ACCESS_KEY_ID" in message

    def test_nothing_to_load(self):
        assert "a URI, or --name" in bad(2, "load")

    def test_no_such_place_leaves_nothing_behind(self, tmp_path, cache):
        assert "nowhere" in bad(1, "load", tmp_path / "nowhere", "--name", "t")
        assert names(cache) == []
        assert list((cache / "datasets").iterdir()) == []

    def test_an_empty_prefix_leaves_nothing_behind(self, place, cache):
        assert "no objects" in bad(1, "load", place, "--include", "nothing*", "--name", "t")
        assert names(cache) == []
        good("load", place, "--name", "t")  # the name is free

    def test_a_failed_load_does_not_take_a_good_dataset_away(self, place, cache):
        good("load", place, "--name", "t")
        shutil.rmtree(place)
        bad(1, "load", place, "--name", "t", "--refresh")
        assert good("show", "t", "--json").json["cached_share"] == 1.0

    def test_a_name_for_something_else(self, place, tmp_path):
        good("load", place, "--name", "t")
        (tmp_path / "other").mkdir()
        message = bad(1, "load", tmp_path / "other", "--name", "t")
        assert "hotset drop t" in message

    @pytest.mark.parametrize("name", ["../t", "a/b", "", ".hidden", "a" * 101])
    def test_a_name_that_cannot_be_one(self, place, name):
        assert "name" in bad(2, "load", place, "--name", name)

    def test_a_quota_too_small_for_one_pack(self, place):
        assert "quota" in bad(1, "load", place, "--quota", "1MiB")

    def test_a_quota_that_is_no_size(self, place):
        assert "much" in bad(2, "load", place, "--quota", "much")
        assert "HOTSET_QUOTA" in bad(2, "ls", env={"HOTSET_QUOTA": "much"})

    def test_keys_that_no_path_can_be_are_readable_and_refused_in_a_view(self, place):
        (place / "bell\a").write_text("ding")
        good("load", place, "--name", "t")
        assert good("cat", "t", "bell\a").out == "ding"
        message = bad(2, "load", place, "--name", "v", "--layout", "files", "--exclude", "none")
        assert "--exclude" in message
        assert "\a" not in message

    def test_a_refused_view_can_be_loaded_under_the_same_name_once_it_is_mended(self, place):
        (place / "bell\a").write_text("ding")
        bad(2, "load", place, "--name", "v", "--layout", "files")
        good("load", place, "--name", "v", "--layout", "files", "--exclude", "bell*")

    def test_keys_that_collide_in_a_view(self, tmp_path):
        entries = [{"key": key, "url": "leaf", "size": 4, "etag": "x"} for key in ("node", "node/leaf")]
        (tmp_path / "manifest.jsonl").write_text("\n".join(map(json.dumps, entries)))
        handler = partial(SimpleHTTPRequestHandler, directory=tmp_path)
        with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
            threading.Thread(target=server.serve_forever).start()
            uri = f"http://127.0.0.1:{server.server_port}/manifest.jsonl"
            message = bad(2, "load", uri, "--layout", "files", env={})
            server.shutdown()
        assert "'node'" in message
        assert "collide" in message

    def test_sources_within_one_another(self, place):
        assert "separate paths" in bad(2, "load", "--source", f"a={place}", "--source", f"a/b={place}")

    def test_a_cache_of_a_newer_format(self, place, cache):
        good("load", place)
        (cache / "hotset.json").write_text(json.dumps({"format": 99, "quota": 10**9}))
        for command in (["ls"], ["load", place], ["gc"]):
            assert "upgrade hotset" in bad(2, *command)

    def test_a_cache_that_is_a_file(self, place, tmp_path):
        (tmp_path / "file").touch()
        assert "HOTSET_CACHE" in bad(2, "load", place, env={"HOTSET_CACHE": str(tmp_path / "file")})

    def test_a_source_that_cannot_be_listed_now(self, place, monkeypatch):
        def unreachable(*_, **__):
            raise hotset.Unavailable("nobody answers")

        good("load", place, "--name", "t")
        monkeypatch.setattr(load_command, "list_source", unreachable)
        done = good("load", "--name", "t")
        assert "going on with the last snapshot" in done.err
        assert "all in the cache" in done.out
        assert "nobody answers" in bad(1, "load", "--name", "t", "--refresh")
        assert "nobody answers" in bad(1, "load", place.parent, "--name", "u")

    def test_something_else_under_a_name_that_is_there(self, place):
        good("load", place, "--name", "t")
        assert "was made with no include" in bad(2, "load", "--name", "t", "--include", "class1/**")
        assert "'packs'" in bad(1, "load", "--name", "t", "--layout", "files")

    def test_an_unknown_dataset_key_and_snapshot(self, place):
        good("load", place, "--name", "t")
        assert "'u'" in bad(1, "show", "u")
        assert "'no/such'" in bad(1, "cat", "t", "no/such")
        assert "'ffff'" in bad(1, "snapshots", "t", "--pin", "ffff")

    def test_a_damaged_index_is_listed_again_and_told(self, place, cache):
        good("load", place, "--name", "t")
        [index] = cache.glob("datasets/*/snapshots/*/objects.arrow")
        with index.open("r+b") as file:
            file.seek(index.stat().st_size // 2)
            file.write(b"damage!")
        done = good("load", place, "--name", "t")
        assert "note: " in done.err
        assert "all in the cache" in done.out


class TestDamage:
    """Of the index, or of the file that names it: every command copes, or names the command that mends it."""

    @pytest.fixture(params=["objects.arrow", "current"])
    def damaged(self, request, place, cache):
        good("load", place, "--name", "t")
        good("load", place, "--name", "well", "--include", "class0/**")
        [dataset] = cache.glob("names/t")
        [path] = dataset.resolve().rglob(request.param)
        path.write_bytes(b"{")
        return path

    def test_load(self, damaged):
        done = good("load", "--name", "t", "--json")
        assert (done.json["complete"], done.json["fetched_objects"]) == (True, 0)
        assert "is damaged" in done.err
        assert good("load", "--name", "t", "--json").err == ""

    def test_reload(self, damaged, place):
        (place / "new").write_text("x")
        os.utime(place / "new", (1e9, 1e9))
        dry = good("reload", "t", "--dry-run", "--json")
        assert dry.json["changes"]["added"][-1] == "new"
        assert "is damaged" in dry.err
        assert "is damaged" in good("reload", "t").err
        fetched = good("load", "--name", "t", "--json").json["fetched_objects"]
        assert fetched == (1 if damaged.name == "current" else 41)  # what lies where in a changed pack was in the index
        assert good("reload", "t", "--json").json["changed"] is False

    def test_reload_when_nothing_else_changed(self, damaged):
        said = good("reload", "t", "--json")
        if damaged.name == "objects.arrow":  # its name is known
            assert said.json["changed"] is False
        assert good("load", "--name", "t", "--json").json["fetched_objects"] == 0

    def test_what_looks_at_it(self, damaged):
        assert "is damaged" in good("show", "t").out
        assert "hotset reload" in good("show", "t", "--json").json["damage"]
        listed = good("snapshots", "t", "--json").json["snapshots"]
        assert [record["damaged"] for record in listed] == [damaged.name == "objects.arrow"]
        assert ("damaged" in good("snapshots", "t").out) == (damaged.name == "objects.arrow")

    def test_what_cannot_do_without_it_names_what_mends_it(self, damaged, place):
        for command in (["cat", "t", "class0/000.bin"], ["view", "t", place.parent / "v", "--convert"]):
            assert "hotset reload" in bad(1, *command) or "load it first" in bad(1, *command)
        good("reload", "t")
        assert run("cat", "t", "class0/000.bin", binary=True)[1] == (place / "class0/000.bin").read_bytes()

    def test_the_others_are_listed_and_it_is_marked(self, damaged, cache):
        (cache / "names" / "gone").symlink_to("../datasets/nowhere")
        done = good("ls")
        _, sick, well, *_ = done.out.splitlines()
        assert (sick.split()[0], "damaged" in sick) == ("t", True)
        assert (well.split()[0], "100 %" in well) == ("well", True)
        assert f"\nt: {damaged.parent}" in done.out.replace("the index ", "")
        sick, well = good("ls", "--json").json["datasets"]
        assert (sick["name"], well["damage"]) == ("t", None)
        assert str(damaged) in sick["damage"]
        assert "hotset reload t" in run("doctor").out

    def test_a_load_that_fails_takes_nothing_away(self, tmp_path, place, cache):
        good("load", place, "--name", "t", "--layout", "files")
        next(cache.glob("datasets/*/current")).write_bytes(b"{")
        moved = place.rename(tmp_path / "moved")
        bad(1, "load", "--name", "t")
        moved.rename(place)
        assert good("load", "--name", "t", "--json").json["fetched_objects"] == 0

    def test_what_cannot_even_be_read_can_be_dropped(self, place, cache):
        good("load", place, "--name", "t")
        next(cache.glob("datasets/*/dataset.json")).write_bytes(b"{")
        (cache / "names" / "gone").symlink_to("../datasets/nowhere")
        for command in ("show", "reload", "snapshots"):
            assert "hotset drop" in bad(1, command, "t")
        assert "hotset drop" in good("ls").out
        assert good("drop", "t", "--json").json["removed"]
        good("drop", "gone")
        assert names(cache) == []


class TestServer:
    """What a server does to us, by way of a proxy that counts and does wrong."""

    @pytest.fixture
    def objects(self, bucket):
        objects = image_tree(60, 5000)
        bucket.put_many(objects)
        return objects

    def load(self, bucket, proxy, *arguments, code=0):
        done = run("load", bucket.url, "--name", "t", *arguments, env=proxy.env())
        assert done.code == code, done.err
        return done

    def test_each_object_is_fetched_once(self, bucket, proxy, objects):
        self.load(bucket, proxy)
        self.load(bucket, proxy)
        assert dict(proxy.gets) == dict.fromkeys(objects, 1)
        assert proxy.lists == 1

    def test_a_server_that_is_busy_is_asked_again(self, bucket, proxy, objects):
        proxy.status(503, times=5)
        document = json.loads(self.load(bucket, proxy, "--json").out)
        assert document["retried"] >= 5
        assert document["complete"]

    def test_a_truncated_body_is_fetched_again(self, bucket, proxy, objects):
        proxy.truncate(100, times=3)
        assert json.loads(self.load(bucket, proxy, "--json").out)["complete"]
        key = next(iter(objects))
        assert run("cat", "t", key, env=proxy.env(), binary=True)[1] == objects[key]

    def test_without_permission_to_list(self, bucket, proxy, objects, cache):
        proxy.status(403, kind="LIST")
        done = self.load(bucket, proxy, code=1)
        assert done.err.count("error: ") == 1
        assert names(cache) == []

    def test_without_permission_to_read_one(self, bucket, proxy, objects):
        key = list(objects)[7]
        proxy.status(403, key=f"*{key}")
        done = self.load(bucket, proxy, "--json", code=1)
        assert [failed["key"] for failed in done.json["failed"]] == [key]
        assert done.json["failed"][0]["kind"] == "Denied"
        assert done.json["cached_objects"] == 59
        assert "1 object could not be loaded" in done.err

    def test_an_object_that_changed_during_the_load(self, bucket, proxy, objects):
        key = list(objects)[30]
        proxy.on_request(lambda _: bucket.put(key, b"another"), key=f"*{key}", times=1)
        done = self.load(bucket, proxy, code=1)
        assert key in done.err
        assert "hotset reload t" in done.err
        reloaded = run("reload", "t", env=proxy.env())
        assert f"~ {key}" in reloaded.out

    def test_an_object_that_vanished_during_the_load(self, bucket, proxy, objects):
        key = list(objects)[30]
        proxy.on_request(lambda _: bucket.delete(key), key=f"*{key}", times=1)
        assert "hotset reload t" in self.load(bucket, proxy, code=1).err

    def test_a_reload_costs_one_get_for_one_change(self, bucket, proxy, objects):
        self.load(bucket, proxy)
        key = list(objects)[11]
        bucket.put(key, b"a new version of it")
        proxy.forget_counts()
        dry = good("reload", "t", "--dry-run", "--json", env=proxy.env()).json
        assert (dry["changes"]["modified"], dry["filled"]) == ([key], None)
        assert sum(proxy.gets.values()) == 0
        done = good("reload", "t", env=proxy.env())
        assert f"~ {key}" in done.out
        assert "1 GET, 19 B fetched" in done.out
        assert dict(proxy.gets) == {key: 1}
        assert good("cat", "t", key, env=proxy.env()).out == "a new version of it"
        assert good("reload", "t", env=proxy.env()).out == "t: nothing changed\n"

    def test_a_reload_of_a_partly_cached_dataset_fetches_nothing(self, bucket, proxy, objects):
        with pytest.MonkeyPatch.context() as patch:
            for name, value in proxy.env().items():
                patch.setenv(name, value)
            hotset.open(bucket.url, "t").close()
        bucket.put("train/new", b"1")
        done = good("reload", "t", "--json", env=proxy.env()).json
        assert (done["changes"]["added"], done["filled"]) == (["train/new"], None)
        assert sum(proxy.gets.values()) == 0

    @pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL], ids=lambda end: end.name)
    def test_stopped_in_the_middle_and_continued_no_object_is_fetched_twice(self, bucket, proxy, objects, end):
        slow = proxy.latency(0.05, kind="GET")
        with Child([*HOTSET, "load", bucket.url, "--name", "t"], env=proxy.env()) as child:
            proxy.wait_for("GET", 25)
            child.signal(end)
            code = child.wait()
            said = child.errors()
        assert "Traceback" not in said
        if end is signal.SIGINT:
            assert code == 130
            assert f"Go on with: hotset load {bucket.url} --name t" in said
        here = good("show", "t", "--json", env=proxy.env()).json["cached_units"]
        asked = sum(proxy.gets.values())
        assert asked < 60
        slow.end()
        proxy.forget_counts()
        document = json.loads(self.load(bucket, proxy, "--json").out)
        assert document["complete"]
        assert sum(proxy.gets.values()) == 60 - here
        if end is signal.SIGINT:
            assert here == asked  # what had been asked for was still stored

    def test_a_reload_that_was_stopped_is_continued_as_it_says(self, bucket, proxy, objects):
        self.load(bucket, proxy)
        changed = list(objects)[:30]
        for key in changed:
            bucket.put(key, b"new")
        slow = proxy.latency(0.2, kind="GET")
        proxy.forget_counts()
        with Child([*HOTSET, "reload", "t"], env=proxy.env()) as child:
            proxy.wait_for("GET", 3)
            child.signal(signal.SIGINT)
            assert child.wait() == 130
            assert "Go on with: hotset load --name t" in child.errors()
        slow.end()
        assert good("load", "--name", "t", "--json", env=proxy.env()).json["complete"]
        assert dict(proxy.gets) == dict.fromkeys(changed, 1)

    @pytest.mark.parametrize("kind", ["LIST", "GET"])
    def test_ctrl_c_is_heard_while_the_server_says_nothing(self, bucket, proxy, objects, kind):
        proxy.hang(kind=kind)
        with Child([*HOTSET, "load", bucket.url, "--name", "t"], env=proxy.env()) as child:
            proxy.wait_for(kind, 1)
            child.signal(signal.SIGINT)
            assert child.wait() == 130
            assert "Go on with" in child.errors()
            assert "Traceback" not in child.errors()
        proxy.release()

    def test_a_secret_is_not_repeated(self, bucket, proxy, objects):
        proxy.hang(kind="LIST")
        url = f"{bucket.url}/train"
        with Child([*HOTSET, "load", url, "--include", "what?", "--name", "t"], env=proxy.env()) as child:
            proxy.wait_for("LIST", 1)
            child.signal(signal.SIGINT)
            child.wait()
            assert "Go on with: the same command" in child.errors()
        proxy.release()

    def test_a_source_that_cannot_be_reached_does_not_hide_what_is_here(self, bucket, proxy, objects):
        self.load(bucket, proxy)
        proxy.status(403, kind="GET")
        key = next(iter(objects))
        code, out, _ = run("cat", "t", key, env=proxy.env(), binary=True)
        assert (code, out) == (0, objects[key])

    def test_cat_fetches_what_is_not_here(self, bucket, proxy, objects):
        with pytest.MonkeyPatch.context() as patch:
            for name, value in proxy.env().items():
                patch.setenv(name, value)
            hotset.open(bucket.url, "t").close()
        key = list(objects)[3]
        assert good("cat", "t", key, "--json", env=proxy.env()).json["cached"] is False
        for _ in range(2):
            assert run("cat", "t", key, env=proxy.env(), binary=True)[1] == objects[key]
        assert dict(proxy.gets) == {key: 1}

    def test_doctor_tries_the_source(self, bucket, proxy, objects):
        done = good("doctor", bucket.url, env=proxy.env())
        assert "can be listed and read" in done.out
        proxy.status(403, kind="LIST")
        done = run("doctor", bucket.url, "--json", env=proxy.env())
        assert done.code == 1
        assert done.json["wrong"] == 1
        wrong = [found for found in done.json["findings"] if found["state"] == "wrong"]
        assert [found["subject"] for found in wrong] == ["source"]


class TestLook:
    def test_an_empty_cache_is_not_made_by_looking(self, cache):
        assert "hotset load URI" in good("ls").out
        assert good("ls", "--json").json["datasets"] == []
        assert good("gc").out == "nothing to remove\n"
        for command in (
            ["show", "t"],
            ["cat", "t", "k"],
            ["drop", "t"],
            ["verify", "t"],
            ["view", "t", cache.parent / "v"],
        ):
            assert "no dataset 't'" in bad(1, *command)
        assert not cache.exists()

    def test_ls(self, place):
        good("load", place, "--name", "t")
        head, line, *_ = good("ls").out.splitlines()
        assert head.split() == ["NAME", "OBJECTS", "SIZE", "CACHED", "DISK", "LAYOUT", "USED"]
        assert line.split()[:6] == ["t", "40", "781.2", "KiB", "100", "%"]
        [dataset] = good("ls", "--json").json["datasets"]
        assert {"name", "objects", "bytes", "cached_share", "cached_bytes", "disk_bytes", "layout", "in_use"} <= set(
            dataset
        )

    def test_show(self, place):
        good("load", place, "--name", "t", "--exclude", "*.tmp")
        text = good("show", "t").out
        for fact in ("source", "exclude", "cached", "packs", "last used", "snapshot", "current"):
            assert fact in text
        document = good("show", "t", "--json").json
        assert document["exclude"] == ["*.tmp"]
        assert [snapshot["current"] for snapshot in document["snapshots"]] == [True]

    def test_show_says_what_the_last_listing_changed(self, place):
        good("load", place, "--name", "t")
        assert "changes" not in good("show", "t").out
        first = good("show", "t", "--json").json
        assert first["changes"] is None
        (place / "class0/000.bin").unlink()
        (place / "class1/001.bin").write_text("other")
        for name in "new", "newer":
            (place / name).write_text(name)
        good("reload", "t")
        said = {"before": first["snapshot"], "added": 2, "modified": 1, "removed": 1}
        assert good("show", "t", "--json").json["changes"] == said
        line = f"2 added, 1 modified, 1 removed since snapshot {first['snapshot'][:12]}"
        assert line in good("show", "t").out
        good("gc")  # takes the one before away
        assert good("show", "t", "--json").json["changes"] is None

    def test_show_writes_no_escape_codes(self, place):
        good("load", place, "--name", "t", "--exclude", "\x1bc*")
        assert r"'\x1bc*'" in good("show", "t").out

    def test_cat_to_a_reader_that_has_enough(self, place):
        (place / "large").write_bytes(b"x" * 20 * 2**20)
        good("load", place, "--name", "t")
        process = subprocess.Popen(
            [*HOTSET, "cat", "t", "large"], env=clean_environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert process.stdout is not None
        assert process.stdout.read(4) == b"xxxx"
        process.stdout.close()
        _, err = process.communicate(timeout=DEADLINE)
        assert err == b""

    def test_doctor(self, place):
        good("load", place, "--name", "t")
        done = good("doctor", place)
        assert "nothing is wrong" in done.out
        document = good("doctor", "--json").json
        assert document["wrong"] == 0
        assert {finding["state"] for finding in document["findings"]} <= {"ok", "note"}
        assert all(set(finding) == {"subject", "state", "text", "remedy"} for finding in document["findings"])

    def test_doctor_survives_what_it_is_for(self):
        done = run("doctor", "--json", env={"HOTSET_QUOTA": "much"})
        assert done.code == 1
        assert any("HOTSET_QUOTA" in finding["text"] for finding in done.json["findings"])


class TestVerify:
    def damage(self, cache, offset):
        path = max(cache.glob("datasets/*/packs/*"), key=lambda path: path.stat().st_size)
        with path.open("r+b") as file:
            file.seek(offset)
            byte = file.read(1)
            file.seek(offset)
            file.write(bytes([byte[0] ^ 0xFF]))

    def test_all_is_well(self, place):
        good("load", place, "--name", "t")
        assert good("verify", "t", "--json").json == {
            "name": "t", "checked_units": 40, "checked_bytes": 800_000, "damaged": []
        }  # fmt: skip

    def test_damage_is_told_dropped_and_fetched_again(self, place, cache):
        good("load", place, "--name", "t")
        self.damage(cache, 8192)
        done = run("verify", "t", "--json")
        assert done.code == 1
        [damaged] = done.json["damaged"]
        assert good("verify", "t").out.startswith("t: checked 39 units")
        assert good("load", "--name", "t", "--json").json["fetched_objects"] == 1
        assert run("cat", "t", damaged["key"], binary=True)[1] == (place / damaged["key"]).read_bytes()

    def test_a_pack_without_its_header_is_damaged_as_a_whole(self, place, cache):
        good("load", place, "--name", "t")
        self.damage(cache, 0)
        done = run("verify", "t")
        assert done.code == 1
        assert "40 objects damaged" in done.out
        assert "will be fetched again" in done.out

    def test_files(self, place, cache):
        good("load", place, "--name", "t", "--layout", "files")
        [victim] = cache.glob("datasets/*/trees/*/class0/000.bin")
        victim.chmod(0o644)
        victim.write_bytes(b"!" * 20_000)
        done = run("verify", "t", "--json")
        assert (done.code, [entry["key"] for entry in done.json["damaged"]]) == (1, ["class0/000.bin"])
        assert good("load", "--name", "t", "--json").json["fetched_objects"] == 1
        assert victim.read_bytes() == (place / "class0/000.bin").read_bytes()


class TestView:
    def test_a_tree_of_plain_files(self, place, tmp_path):
        good("load", place, "--name", "t", "--layout", "files")
        assert "40 files" in good("view", "t", tmp_path / "v").out
        assert files_below(tmp_path / "v" / "") == files_below(place)
        assert (tmp_path / "v/class1/001.bin").read_bytes() == (place / "class1/001.bin").read_bytes()

    def test_packs_are_converted_when_asked(self, place, tmp_path, cache):
        good("load", place, "--name", "t")
        message = bad(2, "view", "t", tmp_path / "v")
        assert "--convert" in message
        assert "781.2 KiB" in message
        assert not (tmp_path / "v").is_symlink()
        moved = place.rename(tmp_path / "moved")  # nothing needs to be fetched
        document = good("view", "t", tmp_path / "v", "--convert", "--json").json
        assert (document["converted_bytes"], document["fetched_objects"]) == (800_000, 0)
        assert files_below(tmp_path / "v" / "") == files_below(moved)
        assert list(cache.glob("datasets/*/packs/*")) == []
        assert good("show", "t", "--json").json["layout"] == "files"
        assert good("view", "t", tmp_path / "v", "--convert", "--json").json["converted_bytes"] == 0

    def test_what_is_missing_after_a_conversion_is_fetched(self, place, tmp_path, cache):
        good("load", place, "--name", "t")
        TestVerify().damage(cache, 8192)
        document = good("view", "t", tmp_path / "v", "--convert", "--json").json
        assert (document["converted_bytes"], document["fetched_objects"]) == (780_000, 1)

    def test_nobody_s_packs_are_taken_away(self, place, tmp_path, cache):
        good("load", place, "--name", "t")
        with hotset.open(name="t", refresh="never") as dataset:
            assert "in use" in bad(1, "view", "t", tmp_path / "v", "--convert")
            assert len(dataset[0]) == 20_000
        assert good("show", "t", "--json").json["layout"] == "packs"

    def test_a_conversion_that_was_cut_off_loses_nothing(self, place, tmp_path, cache):
        def cut_off(copied, _total):
            raise KeyboardInterrupt

        good("load", place, "--name", "t")
        dataset = CacheDirectory(cache).dataset("t")
        with pytest.raises(KeyboardInterrupt):
            convert_to_files(dataset, cut_off)
        assert good("show", "t", "--json").json["cached_share"] == 1.0
        assert {entry["kind"] for entry in good("gc", "--dry-run", "--json").json["removed"]} == {"tree"}
        assert good("view", "t", tmp_path / "v", "--convert", "--json").json["fetched_objects"] == 0
        assert files_below(tmp_path / "v" / "") == files_below(place)

    def test_a_conversion_needs_room_for_both(self, tmp_path):
        root = tmp_path / "large"
        root.mkdir()
        for index in range(12):
            (root / str(index)).write_bytes(bytes([index]) * 2**20)
        good("load", root, "--name", "t", "--quota", "18MiB")
        assert "quota" in bad(1, "view", "t", tmp_path / "v", "--convert")
        assert good("show", "t", "--json").json["cached_share"] == 1.0

    def test_something_else_is_not_overwritten(self, place, tmp_path):
        good("load", place, "--name", "t", "--layout", "files")
        (tmp_path / "mine").mkdir()
        (tmp_path / "link").symlink_to(tmp_path / "mine")
        for target in ("mine", "link"):
            assert "not a view" in bad(1, "view", "t", tmp_path / target)
        assert (tmp_path / "link").resolve() == tmp_path / "mine"

    def test_a_view_follows_the_dataset(self, place, tmp_path):
        good("load", place, "--name", "t", "--layout", "files")
        good("view", "t", tmp_path / "v")
        (place / "new").write_text("x")
        good("reload", "t")
        assert not (tmp_path / "v/new").exists()
        good("view", "t", tmp_path / "v")
        assert (tmp_path / "v/new").read_text() == "x"


class TestDrop:
    def test_it_is_gone(self, place, cache):
        good("load", place, "--name", "t")
        document = good("drop", "t", "--json").json
        assert document["removed"]
        assert document["freed_bytes"] >= 800_000
        assert names(cache) == []
        assert list((cache / "datasets").iterdir()) == []

    def test_not_while_it_is_in_use(self, place):
        good("load", place, "--name", "t")
        with hotset.open(name="t", refresh="never") as dataset:
            assert "--force" in bad(1, "drop", "t")
            good("drop", "t", "--force")
            assert len(dataset[3]) == 20_000  # what is mapped stays readable

    def test_a_second_name(self, place, cache):
        good("load", place, "--name", "a")
        good("load", place, "--name", "b")
        assert good("drop", "a", "--json").json == {
            "name": "a", "removed": False, "freed_bytes": 0, "other_names": ["b"]
        }  # fmt: skip
        assert good("show", "b", "--json").json["cached_share"] == 1.0


class TestSnapshots:
    @pytest.fixture
    def two(self, place):
        good("load", place, "--name", "t")
        (place / "class0/000.bin").write_text("other")
        good("reload", "t")
        return [record["digest"] for record in good("snapshots", "t", "--json").json["snapshots"]]

    def flags(self, what):
        return [record[what] for record in good("snapshots", "t", "--json").json["snapshots"]]

    def test_they_are_listed_oldest_first(self, two):
        lines = good("snapshots", "t").out.splitlines()
        assert [line.split()[0] for line in lines[1:]] == [digest[:12] for digest in two]
        assert lines[2].endswith("current")

    def test_pinning(self, two):
        good("snapshots", "t", "--pin", two[0][:10])
        assert self.flags("pinned") == [True, False]
        assert good("gc", "--json").json["removed"] == []
        good("snapshots", "t", "--unpin", two[0])
        assert self.flags("pinned") == [False, False]

    def test_rolling_back(self, two, place):
        done = good("snapshots", "t", "--rollback", two[0][:10])
        assert "HOTSET_FRESH_FOR" in done.err
        assert self.flags("current") == [True, False]
        assert len(good("cat", "t", "class0/000.bin", "--json").json["version"]) > 0
        assert good("cat", "t", "class0/000.bin", "--json").json["size"] == 20_000

    def test_one_thing_at_a_time(self, two):
        assert "one at a time" in bad(2, "snapshots", "t", "--pin", two[0], "--unpin", two[1])


class TestGc:
    def test_old_snapshots_and_their_packs(self, place, cache):
        good("load", place, "--name", "t")
        (place / "class0/000.bin").write_text("other")
        good("reload", "t")
        before = files_below(cache)
        dry = good("gc", "--dry-run", "--json").json
        assert files_below(cache) == before
        document = good("gc", "--json").json
        assert document["removed"] == dry["removed"]
        assert sorted(entry["kind"] for entry in document["removed"]) == ["pack", "snapshot"]
        assert good("show", "t", "--json").json["cached_share"] == 1.0
        assert good("gc").out == "nothing to remove\n"
        assert good("verify", "t", "--json").json["checked_units"] == 40

    def test_what_is_open_stays(self, place):
        good("load", place, "--name", "t")
        with hotset.open(name="t", refresh="never"):
            (place / "class0/000.bin").write_text("other")
            good("reload", "t")
            assert good("gc", "--json").json["removed"] == []
        assert len(good("gc", "--json").json["removed"]) == 2

    def test_trees(self, place, tmp_path):
        good("load", place, "--name", "t", "--layout", "files")
        (place / "class0/000.bin").write_text("other")
        good("reload", "t")
        assert [entry["kind"] for entry in good("gc", "--json").json["removed"]] == ["snapshot"]
        assert good("verify", "t", "--json").json["checked_units"] == 40

    def test_what_killed_processes_left(self, place, cache):
        good("load", place, "--name", "t")
        [dataset] = (cache / "datasets").iterdir()
        orphan = dataset.rename(cache / "datasets" / ("0" * 32))
        shutil.copytree(orphan, dataset)
        (cache / "names" / "gone").symlink_to("../datasets/nowhere")
        for path in (dataset / "packs" / ".x.1", cache / "datasets" / ".y.2"):
            path.mkdir()
        fresh = good("gc", "--json").json["removed"]
        assert sorted(entry["kind"] for entry in fresh) == ["dataset", "name"]
        assert (dataset / "packs" / ".x.1").exists()  # somebody may be writing it at this moment
        assert names(cache) == ["t"]
        assert good("show", "t", "--json").json["cached_share"] == 1.0


def test_a_dataset_in_use_says_so(place):
    good("load", place, "--name", "t")
    with hotset.open(name="t", refresh="never"):
        assert good("show", "t", "--json").json["in_use"] is True
        assert good("ls").out.splitlines()[1].endswith("now")
    wait_until(lambda: not good("show", "t", "--json").json["in_use"], what="the end of the lease")


def test_the_module_is_the_program():
    assert Path(hotset.__file__).parent.joinpath("__main__.py").exists()
    assert good("--version").out == f"hotset {hotset.__version__}\n"

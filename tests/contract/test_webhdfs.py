"""HDFS, against a stand-in for the three operations of its web interface that reading needs.

It stands for the requests and answers of a name node that redirects to a data node; not for permissions, delegation
tokens or Kerberos.
"""

from __future__ import annotations

import itertools
import json
import sys
import threading
from collections.abc import Iterator
from urllib.parse import parse_qs, unquote

import pytest

from hotset.errors import Changed, Denied, InvalidInput, Unavailable
from hotset.source import Source, SourceOptions, open_source
from hotset.testing.source import SourceContract, listed
from tests.contract.standins import Shelf

ROOT = "/user/somebody/dataset"


class NameNode:
    """A `Shelf` whose answers are those of WebHDFS over ``files``."""

    def __init__(self, shelf: Shelf) -> None:
        self.shelf = shelf
        self.files: dict[str, bytes] = {}
        self.times: dict[str, int] = {}
        self.clock = itertools.count(1_700_000_000_000)
        shelf.override = self.answer

    def source(self) -> Source:
        return open_source(f"webhdfs://{self.shelf.endpoint.removeprefix('http://')}{ROOT}", env={})

    def put(self, key: str, content: bytes) -> None:
        self.files[f"{ROOT}/{key}"] = content
        self.times[f"{ROOT}/{key}"] = next(self.clock)

    def delete(self, key: str) -> None:
        del self.files[f"{ROOT}/{key}"]

    def answer(self, method: str, target: str) -> tuple[int, dict[str, str], bytes]:
        raw, _, query = target.partition("?")
        asked = {name.lower(): values[0] for name, values in parse_qs(query).items()}
        path = unquote(raw)
        if path.startswith("/data"):
            content = self.files[path.removeprefix("/data")]
            first = int(asked.get("offset", 0))
            length = int(asked.get("length", len(content)))
            return 200, {}, content[first : first + length]
        path = path.removeprefix("/webhdfs/v1").rstrip("/")
        operation = asked["op"].upper()
        inside = sorted(
            {name.removeprefix(f"{path}/").partition("/")[0] for name in self.files if name.startswith(f"{path}/")}
        )
        if path not in self.files and not inside:
            refusal = {"exception": "FileNotFoundException", "message": "does not exist"}
            return 404, {}, json.dumps({"RemoteException": refusal}).encode()
        if operation == "OPEN":
            return 307, {"location": f"{self.shelf.endpoint}/data{raw.removeprefix('/webhdfs/v1')}?{query}"}, b""
        if operation == "GETFILESTATUS":
            return 200, {}, json.dumps({"FileStatus": self.status(path, "")}).encode()
        assert operation == "LISTSTATUS"
        found = [self.status(f"{path}/{name}", name) for name in inside]
        return 200, {}, json.dumps({"FileStatuses": {"FileStatus": found}}).encode()

    def status(self, path: str, suffix: str) -> dict[str, object]:
        content = self.files.get(path)
        kind = {"type": "DIRECTORY", "length": 0} if content is None else {"type": "FILE", "length": len(content)}
        return {**kind, "pathSuffix": suffix, "modificationTime": self.times.get(path, 0)}


@pytest.fixture
def name_node() -> Iterator[NameNode]:
    with Shelf() as shelf:
        yield NameNode(shelf)


class TestContract(SourceContract):
    unusual_keys = ("with space", "plus+sign", "ünïcödé", "deep/er/than/that")

    @pytest.fixture
    def place(self, name_node: NameNode) -> NameNode:
        name_node.files[f"{ROOT}-of-somebody-else/object"] = b"not ours"
        return name_node


def test_hdfs_goes_to_the_web_port_of_the_name_node():
    source = open_source("hdfs://node:8020/data", env={})
    assert source.identity == "webhdfs://node:9870/data/"


def test_the_endpoint_and_the_user_can_be_given(name_node):
    name_node.put("a", b"content")
    options = SourceOptions(endpoint=name_node.shelf.endpoint, user="me")
    source = open_source(f"hdfs://somewhere{ROOT}", env={}, options=options)
    assert list(listed(source)) == ["a"]
    assert all("user.name=me" in path for _, path, _ in name_node.shelf.seen)


@pytest.mark.parametrize(("status", "error"), [(401, Denied), (403, Denied), (500, Unavailable), (503, Unavailable)])
def test_refusals(name_node, status, error):
    name_node.put("a", b"content")
    source = name_node.source()
    info = listed(source)["a"]
    name_node.shelf.override = lambda _method, _path: (status, {}, b"{}")
    with pytest.raises(error):
        source.read("a", 0, 7, info)


@pytest.mark.parametrize("silent", ["name node", "data node", "data node in mid-body"])
def test_a_node_that_says_nothing_is_not_waited_for(name_node, silent):
    name_node.put("a", b"content")
    options = SourceOptions(endpoint=name_node.shelf.endpoint, read_timeout=0.2)
    source = open_source(f"hdfs://somewhere{ROOT}", env={}, options=options)
    info = listed(source)["a"]
    released = threading.Event()

    def hang(method, target):
        if target.startswith("/data") == silent.startswith("data"):
            if silent.endswith("body"):
                return 200, {"content-length": "7"}, b"cont"  # and the connection stays open
            released.wait()
        return name_node.answer(method, target)

    name_node.shelf.override = hang
    try:
        with pytest.raises(Unavailable, match="timed out") as caught:
            source.read("a", 0, 7, info)
        assert caught.value.throttled
        if silent == "name node":
            with pytest.raises(Unavailable, match="timed out"):
                listed(source)
    finally:
        released.set()
    source.close()


def test_a_change_while_reading_is_noticed(name_node):
    name_node.put("a", b"content")
    source = name_node.source()
    info = listed(source)["a"]
    answer = name_node.answer

    def meddle(method, target):
        if target.startswith("/data"):
            name_node.put("a", b"changed")
        return answer(method, target)

    name_node.shelf.override = meddle
    with pytest.raises(Changed):
        source.read("a", 0, 7, info)


def test_without_its_library_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "fsspec.implementations.webhdfs", None)
    with pytest.raises(InvalidInput, match=r"hotset\[hdfs\]"):
        open_source("hdfs://node/data", env={})

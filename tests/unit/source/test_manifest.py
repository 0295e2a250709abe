"""Manifests: what a line may hold, and what happens on the way to an object."""

from __future__ import annotations

import hashlib
import json
import tracemalloc

import pytest

from hotset.errors import Changed, Denied, InvalidInput, NotFound, Unavailable
from hotset.source import open_source
from hotset.source.manifest import parse_manifest
from hotset.testing.source import listed
from tests.contract.standins import Shelf

BASE = "https://host/sets/train.jsonl"
SECRET = "s3cr3t"


@pytest.fixture
def shelf():
    with Shelf() as shelf:
        yield shelf


def write(shelf, *lines):
    shelf.objects["m.jsonl"] = "\n".join(json.dumps(line) for line in lines).encode()
    return open_source(f"{shelf.endpoint}/m.jsonl", env={})


def test_a_line():
    [entry] = parse_manifest('\n{"key": "a", "url": "../x/y?sig=1", "size": 3, "etag": "t"}\r\n\n', BASE)
    assert (entry.key, entry.url, entry.size, entry.etag) == ("a", "https://host/x/y?sig=1", 3, "t")
    assert "sig" not in repr(entry)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("{", "not JSON"),
        ("[]", "not a JSON object"),
        ('{"url": "x"}', "key is missing"),
        ('{"key": "", "url": "x"}', "key is missing"),
        ('{"key": "a"}', "url is missing"),
        ('{"key": "a", "url": "ftp://x/y"}', "neither http"),
        ('{"key": "a", "url": "http://[x/y"}', "url is none"),
        (f'{{"key": "a", "url": "http://u:{SECRET}@x/y"}}', "user name"),
        ('{"key": "a", "url": "x", "size": -1}', "size"),
        ('{"key": "a", "url": "x", "size": "1"}', "size"),
        ('{"key": "a", "url": "x", "size": true}', "size"),
        ('{"key": "a", "url": "x", "etag": 1}', "etag"),
        ('{"key": "a", "url": "x", "sha256": "abc"}', "sha256"),
    ],
)
def test_a_wrong_line_is_named(line, says):
    with pytest.raises(InvalidInput, match=f"line 2 of the manifest: .*{says}") as caught:
        parse_manifest('{"key": "good", "url": "x"}\n' + line, BASE)
    assert SECRET not in str(caught.value)


def test_a_key_that_comes_twice_is_named():
    with pytest.raises(InvalidInput, match="'a' is there a second time"):
        parse_manifest('{"key": "a", "url": "x"}\n{"key": "a", "url": "y"}', BASE)


def test_only_objects_without_a_size_are_asked_for(shelf):
    shelf.objects |= {"one": b"1", "two": b"22"}
    source = write(shelf, {"key": "a", "url": "one", "size": 1}, {"key": "b", "url": "two"})
    infos = listed(source)
    assert [infos["a"].size, infos["b"].size] == [1, 2]
    assert [path for method, path, _ in shelf.seen if method == "HEAD"] == ["/two"]


def test_a_reader_that_never_listed_loads_the_manifest_once(shelf):
    shelf.objects["one"] = b"1"
    infos = listed(write(shelf, {"key": "a", "url": "one", "size": 1}))
    shelf.seen.clear()
    source = open_source(f"{shelf.endpoint}/m.jsonl", env={})
    for _ in range(3):
        assert bytes(source.read("a", 0, 1, infos["a"])) == b"1"
    assert [path for _, path, _ in shelf.seen] == ["/m.jsonl", "/one", "/one", "/one"]
    with pytest.raises(NotFound, match="not in the manifest"):
        source.read("b", 0, 1, infos["a"])


def test_content_is_checked_against_its_digest(shelf):
    shelf.objects["one"] = b"right"
    digest = hashlib.sha256(b"right").hexdigest()
    source = write(shelf, {"key": "a", "url": "one", "size": 5, "sha256": digest.upper()})
    info = listed(source)["a"]
    assert bytes(source.read("a", 0, 5, info)) == b"right"
    shelf.objects["one"] = b"wrong"
    with pytest.raises(Changed, match="SHA-256"):
        source.read("a", 0, 5, info)


def test_a_part_from_a_server_without_ranges_takes_no_more_memory_than_it_is(shelf):
    shelf.ranges = False
    content = shelf.objects["one"] = bytes(range(256)) * (1 << 17)  # 32 MiB
    source = write(shelf, {"key": "a", "url": "one", "size": len(content)})
    info = listed(source)["a"]
    source.read("a", 0, 1, info)  # what the first request takes once
    tracemalloc.start()
    try:
        parts = [source.read("a", start, start + 1000, info) for start in (10, 20_000_000, 30_000_000)]
        assert tracemalloc.get_traced_memory()[1] < len(content) / 8
    finally:
        tracemalloc.stop()
    assert [bytes(part) for part in parts] == [content[at : at + 1000] for at in (10, 20_000_000, 30_000_000)]


def redirecting(shelf, target, hops=1):
    left = [hops]

    def override(_method, path):
        if path.startswith("/moved") and left[0]:
            left[0] -= 1
            return 302, {"location": target}, b""
        return None

    shelf.override = override


def test_redirects_are_followed(shelf):
    shelf.objects["one"] = b"1"
    redirecting(shelf, "/one")
    source = write(shelf, {"key": "a", "url": "moved", "size": 1})
    assert bytes(source.read("a", 0, 1, listed(source)["a"])) == b"1"


def test_redirects_have_an_end(shelf):
    redirecting(shelf, "/moved", hops=99)
    source = write(shelf, {"key": "a", "url": "moved", "size": 1})
    with pytest.raises(InvalidInput, match="redirects"):
        source.read("a", 0, 1, listed(source)["a"])


def test_a_redirect_elsewhere_than_http_is_refused(shelf):
    redirecting(shelf, "file:///etc/passwd")
    source = write(shelf, {"key": "a", "url": "moved", "size": 1})
    with pytest.raises(InvalidInput, match="not an http"):
        source.read("a", 0, 1, listed(source)["a"])


@pytest.mark.parametrize(("status", "error"), [(403, Denied), (404, NotFound), (429, Unavailable), (500, Unavailable)])
def test_refusals_show_no_signature(shelf, status, error):
    source = write(shelf, {"key": "a", "url": f"one?sig={SECRET}", "size": 1})
    info = listed(source)["a"]
    shelf.override = lambda _method, _path: (status, {"retry-after": "9"}, b"")
    with pytest.raises(error) as caught:
        source.read("a", 0, 1, info)
    assert SECRET not in str(caught.value)
    if status == 429:
        assert (caught.value.throttled, caught.value.retry_after) == (True, 9.0)


def test_a_manifest_that_is_no_text(shelf):
    shelf.objects["m.jsonl"] = b"\xff\xfe"
    with pytest.raises(InvalidInput, match="UTF-8"):
        listed(open_source(f"{shelf.endpoint}/m.jsonl", env={}))


def test_a_server_that_hides_sizes(shelf):
    source = write(shelf, {"key": "a", "url": "one"})
    shelf.override = lambda method, _path: (405, {}, b"") if method == "HEAD" else None
    with pytest.raises(InvalidInput, match="a: the source refuses"):
        listed(source)


def test_an_empty_manifest_lists_nothing(shelf):
    assert listed(write(shelf)) == {}

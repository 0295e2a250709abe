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
from tests.contract.standins import Shelf, etag

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


class TestVersions:
    """What belongs to the listed version where not the whole is read, which its digest would tell."""

    OLD, NEW = bytes(1000), bytes(range(250)) * 4
    DIGEST = hashlib.sha256(OLD).hexdigest()

    def opened(self, shelf, **said):
        shelf.objects["one"] = self.OLD
        source = write(shelf, {"key": "a", "url": "one", "size": 1000, **said})
        return source, listed(source)["a"]

    @pytest.mark.parametrize("quotes", ["", '"'])
    def test_a_tag_beside_a_digest_is_asked_for(self, shelf, quotes):
        tag = etag(self.OLD)
        source, info = self.opened(shelf, sha256=self.DIGEST, etag=f"{quotes}{tag[1:-1]}{quotes}")
        for start, end in ((0, 1000), (10, 20)):
            assert bytes(source.read("a", start, end, info)) == self.OLD[start:end]
        assert [headers.get("if-match") for _, path, headers in shelf.seen if path == "/one"] == [tag, tag]

    @pytest.mark.parametrize("conditions", [True, False])
    @pytest.mark.parametrize("part", [(0, 1000), (10, 20)])
    def test_another_tag_is_a_change(self, shelf, conditions, part):
        source, info = self.opened(shelf, sha256=self.DIGEST, etag=etag(self.OLD))
        shelf.objects["one"] = self.NEW
        shelf.conditions = conditions
        with pytest.raises(Changed):
            source.read("a", *part, info)

    @pytest.mark.parametrize("conditions", [True, False])
    def test_a_tag_from_elsewhere_harms_no_object_that_is_read_as_a_whole(self, shelf, conditions):
        """As when the manifest was made from a listing of a bucket, and the links lead to a cache in front of it."""
        source, info = self.opened(shelf, sha256=self.DIGEST, etag="tag-of-the-bucket")
        shelf.conditions = conditions
        assert bytes(source.read("a", 0, 1000, info)) == self.OLD
        with pytest.raises(Changed):
            source.read("a", 10, 20, info)

    @pytest.mark.parametrize("conditions", [True, False])
    @pytest.mark.parametrize("said", [{"sha256": DIGEST}, {}], ids=["digest", "nothing"])
    def test_without_a_tag_the_first_part_gives_it(self, shelf, said, conditions):
        source, info = self.opened(shelf, **said)
        shelf.conditions = conditions
        assert bytes(source.read("a", 0, 500, info)) == self.OLD[:500]
        assert bytes(source.read("a", 500, 600, info)) == self.OLD[500:600]
        shelf.objects["one"] = self.NEW
        with pytest.raises(Changed):
            source.read("a", 600, 1000, info)
        assert [headers.get("if-match") for _, path, headers in shelf.seen if path == "/one"][1] == etag(self.OLD)

    def test_without_tags_the_first_part_gives_the_time(self, shelf):
        shelf.etags = False
        source, info = self.opened(shelf, sha256=self.DIGEST)
        assert bytes(source.read("a", 0, 500, info)) == self.OLD[:500]
        assert bytes(source.read("a", 500, 600, info)) == self.OLD[500:600]
        shelf.objects["one"], shelf.date = self.NEW, "Mon, 01 Jan 2024 00:00:01 GMT"
        with pytest.raises(Changed):
            source.read("a", 600, 1000, info)

    def test_a_weak_tag_is_compared_but_not_asked_for(self, shelf):
        source, info = self.opened(shelf, sha256=self.DIGEST)
        tags = iter(['W/"1"', 'W/"1"', 'W/"2"'])
        said = {"content-range": "bytes 0-9/1000"}
        shelf.override = lambda _method, _path: (206, {**said, "etag": next(tags)}, bytes(10))
        for _ in range(2):
            source.read("a", 0, 10, info)
        with pytest.raises(Changed):
            source.read("a", 0, 10, info)
        assert not any("if-match" in headers for _, _, headers in shelf.seen)

    def test_a_reload_begins_anew(self, shelf):
        source, info = self.opened(shelf, sha256=self.DIGEST)
        shelf.etags = False
        source.read("a", 0, 10, info)
        shelf.date = "Mon, 01 Jan 2024 00:00:01 GMT"  # copied anew, with the same content
        with pytest.raises(Changed):
            source.read("a", 10, 20, info)
        info = listed(source)["a"]
        assert bytes(source.read("a", 10, 20, info)) == self.OLD[10:20]

    def test_a_manifest_with_another_digest_is_not_mixed_with_the_listed_one(self, shelf):
        _, info = self.opened(shelf, sha256=self.DIGEST)
        shelf.objects["one"] = self.NEW
        later = write(shelf, {"key": "a", "url": "one", "size": 1000, "sha256": hashlib.sha256(self.NEW).hexdigest()})
        with pytest.raises(Changed, match="reload"):
            later.read("a", 10, 20, info)


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

"""Include and exclude patterns."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotset.errors import InvalidInput
from hotset.source.globs import key_beginnings, key_filter, literal_pattern


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("*.jpg", ["a.jpg", "a/b/c.jpg", ".jpg"], ["a.jpeg", "a.jpg/b"]),
        ("/*.jpg", ["a.jpg"], ["a/b.jpg"]),
        ("train/*", ["train/a"], ["train/a/b", "x/train/a", "train"]),
        ("train/", ["train/a", "train/a/b"], ["train", "x/train/a"]),
        ("train/**", ["train/a", "train/a/b"], ["train"]),
        ("**/val/*", ["val/a", "x/val/a", "x/y/val/a"], ["val", "xval/a"]),
        ("a/**/b", ["a/b", "a/x/b", "a/x/y/b"], ["a/xb"]),
        ("?.bin", ["a.bin", "x/a.bin"], ["ab.bin", "/.bin"]),
        ("[a-c]x", ["ax", "d/cx"], ["dx", "-x"]),
        ("[!a]x", ["bx"], ["ax"]),
        ("[]]x", ["]x"], ["[x"]),
        ("[!]]x", ["ax"], ["]x"]),
        ("[a-]x", ["ax", "-x"], ["bx"]),
        ("[+--]x", ["+x", ",x", "-x"], ["ax"]),
        ("a/[!b]c", ["a/dc"], ["a/bc", "a//c"]),
        ("a\\*b", ["a*b"], ["axb"]),
        ("a.b+c", ["a.b+c"], ["axb+c", "a.bbc"]),
        ("new\nline", ["new\nline"], ["newline"]),
    ],
)
def test_patterns(pattern, yes, no):
    wanted = key_filter(include=[pattern])
    assert [key for key in yes if not wanted(key)] == []
    assert [key for key in no if wanted(key)] == []


def test_exclude_wins():
    wanted = key_filter(include=["*.jpg", "*.png"], exclude=["bad/"])
    assert [key for key in ("a.jpg", "a.png", "a.txt", "bad/a.jpg") if wanted(key)] == ["a.jpg", "a.png"]


def test_exclude_alone_keeps_the_rest():
    wanted = key_filter(exclude=["*.tmp"])
    assert wanted("a")
    assert not wanted("b/a.tmp")


def test_without_patterns_there_is_no_filter():
    assert key_filter() is None


@pytest.mark.parametrize("patterns", [[""], ["/"], ["[a"], ["[z-a]"], "*.jpg"])
def test_wrong_patterns_are_refused(patterns):
    with pytest.raises(InvalidInput):
        key_filter(include=patterns)


@given(st.text(alphabet="ab/.*?[]!\\-", min_size=1, max_size=12), st.text(alphabet="ab/.", max_size=12))
def test_any_pattern_compiles_or_is_refused(pattern, key):
    try:
        wanted = key_filter(include=[pattern])
    except InvalidInput:
        return
    assert wanted(key) in (True, False)


@given(st.text(alphabet=st.characters(blacklist_characters="*?[\\\0", blacklist_categories=("Cs",)), min_size=1))
def test_a_pattern_without_magic_matches_itself(key):
    if not key.strip("/") or key.endswith("/") or key.startswith("/"):
        return
    assert key_filter(include=[f"/{key}"])(key)


class TestBeginnings:
    @pytest.mark.parametrize(
        ("include", "beginnings"),
        [
            ([], ("",)),
            (["*.jpg"], ("",)),
            (["name"], ("",)),
            (["/name"], ("name",)),
            (["train/"], ("train/",)),
            (["train/**", "train/a/*"], ("train/",)),
            (["val/x*", "train/[ab]", "a/?"], ("a/", "train/", "val/x")),
            (["a/\\*b/*"], ("a/*b/",)),
            (["a/b\\"], ("a/b",)),
            (["train/*", "*.txt"], ("",)),
        ],
    )
    def test_are_the_text_before_the_first_special_character(self, include, beginnings):
        assert key_beginnings(include) == beginnings

    @pytest.mark.parametrize(
        ("include", "beginnings"),
        [
            (["images/train/*", "labels/*"], ("train/",)),
            (["images/*"], ("",)),
            (["im*/x"], ("",)),
            (["labels/*"], ()),
        ],
    )
    def test_below_a_mount_are_those_that_it_can_hold(self, include, beginnings):
        assert key_beginnings(include, "images") == beginnings

    @given(st.lists(st.text("ab/*?\\[]", min_size=1), min_size=1), st.text("ab/*?\\[]"))
    def test_no_accepted_key_begins_otherwise(self, include, key):
        try:
            wanted = key_filter(include=include)
        except InvalidInput:
            return
        if wanted(key):
            assert key.startswith(key_beginnings(include))

    @given(st.text("ab/*?\\[]", min_size=1), st.text("ab/*?\\[]"))
    def test_a_literal_pattern_accepts_what_begins_so_and_nothing_else(self, beginning, key):
        wanted = key_filter(include=[literal_pattern(beginning)])
        assert wanted(key) == key.startswith(beginning)
        assert wanted(beginning + key)
        assert key_beginnings([literal_pattern(beginning)]) == (beginning,)

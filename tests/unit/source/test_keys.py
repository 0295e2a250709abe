"""Rules about keys, tags and times."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotset.source.base import FingerprintKind
from hotset.source.keys import alias_possible, awkward, epoch_ns, make_info, same_time, strong_tag

MD5, OTHER_MD5 = "0" * 32, "1" * 32


@pytest.mark.parametrize("key", ["/a", "a/", "a//b", "..", "a/../b", "a/.", "./a", "a\0b", "a\n", "\x7f", "", "/"])
def test_awkward_keys(key):
    assert awkward(key)


@pytest.mark.parametrize("key", ["a", "a/b", ".a", "a.", "...", "..a/b", "a..b", "a b", "ü", "%2F", "a?b#c", "\\"])
def test_plain_keys(key):
    assert not awkward(key)


@given(st.text())
def test_awkward_is_what_its_definition_says(key):
    control = any(ord(c) < 32 or ord(c) == 127 for c in key)
    assert awkward(key) == (control or any(part in ("", ".", "..") for part in key.split("/")))


@pytest.mark.parametrize(
    ("given_tag", "strong"),
    [('"abc"', "abc"), ("abc", "abc"), ('W/"abc"', None), ('w/"abc"', None), ("", None), ('""', None), (None, None)],
)
def test_tags_are_normalised(given_tag, strong):
    assert strong_tag(given_tag) == strong


@pytest.mark.parametrize(
    ("listed", "got", "possible"),
    [
        (MD5, OTHER_MD5, False),
        (f"{MD5}-2", f"{OTHER_MD5}-2", False),
        (f"{MD5}-2", f"{OTHER_MD5}-3", True),
        (f"{MD5}-2", OTHER_MD5, True),
        ("0x8D1", "0x8D2", False),
        ("opaque", MD5, True),
    ],
)
def test_two_tags_of_one_kind_are_two_versions(listed, got, possible):
    assert alias_possible(listed, got) is possible


def test_times_compare_in_the_coarser_precision():
    second = 1_700_000_000 * 10**9
    assert same_time(second + 123_000_000, second)
    assert same_time(second, second + 999_999_999)
    assert not same_time(second + 1_000_000, second + 2_000_000)
    assert not same_time(second, second + 10**9)
    assert not same_time(0, 0)


@given(st.datetimes(min_value=datetime(1970, 1, 1), max_value=datetime(2200, 1, 1)))  # noqa: DTZ001 -- bounds of hypothesis
def test_times_are_exact(moment):
    moment = moment.replace(tzinfo=UTC)
    assert epoch_ns(moment) // 1000 % 10**6 == moment.microsecond
    assert datetime.fromtimestamp(epoch_ns(moment) // 10**9, UTC) == moment.replace(microsecond=0)


def test_an_object_without_a_strong_tag_is_known_by_its_time():
    assert make_info("k", 1, 'W/"x"', 5)[2:] == (FingerprintKind.MODIFIED, b"5", 5)
    assert make_info("k", 1, '"x"', 5)[2:] == (FingerprintKind.ETAG, b"x", 5)

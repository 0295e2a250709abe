"""Which objects a job wants, in which order, in which windows."""

from __future__ import annotations

import pickle
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotset.alnair.direct import _ListedNames
from hotset.alnair.names import Reference, Window, cut, select
from hotset.errors import NotFound
from hotset.snapshot import Listing
from hotset.source import FingerprintKind, ObjectInfo


def names_of(*keys: str) -> _ListedNames:
    infos = [ObjectInfo(key, 1, FingerprintKind.ETAG, b"x") for key in keys]
    return _ListedNames(Listing.of([infos], listed_ns=0))


class TestListedNames:
    @given(st.sets(st.text("ab/é\U0010ffff", max_size=4), min_size=1), st.text("ab/é\U0010ffff", max_size=3))
    def test_prefixes_and_places(self, keys, prefix):
        names = names_of(*keys)
        assert list(names) == sorted(keys)
        assert [names[place] for place in names.prefix(prefix)] == sorted(k for k in keys if k.startswith(prefix))
        for place, key in enumerate(sorted(keys)):
            assert names.index(key) == place
        assert (prefix in keys) == (prefix in names)

    def test_as_any_sequence(self):
        names = names_of("b", "a", "c")
        assert (names[-1], names[1:], len(names)) == ("c", ["b", "c"], 3)
        with pytest.raises(IndexError):
            names[3]
        with pytest.raises(ValueError, match="'x'"):
            names.index("x")


class TestSelect:
    NAMES = ("a/1", "a/2", "b/1", "b/2", "b2/1", "c")

    def chosen(self, *prefixes):
        names = names_of(*self.NAMES)
        return [names[place] for place in select(names, prefixes, where="bucket").tolist()]

    def test_without_prefixes_all_are(self):
        assert self.chosen() == list(self.NAMES)

    def test_in_the_order_of_the_prefixes_sorted_within_each(self):
        assert self.chosen("c", "b/", "a") == ["c", "b/1", "b/2", "a/1", "a/2"]

    def test_a_prefix_is_any_beginning_of_a_name(self):
        assert self.chosen("b") == ["b/1", "b/2", "b2/1"]
        assert self.chosen("b/2") == ["b/2"]

    def test_an_object_below_two_prefixes_is_there_once_and_for_each_of_them(self):
        assert self.chosen("b/2", "b") == ["b/2", "b/1", "b2/1"]
        assert self.chosen("b", "b/2", "b") == ["b/1", "b/2", "b2/1"]
        assert self.chosen("", "c") == list(self.NAMES)

    @pytest.mark.parametrize("wrong", ["d", "b/3", "a/1/"])
    def test_a_prefix_of_nothing_is_named(self, wrong):
        with pytest.raises(NotFound, match=f"bucket has no object whose name begins with '{wrong}'"):
            self.chosen("a", wrong)


class TestCut:
    def test_the_object_that_does_not_fit_opens_the_next_window(self):
        assert cut([40] * 10, 100) == [range(start, start + 2) for start in range(0, 10, 2)]

    def test_one_that_is_too_large_has_a_window_of_its_own(self):
        assert cut([10, 500, 10, 10], 100) == [range(1), range(1, 2), range(2, 4)]
        assert cut([500, 10], 100) == [range(1), range(1, 2)]
        assert cut([500], 100) == [range(1)]

    def test_without_a_limit_there_is_one(self):
        assert cut([40] * 10, 0) == [range(10)]

    @given(st.lists(st.integers(0, 200), min_size=1), st.integers(1, 300))
    def test_nothing_is_left_out_and_no_window_is_empty_or_too_large(self, sizes, limit):
        windows = cut(sizes, limit)
        assert [place for window in windows for place in window] == list(range(len(sizes)))
        for window in windows:
            assert len(window) == 1 or (window and sum(sizes[place] for place in window) <= limit)
        for window, following in pairwise(windows):
            assert sum(sizes[place] for place in window) + sizes[following.start] > limit


class TestWindow:
    WINDOW = Window(SimpleNamespace(names=names_of("a", "b", "c")), np.array([2, 0]), [7, 8])

    def test_shows_records(self):
        assert list(self.WINDOW) == [{"name": "c", "key": "c", "size": 7}, {"name": "a", "key": "a", "size": 8}]
        assert self.WINDOW[:1] == [self.WINDOW[0]]
        assert self.WINDOW[-1]["name"] == "a"
        assert (len(self.WINDOW), self.WINDOW.names()) == (2, ["c", "a"])

    def test_references_are_names_that_know_their_place(self):
        references = self.WINDOW.references()
        assert references == ["c", "a"]
        assert [reference.position for reference in references] == [2, 0]
        copy = pickle.loads(pickle.dumps(references[0]))
        assert (copy, type(copy), copy.position) == ("c", Reference, 2)

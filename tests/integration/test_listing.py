"""What is listed, and what is not: requests for keys that nobody wants cost time in a large bucket."""

from __future__ import annotations

import os
import threading

import pytest

import hotset
from hotset.errors import InvalidInput, NotFound
from hotset.source import SourceOptions, open_source
from tests.support.datasets import many_small
from tests.support.opening import read_all, use

pytestmark = pytest.mark.integration

WANTED = {"val/a": b"a", "val/b": b"b", "validation": b"c"}


@pytest.fixture
def place(bucket, proxy, monkeypatch):
    """A few objects beside more than a page of others."""
    use(monkeypatch, proxy.env())
    bucket.put_many({**many_small(1100, 10), **WANTED})
    return bucket


class TestPatternsWithABeginning:
    def test_only_what_begins_so_is_listed(self, place, proxy):
        with hotset.open(place.url, include="val/") as ds:
            assert read_all(ds) == {"val/a": b"a", "val/b": b"b"}
        assert proxy.lists == 1

    def test_several_are_listed_one_after_the_other(self, place, proxy):
        with hotset.open(place.url, include=["val/*", "/validation"]) as ds:
            assert read_all(ds) == WANTED
        assert proxy.lists == 2

    def test_pages_go_on_within_a_beginning(self, place, proxy):
        with hotset.open(place.url, include=["samples/*/*", "val/*"]) as ds:
            assert len(ds) == 1102
        assert proxy.lists == 3

    def test_a_failure_in_between_repeats_one_page(self, place, proxy):
        proxy.status(503, kind="LIST", times=1)
        with hotset.open(place.url, include=["samples/*/*", "val/*"]) as ds:
            assert len(ds) == 1102
        assert proxy.lists == 4

    def test_nothing_there_names_the_patterns(self, place):
        with pytest.raises(NotFound, match="--include"):
            hotset.open(place.url, include="nothing/*")

    def test_one_of_them_may_have_nothing(self, place):
        with hotset.open(place.url, include=["nothing/*", "val/*"]) as ds:
            assert len(ds) == 2

    def test_below_the_prefix_and_the_path_of_a_source(self, place, proxy):
        with hotset.open({"of": f"{place.url}/samples"}, include="of/00001/*") as ds:
            assert len(ds) == 100
            assert ds.keys[0] == "of/00001/00001000.bin"
        assert proxy.lists == 1


class TestForkableSource:
    """Reads in a process that forked while its parent used another: nothing in it lives in threads of the parent."""

    def test_reads_in_a_forked_child_of_a_process_that_read(self, place, proxy):
        source = open_source(place.url, env=proxy.env(), beginnings=("val/",), forkable=True)
        [batch] = source.list()
        infos = {info.key: info for info in batch}
        assert sorted(infos) == ["val/a", "val/b"]
        assert bytes(source.read("val/a", 0, 1, infos["val/a"])) == b"a"
        threads = threading.active_count()
        pid = os.fork()
        if not pid:
            try:
                mine = open_source(place.url, env=proxy.env(), forkable=True)
                os._exit(0 if bytes(mine.read("val/b", 0, 1, infos["val/b"])) == b"b" else 1)
            finally:
                os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert threading.active_count() == threads
        source.close()

    @pytest.mark.parametrize("uri", ["gs://bucket/x", "az://container/x"])
    def test_stores_that_cannot_are_refused(self, uri):
        with pytest.raises(InvalidInput, match="without a cache"):
            open_source(uri, env={}, options=SourceOptions(anonymous=True), forkable=True)

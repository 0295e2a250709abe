"""Reload over a real server, with every request counted: only what changed is fetched, and who reads is not disturbed."""

from __future__ import annotations

import pytest

import hotset
from hotset.errors import NotFound
from hotset.tier.node import CacheDirectory
from tests.support.datasets import content, many_small
from tests.support.opening import SMALL_PACKS, give_up_soon, read_all, use

pytestmark = pytest.mark.integration

DATA = dict(many_small(200, 2000))
KEYS = list(DATA)


class Place:
    """A bucket of which the test knows the content."""

    def __init__(self, bucket, proxy):
        self.bucket = bucket
        self.proxy = proxy
        self.url = bucket.url
        self.content = dict(DATA)
        bucket.put_many(DATA)

    def put(self, key, data):
        self.content[key] = data
        self.bucket.put_many({key: data})

    def delete(self, key):
        del self.content[key]
        self.bucket.delete(key)

    def open(self, **said):
        """Small packs, so that there are several."""
        return give_up_soon(self.url, "data", parameters=SMALL_PACKS, **said)


@pytest.fixture
def place(bucket, proxy, monkeypatch):
    use(monkeypatch, proxy.env())
    return Place(bucket, proxy)


@pytest.mark.parametrize(
    ("change", "gets", "said"),
    [
        (lambda place: None, 0, "nothing changed"),
        (lambda place: place.put(KEYS[77], content("other", 2500)), 1, "0 added, 1 modified, 0 removed"),
        (lambda place: place.put(KEYS[77], content("other", 2000)), 1, "0 added, 1 modified, 0 removed"),
        (lambda place: place.put(KEYS[77] + "x", content("new", 2000)), 1, "1 added, 0 modified, 0 removed"),
        (lambda place: place.put("a", b"first"), 1, "1 added, 0 modified, 0 removed"),
        (lambda place: place.put("zzz", b"last"), 1, "1 added, 0 modified, 0 removed"),
        (lambda place: place.delete(KEYS[77]), 0, "0 added, 0 modified, 1 removed"),
    ],
    ids=["nothing", "grown", "same size", "inserted", "inserted first", "inserted last", "removed"],
)
def test_only_what_changed_is_fetched(place, change, gets, said, no_leaks):
    with place.open() as before:
        before.load()
        old = dict(place.content)
        change(place)
        place.proxy.forget_counts()
        changes = before.reload()
        assert str(changes) == said
        assert (place.proxy.lists, place.proxy.count("GET"), place.proxy.count("HEAD")) == (1, 0, 0)
        with place.open() as after:
            assert after.snapshot == changes.after
            after.load()
            assert after.complete
            assert place.proxy.count("GET") == gets
            assert read_all(after) == place.content
            # Who opened before keeps what was there then.
            assert len(before) == len(old)
            assert read_all(before) == old
    assert place.proxy.count("GET") == gets
    assert place.proxy.count("HEAD") == 0


def test_what_did_not_change_is_read_without_a_load(place):
    with place.open() as before:
        before.load()
        place.put(KEYS[5], b"changed")
        before.reload()
        place.proxy.forget_counts()
        with place.open() as after:
            for _ in range(2):
                assert after.read_many(range(200)) == list(place.content.values())
        assert place.proxy.gets == {KEYS[5]: 1}


def test_changes_name_the_keys(place):
    with place.open() as ds:
        place.put(KEYS[3], b"shorter")
        place.put("new/one", b"1")
        place.delete(KEYS[4])
        changes = ds.reload()
        assert changes
        assert (changes.added, changes.modified, changes.removed) == (["new/one"], [KEYS[3]], [KEYS[4]])
        assert changes.bytes_to_fetch == len(b"shorter") + 1
        assert changes.before == ds.snapshot
        assert changes.packs_kept > 0
        with place.open() as after:
            assert not after.reload()


def test_an_object_that_was_not_fetched_before_it_changed_is_refused_not_mixed_up(place):
    with place.open() as before:
        place.put(KEYS[0], b"changed")
        before.reload()
        with pytest.raises(hotset.Changed, match="reload"):
            before[0]
        with place.open() as after:
            assert after[0] == b"changed"
            assert read_all(after) == place.content
        place.proxy.forget_counts()
        assert before.read_many(range(1, 200)) == list(DATA.values())[1:]
        # What both snapshots have in one pack, or in the same version, need not be fetched again.
        assert set(place.proxy.gets) <= set(KEYS)


def test_what_is_fetched_for_one_snapshot_serves_the_other(place):
    """Two that are open share packs that are equal, in both directions."""
    with place.open() as before:
        place.put(KEYS[0], b"changed")
        before.reload()
        with place.open() as after:
            last = len(after) - 1
            assert after[last] == DATA[KEYS[-1]]
            assert before[last] == DATA[KEYS[-1]]
        assert place.proxy.gets[KEYS[-1]] == 1


class TestOldSnapshots:
    def test_are_listed_pinned_and_opened(self, place):
        with place.open() as ds:
            ds.load()
            first = ds.snapshot
            place.put(KEYS[0], b"changed")
            second = ds.reload().after
        directory = CacheDirectory(ds._directory.cache.root).dataset("data")
        assert [record.digest for record in directory.snapshots()] == [first, second]
        assert [record.current for record in directory.snapshots()] == [False, True]
        directory.pin(first[:10])
        assert directory.pinned(first)
        lists = place.proxy.lists
        with hotset.open(name="data", snapshot=first[:10]) as old:
            assert old.snapshot == first
            assert read_all(old) == DATA
        assert place.proxy.lists == lists
        with hotset.open(name="data") as new:
            assert new.snapshot == second

    def test_one_that_does_not_exist_says_so(self, place):
        place.open().close()
        with pytest.raises(NotFound, match="snapshots"):
            hotset.open(name="data", snapshot="ffff" * 16)

    def test_going_back_costs_nothing(self, place):
        """The content of before is the snapshot of before."""
        with place.open() as ds:
            ds.load()
            place.put(KEYS[0], b"changed")
            there = ds.reload().after
            place.put(KEYS[0], DATA[KEYS[0]])
            back = ds.reload()
            assert (back.after, bool(back)) == (ds.snapshot, False)
            assert there != ds.snapshot
        place.proxy.forget_counts()
        with place.open() as ds:
            assert ds.complete
            assert read_all(ds) == DATA
        assert place.proxy.count("GET") == 0


def test_a_reload_of_an_emptied_bucket_keeps_the_last_snapshot(place):
    with place.open() as ds:
        ds.load()
        for key in KEYS:
            (place.bucket.path(key)).unlink()
        with pytest.raises(NotFound, match="no objects"):
            ds.reload()
        assert read_all(ds) == DATA
    with place.open() as ds:
        assert read_all(ds) == DATA


def test_reloading_a_tree_of_files(place, tmp_path):
    """The layout "files": unchanged files are linked, only the changed one is fetched; an old view stays as it was."""
    with place.open(layout="files") as before:
        before.load()
        view = before.view(tmp_path / "before")
        place.put(KEYS[7], b"changed")
        before.reload()
        place.proxy.forget_counts()
        with place.open() as after:
            after.load()
            assert place.proxy.gets == {KEYS[7]: 1}
            new = after.view(tmp_path / "after")
            assert (new / KEYS[7]).read_bytes() == b"changed"
            assert (view / KEYS[7]).read_bytes() == DATA[KEYS[7]]
            assert (new / KEYS[8]).stat().st_ino == (view / KEYS[8]).stat().st_ino
            assert read_all(after) == place.content


def test_a_view_shows_all_or_nothing(place, tmp_path):
    """An object changed since the listing. Who skips it when reading does not get a tree without it."""
    with place.open(layout="files", on_changed="skip") as ds:
        place.put(KEYS[7], b"changed")
        with pytest.raises(NotFound, match=f"1 of 200 objects are not in the cache \\('{KEYS[7]}'\\).* reload"):
            ds.view(tmp_path / "view")
        assert not (tmp_path / "view").is_symlink()
        ds.reload()
    with place.open() as ds:
        assert (ds.view(tmp_path / "view") / KEYS[7]).read_bytes() == b"changed"

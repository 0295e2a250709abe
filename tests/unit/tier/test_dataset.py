"""Snapshots in a cache: published whole, leased while open, removed only when nobody uses them."""

from __future__ import annotations

import errno
import os
import re
import shutil
import sys
import threading
import time
import unicodedata
from pathlib import Path
from typing import NoReturn

import pytest

from hotset.errors import Busy, Corrupt, Denied, Full, HotsetError, InvalidInput, NotFound
from hotset.snapshot import PlanParameters, Snapshot
from hotset.source.base import FingerprintKind
from hotset.tier.node import CacheDirectory, DatasetDirectory, treefiles, trees
from hotset.tier.node.collect import collect
from hotset.tier.node.keys import possible_name
from hotset.tier.node.records import Current
from hotset.tier.node.shelf import open_reader, open_shelf
from hotset.tier.node.space import cost_of
from hotset.tier.node.trees import ACCOUNT_EVERY, TreeShelf
from tests.support.datasets import content
from tests.support.processes import Child, call
from tests.unit.tier.making import (
    LISTED,
    all_units,
    check,
    contents,
    dataset_in,
    fill,
    filled,
    hidden_files,
    publish,
    unit_of,
)

OBJECTS = contents()

HOLD = """
import sys
from pathlib import Path
from hotset.tier.node import CacheDirectory
snapshot, lease = CacheDirectory(Path(sys.argv[1])).dataset(sys.argv[2]).open()
print("open", snapshot.digest, flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def cache(tmp_path: Path) -> CacheDirectory:
    return CacheDirectory(tmp_path / "cache", quota=64 * 2**20)


@pytest.fixture
def dataset(cache: CacheDirectory) -> DatasetDirectory:
    return dataset_in(cache)


def second(dataset: DatasetDirectory) -> Snapshot:
    return publish(dataset, contents(seed=1), listed_ns=LISTED + 1)


def no_space(*_: object, **__: object) -> NoReturn:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class TestPublish:
    def test_nothing_yet(self, dataset: DatasetDirectory):
        assert dataset.current() is None
        assert dataset.digests() == dataset.snapshots() == []
        with pytest.raises(NotFound, match="no snapshot yet"):
            dataset.open()

    def test_the_newest_is_current_and_the_old_one_stays(self, dataset: DatasetDirectory):
        one, two = publish(dataset, OBJECTS), second(dataset)
        assert dataset.current() == Current(two.digest, LISTED + 1)
        assert sorted(dataset.digests()) == sorted([one.digest, two.digest])
        assert {(record.digest, record.current) for record in dataset.snapshots()} == {
            (one.digest, False),
            (two.digest, True),
        }

    def test_the_same_again_only_says_when(self, dataset: DatasetDirectory):
        one = publish(dataset, OBJECTS)
        before = (dataset.snapshot_path(one.digest) / "objects.arrow").stat()
        assert publish(dataset, OBJECTS, listed_ns=LISTED + 5).digest == one.digest
        assert dataset.current() == Current(one.digest, LISTED + 5)
        assert (dataset.snapshot_path(one.digest) / "objects.arrow").stat() == before

    @pytest.mark.parametrize("name", ["objects.arrow", "packs.arrow", "sums.json"])
    def test_a_damaged_one_is_written_anew(self, dataset: DatasetDirectory, name: str):
        """What the error message promises: reload, and it is whole again; packs are still there."""
        snapshot = filled(dataset, OBJECTS)
        (dataset.snapshot_path(snapshot.digest) / name).write_bytes(b"damaged")
        with pytest.raises(Corrupt, match="reload"):
            dataset.open()
        again = publish(dataset, OBJECTS)
        assert again.digest == snapshot.digest
        assert check(open_reader(dataset, again), again, OBJECTS) == len(all_units(again))
        assert hidden_files(dataset.path) == []

    def test_an_index_that_does_not_fit_is_said_and_leaves_nothing(self, dataset: DatasetDirectory):
        assert dataset.cache.space.reserve(dataset.cache.space.free)
        with pytest.raises(Full, match=r"the index of 62 objects does not fit.*HOTSET_QUOTA"):
            publish(dataset, OBJECTS)
        assert dataset.digests() == []
        assert dataset.current() is None
        assert hidden_files(dataset.path) == []

    @pytest.mark.parametrize(
        ("code", "error", "said"),
        [
            (errno.ENOSPC, Full, r"no room left \(No space left on device\).*HOTSET_CACHE.*HOTSET_QUOTA"),
            (errno.EDQUOT, Full, r"no room left \(Disk quota exceeded\).*HOTSET_CACHE.*HOTSET_QUOTA"),
            (errno.EIO, OSError, "Input/output error"),
        ],
    )
    def test_a_failure_in_the_middle_leaves_nothing(
        self, dataset: DatasetDirectory, monkeypatch: pytest.MonkeyPatch, code: int, error: type[Exception], said: str
    ):
        before = dataset.cache.space.committed

        def fails(directory: Path, *_: object) -> None:
            (directory / "objects.arrow").write_bytes(b"half")
            raise OSError(code, os.strerror(code))

        monkeypatch.setattr("hotset.snapshot.write_index", fails)
        with pytest.raises(error, match=said):
            publish(dataset, OBJECTS)
        assert dataset.digests() == []
        assert dataset.current() is None
        assert hidden_files(dataset.path) == []
        assert dataset.cache.space.committed == before

    @pytest.mark.parametrize("name", ["objects.arrow", "packs.arrow", "sums.json"])
    def test_a_disk_that_is_full(self, dataset: DatasetDirectory, monkeypatch: pytest.MonkeyPatch, name: str):
        """As the system says it, by whichever library was writing."""
        make = dataset.cache.make_directory

        def make_with_a_full_disk(path: Path) -> None:
            make(path)
            (path / name).symlink_to("/dev/full")

        monkeypatch.setattr(dataset.cache, "make_directory", make_with_a_full_disk)
        with pytest.raises(Full, match=f"{re.escape(str(dataset.cache.root))} has no room left"):
            publish(dataset, OBJECTS)
        assert dataset.digests() == []
        assert hidden_files(dataset.path) == []

    def test_a_disk_that_is_full_when_all_but_the_name_is_there(
        self, dataset: DatasetDirectory, monkeypatch: pytest.MonkeyPatch
    ):
        one = publish(dataset, OBJECTS)
        with monkeypatch.context() as patch:
            patch.setattr(os, "rename", no_space)
            with pytest.raises(Full, match="HOTSET_CACHE"):
                second(dataset)
        assert dataset.current() == Current(one.digest, LISTED)
        assert hidden_files(dataset.path) == []

    def test_processes_that_publish_the_same_at_once(self, dataset: DatasetDirectory):
        children = [call(publish_in, str(dataset.cache.root)) for _ in range(4)]
        digests = {child.result() for child in children}
        for child in children:
            child.close()
        assert digests == {publish(dataset, OBJECTS).digest}
        assert hidden_files(dataset.path) == []

    @pytest.mark.parametrize(
        "damage", [b"", b"{", b"[1]", b'{"digest": "x"}', b'{"digest": "x", "listed_ns": 1, "y": 2}']
    )
    def test_a_damaged_current(self, dataset: DatasetDirectory, damage: bytes):
        """It counts as none, so that the next listing writes it anew; who wants to tell of it can ask."""
        publish(dataset, OBJECTS)
        (dataset.path / "current").write_bytes(damage)
        assert dataset.current() is None
        for ask in (dataset.checked_current, dataset.open, dataset.look):
            with pytest.raises(Corrupt, match=r"current is damaged.*`hotset reload`"):
                ask()
        assert [record.current for record in dataset.snapshots()] == [False]
        publish(dataset, OBJECTS)
        dataset.open()[1].release()

    @pytest.mark.parametrize("lost", ["", "lease", "objects.arrow", "packs.arrow", "sums.json"])
    def test_a_current_one_that_was_lost(self, dataset: DatasetDirectory, lost: str):
        """Or a part of it. A filler that is killed while it replaces a damaged index leaves the same."""
        snapshot = filled(dataset, OBJECTS)
        path = dataset.snapshot_path(snapshot.digest)
        (path / lost).unlink() if lost else shutil.rmtree(path)
        with pytest.raises(Corrupt, match=r"is gone, or a part of it.*`hotset reload`"):
            dataset.open()
        again = publish(dataset, OBJECTS)
        opened, lease = dataset.open()
        lease.release()
        assert opened.digest == again.digest == snapshot.digest
        assert check(open_reader(dataset, opened), opened, OBJECTS) == len(all_units(opened))
        assert hidden_files(dataset.path) == []

    @pytest.mark.parametrize("damaged", ["objects.arrow", "sums.json"])
    @pytest.mark.parametrize("how", [Path.unlink, lambda path: path.write_bytes(b"{")], ids=["lost", "damaged"])
    def test_a_damaged_one_is_listed_as_such_and_collected(self, dataset: DatasetDirectory, damaged: str, how):
        one, two = filled(dataset, OBJECTS), second(dataset)
        how(dataset.snapshot_path(one.digest) / damaged)
        records = {record.digest: record for record in dataset.snapshots()}
        assert {digest: record.damaged for digest, record in records.items()} == {one.digest: True, two.digest: False}
        assert (records[one.digest].objects, records[two.digest].objects) == (0, len(OBJECTS))
        assert {entry.kind for entry in collect(dataset.cache, now=0)} == {"snapshot", "pack"}
        assert dataset.digests() == [two.digest]

    @pytest.mark.parametrize("what", ["current", "objects.arrow", "sums.json", "snapshots"])
    def test_nothing_is_garbage_because_the_current_one_is_not_known(self, dataset: DatasetDirectory, what: str):
        snapshot = filled(dataset, OBJECTS)
        [path] = dataset.path.rglob(what)
        if what == "current":
            path.write_bytes(b"{")
        else:
            path.rename(path.with_name("lost"))
            (dataset.path / "snapshots").mkdir(exist_ok=True)
        assert collect(dataset.cache, now=0) == []
        publish(dataset, OBJECTS)
        assert check(open_reader(dataset, snapshot), snapshot, OBJECTS) == len(all_units(snapshot))

    def test_a_look_is_no_use(self, dataset: DatasetDirectory):
        assert dataset.look() is None
        digest = publish(dataset, OBJECTS).digest
        os.utime(dataset.snapshot_path(digest) / "lease", (1000, 1000))
        looked = dataset.look()
        assert looked is not None
        assert looked.digest == digest
        assert dataset.last_used_ns() == 1000 * 10**9


def publish_in(root: str) -> str:
    return publish(CacheDirectory(Path(root)).dataset("memory"), OBJECTS).digest


class TestOpen:
    def test_by_the_beginning_of_a_digest(self, dataset: DatasetDirectory):
        one = publish(dataset, OBJECTS)
        second(dataset)
        snapshot, lease = dataset.open(one.digest[:10])
        assert snapshot.digest == lease.digest == one.digest
        lease.release()

    @pytest.mark.parametrize("digest", ["zzz", ""])
    def test_a_beginning_that_says_nothing(self, dataset: DatasetDirectory, digest: str):
        publish(dataset, OBJECTS)
        second(dataset)
        with pytest.raises(NotFound, match="snapshots begin with"):
            dataset.open(digest)

    def test_a_lease_ends_with_its_last_holder(self, dataset: DatasetDirectory):
        digest = publish(dataset, OBJECTS).digest
        _, one = dataset.open()
        _, two = dataset.open()
        one.release()
        assert dataset.leased(digest)
        two.release()
        two.release()
        assert not dataset.leased(digest)

    def test_a_lease_ends_with_kill_9(self, dataset: DatasetDirectory):
        digest = publish(dataset, OBJECTS).digest
        with Child([sys.executable, "-c", HOLD, dataset.cache.root, "memory"]) as child:
            child.expect("open")
            assert dataset.leased(digest)
            assert [record.leased for record in dataset.snapshots()] == [True]
            child.kill()
            assert not dataset.leased(digest)

    def test_opening_is_the_last_use(self, dataset: DatasetDirectory):
        digest = publish(dataset, OBJECTS).digest
        os.utime(dataset.snapshot_path(digest) / "lease", (1000, 1000))
        assert dataset.last_used_ns() == 1000 * 10**9
        dataset.open()[1].release()
        assert dataset.last_used_ns() > LISTED


class TestRemove:
    def test_not_while_it_is_open_or_pinned(self, dataset: DatasetDirectory):
        one = publish(dataset, OBJECTS).digest
        second(dataset)
        _, lease = dataset.open(one)
        assert not dataset.remove_snapshot(one)
        lease.release()
        dataset.pin(one[:8])
        assert not dataset.remove_snapshot(one)
        assert [record.pinned for record in dataset.snapshots() if record.digest == one] == [True]
        dataset.pin(one[:8], pinned=False)
        assert dataset.remove_snapshot(one)
        assert one not in dataset.digests()
        assert not dataset.remove_snapshot(one)
        assert hidden_files(dataset.path) == []

    def test_with_its_tree(self, cache: CacheDirectory):
        dataset = dataset_in(cache, "files", layout="files")
        one = filled(dataset, OBJECTS).digest
        two = filled(dataset, contents(seed=1), listed_ns=LISTED + 1).digest
        assert dataset.remove_snapshot(one)
        assert sorted(os.listdir(dataset.trees)) == [two, f"{two}.ledger"]

    @pytest.mark.parametrize("by", ["its last user", "the collection"])
    def test_with_the_large_objects_on_their_way_into_its_tree(self, cache: CacheDirectory, by: str):
        dataset = dataset_in(cache, "files", layout="files")
        snapshot = publish(dataset, OBJECTS)
        number = snapshot.packs[snapshot.find("large")]
        shelf = open_shelf(dataset, snapshot)
        assert shelf.write(number, 1, unit_of(snapshot, OBJECTS, number, 1))
        shelf.close()
        assert len(hidden_files(dataset.trees)) == 1
        publish(dataset, contents(seed=1), listed_ns=LISTED + 1)
        if by == "the collection":
            told = collect(cache, now=time.time(), dry_run=True)
            assert collect(cache, now=time.time()) == told
            assert [(entry.kind, entry.bytes >= len(OBJECTS["large"]) // 4) for entry in told] == [("snapshot", True)]
        else:
            assert dataset.remove_snapshot(snapshot.digest)
        assert os.listdir(dataset.trees) == []

    @pytest.mark.soak
    def test_open_against_remove(self, dataset: DatasetDirectory, rounds: int):
        """Whoever has a lease has the snapshot; whoever has none is told so; never anything in between."""
        one = publish(dataset, OBJECTS).digest
        times = 100 * rounds
        with call(open_often, str(dataset.cache.root), one, times) as opener:
            removed = 0
            while opener.popen.poll() is None:
                if dataset.remove_snapshot(one):
                    removed += 1
                    assert not dataset.snapshot_path(one).exists()
                    publish(dataset, OBJECTS)
                threading.Event().wait(0.003)  # it is there for a while
            assert opener.result(timeout=300)[0] == times
        assert removed

    @pytest.mark.soak
    def test_opening_the_current_one_while_it_is_replaced_and_removed(self, dataset: DatasetDirectory, rounds: int):
        """Without a digest there is always a snapshot to open."""
        versions = [(OBJECTS, LISTED), (contents(seed=1), LISTED + 1)]
        publish(dataset, OBJECTS)
        times = 100 * rounds
        with call(open_often, str(dataset.cache.root), None, times) as opener:
            turn = 0
            while opener.popen.poll() is None:
                turn += 1
                objects, listed = versions[turn % 2]
                before = dataset.current()
                current = publish(dataset, objects, listed_ns=listed)
                if before is not None and before.digest != current.digest:
                    dataset.remove_snapshot(before.digest)
            assert opener.result(timeout=300) == (times, 0)
            assert turn > 1


def open_often(root: str, digest: str | None, times: int) -> tuple[int, int]:
    """So many times it is there, and how often it was not: a refusal takes so little that it must not count as a turn."""
    dataset = CacheDirectory(Path(root)).dataset("memory")
    opened = refused = 0
    while opened < times:
        try:
            snapshot, lease = dataset.open(digest)
        except NotFound:
            refused += 1
            continue
        opened += 1
        assert (dataset.snapshot_path(snapshot.digest) / "objects.arrow").exists()
        assert snapshot.find("large") >= 0
        lease.release()
    return opened, refused


class TestDrop:
    def test_refused_while_in_use(self, dataset: DatasetDirectory):
        filled(dataset, OBJECTS)
        with Child([sys.executable, "-c", HOLD, dataset.cache.root, "memory"]) as child:
            child.expect("open")
            with pytest.raises(Busy, match="--force"):
                dataset.drop()
            assert dataset.path.exists()
        dataset.drop()
        assert not dataset.path.exists()
        assert dataset.cache.space.committed < 100_000

    def test_forced_leaves_readers_what_they_have_mapped(self, dataset: DatasetDirectory):
        filled(dataset, OBJECTS)
        snapshot, lease = dataset.open()
        reader = open_reader(dataset, snapshot)
        assert check(reader, snapshot, OBJECTS) == len(all_units(snapshot))
        dataset.drop(force=True)
        assert check(reader, snapshot, OBJECTS) == len(all_units(snapshot))
        lease.release()
        with pytest.raises(NotFound, match="gone"):
            dataset.record()

    def test_nobody_opens_while_it_is_dropped(self, dataset: DatasetDirectory, monkeypatch: pytest.MonkeyPatch):
        """From the look at the leases to the renaming no opener comes in between: it waits, and then is told."""
        publish(dataset, OBJECTS)
        outcome: list[object] = []

        def open_it() -> None:
            try:
                outcome.append(dataset.open())
            except NotFound as error:
                outcome.append(error)

        opener = threading.Thread(target=open_it)
        locked = dataset.cache.space.locked

        def locked_later():
            monkeypatch.undo()
            opener.start()
            opener.join(0.2)
            assert opener.is_alive(), "it must wait for the drop"
            return locked()

        monkeypatch.setattr(dataset.cache.space, "locked", locked_later)
        dataset.drop()
        opener.join()
        assert isinstance(outcome[0], NotFound)


class TestTrees:
    @pytest.fixture
    def files(self, cache: CacheDirectory) -> DatasetDirectory:
        return dataset_in(cache, "files", layout="files")

    def test_files_are_absent_until_they_are_whole_then_read_only(self, files: DatasetDirectory):
        snapshot = publish(files, OBJECTS)
        shelf = open_shelf(files, snapshot)
        root = files.trees / snapshot.digest
        for number, unit in all_units(snapshot):
            position, _, end = snapshot.unit_range(number, unit)
            path = root / snapshot.key(position)
            assert not path.exists()
            shelf.write(number, unit, OBJECTS[snapshot.key(position)][snapshot.unit_range(number, unit)[1] : end])
            if end == snapshot.sizes[position]:
                assert path.read_bytes() == OBJECTS[snapshot.key(position)]
                assert path.stat().st_mode & 0o777 == 0o444
        assert {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()} == set(OBJECTS)

    def test_a_new_snapshot_begins_with_the_unchanged_files_of_the_old_one(self, files: DatasetDirectory):
        old = filled(files, OBJECTS)
        after = {**OBJECTS, "dir1/0001": b"changed", "new": b"new"}
        del after["dir2/0002"]
        snapshot = publish(files, after, listed_ns=LISTED + 1)
        shelf = open_shelf(files, snapshot)
        absent = {
            snapshot.key(snapshot.unit_range(*unit)[0]) for unit in all_units(snapshot) if not shelf.present(*unit)
        }
        assert absent == {"dir1/0001", "new"}
        fill(shelf, snapshot, after)
        for key, value in after.items():
            one, two = files.trees / old.digest / key, files.trees / snapshot.digest / key
            assert two.read_bytes() == value
            assert (one.exists() and one.samefile(two)) == (OBJECTS.get(key) == value)

    @pytest.mark.parametrize("longer", ["small", "large"])
    def test_a_file_of_another_size_is_another_version_whatever_its_time(self, files: DatasetDirectory, longer: str):
        """`cp -p`, rsync, tar and git keep times: what changed may have the time that it had."""

        def by_time(_: bytes) -> tuple[FingerprintKind, bytes]:
            return FingerprintKind.MODIFIED, b"1600000000"

        before = {"same": b"same", "small": b"before", "large": content("large", 10_001)}
        filled(files, before, fingerprint=by_time)
        after = {**before, longer: before[longer] + b"!"}
        snapshot = publish(files, after, listed_ns=LISTED + 1, fingerprint=by_time)
        shelf = open_shelf(files, snapshot)
        absent = {
            snapshot.key(snapshot.unit_range(*unit)[0]) for unit in all_units(snapshot) if not shelf.present(*unit)
        }
        assert absent == {longer}
        fill(shelf, snapshot, after)
        assert {key: (files.trees / snapshot.digest / key).read_bytes() for key in after} == after

    def test_a_tree_that_does_not_fit_is_refused_as_a_whole(self, tmp_path: Path):
        small = CacheDirectory(tmp_path / "small", quota=16 * 2**20)
        dataset = dataset_in(small, layout="files")
        snapshot = publish(dataset, {f"{n}": content(str(n), 2**20) for n in range(17)})
        with pytest.raises(Full, match="HOTSET_QUOTA, or use the layout 'packs'"):
            open_shelf(dataset, snapshot)
        assert os.listdir(dataset.trees) == []

    @pytest.mark.parametrize(
        "odd", ["\u3000", "\u00a0", "\u00ad", "\u200f", "\u2028", "\ue000", "\U000e0001", "\U0001f525"]
    )
    def test_keys_that_only_look_odd_are_paths(self, files: DatasetDirectory, odd: str):
        """Blanks of other scripts, marks of direction, private characters: a file may be called so, and is."""
        objects = {f"a{odd}b/{odd}": b"content"}
        snapshot = filled(files, objects)
        assert (files.trees / snapshot.digest / f"a{odd}b" / odd).read_bytes() == b"content"

    def test_control_characters_are_refused_and_nothing_else(self):
        characters = {chr(code) for code in (*range(0x3100), *range(0xD7F0, 0xE010), 0xE0001, 0x10FFFF)} - {"."}
        refused = {character for character in characters if not possible_name(character)}
        assert refused == {character for character in characters if unicodedata.category(character) in ("Cc", "Cs")}

    @pytest.mark.parametrize(
        "key",
        ["../x", "a/../x", "..", "/etc/passwd", "a//b", "a/", "./x", "a\nb", "a\x1bb", "a\x9bb", "x" * 256, "é" * 128],
    )
    def test_keys_that_cannot_be_paths(self, files: DatasetDirectory, key: str):
        snapshot = publish(files, {"fine": b"1", key: b"2"})
        with pytest.raises(InvalidInput, match="cannot be a path in a view; exclude it"):
            open_shelf(files, snapshot)
        assert os.listdir(files.trees) == []

    @pytest.mark.parametrize(
        ("keys"), [("a", "a/b"), ("a", "a/b/c", "a-b"), ("x/y", "x/y/z"), ("a", "a-", "a.b", "a/b")]
    )
    def test_keys_that_collide(self, files: DatasetDirectory, keys: tuple[str, ...]):
        snapshot = publish(files, dict.fromkeys(keys, b"content"))
        with pytest.raises(InvalidInput, match="collide in a view"):
            open_shelf(files, snapshot)

    def test_such_keys_are_no_matter_for_packs(self, dataset: DatasetDirectory):
        odd = {key: key.encode() for key in ("../x", "/etc/passwd", "a\nb", "a", "a/b")}
        snapshot = filled(dataset, odd)
        assert check(open_reader(dataset, snapshot), snapshot, odd) == 5

    def test_a_filler_killed_before_the_last_renaming(self, files: DatasetDirectory, monkeypatch: pytest.MonkeyPatch):
        """All stripes are marked, the file has not got its name yet: the next filler gives it the name."""
        snapshot = publish(files, OBJECTS)
        shelf = open_shelf(files, snapshot)
        monkeypatch.setattr(TreeShelf, "_publish_large", lambda *_: None)
        fill_unchecked(shelf, snapshot)
        monkeypatch.undo()
        path = files.trees / snapshot.digest / "large"
        assert not path.exists()
        again = open_shelf(files, snapshot)
        assert path.read_bytes() == OBJECTS["large"]
        assert fill(again, snapshot, OBJECTS) == 0
        assert check(again.reader, snapshot, OBJECTS) == len(all_units(snapshot))
        assert hidden_files(files.trees) == []

    def test_a_filler_killed_after_a_file_and_before_its_mark(
        self, files: DatasetDirectory, monkeypatch: pytest.MonkeyPatch
    ):
        snapshot = publish(files, OBJECTS)
        shelf = open_shelf(files, snapshot)
        monkeypatch.setattr(TreeShelf, "_mark", lambda *_: None)
        fill_unchecked(shelf, snapshot)
        monkeypatch.undo()
        again = open_shelf(files, snapshot)
        assert fill(again, snapshot, OBJECTS) == len(all_units(snapshot))
        assert check(again.reader, snapshot, OBJECTS) == len(all_units(snapshot))
        assert hidden_files(files.trees) == []

    def test_a_disk_that_fails_is_corrupt_and_no_signal(self, files: DatasetDirectory, monkeypatch: pytest.MonkeyPatch):
        files.cache.durable = True  # wherever the temporary directory lies
        snapshot = filled(files, OBJECTS)
        number, unit = snapshot.packs[snapshot.find("large")], 1
        shelf = open_shelf(files, snapshot)

        def fails(_view: memoryview) -> None:
            raise OSError(5, "Input/output error")

        monkeypatch.setattr(treefiles, "populate", fails)
        with pytest.raises(Corrupt, match="large cannot be read from its disk: Input/output error"):
            open_reader(files, snapshot).unit(number, unit)
        shelf.verify_presence(number, unit)
        monkeypatch.undo()
        assert not shelf.present(number, unit)

    def test_a_tree_that_fills_is_counted_once_by_whoever_counts_meanwhile(self, files: DatasetDirectory):
        """Neither less than it will take, nor what is here with its file and once more with the ledger."""
        objects = {f"{n // 10}/{n}": content(str(n), 100_000) for n in range(100)} | {"large": content("l", 12 * 2**20)}
        snapshot = publish(files, objects, parameters=PlanParameters(stripe=2**20))
        shelf = open_shelf(files, snapshot)
        space = CacheDirectory(files.cache.root).space
        promised = space.committed
        needed = sum(cost_of(len(data)) for data in objects.values())
        for number, unit in all_units(snapshot):
            shelf.write(number, unit, unit_of(snapshot, objects, number, unit))
            assert needed <= space.recount() <= promised + ACCOUNT_EVERY + 2**17
        assert check(shelf.reader, snapshot, objects) == len(all_units(snapshot))

    def test_to_make_the_ledger_shorter_is_no_harm_to_its_readers(self, files: DatasetDirectory):
        snapshot = publish(files, OBJECTS)
        shelf = open_shelf(files, snapshot)
        reader = open_reader(files, snapshot)
        assert check(reader, snapshot, OBJECTS) == 0
        for number, unit in all_units(snapshot):
            shelf.write(number, unit, unit_of(snapshot, OBJECTS, number, unit))
            with files.cache.space.locked():
                shelf._tree.account()
            assert reader.unit(number, unit) == unit_of(snapshot, OBJECTS, number, unit)

    @pytest.mark.parametrize(
        ("code", "kind", "advice"),
        [
            (errno.ENOSPC, Full, "No space left"),
            (errno.EDQUOT, Full, "quota exceeded"),
            (errno.EFBIG, Full, "too large"),
            (errno.EACCES, Denied, "HOTSET_CACHE"),
            (errno.EROFS, Denied, "HOTSET_CACHE"),
            (errno.ENAMETOOLONG, InvalidInput, "--exclude"),
            (errno.EIO, HotsetError, "look at that disk"),
        ],
    )
    def test_a_write_that_fails_says_which_and_why(
        self, files: DatasetDirectory, monkeypatch: pytest.MonkeyPatch, code: int, kind: type[HotsetError], advice: str
    ):
        snapshot = publish(files, OBJECTS)
        shelf = open_shelf(files, snapshot)
        large = snapshot.packs[snapshot.find("large")]

        def fails(*_: object) -> None:
            raise OSError(code, os.strerror(code))

        monkeypatch.setattr(trees, "write_all", fails)
        for (number, unit), key in (((0, 0), snapshot.key(0)), ((large, 1), "large")):
            with pytest.raises(HotsetError, match=rf"cannot write .*/{key}: .*{advice}") as raised:
                shelf.write(number, unit, unit_of(snapshot, OBJECTS, number, unit))
            assert type(raised.value) is kind
            assert not shelf.present(number, unit)

    def test_a_path_that_is_too_long_is_the_key_s_fault(self, files: DatasetDirectory):
        """No part of it is, so that only the file system can tell."""
        deep = "/".join(["d" * 200] * 25)
        snapshot = publish(files, {deep: b"deep"})
        with pytest.raises(InvalidInput, match="File name too long; exclude the object"):
            open_shelf(files, snapshot).write(0, 0, b"deep")

    def test_an_interrupted_tree_is_not_counted_twice(self, files: DatasetDirectory):
        """Its ledger stands for what is missing, not for what was missing when it began."""
        objects = {f"{n}": content(str(n), 100_000) for n in range(40)}
        snapshot = publish(files, objects, parameters=PlanParameters())
        shelf = open_shelf(files, snapshot)
        promised = files.cache.space.committed
        for number, unit in all_units(snapshot)[:-3]:
            position, start, end = snapshot.unit_range(number, unit)
            shelf.write(number, unit, objects[snapshot.key(position)][start:end])
        shelf.close()
        files.cache.space.recount()
        again = open_shelf(files, snapshot)
        assert snapshot.total_bytes < files.cache.space.committed < promised * 1.1
        again.close()


def fill_unchecked(shelf: TreeShelf, snapshot: Snapshot) -> None:
    for number, unit in all_units(snapshot):
        position, start, end = snapshot.unit_range(number, unit)
        shelf.write(number, unit, OBJECTS[snapshot.key(position)][start:end])

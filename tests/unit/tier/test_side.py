"""Side files: there whole or not at all, written by one process at a time, counted, and gone with their snapshot."""

from __future__ import annotations

import errno
import os
import signal
import threading
from pathlib import Path

import pytest

from hotset.base import files
from hotset.errors import Full, InvalidInput, NotFound
from hotset.tier.node import CacheDirectory, DatasetDirectory
from hotset.tier.node import side as module
from hotset.tier.node.collect import collect
from hotset.tier.node.shelf import open_reader
from hotset.tier.node.side import SideFile
from hotset.tier.node.space import directory_cost
from tests.support.datasets import content
from tests.support.processes import Child
from tests.unit.tier.making import LISTED, check, contents, dataset_in, filled, publish

HOLD = """
import sys
from pathlib import Path
from hotset.tier.node import CacheDirectory
from hotset.tier.node.side import SideFile
dataset = CacheDirectory(Path(sys.argv[1])).dataset("memory")
snapshot, lease = dataset.open()
with SideFile(dataset, snapshot.digest, "places").draft() as draft:
    draft.append(b"half of ")
    print("writing", flush=True)
    sys.stdin.readline()
    draft.append(b"it")
    draft.publish()
"""


@pytest.fixture
def cache(tmp_path: Path) -> CacheDirectory:
    return CacheDirectory(tmp_path / "cache", quota=64 * 2**20)


@pytest.fixture
def dataset(cache: CacheDirectory) -> DatasetDirectory:
    return dataset_in(cache)


@pytest.fixture
def side(dataset: DatasetDirectory) -> SideFile:
    made = SideFile(dataset, publish(dataset, contents()).digest, "places")
    dataset.cache.space.recount()  # the index was estimated
    return made


def write(side: SideFile, *parts: bytes, then: BaseException | None = None) -> None:
    with side.draft() as draft:
        assert draft is not None
        for part in parts:
            draft.append(part)
        if then is not None:
            raise then
        draft.publish()


def committed_is_right(cache: CacheDirectory) -> bool:
    return cache.space.committed == directory_cost(cache.root)


class TestWriting:
    def test_there_is_none_and_then_there_is(self, side, cache):
        assert side.map() is None
        write(side, b"one ", b"two ", memoryview(b"three"))
        assert side.map() == b"one two three"
        assert side.map(verify=False) == b"one two three"
        assert side.map().readonly
        assert committed_is_right(cache)

    def test_an_empty_one(self, side):
        write(side)
        assert side.map() == b""

    def test_a_large_one(self, side, cache):
        parts = [content(f"{n}", 2**20) for n in range(9)]
        write(side, *parts)
        assert side.map() == b"".join(parts)
        assert committed_is_right(cache)

    def test_whoever_comes_too_late_has_nothing_to_write(self, side):
        write(side, b"first")
        with side.draft() as draft:
            assert draft is None
        assert side.map() == b"first"
        assert sorted(path.name for path in side.path.parent.glob("places*")) == ["places"]

    def test_cut_back(self, side):
        with side.draft() as draft:
            draft.append(b"right wrong")
            draft.truncate(6)
            draft.append(b"right")
            assert draft.read(0, 100) == b"right right"
            assert draft.read(6, 2) == b"ri"
            draft.publish()
        assert side.map() == b"right right"

    def test_half_of_it_is_never_seen(self, side):
        with side.draft() as draft:
            draft.append(b"half")
            assert side.map() is None

    def test_what_is_interrupted_is_gone_on_with(self, side, cache):
        with pytest.raises(KeyboardInterrupt):
            write(side, b"half of ", then=KeyboardInterrupt())
        assert side.map() is None
        assert committed_is_right(cache)
        with side.draft() as draft:
            assert draft.read(0, draft.size) == b"half of "
            draft.append(b"it")
            draft.publish()
        assert side.map() == b"half of it"
        assert committed_is_right(cache)

    def test_data_that_is_wrong_leaves_nothing(self, side, cache):
        with pytest.raises(InvalidInput):
            write(side, b"x", then=InvalidInput("of another format"))
        assert list(side.path.parent.glob("places*")) == []
        assert committed_is_right(cache)

    def test_modes_of_a_shared_cache(self, tmp_path):
        root = tmp_path / "shared"
        root.mkdir(mode=0o700)
        root.chmod(0o2775)
        dataset = dataset_in(CacheDirectory(root))
        side = SideFile(dataset, publish(dataset, contents()).digest, "places")
        write(side, b"x")
        assert side.path.stat().st_mode & 0o777 == 0o664


class TestDamage:
    @pytest.mark.parametrize("place", [0, 5, -1, -10, -25])
    def test_a_flipped_bit(self, side, cache, place):
        write(side, b"0123456789")
        data = bytearray(side.path.read_bytes())
        data[place] ^= 1
        if data[place:] == data[-1:]:
            return  # padding of the trailer
        side.path.write_bytes(data)
        assert side.map() is None
        assert not side.path.exists()
        assert committed_is_right(cache)
        write(side, b"0123456789")
        assert side.map() == b"0123456789"

    @pytest.mark.parametrize("size", [0, 5, 20, 30])
    def test_cut_off(self, side, size):
        write(side, b"0123456789")
        os.truncate(side.path, size)
        assert side.map() is None

    def test_a_disk_that_fails(self, side, monkeypatch):
        write(side, b"0123456789")

        def fail(*args):
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        monkeypatch.setattr(os, "preadv", fail)
        assert side.map() is None

    def test_who_reads_keeps_what_is_mapped(self, side):
        write(side, b"0123456789")
        view = side.map()
        data = bytearray(side.path.read_bytes())
        other = side.path.with_name("other")
        data[0] ^= 1
        other.write_bytes(data)
        other.rename(side.path)
        assert side.map() is None
        assert view == b"0123456789"


class TestProcesses:
    def test_one_writes_and_the_others_wait(self, side, cache):
        """Two threads of this process wait for another process; it finishes, and they find its work."""
        with Child([*_python(HOLD), str(cache.root)]) as child:
            child.expect("writing")
            got: list[object] = []

            def wait() -> None:
                with side.draft() as draft:
                    got.append(draft)

            threads = [threading.Thread(target=wait) for _ in range(2)]
            for thread in threads:
                thread.start()
            child.tell("go on")
            assert child.wait() == 0
            for thread in threads:
                thread.join(30)
        assert got == [None, None]
        assert side.map() == b"half of it"

    def test_one_is_killed_and_the_next_goes_on(self, side, cache):
        with Child([*_python(HOLD), str(cache.root)]) as child:
            child.expect("writing")
            child.signal(signal.SIGKILL)
            child.wait()
        assert side.map() is None
        with side.draft() as draft:
            assert draft.read(0, draft.size) == b"half of "
            draft.publish()
        assert side.map() == b"half of "


class TestRoom:
    def test_no_room_on_the_disk(self, side, cache, monkeypatch):
        real = files.write_all

        def full(fd, buffers, offset):
            if offset >= 2**20:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            real(fd, buffers, offset)

        monkeypatch.setattr(module, "write_all", full)
        with pytest.raises(Full, match="No space left"):
            write(side, *[bytes(2**20)] * 3)
        assert list(side.path.parent.glob("places*")) == []
        assert committed_is_right(cache)

    def test_no_room_in_the_quota(self, tmp_path):
        cache = CacheDirectory(tmp_path / "cache", quota=16 * 2**20)
        dataset = dataset_in(cache)
        snapshot, lease = dataset.open(publish(dataset, contents()).digest)
        cache.space.recount()
        side = SideFile(dataset, snapshot.digest, "places")
        with pytest.raises(Full, match="HOTSET_QUOTA"):
            write(side, *[bytes(2**20)] * 20)
        assert committed_is_right(cache)
        assert list(side.path.parent.glob("places*")) == []
        lease.release()

    def test_packs_that_fill_the_quota_make_room(self, tmp_path):
        """A dataset larger than the quota: its packs have all of it when the first side file is written."""
        objects = {f"{n:04}": content(f"{n}", 9_000) for n in range(2500)}
        cache = CacheDirectory(tmp_path / "cache", quota=16 * 2**20)
        dataset = dataset_in(cache)
        snapshot = filled(dataset, objects)
        opened, lease = dataset.open(snapshot.digest)
        before = check(open_reader(dataset, snapshot), snapshot, objects)
        cache.space.recount()
        assert cache.space.free < 2**20
        side = SideFile(dataset, snapshot.digest, "places")
        write(side, *[bytes(2**20)] * 3)
        assert len(side.map()) == 3 * 2**20
        after = check(open_reader(dataset, opened), opened, objects)
        assert before - 4 * 2**20 // 9_000 - 50 < after < before
        assert committed_is_right(cache)
        lease.release()


class TestLife:
    def test_it_goes_with_the_snapshot(self, dataset, cache):
        old = publish(dataset, contents())
        side = SideFile(dataset, old.digest, "places")
        write(side, b"x" * 100_000)
        publish(dataset, contents(seed=1), listed_ns=LISTED + 1)
        assert dataset.remove_snapshot(old.digest)
        assert side.map() is None
        cache.space.recount()
        assert committed_is_right(cache)

    def test_collecting_leaves_it_while_the_snapshot_is_current(self, dataset, side, cache):
        write(side, b"x")
        collect(cache, now=LISTED)
        assert side.map() == b"x"

    def test_dropped_while_it_is_written(self, dataset, side):
        with side.draft() as draft:
            dataset.drop(force=True)
            with pytest.raises(NotFound, match="open the dataset again"):
                draft.publish()
        assert side.map() is None

    def test_without_a_snapshot_there_is_none(self, dataset):
        side = SideFile(dataset, "0" * 64, "places")
        assert side.map() is None
        with pytest.raises(NotFound, match="open the dataset again"), side.draft():
            pass


def _python(program: str) -> list[str]:
    import sys

    return [sys.executable, "-c", program]

"""What every layout of the node tier must do. A new layout is one more subclass at the end."""

from __future__ import annotations

import gc
import os
import tempfile
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hotset.snapshot import Snapshot
from hotset.tier.node import CacheDirectory, DatasetDirectory, packfile
from hotset.tier.node.records import Layout
from hotset.tier.node.shelf import Shelf, UnitReader, open_reader, open_shelf
from hotset.tier.node.verify import verify_dataset
from tests.support.processes import open_fds
from tests.unit.tier.making import all_units, check, contents, dataset_in, fill, hidden_files, publish, unit_of

OBJECTS = contents()


class ShelfContract:
    layout: Layout

    @pytest.fixture(params=["disk", "memory"])
    def root(self, request: pytest.FixtureRequest, tmp_path: Path):
        """A cache directory on a disk (of the temporary directory) and one in memory."""
        if request.param == "disk":
            yield tmp_path / "cache"
            return
        with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="hotset-test-") as directory:
            yield Path(directory) / "cache"

    @pytest.fixture
    def dataset(self, root: Path) -> DatasetDirectory:
        return dataset_in(CacheDirectory(root, quota=64 * 2**20), layout=self.layout)

    @pytest.fixture
    def snapshot(self, dataset: DatasetDirectory) -> Snapshot:
        return publish(dataset, OBJECTS)

    @pytest.fixture
    def open_one(self, dataset: DatasetDirectory, snapshot: Snapshot):
        """Opens shelves as separate fillers do."""
        opened: list[Shelf] = []

        def opener() -> Shelf:
            shelf = open_shelf(DatasetDirectory(dataset.path, CacheDirectory(dataset.cache.root)), snapshot)
            opened.append(shelf)
            return shelf

        yield opener
        for shelf in opened:
            shelf.close()

    @pytest.fixture
    def shelf(self, open_one) -> Shelf:
        return open_one()

    @pytest.fixture
    def reader(self, dataset: DatasetDirectory, snapshot: Snapshot) -> UnitReader:
        return open_reader(dataset, snapshot)

    # -- where bytes lie: the second route, past the shelf -----------------------------------------------------------

    def file_of(self, dataset: DatasetDirectory, snapshot: Snapshot, number: int, unit: int) -> tuple[Path, int]:
        """The file with the bytes of a unit, and where they begin in it."""
        raise NotImplementedError

    def book_of(self, dataset: DatasetDirectory, snapshot: Snapshot, number: int) -> Path:
        """The file that says what is present."""
        raise NotImplementedError

    def damage(self, dataset: DatasetDirectory, snapshot: Snapshot, number: int, unit: int) -> None:
        """Flip a bit of a unit on the disk, as bad hardware does: in place."""
        path, offset = self.file_of(dataset, snapshot, number, unit)
        path.chmod(0o600)
        with path.open("r+b") as file:
            file.seek(offset)
            byte = file.read(1)[0]
            file.seek(offset)
            file.write(bytes([byte ^ 16]))

    def some_units(self, snapshot: Snapshot, count: int = 3) -> list[tuple[int, int]]:
        """Units with bytes, in different packs, of small objects."""
        found: dict[int, tuple[int, int]] = {}
        for number, unit in all_units(snapshot):
            _, start, end = snapshot.unit_range(number, unit)
            if end > start and not snapshot.pack(number).stripe:
                found[number] = (number, unit)
        return list(found.values())[:count]

    def large(self, snapshot: Snapshot) -> int:
        return snapshot.packs[snapshot.find("large")]

    # -- the contract ------------------------------------------------------------------------------------------------

    def test_absent_until_written_then_exactly_these_bytes(self, shelf: Shelf, reader: UnitReader, snapshot: Snapshot):
        assert check(reader, snapshot, OBJECTS) == 0
        written = set()
        for number, unit in all_units(snapshot)[::3]:
            assert shelf.admit(number)
            assert not shelf.present(number, unit)
            assert shelf.write(number, unit, unit_of(snapshot, OBJECTS, number, unit)) is True
            assert shelf.present(number, unit)
            written.add((number, unit))
        for number, unit in all_units(snapshot):
            assert (reader.unit(number, unit) is not None) == ((number, unit) in written)
        assert check(reader, snapshot, OBJECTS) == len(written)

    def test_complete(self, shelf: Shelf, reader: UnitReader, snapshot: Snapshot):
        assert fill(shelf, snapshot, OBJECTS) == len(all_units(snapshot))
        assert check(reader, snapshot, OBJECTS) == len(all_units(snapshot))
        for number in range(snapshot.pack_count):
            assert shelf.held(number) == reader.held(number) == snapshot.pack_units[number]
            assert shelf.finish(number) == []
            assert shelf.repair(number) == []

    def test_views_are_read_only_and_outlive_the_reader(self, shelf: Shelf, reader: UnitReader, snapshot: Snapshot):
        fill(shelf, snapshot, OBJECTS)
        number, unit = self.some_units(snapshot)[0]
        view = reader.unit(number, unit)
        assert view is not None
        reader.close()
        shelf.close()
        assert view.readonly
        assert view == unit_of(snapshot, OBJECTS, number, unit)

    def test_a_large_object_is_readable_stripe_by_stripe(self, shelf: Shelf, reader: UnitReader, snapshot: Snapshot):
        number = self.large(snapshot)
        assert snapshot.pack_units[number] == 4
        for done, unit in enumerate((2, 0, 3, 1), start=1):
            assert shelf.admit(number)
            assert shelf.write(number, unit, unit_of(snapshot, OBJECTS, number, unit))
            assert shelf.finish(number) == []
            assert check(reader, snapshot, OBJECTS) == done
            assert reader.held(number) == done

    def test_another_filler_and_another_reader_see_it_at_once(self, open_one, dataset, snapshot: Snapshot):
        one, two = open_one(), open_one()
        seen = open_reader(dataset, snapshot)
        for number, unit in all_units(snapshot):
            writer, other = (one, two) if unit % 2 else (two, one)
            assert writer.admit(number)
            assert writer.write(number, unit, unit_of(snapshot, OBJECTS, number, unit))
            assert other.admit(number)
            assert other.present(number, unit)
            assert seen.unit(number, unit) is not None
            assert writer.finish(number) == []
        assert check(seen, snapshot, OBJECTS) == len(all_units(snapshot))

    def test_present_bytes_are_never_written_again(self, open_one, reader: UnitReader, snapshot: Snapshot):
        """A filler that counted as stalled comes back with bytes that a careless source gave it (rule 3)."""
        shelf, stalled = open_one(), open_one()
        stalled.admit(0)
        fill(shelf, snapshot, OBJECTS)
        for number, unit in [*self.some_units(snapshot), (self.large(snapshot), 1)]:
            right = unit_of(snapshot, OBJECTS, number, unit)
            view = reader.unit(number, unit)
            assert stalled.write(number, unit, bytes(len(right))) is True
            assert stalled.finish(number) == []
            assert view == right
            reader.forget(number)
            assert reader.unit(number, unit) == right
        assert check(open_one().reader, snapshot, OBJECTS) == len(all_units(snapshot))

    def test_many_threads(self, shelf: Shelf, reader: UnitReader, snapshot: Snapshot):
        barrier = threading.Barrier(8)

        def work(share: int) -> None:
            barrier.wait()
            for number, unit in all_units(snapshot)[share::8]:
                assert shelf.admit(number)
                assert shelf.write(number, unit, unit_of(snapshot, OBJECTS, number, unit))
                assert shelf.finish(number) == []

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(work, range(8)))
        assert check(reader, snapshot, OBJECTS) == len(all_units(snapshot))
        assert all(shelf.held(number) == snapshot.pack_units[number] for number in range(snapshot.pack_count))

    def test_a_damaged_unit_is_found_when_everything_is_there(self, shelf, reader, dataset, snapshot):
        """Before the seal all is read back: what is wrong is absent again, and can be written again."""
        (number, unit), *_ = self.some_units(snapshot)
        last = all_units(snapshot)[-1] if self.layout == "files" else (number, 0 if unit else 1)
        for other in all_units(snapshot):
            if other != last:
                assert shelf.admit(other[0])
                shelf.write(*other, unit_of(snapshot, OBJECTS, *other))
        self.damage(dataset, snapshot, number, unit)
        assert shelf.admit(last[0])
        shelf.write(*last, unit_of(snapshot, OBJECTS, *last))
        found = {number: shelf.finish(number), last[0]: shelf.finish(last[0])}
        assert not shelf.present(number, unit)
        assert found[number] in ([unit], [])  # in a tree the seal of all finds it, whichever pack was finished
        reader.forget(number)
        assert reader.unit(number, unit) is None
        assert shelf.admit(number)
        assert shelf.write(number, unit, unit_of(snapshot, OBJECTS, number, unit))
        assert shelf.finish(number) == []
        reader.forget(number)
        assert check(reader, snapshot, OBJECTS) == len(all_units(snapshot))

    def test_repair_takes_out_what_is_damaged_and_nothing_else(self, open_one, dataset, snapshot):
        fill(open_one(), snapshot, OBJECTS)
        bad = [*self.some_units(snapshot), (self.large(snapshot), 2)]
        for number, unit in bad:
            self.damage(dataset, snapshot, number, unit)
        shelf = open_one()
        for number in range(snapshot.pack_count):
            damaged = [unit for pack, unit in bad if pack == number]
            assert set(damaged) == set(shelf.repair(number))
            for unit in damaged:
                assert not shelf.present(number, unit)
        absent = [(number, unit) for number, unit in all_units(snapshot) if not shelf.present(number, unit)]
        assert set(bad) <= set(absent)
        assert all((number, unit) in bad or number == self.large(snapshot) for number, unit in absent)
        assert fill(shelf, snapshot, OBJECTS) == len(absent)
        assert check(open_one().reader, snapshot, OBJECTS) == len(all_units(snapshot))

    def test_what_somebody_has_mapped_stays_as_it_was_through_repair_and_refill(self, open_one, dataset, snapshot):
        """A reader keeps the bytes that it was given: right ones stay right, whatever happens to the file."""
        fill(open_one(), snapshot, OBJECTS)
        old = open_reader(dataset, snapshot)
        views = {unit: old.unit(*unit) for unit in all_units(snapshot)}
        bad = self.some_units(snapshot)
        for unit in bad:
            self.damage(dataset, snapshot, *unit)
        shelf = open_one()
        for number in range(snapshot.pack_count):
            shelf.repair(number)
        fill(shelf, snapshot, OBJECTS)
        for unit, view in views.items():
            assert (view == unit_of(snapshot, OBJECTS, *unit)) == (unit not in bad)

    def test_after_a_crash_of_the_machine_only_what_matches_is_believed(
        self, open_one, dataset, snapshot, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(packfile, "_boot", b"an earlier boot!")
        before = open_one()
        written = all_units(snapshot)[: len(all_units(snapshot)) * 2 // 3]
        for number, unit in written:
            before.admit(number)
            before.write(number, unit, unit_of(snapshot, OBJECTS, number, unit))
        before.close()
        bad = self.some_units(snapshot, 2)
        assert set(bad) <= set(written)
        for unit in bad:
            self.damage(dataset, snapshot, *unit)
        monkeypatch.setattr(packfile, "_boot", None)
        assert check(open_reader(dataset, snapshot), snapshot, OBJECTS) == 0, "nobody looks before a filler has checked"
        shelf = open_one()
        present = {unit for unit in all_units(snapshot) if shelf.present(*unit)}
        assert present == set(written) - set(bad)
        assert check(open_reader(dataset, snapshot), snapshot, OBJECTS) == len(present)
        assert fill(shelf, snapshot, OBJECTS) == len(all_units(snapshot)) - len(present)

    @pytest.mark.parametrize("stripes", [4, 3], ids=["whole", "on its way"])
    def test_after_a_crash_of_the_machine_a_large_object_with_a_bad_stripe_is_made_again(
        self, open_one, dataset, snapshot, monkeypatch: pytest.MonkeyPatch, stripes: int
    ):
        monkeypatch.setattr(packfile, "_boot", b"an earlier boot!")
        before = open_one()
        number = self.large(snapshot)
        for unit in range(stripes):
            assert before.admit(number)
            assert before.write(number, unit, unit_of(snapshot, OBJECTS, number, unit))
        before.close()
        self.damage(dataset, snapshot, number, 2)
        monkeypatch.setattr(packfile, "_boot", None)
        shelf = open_one()
        assert shelf.admit(number)
        assert not shelf.present(number, 2)
        if stripes == 3:
            assert shelf.held(number) == 2, "what is not damaged is not fetched again"
        fill(shelf, snapshot, OBJECTS)
        assert shelf.held(number) == snapshot.pack_units[number]
        assert check(open_one().reader, snapshot, OBJECTS) == len(all_units(snapshot))
        assert hidden_files(dataset.trees) == []

    def test_what_was_sealed_is_believed_after_a_crash_of_the_machine(
        self, open_one, dataset, snapshot, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(packfile, "_boot", b"an earlier boot!")
        fill(open_one(), snapshot, OBJECTS)
        monkeypatch.setattr(packfile, "_boot", None)
        assert check(open_reader(dataset, snapshot), snapshot, OBJECTS) == len(all_units(snapshot))
        assert fill(open_one(), snapshot, OBJECTS) == 0

    @pytest.mark.parametrize("how", ["truncated", "empty", "foreign", "other header"])
    def test_a_damaged_book_is_made_anew(self, open_one, dataset, snapshot, how: str):
        fill(open_one(), snapshot, OBJECTS)
        number, unit = self.some_units(snapshot)[0]
        path = self.book_of(dataset, snapshot, number)
        damaged = {
            "truncated": path.read_bytes()[:100],
            "empty": b"",
            "foreign": b"#!/bin/sh\n" * 10_000,
            "other header": b"HOTSETPK" + bytes(40_000),
        }[how]
        path.unlink()
        path.write_bytes(damaged)
        reader = open_reader(dataset, snapshot)
        reader.scan()
        assert not reader.complete, "nobody is kept from opening the dataset"
        assert reader.held(number) == 0
        shelf = open_one()
        assert shelf.admit(number)
        assert not shelf.present(number, unit)
        assert fill(shelf, snapshot, OBJECTS) >= snapshot.pack_units[number]
        assert check(open_one().reader, snapshot, OBJECTS) == len(all_units(snapshot))

    def test_who_misses_what_somebody_removed_gets_it_again(self, open_one, dataset, snapshot):
        """By hand, by a clean-up job: a removed file is absent, not an endless wait."""
        shelf = open_one()
        fill(shelf, snapshot, OBJECTS)
        for number, unit in [self.some_units(snapshot)[0], (self.large(snapshot), 0)]:
            self.file_of(dataset, snapshot, number, unit)[0].unlink()
            reader = open_reader(dataset, snapshot)
            assert reader.unit(number, unit) is None
            shelf.verify_presence(number, unit)
            assert not shelf.present(number, unit)
            assert fill(shelf, snapshot, OBJECTS) >= 1
            reader.forget(number)
            assert check(reader, snapshot, OBJECTS) == len(all_units(snapshot))

    def test_who_cannot_read_what_is_there_gets_it_again(self, open_one, dataset, snapshot):
        """The reader found it damaged, or its disk failing: the filler believes no word but looks at the bytes."""
        shelf = open_one()
        fill(shelf, snapshot, OBJECTS)
        for number, unit in [*self.some_units(snapshot), (self.large(snapshot), 0)]:
            assert shelf.verify_presence(number, unit) is True
            self.damage(dataset, snapshot, number, unit)
            assert shelf.verify_presence(number, unit) is False
            assert not shelf.present(number, unit)
            assert fill(shelf, snapshot, OBJECTS) >= 1
        assert check(open_reader(dataset, snapshot), snapshot, OBJECTS) == len(all_units(snapshot))

    def test_what_a_killed_filler_did_not_seal_is_sealed_by_the_next(self, open_one, dataset, snapshot):
        first = open_one()
        for number, unit in all_units(snapshot):
            assert first.admit(number)
            assert first.write(number, unit, unit_of(snapshot, OBJECTS, number, unit))
        first.close()
        reader = open_reader(dataset, snapshot)
        reader.scan()
        assert not reader.complete
        following = open_one()
        assert all(following.present(*unit) for unit in all_units(snapshot))
        reader.scan()
        assert reader.complete

    def test_the_account_covers_what_was_admitted_before_it_is_written(self, shelf, dataset, snapshot):
        """Whoever is admitted later must not take the room that was promised, also after a recount."""
        space = dataset.cache.space
        for number in range(snapshot.pack_count):
            assert shelf.admit(number)
        promised = space.committed
        assert promised >= dataset.cache.usage()
        assert space.recount() >= snapshot.total_bytes
        fill(shelf, snapshot, OBJECTS)
        assert dataset.cache.usage() <= promised
        assert dataset.cache.usage() <= space.recount() <= promised + 2**16

    def test_nothing_is_left_behind(self, open_one, root: Path, snapshot: Snapshot):
        shelf = open_one()
        before = Counter(open_fds().values())
        fill(shelf, snapshot, OBJECTS)
        check(shelf.reader, snapshot, OBJECTS)
        shelf.close()
        gc.collect()
        assert [path for path in Counter(open_fds().values()) - before if str(root) in path] == []
        assert hidden_files(root) == []


class TestPacks(ShelfContract):
    layout: Layout = "packs"

    def file_of(self, dataset: DatasetDirectory, snapshot: Snapshot, number: int, unit: int) -> tuple[Path, int]:
        path = self.book_of(dataset, snapshot, number)
        return path, path.stat().st_size - snapshot.pack_sizes[number] + snapshot.unit_offset(number, unit)

    def book_of(self, dataset: DatasetDirectory, snapshot: Snapshot, number: int) -> Path:
        return dataset.packs / snapshot.pack_name(number).hex()

    def test_what_a_crash_of_the_machine_left_is_put_right_in_place(
        self, open_one, dataset, snapshot, monkeypatch: pytest.MonkeyPatch
    ):
        """No second copy, which there may be no room for; and of several fillers that start, one does it."""
        monkeypatch.setattr(packfile, "_boot", b"an earlier boot!")
        before = open_one()
        written = all_units(snapshot)[:-1:2]
        for number, unit in written:
            before.admit(number)
            before.write(number, unit, unit_of(snapshot, OBJECTS, number, unit))
        before.close()
        monkeypatch.setattr(packfile, "_boot", None)
        books = {self.book_of(dataset, snapshot, number) for number, _ in written}
        inodes = {book: book.stat().st_ino for book in books}
        space = dataset.cache.space
        space.reserve(space.free)
        shelves = [open_one() for _ in range(4)]
        barrier = threading.Barrier(len(shelves))

        def present(shelf: Shelf) -> set[tuple[int, int]]:
            barrier.wait(30)
            return {unit for unit in all_units(snapshot) if shelf.present(*unit)}

        with ThreadPoolExecutor(len(shelves)) as pool:
            assert list(pool.map(present, shelves)) == [set(written)] * len(shelves)
        assert {book: book.stat().st_ino for book in books} == inodes
        assert hidden_files(dataset.path) == []

    @pytest.mark.parametrize("why", ["quota", "disk"])
    def test_without_room_for_a_second_copy_a_damaged_pack_goes_as_a_whole(
        self, open_one, dataset, snapshot, monkeypatch: pytest.MonkeyPatch, why: str
    ):
        fill(open_one(), snapshot, OBJECTS)
        [(number, unit)] = self.some_units(snapshot, 1)
        self.damage(dataset, snapshot, number, unit)
        space = dataset.cache.space
        taken = space.free if why == "quota" else 0
        space.reserve(taken)
        if why == "disk":

            def full(*_: object) -> None:
                raise OSError(28, "No space left on device")

            monkeypatch.setattr(packfile.PackWriter, "write", full)
        before = space.committed
        shelf = open_one()
        lost = shelf.repair(number)
        assert lost == list(range(snapshot.pack_units[number]))
        assert not self.book_of(dataset, snapshot, number).exists()
        assert space.committed < before
        assert hidden_files(dataset.path) == []
        monkeypatch.undo()
        space.release(taken)
        assert fill(shelf, snapshot, OBJECTS) == len(lost)

    def test_maps_of_evicted_packs_are_let_go(self, open_one, dataset, snapshot):
        """Room that was freed is not really free before nobody has it mapped."""
        shelf = open_one()
        fill(shelf, snapshot, OBJECTS)
        number, unit = self.some_units(snapshot)[0]
        assert shelf.reader.mapped(number) is not None
        self.book_of(dataset, snapshot, number).unlink()
        shelf.let_go()
        assert shelf.reader.mapped(number) is None
        assert not shelf.present(number, unit)


class TestTrees(ShelfContract):
    layout: Layout = "files"

    def file_of(self, dataset: DatasetDirectory, snapshot: Snapshot, number: int, unit: int) -> tuple[Path, int]:
        position, start, _ = snapshot.unit_range(number, unit)
        path = dataset.trees / snapshot.digest / snapshot.key(position)
        on_its_way = dataset.trees / f".{snapshot.digest}.{number}.part"
        return on_its_way if on_its_way.exists() else path, start

    def book_of(self, dataset: DatasetDirectory, snapshot: Snapshot, number: int) -> Path:
        return dataset.trees / f"{snapshot.digest}.ledger"

    def write_all(self, shelf: Shelf, snapshot: Snapshot) -> None:
        """As a filler does that is killed before the seal."""
        for number, unit in all_units(snapshot):
            assert shelf.write(number, unit, unit_of(snapshot, OBJECTS, number, unit))

    def test_a_complete_tree_is_not_sealed_before_every_byte_was_read(
        self, open_one, reader: UnitReader, dataset, snapshot: Snapshot
    ):
        self.write_all(open_one(), snapshot)
        bad = [self.some_units(snapshot)[0], (self.large(snapshot), 2)]
        for unit in bad:
            self.damage(dataset, snapshot, *unit)
        shelf = open_one()
        assert not any(shelf.present(*unit) for unit in bad)
        reader.scan()
        assert not reader.complete
        fill(shelf, snapshot, OBJECTS)
        reader.scan()
        assert reader.complete
        assert check(reader, snapshot, OBJECTS) == len(all_units(snapshot))

    def test_what_a_verification_finds_in_a_tree_that_was_not_sealed_is_told(
        self, open_one, dataset, snapshot: Snapshot
    ):
        self.write_all(open_one(), snapshot)
        number, unit = self.some_units(snapshot)[0]
        self.damage(dataset, snapshot, number, unit)
        verified = verify_dataset(dataset, lambda *_: None)
        assert verified.units == len(all_units(snapshot))
        assert [damage.key for damage in verified.damaged] == [snapshot.key(snapshot.unit_range(number, unit)[0])]

    def test_all_stripes_that_are_lost_with_a_damaged_one_are_to_be_fetched(self, shelf, dataset, snapshot: Snapshot):
        number = self.large(snapshot)
        self.write_all(shelf, snapshot)
        self.damage(dataset, snapshot, number, 2)
        assert shelf.finish(number) == [0, 1, 2, 3]

    def test_one_of_the_threads_that_wrote_the_last_files_reads_all_of_them(
        self, shelf: Shelf, reader: UnitReader, snapshot: Snapshot, monkeypatch: pytest.MonkeyPatch
    ):
        self.write_all(shelf, snapshot)
        barrier = threading.Barrier(8)
        looked: list[int] = []
        repair = shelf.repair
        monkeypatch.setattr(shelf, "repair", lambda number: looked.append(number) or repair(number))

        def end(number: int) -> list[int]:
            barrier.wait()
            return shelf.finish(number)

        with ThreadPoolExecutor(8) as pool:
            assert list(pool.map(end, range(8))) == [[]] * 8
        assert looked == list(range(snapshot.pack_count))
        reader.scan()
        assert reader.complete

    def test_a_tree_that_changed_while_it_was_read_is_read_again(
        self, shelf: Shelf, reader: UnitReader, dataset, snapshot: Snapshot, monkeypatch: pytest.MonkeyPatch
    ):
        """A reader missed a file, which was fetched anew before all the others were read: somebody must seal still."""
        self.write_all(shelf, snapshot)
        number, unit = self.some_units(snapshot)[0]
        missed: list[int] = []
        repair = shelf.repair

        def meanwhile(pack: int) -> list[int]:
            if not missed:
                missed.append(number)
                self.damage(dataset, snapshot, number, unit)
                assert not shelf.verify_presence(number, unit)
                assert shelf.write(number, unit, unit_of(snapshot, OBJECTS, number, unit))
                assert shelf.finish(number) == []
            return repair(pack)

        monkeypatch.setattr(shelf, "repair", meanwhile)
        assert shelf.finish(number) == []
        reader.scan()
        assert reader.complete
        assert check(reader, snapshot, OBJECTS) == len(all_units(snapshot))

    @pytest.mark.parametrize("how", ["cut short", "empty", "bit flipped"])
    def test_who_misses_what_is_damaged_gets_it_again(self, open_one, dataset, snapshot, how: str):
        """A reader that cannot read a unit asks for it, and the filler looks at the bytes instead of at its marks."""
        shelf = open_one()
        fill(shelf, snapshot, OBJECTS)
        for number, unit in [self.some_units(snapshot)[0], (self.large(snapshot), 2)]:
            path, start = self.file_of(dataset, snapshot, number, unit)
            if how == "bit flipped":
                self.damage(dataset, snapshot, number, unit)
            else:
                path.chmod(0o600)
                os.truncate(path, start + 1 if how == "cut short" else 0)
            assert shelf.verify_presence(number, unit) is False
            assert not shelf.present(number, unit)
            assert fill(shelf, snapshot, OBJECTS) >= 1
            assert check(open_one().reader, snapshot, OBJECTS) == len(all_units(snapshot))


def test_the_suite_knows_where_bytes_lie(tmp_path: Path):
    """The second route reads the same bytes as the shelf; else the damage above would hit nothing."""
    for suite in (TestPacks(), TestTrees()):
        dataset = dataset_in(CacheDirectory(tmp_path / suite.layout), layout=suite.layout)
        snapshot = publish(dataset, OBJECTS)
        shelf = open_shelf(dataset, snapshot)
        fill(shelf, snapshot, OBJECTS)
        for number, unit in all_units(snapshot):
            path, offset = suite.file_of(dataset, snapshot, number, unit)
            wanted = unit_of(snapshot, OBJECTS, number, unit)
            with path.open("rb") as file:
                assert os.pread(file.fileno(), len(wanted), offset) == wanted
        shelf.close()

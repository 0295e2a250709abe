"""The index says what the plan said; it costs next to no memory; what is not an index is said to be none."""

from __future__ import annotations

import re
import shutil
from bisect import bisect_left
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotset.errors import Corrupt, NotFound
from hotset.snapshot import Listing, PlanParameters, Snapshot, plan, write_index
from hotset.source.base import FingerprintKind, ObjectInfo
from tests.support.processes import call
from tests.unit.snapshot.making import IDENTITY, SMALL, Objects, infos, keys, listing_of, objects, planned, snapshot_of

FILES = ("objects.arrow", "packs.arrow")


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory):
    """A new, empty directory at each call."""
    root = tmp_path_factory.mktemp("indexes")
    numbers = iter(range(10**9))
    return lambda: root / str(next(numbers))


class TestRoundTrip:
    @given(objects)
    def test_objects_come_back_as_they_were_listed(self, directory, objects: Objects):
        snapshot = snapshot_of(directory(), objects)
        listed = sorted(infos(objects), key=lambda info: info.key.encode())
        assert [snapshot.info(position) for position in range(len(snapshot))] == listed
        assert list(snapshot.keys()) == [info.key for info in listed]
        assert snapshot.total_bytes == sum(info.size for info in listed)
        assert snapshot.digest == planned(objects).digest
        assert snapshot.size_array().tolist() == [info.size for info in listed]

    @given(objects, keys)
    def test_find(self, directory, objects: Objects, other: str):
        snapshot = snapshot_of(directory(), objects)
        for position in range(len(snapshot)):
            assert snapshot.find(snapshot.key(position)) == position
        if other not in objects:
            with pytest.raises(NotFound, match="no object"):
                snapshot.find(other)

    @given(objects, st.text(st.characters(exclude_categories=["Cs"]), max_size=3))
    def test_prefix(self, directory, objects: Objects, prefix: str):
        snapshot = snapshot_of(directory(), objects)
        wanted = [key for key in sorted(objects, key=str.encode) if key.startswith(prefix)]
        assert [snapshot.key(position) for position in snapshot.prefix(prefix)] == wanted

    @given(objects)
    def test_every_byte_of_every_object_has_exactly_one_place(self, directory, objects: Objects):
        """Units cover each pack's data without gap or overlap, and each object by its own units in order."""
        snapshot = snapshot_of(directory(), objects)
        covered = {}
        for number in range(snapshot.pack_count):
            pack = snapshot.pack(number)
            end = 0
            for unit in range(pack.units):
                position, start, stop = snapshot.unit_range(number, unit)
                assert snapshot.unit_offset(number, unit) == end
                assert pack.first <= position < pack.first + pack.objects
                assert snapshot.packs[position] == number
                covered.setdefault(position, []).append((start, stop))
                end += stop - start
            assert end == pack.size == snapshot.pack_sizes[number]
            assert pack.units == snapshot.pack_units[number]
        assert sorted(covered) == list(range(len(snapshot)))
        for position, parts in covered.items():
            ends = [0, *(stop for _, stop in parts)]
            assert [start for start, _ in parts] == ends[:-1]
            assert ends[-1] == snapshot.sizes[position]

    @given(objects)
    def test_locate_agrees_with_the_units(self, directory, objects: Objects):
        snapshot = snapshot_of(directory(), objects)
        for position in range(len(snapshot)):
            number, offset, size = snapshot.locate(position)
            number_again, units = snapshot.units_of(position)
            assert (number, snapshot.unit_offset(number, units[0])) == (number_again, offset)
            assert snapshot.unit_range(number, units[0])[0] == position
            assert snapshot.unit_range(number, units[-1])[2] == size

    @given(st.integers(10_001, 60_000), st.data())
    def test_a_range_of_a_large_object_needs_the_stripes_that_it_touches(
        self, directory, size: int, data: st.DataObject
    ):
        snapshot = snapshot_of(directory(), {"a": (5, 0), "large": (size, 0), "z": (7, 0)})
        start = data.draw(st.integers(0, size - 1))
        end = data.draw(st.integers(start + 1, size))
        number, units = snapshot.units_of(1, start, end)
        pieces = [snapshot.unit_range(number, unit) for unit in units]
        assert pieces[0][1] <= start < pieces[0][2]
        assert pieces[-1][1] < end <= pieces[-1][2]
        assert snapshot.pack(number).stripe == SMALL.stripe
        assert all(stop - begin <= SMALL.stripe for _, begin, stop in pieces)

    def test_the_index_of_nothing(self, directory):
        snapshot = snapshot_of(directory(), {})
        assert (len(snapshot), snapshot.pack_count, snapshot.total_bytes) == (0, 0, 0)
        assert list(snapshot.keys()) == []
        assert list(snapshot.prefix("a")) == []
        with pytest.raises(NotFound):
            snapshot.find("a")

    def test_positions_at_both_ends(self, directory):
        snapshot = snapshot_of(directory(), {"a": (1, 0), "b": (2, 0)})
        assert snapshot.key(1) == "b"
        with pytest.raises(IndexError):
            snapshot.locate(2)

    def test_an_open_snapshot_outlives_its_directory(self, directory):
        """An evictor that removes the directory of a snapshot must not take the bytes from those who have it open."""
        place = directory()
        snapshot = snapshot_of(place, {f"{number:04}": (number, 0) for number in range(2000)})
        shutil.rmtree(place)
        assert snapshot.find("1999") == 1999
        assert snapshot.locate(1999)[2] == 1999


class TestDamage:
    """Every kind of damage is `Corrupt`, names the place and says what to do; nothing is read from it."""

    @pytest.fixture
    def place(self, tmp_path: Path) -> Path:
        snapshot_of(tmp_path / "index", {f"{number:04}": (number, 0) for number in range(500)})
        return tmp_path / "index"

    @pytest.mark.parametrize("name", [*FILES, "sums.json"])
    def test_missing(self, place: Path, name: str):
        (place / name).unlink()
        with pytest.raises(NotFound, match=re.escape(str(place))):
            Snapshot(place)

    @pytest.mark.parametrize("name", [*FILES, "sums.json"])
    @pytest.mark.parametrize("share", [0.0, 0.001, 0.5, 0.99])
    def test_truncated(self, place: Path, name: str, share: float):
        content = (place / name).read_bytes()
        (place / name).write_bytes(content[: int(len(content) * share)])
        with pytest.raises(Corrupt, match=f"{re.escape(str(place))}.*reload"):
            Snapshot(place)

    @pytest.mark.parametrize("name", [*FILES, "sums.json"])
    def test_one_flipped_bit_anywhere(self, place: Path, name: str):
        content = (place / name).read_bytes()
        for at in range(0, len(content), max(1, len(content) // 60)):
            damaged = bytearray(content)
            damaged[at] ^= 4
            (place / name).write_bytes(damaged)
            with pytest.raises(Corrupt, match=re.escape(str(place))):
                Snapshot(place)

    @pytest.mark.parametrize("name", FILES)
    def test_not_an_arrow_file(self, place: Path, name: str):
        (place / name).write_bytes(b"<html>captive portal</html>" * 50)
        with pytest.raises(Corrupt, match="reload"):
            Snapshot(place)

    @pytest.mark.parametrize("name", FILES)
    def test_another_programs_arrow_file(self, place: Path, name: str):
        batch = pa.record_batch({"x": pa.array([1, 2, 3])})
        with pa.OSFile(str(place / name), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
            writer.write_batch(batch)
        with pytest.raises(Corrupt, match=re.escape(str(place))):
            Snapshot(place)

    @pytest.mark.parametrize("name", FILES)
    def test_a_file_of_another_snapshot(self, place: Path, tmp_path: Path, name: str):
        snapshot_of(tmp_path / "other", {f"{number:04}": (number, 1) for number in range(500)})
        (place / name).write_bytes((tmp_path / "other" / name).read_bytes())
        with pytest.raises(Corrupt, match=re.escape(str(place))):
            Snapshot(place)


def test_a_million_objects_cost_less_than_100_private_bytes_each(tmp_path: Path):
    """The goal's figure: what each process pays for having the index open and having looked up many objects by key and
    by position. Pages of the index itself are shared by all processes."""
    count = 1_000_000
    listing = Listing.of(
        (
            [
                ObjectInfo(f"train/n{n >> 10:05}/{n:08}.JPEG", 33_000, FingerprintKind.ETAG, b"%032x" % n, 1)
                for n in range(low, low + 50_000)
            ]
            for low in range(0, count, 50_000)
        ),
        listed_ns=10**18,
    )
    (tmp_path / "index").mkdir()
    write_index(tmp_path / "index", listing, plan(listing, IDENTITY, PlanParameters()))
    on_disk = sum((tmp_path / "index" / name).stat().st_size for name in FILES)
    assert on_disk < 100 * count
    with call(private_memory_of_an_open_index, str(tmp_path / "index")) as child:
        assert child.result() < 100 * count


def private_memory_of_an_open_index(directory: str) -> int:
    snapshot_of_few = len(directory)  # whatever the interpreter and the libraries need is there before
    before = private_bytes()
    snapshot = Snapshot(Path(directory))
    for position in range(snapshot_of_few, len(snapshot), 101):
        assert snapshot.find(snapshot.key(position)) == position
        snapshot.locate(position)
    return private_bytes() - before


def private_bytes() -> int:
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith("Private_"))


def test_prefix_is_a_bisection_over_bytes(tmp_path: Path):
    """A prefix that ends in the middle of a character's bytes cannot be asked for; one that ends in the highest can."""
    names = ["a", "a\U0010ffff", "a\U0010ffffz", "b"]
    snapshot = snapshot_of(tmp_path / "index", dict.fromkeys(names, (1, 0)))
    assert list(snapshot.prefix("a\U0010ffff")) == [1, 2]
    assert list(snapshot.prefix("")) == [0, 1, 2, 3]
    assert bisect_left(sorted(name.encode() for name in names), b"b") == snapshot.find("b")


def test_listing_of_reads_batches_lazily():
    """A million objects list as a stream: no batch is asked for before the one before it was taken."""
    taken = []

    def batches():
        for number in range(3):
            taken.append(number)
            yield infos({f"{number}": (1, 0)})

    assert len(Listing.of(batches(), listed_ns=0)) == 3
    assert taken == [0, 1, 2]
    assert len(listing_of({})) == 0

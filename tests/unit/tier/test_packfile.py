"""The file of a pack: what it looks like, in which order it is written, and when it is believed."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotset.base import files
from hotset.base.checksum import checksum
from hotset.errors import Corrupt
from hotset.tier.node import packfile
from hotset.tier.node.packfile import MappedPack, PackGeometry, PackWriter, create_pack, salvage
from tests.support.datasets import content
from tests.support.processes import call

NAME = bytes(range(32))
UNITS = [content("unit", size) for size in (100, 0, 5000, 1)]
OFFSETS = [0, 100, 100, 5100]
EXTENTS = [(offset, offset + len(unit)) for offset, unit in zip(OFFSETS, UNITS, strict=True)]
GEOMETRY = PackGeometry(len(UNITS), sum(map(len, UNITS)))


@pytest.fixture
def path(tmp_path: Path) -> str:
    path = str(tmp_path / "pack")
    create_pack(path, NAME, GEOMETRY, mode=0o600, on_disk=True)
    return path


def open_pack(path: str, *, name: bytes = NAME, geometry: PackGeometry = GEOMETRY) -> MappedPack:
    return MappedPack(path, name, geometry, on_disk=True)


def write(path: str, *units: int) -> None:
    with PackWriter(path, GEOMETRY) as writer:
        for unit in units:
            writer.write(unit, OFFSETS[unit], UNITS[unit])


@given(st.integers(0, 3000), st.integers(0, 2**40))
def test_geometry(units: int, size: int):
    """Words do not overlap data, and data begin on a page."""
    geometry = PackGeometry(units, size)
    assert geometry.data_at % 4096 == 0
    assert geometry.data_at >= 128 + 4 * units
    assert geometry.length == geometry.data_at + size


class TestCreate:
    def test_an_empty_pack_has_no_unit_and_takes_all_its_room_on_a_disk(self, path: str):
        pack = open_pack(path)
        assert (pack.present(), pack.sealed, pack.trusted) == (0, False, True)
        assert pack.missing_units() == [0, 1, 2, 3]
        assert os.stat(path).st_size == GEOMETRY.length
        assert os.stat(path).st_blocks * 512 >= GEOMETRY.length, "a full disk is found before the fetch"

    def test_in_memory_only_the_header_takes_room(self, tmp_path: Path):
        large = PackGeometry(4, 10**7)
        create_pack(str(tmp_path / "pack"), NAME, large, mode=0o600, on_disk=False)
        assert (tmp_path / "pack").stat().st_blocks * 512 < 20_000
        assert (tmp_path / "pack").stat().st_size == large.length

    def test_an_existing_pack_is_left_as_it_is(self, path: str):
        write(path, 2)
        inode = os.stat(path).st_ino
        create_pack(path, NAME, GEOMETRY, mode=0o600, on_disk=True)
        assert os.stat(path).st_ino == inode
        assert open_pack(path).present() == 1

    @pytest.mark.parametrize("mode", [0o600, 0o664])
    def test_mode_whatever_the_umask(self, tmp_path: Path, mode: int):
        before = os.umask(0o077)
        try:
            create_pack(str(tmp_path / "pack"), NAME, GEOMETRY, mode=mode, on_disk=True)
        finally:
            os.umask(before)
        assert stat.S_IMODE((tmp_path / "pack").stat().st_mode) == mode


class TestWrite:
    def test_units_in_any_order(self, path: str):
        pack = open_pack(path)
        for done, unit in enumerate((2, 0, 3, 1), start=1):
            write(path, unit)
            assert pack.present() == done
            assert pack.check(unit, *EXTENTS[unit])
            start, end = EXTENTS[unit]
            assert pack.data[start:end] == UNITS[unit]
        assert pack.missing_units() == []
        assert pack.bad_units(EXTENTS) == []

    def test_bytes_before_the_word_that_promises_them(self, path: str, monkeypatch: pytest.MonkeyPatch):
        """Whenever the writer dies, a word that is set has all of its bytes."""
        written: list[int] = []
        pwritev = os.pwritev

        def spy(fd: int, data: Sequence[bytes], offset: int) -> int:
            written.append(offset)
            return pwritev(fd, data, offset)

        monkeypatch.setattr(files.os, "pwritev", spy)
        write(path, 2)
        assert written == [GEOMETRY.data_at + OFFSETS[2], 128 + 4 * 2]

    def test_neighbours_in_one_write(self, path: str, monkeypatch: pytest.MonkeyPatch):
        written: list[int] = []
        pwritev = os.pwritev
        monkeypatch.setattr(files.os, "pwritev", lambda fd, data, at: (written.append(at), pwritev(fd, data, at))[1])
        with PackWriter(path, GEOMETRY) as writer:
            writer.write(1, OFFSETS[1], *UNITS[1:])
        assert written == [GEOMETRY.data_at + OFFSETS[1], 128 + 4 * 1]
        pack = open_pack(path)
        assert pack.missing_units() == [0]
        assert pack.bad_units(EXTENTS) == []

    def test_a_writer_that_dies_between_bytes_and_word_has_written_nothing(self, path: str):
        with PackWriter(path, GEOMETRY) as writer:
            files.write_all(writer._fd, [UNITS[2]], GEOMETRY.data_at + OFFSETS[2])
        assert open_pack(path).missing_units() == [0, 1, 2, 3]

    def test_an_empty_unit_is_present_once_written(self, path: str):
        write(path, 1)
        assert open_pack(path).missing_units() == [0, 2, 3]

    def test_a_checksum_is_never_the_word_for_absent(self):
        assert checksum(b"") == 1
        assert checksum(b"\xff" * 7) != 0

    def test_a_pack_that_is_gone_is_said(self, tmp_path: Path):
        with pytest.raises(FileNotFoundError):
            PackWriter(str(tmp_path / "absent"), GEOMETRY)
        with pytest.raises(FileNotFoundError):
            open_pack(str(tmp_path / "absent"))

    def test_two_processes_write_one_pack(self, path: str):
        with call(write, path, 0, 1) as one, call(write, path, 2, 3) as two:
            one.result()
            two.result()
        pack = open_pack(path)
        assert pack.present() == 4
        assert pack.bad_units(EXTENTS) == []


class TestTrust:
    def test_words_of_this_boot_are_believed(self, path: str):
        write(path, 0)
        assert open_pack(path).trusted

    def test_words_of_another_boot_are_not_unless_sealed(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        path = str(tmp_path / "pack")
        monkeypatch.setattr(packfile, "_boot", b"an earlier boot!")
        create_pack(path, NAME, GEOMETRY, mode=0o600, on_disk=True)
        write(path, 0, 1, 2, 3)
        assert open_pack(path).trusted
        monkeypatch.setattr(packfile, "_boot", None)
        pack = open_pack(path)
        assert pack.boot == b"an earlier boot!"
        assert not pack.trusted
        with PackWriter(path, GEOMETRY) as writer:
            writer.seal(directory=tmp_path, durable=True)
        assert pack.sealed
        assert pack.trusted

    @pytest.mark.parametrize("durable", [True, False])
    def test_the_seal_comes_between_two_syncs_on_a_disk(
        self, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, durable: bool
    ):
        """First the data, then the flag that vouches for them, then the directory (rule 4)."""
        steps: list[str] = []
        pwrite = os.pwrite

        def spy(fd: int, data: bytes, offset: int) -> int:
            steps.append(f"write {offset}")
            return pwrite(fd, data, offset)

        with PackWriter(path, GEOMETRY) as writer:
            monkeypatch.setattr(packfile.os, "pwrite", spy)
            monkeypatch.setattr(packfile.os, "fdatasync", lambda _fd: steps.append("sync"))
            monkeypatch.setattr(packfile, "fsync_directory", lambda _path: steps.append("sync directory"))
            writer.seal(directory=tmp_path, durable=durable)
        assert steps == (["sync", "write 12", "sync", "sync directory"] if durable else ["write 12"])


class TestForeign:
    def test_another_name(self, path: str):
        with pytest.raises(Corrupt, match="does not have the header"):
            open_pack(path, name=bytes(32))

    def test_another_geometry(self, path: str):
        with pytest.raises(Corrupt):
            open_pack(path, geometry=PackGeometry(5, GEOMETRY.size))
        with pytest.raises(Corrupt):
            open_pack(path, geometry=PackGeometry(4, GEOMETRY.size - 1))

    def test_too_short(self, path: str):
        os.truncate(path, GEOMETRY.length - 1)
        with pytest.raises(Corrupt, match=f"{GEOMETRY.length - 1} bytes long instead of {GEOMETRY.length}"):
            open_pack(path)

    @pytest.mark.parametrize("at", [0, 8, 16, 20, 24, 40])
    def test_a_damaged_header(self, path: str, at: int):
        with open(path, "r+b") as file:
            file.seek(at)
            byte = file.read(1)[0]
            file.seek(at)
            file.write(bytes([byte ^ 1]))
        with pytest.raises(Corrupt):
            open_pack(path)

    def test_a_newer_format(self, path: str):
        with open(path, "r+b") as file:
            file.seek(8)
            file.write((2).to_bytes(4, "little"))
        with pytest.raises(Corrupt):
            open_pack(path)

    def test_a_disk_that_fails_is_corrupt_and_no_signal(self, path: str, monkeypatch: pytest.MonkeyPatch):
        write(path, 2)

        def fails(_view: memoryview) -> None:
            raise OSError(5, "Input/output error")

        monkeypatch.setattr(packfile, "populate", fails)
        with pytest.raises(Corrupt, match="cannot be read from its disk: Input/output error"):
            open_pack(path)

    def test_a_disk_that_fails_in_the_data_is_corrupt_at_their_first_use(
        self, path: str, monkeypatch: pytest.MonkeyPatch
    ):
        write(path, 2)
        pack = open_pack(path)

        def fails(_view: memoryview) -> None:
            raise OSError(5, "Input/output error")

        monkeypatch.setattr(packfile, "populate", fails)
        assert not pack.check(2, *EXTENTS[2])
        assert pack.bad_units(EXTENTS) == [2]
        with pytest.raises(Corrupt, match="Input/output error"):
            pack.touch(*EXTENTS[2])


class TestSalvage:
    def test_a_new_file_with_the_good_units_only(self, path: str):
        write(path, 0, 1, 2)
        with open(path, "r+b") as file:
            file.seek(GEOMETRY.data_at + OFFSETS[2] + 77)
            file.write(b"\0\0\0\0\0\0\0\0")
        old = open_pack(path)
        before = bytes(old.data)
        assert old.bad_units(EXTENTS) == [2]
        salvage(path, old, NAME, EXTENTS, [2], mode=0o640, on_disk=True)
        new = open_pack(path)
        assert new.identity != old.identity
        assert new.missing_units() == [2, 3]
        assert new.bad_units(EXTENTS) == []
        assert (new.sealed, new.trusted) == (False, True)
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o640
        assert old.data == before, "who had the old file mapped keeps what he had"
        assert sorted(os.listdir(os.path.dirname(path))) == ["home", "pack"]

    def test_a_map_stays_readable_after_unlink(self, path: str):
        write(path, 0, 2)
        pack = open_pack(path)
        os.unlink(path)
        create_pack(path, NAME, GEOMETRY, mode=0o600, on_disk=True)
        assert pack.data[OFFSETS[2] : OFFSETS[2] + 5000] == UNITS[2]
        assert pack.present() == 2
        assert open_pack(path).present() == 0


def test_a_ledger_is_a_pack_without_data(tmp_path: Path):
    path = str(tmp_path / "ledger")
    create_pack(path, NAME, PackGeometry(3, 10**9), mode=0o600, on_disk=False)
    ledger = MappedPack.open_ledger(path, NAME, 3)
    with PackWriter(path, PackGeometry(3, 10**9)) as writer:
        assert writer.identity == ledger.identity
        writer.mark(1, 4711)
        assert ledger.words.tolist() == [0, 4711, 0]
        writer.cut()
    assert os.stat(path).st_size == ledger.geometry.data_at
    assert MappedPack.open_ledger(path, NAME, 3).words.tolist() == [0, 4711, 0]
    assert os.stat(path).st_blocks * 512 < 20_000


class TestReadingIn:
    """Pages come from the disk before they are used: of a large pack, unit by unit and each once."""

    @pytest.fixture
    def read_in(self, monkeypatch) -> list[int]:
        sizes: list[int] = []
        monkeypatch.setattr(packfile, "populate", lambda view: sizes.append(len(view)))
        return sizes

    def test_a_small_pack_at_once(self, path: str, read_in):
        pack = open_pack(path)
        del read_in[:]  # the header
        pack.touch(*EXTENTS[0])
        pack.touch(*EXTENTS[2])
        assert read_in == [GEOMETRY.size]
        assert pack.readable

    def test_a_large_pack_unit_by_unit(self, path: str, read_in, monkeypatch):
        monkeypatch.setattr(packfile, "WHOLE", 1000)
        stripes = PackGeometry(3, GEOMETRY.size)
        create_pack(f"{path}-large", NAME, stripes, mode=0o600, on_disk=True)
        pack = open_pack(f"{path}-large", geometry=stripes)
        del read_in[:]
        for start, end in [(0, 2000), (4000, 5101), (0, 2000)]:
            pack.touch(start, end)
        assert read_in == [2000, 1101]
        assert not pack.readable
        pack.touch(2000, 4000)
        assert pack.readable, "now it may be used without asking"

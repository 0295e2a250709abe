"""Maps keep no descriptor, outlive close and unlink, and are undone with their last slice."""

from __future__ import annotations

import errno
import gc
import os
from pathlib import Path

import pytest

from hotset.base import maps
from hotset.base.maps import map_readonly, populate
from tests.support.processes import open_fds


def mapped_file(path: Path, content: bytes, *, offset: int = 0) -> memoryview:
    path.write_bytes(content)
    fd = os.open(path, os.O_RDONLY)
    try:
        return map_readonly(fd, len(content) - offset, offset)
    finally:
        os.close(fd)


def is_mapped(path: Path) -> bool:
    return str(path) in Path("/proc/self/maps").read_text()


def test_the_view_shows_the_file_and_cannot_be_written(tmp_path: Path):
    content = os.urandom(10_000)
    view = mapped_file(tmp_path / "file", content)
    assert view == content
    assert (view.readonly, view.format, view.itemsize) == (True, "B", 1)
    with pytest.raises(TypeError):
        view[0] = 1


def test_a_map_keeps_no_descriptor(tmp_path: Path):
    before = open_fds()
    views = [mapped_file(tmp_path / str(n), b"x" * 5000) for n in range(50)]
    assert len(open_fds()) == len(before)
    assert all(view[4999] == ord("x") for view in views)


def test_bytes_outlive_close_unlink_and_replacement_of_the_file(tmp_path: Path):
    path = tmp_path / "file"
    view = mapped_file(path, b"old" * 2000)
    path.unlink()
    path.write_bytes(b"new" * 2000)
    assert view == b"old" * 2000


def test_the_map_is_undone_when_the_last_slice_is_gone_and_not_before(tmp_path: Path):
    path = tmp_path / "file"
    view = mapped_file(path, b"abcdef" * 2000)
    part = view[100:200][10:20]
    cast = view[:8].cast("I")
    del view
    gc.collect()
    assert is_mapped(path)
    assert part == (b"abcdef" * 40)[110:120]
    del part
    assert is_mapped(path)
    del cast
    gc.collect()
    assert not is_mapped(path)


def test_an_offset_of_whole_pages(tmp_path: Path):
    content = os.urandom(3 * 4096 + 17)
    assert mapped_file(tmp_path / "file", content, offset=8192) == content[8192:]


def test_what_is_written_to_the_file_shows_in_the_map(tmp_path: Path):
    """Readers map a pack once and see units appear in it."""
    path = tmp_path / "file"
    view = mapped_file(path, bytes(8192))
    with path.open("r+b") as file:
        file.seek(5000)
        file.write(b"written")
    assert view[5000:5007] == b"written"


def test_no_bytes_need_no_map(tmp_path: Path):
    assert mapped_file(tmp_path / "file", b"") == b""


def test_a_failing_map_is_an_os_error(tmp_path: Path):
    with pytest.raises(OSError, match="mmap of 10 bytes") as caught:
        map_readonly(-1, 10)
    assert caught.value.errno == errno.EBADF


def test_populate_reads_a_part_in(tmp_path: Path):
    view = mapped_file(tmp_path / "file", os.urandom(100_000))
    populate(view)
    populate(view[5000:60_001])
    populate(view[0:0])


def test_a_disk_that_fails_is_an_error_and_no_signal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    view = mapped_file(tmp_path / "file", b"x" * 10_000)

    class Failing:
        @staticmethod
        def madvise(*_args: object) -> int:
            maps.ctypes.set_errno(errno.EFAULT)
            return -1

    monkeypatch.setattr(maps, "_libc", Failing)
    with pytest.raises(OSError, match="reading 10000 bytes ahead"):
        populate(view)


def test_populate_past_the_end_of_the_file_is_an_error(tmp_path: Path):
    """The kernel itself says so: a page behind the end of the file cannot be read in."""
    path = tmp_path / "file"
    path.write_bytes(b"x" * 4096)
    fd = os.open(path, os.O_RDONLY)
    view = map_readonly(fd, 4 * 4096)
    os.close(fd)
    with pytest.raises(OSError):
        populate(view)


class TestOlderKernels:
    """Before Linux 5.14 there is no MADV_POPULATE_READ: pages are looked at in another way, one byte of each."""

    @pytest.fixture(autouse=True)
    def older(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(maps, "_MADV_POPULATE_READ", 222)  # an advice that no kernel knows: EINVAL

    @pytest.mark.parametrize("size", [1, 4096, 100_000, 1500 * 4096])
    def test_what_can_be_read_is_fine(self, tmp_path: Path, size: int):
        populate(mapped_file(tmp_path / "file", b"x" * size))

    @pytest.mark.parametrize("pages", [4, 1500])
    def test_what_cannot_be_read_is_an_error_and_no_signal(self, tmp_path: Path, pages: int):
        path = tmp_path / "file"
        path.write_bytes(b"x" * (pages - 1) * 4096)
        fd = os.open(path, os.O_RDONLY)
        view = map_readonly(fd, pages * 4096)
        os.close(fd)
        with pytest.raises(OSError, match="reading") as caught:
            populate(view)
        assert caught.value.errno == errno.EIO

"""Publishing: the whole file or nothing, once, with the right mode; and what the file system says."""

from __future__ import annotations

import os
import sys
import threading
import uuid
from pathlib import Path

import pytest

from hotset.base import files
from hotset.base.files import (
    filesystem_magic,
    half_removed,
    is_tmpfs,
    network_filesystem,
    remove_directory,
    replace_file,
    rounded,
    temporary_name,
    tmpfile,
    usage_of,
    write_all,
)
from tests.support.processes import Child, open_fds


def names_in(directory: Path) -> list[str]:
    return sorted(os.listdir(directory))


class TestReplaceFile:
    def test_a_reader_sees_the_old_or_the_new_and_never_a_part(self, tmp_path: Path):
        path = tmp_path / "file"
        versions = [bytes([n]) * 100_000 for n in range(40)]
        replace_file(path, versions[0])
        stop = threading.Event()
        torn: list[int] = []

        def read() -> None:
            while not stop.is_set():
                content = path.read_bytes()
                if len(content) != 100_000 or len(set(content)) != 1:
                    torn.append(len(content))

        reader = threading.Thread(target=read)
        reader.start()
        for version in versions:
            replace_file(path, version, durable=False)
        stop.set()
        reader.join()
        assert not torn
        assert path.read_bytes() == versions[-1]
        assert names_in(tmp_path) == ["file", "home"]

    @pytest.mark.parametrize("durable", [True, False])
    def test_mode_whatever_the_umask(self, tmp_path: Path, durable: bool):
        before = os.umask(0o077)
        try:
            replace_file(tmp_path / "file", b"x", mode=0o664, durable=durable)
        finally:
            os.umask(before)
        assert (tmp_path / "file").stat().st_mode & 0o777 == 0o664

    def test_a_failure_leaves_the_old_file_and_nothing_else(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        path = tmp_path / "file"
        replace_file(path, b"old")

        def fails(_fd: int) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(files.os, "fdatasync", fails)
        with pytest.raises(OSError, match="No space"):
            replace_file(path, b"new")
        assert path.read_bytes() == b"old"
        assert names_in(tmp_path) == ["file", "home"]

    def test_kill_9_while_replacing_leaves_a_whole_file(self, tmp_path: Path):
        program = """
import sys
from pathlib import Path
from hotset.base.files import replace_file
path, n = Path(sys.argv[1]), 0
while True:
    n += 1
    replace_file(path, bytes([n % 256]) * 300_000, durable=False)
    if n == 5:
        print("running", flush=True)
"""
        path = tmp_path / "file"
        with Child([sys.executable, "-c", program, path]) as writer:
            writer.expect("running")
            writer.kill()
        content = path.read_bytes()
        assert len(content) == 300_000
        assert len(set(content)) == 1


class TestTmpfile:
    def test_publish_gives_the_name_once(self, tmp_path: Path):
        with tmpfile(tmp_path, 0o640) as first, tmpfile(tmp_path, 0o600) as second:
            os.write(first.fd, b"first")
            os.write(second.fd, b"second")
            assert "file" not in names_in(tmp_path)
            assert first.publish("file") is True
            assert second.publish("file") is False
        assert (tmp_path / "file").read_bytes() == b"first"
        assert (tmp_path / "file").stat().st_mode & 0o777 == 0o640
        assert (tmp_path / "file").stat().st_nlink == 1

    def test_unpublished_leaves_no_trace(self, tmp_path: Path):
        before = open_fds()
        with tmpfile(tmp_path, 0o600) as file:
            os.write(file.fd, b"x")
        with pytest.raises(ZeroDivisionError), tmpfile(tmp_path, 0o600) as file:
            1 / 0  # noqa: B018
        assert names_in(tmp_path) == ["home"]
        assert len(open_fds()) == len(before)

    def test_many_publishers_one_winner(self, tmp_path: Path):
        won = []
        barrier = threading.Barrier(8)

        def publish(number: int) -> None:
            with tmpfile(tmp_path, 0o600) as file:
                write_all(file.fd, [b"%d" % number], 0)
                barrier.wait()
                if file.publish("file"):
                    won.append(number)

        threads = [threading.Thread(target=publish, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [int((tmp_path / "file").read_bytes())] == won

    def test_an_unwritable_directory_is_an_error_and_leaks_nothing(self, tmp_path: Path):
        before = open_fds()
        with pytest.raises(FileNotFoundError), tmpfile(tmp_path / "absent", 0o600):
            pass
        assert len(open_fds()) == len(before)


def test_write_all_goes_on_after_short_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    pwrite = os.pwrite
    monkeypatch.setattr(files.os, "pwritev", lambda fd, data, offset: pwrite(fd, b"".join(data)[:7], offset))
    parts = [os.urandom(size) for size in (10, 0, 3, 90)]
    with (tmp_path / "file").open("wb") as file:
        write_all(file.fileno(), parts, 5)
    assert (tmp_path / "file").read_bytes() == bytes(5) + b"".join(parts)


def test_allocate_accepts_a_file_system_that_cannot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def unable(code: int):
        def fallocate(_fd: int, _offset: int, _length: int) -> None:
            raise OSError(code, os.strerror(code))

        return fallocate

    with (tmp_path / "file").open("wb") as file:
        files.allocate(file.fileno(), 0, 10_000)
        assert (tmp_path / "file").stat().st_blocks * 512 >= 10_000
        monkeypatch.setattr(files.os, "posix_fallocate", unable(files.errno.EOPNOTSUPP))
        files.allocate(file.fileno(), 0, 10_000)
        monkeypatch.setattr(files.os, "posix_fallocate", unable(files.errno.ENOSPC))
        with pytest.raises(OSError, match="No space"):
            files.allocate(file.fileno(), 0, 10_000)


def test_temporary_names_are_hidden_and_never_the_same(tmp_path: Path):
    names = {temporary_name(tmp_path / "file") for _ in range(100)}
    assert len(names) == 100
    assert all(name.parent == tmp_path and name.name.startswith(".file.") for name in names)


def test_a_directory_that_somebody_began_to_remove_is_hidden_and_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    place = tmp_path / "place"
    for name in ("one", "two", "three"):
        (place / name / "deep").mkdir(parents=True)
    remove_directory(place / "one")
    assert names_in(place) == ["three", "two"]
    assert half_removed(place) == []

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(files.shutil, "rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            remove_directory(place / "two")
    temporary_name(place / "three").mkdir()  # somebody else's
    [left] = half_removed(place)
    assert left.name.startswith(".two.")
    assert (left / "deep").is_dir()
    assert not (place / "two").exists()
    with pytest.raises(FileNotFoundError):
        remove_directory(place / "two")
    assert half_removed(place / "absent") == []


@pytest.mark.parametrize(("size", "blocks"), [(0, 0), (1, 1), (4095, 1), (4096, 1), (4097, 2)])
def test_rounded_to_blocks(size: int, blocks: int):
    assert rounded(size) == blocks * 4096


def test_usage_counts_what_was_given_and_hard_links_once(tmp_path: Path):
    root = tmp_path / "root"
    (root / "deep").mkdir(parents=True)
    empty = usage_of(root)
    (root / "deep" / "full").write_bytes(os.urandom(100_000))
    with (root / "sparse").open("wb") as file:
        file.truncate(10**9)
    one = usage_of(root)
    assert 100_000 <= one - empty < 120_000
    os.link(root / "deep" / "full", root / "again")
    os.symlink("/etc", root / "away")
    assert usage_of(root) - one < 8192


def test_usage_of_what_vanishes_is_counted_as_far_as_it_goes(tmp_path: Path):
    assert usage_of(tmp_path / "absent") == 0


class TestFileSystems:
    def test_tmpfs_is_recognised(self, tmp_path: Path):
        assert is_tmpfs(Path("/dev/shm"))
        assert not is_tmpfs(Path("/proc"))

    def test_a_local_one_is_no_network_file_system(self, tmp_path: Path):
        assert network_filesystem(tmp_path) is None

    @pytest.mark.parametrize(("magic", "kind"), [(0x6969, "NFS"), (0xFE534D42, "SMB"), (0x00C36400, "CephFS")])
    def test_network_file_systems_by_their_number(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, magic: int, kind: str
    ):
        monkeypatch.setattr(files, "filesystem_magic", lambda _path: magic)
        assert network_filesystem(tmp_path) == kind

    def test_no_such_path(self, tmp_path: Path):
        with pytest.raises(FileNotFoundError):
            filesystem_magic(tmp_path / "absent")


def test_the_boot_id_is_the_kernels():
    assert str(uuid.UUID(bytes=files.boot_id())) == Path("/proc/sys/kernel/random/boot_id").read_text().strip()

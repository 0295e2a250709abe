"""What is particular about directories of this machine; the rest is in the contract."""

from __future__ import annotations

import os
import socket

import pytest

from hotset.errors import Changed, Denied, InvalidInput, NotFound, Unavailable
from hotset.source import local as module
from hotset.source import open_source
from hotset.testing.source import listed


@pytest.fixture
def root(tmp_path):
    path = tmp_path / "data"
    path.mkdir()
    return path


def source_of(path):
    return open_source(str(path), env={})


def test_the_fingerprint_is_the_time_in_full_precision(root):
    (root / "a").write_bytes(b"1")
    os.utime(root / "a", ns=(0, 1_700_000_000_123_456_789))
    info = listed(source_of(root))["a"]
    assert (info.fingerprint, info.modified_ns) == (b"1700000000123456789", 1_700_000_000_123_456_789)


def test_links_are_followed_and_loops_entered_once(root, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "deep").mkdir(parents=True)
    (elsewhere / "deep" / "file").write_bytes(b"far")
    (root / "dir").symlink_to(elsewhere)
    (root / "file").symlink_to(elsewhere / "deep" / "file")
    (root / "loop").symlink_to(root)
    (root / "nothing").symlink_to(root / "absent")
    (root / "self").symlink_to(root / "self")
    infos = listed(source_of(root))
    assert sorted(infos) == ["dir/deep/file", "file"]
    assert bytes(source_of(root).read("file", 0, 3, infos["file"])) == b"far"


def test_special_files_are_no_objects(root):
    os.mkfifo(root / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        here = os.getcwd()
        os.chdir(root)  # a socket's address has at most 107 bytes
        try:
            server.bind("socket")
        finally:
            os.chdir(here)
        (root / "file").write_bytes(b"")
        assert list(listed(source_of(root))) == ["file"]


def test_a_pipe_in_the_place_of_a_file_is_a_change_and_no_hang(root):
    (root / "a").write_bytes(b"abc")
    info = listed(source_of(root))["a"]
    (root / "a").unlink()
    os.mkfifo(root / "a")
    with pytest.raises(Changed):
        source_of(root).read("a", 0, 3, info)


def test_a_name_that_is_not_utf8_is_named(root):
    with open(os.fsencode(root) + b"/bad\xff", "wb"):
        pass
    with pytest.raises(InvalidInput, match=r"bad\\xff"):
        listed(source_of(root))


def test_a_missing_directory_is_not_found(root):
    with pytest.raises(NotFound, match="absent"):
        listed(source_of(root / "absent"))


def test_a_file_is_no_dataset(root):
    (root / "a").write_bytes(b"")
    with pytest.raises(InvalidInput, match="not a directory"):
        listed(source_of(root / "a"))


def test_what_may_not_be_read_is_denied_with_its_path(root, monkeypatch):
    # Root reads everything, and tests may run as root: the refusal is made here.
    (root / "a").write_bytes(b"abc")
    source = source_of(root)
    info = listed(source)["a"]

    def refuse(path, *args):
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(module.os, "open", refuse)
    with pytest.raises(Denied, match=str(root / "a")):
        source.read("a", 0, 3, info)
    monkeypatch.setattr(module.os, "scandir", refuse)
    with pytest.raises(Denied, match=str(root)):
        listed(source)


def test_a_broken_disk_is_unavailable(root, monkeypatch):
    (root / "a").write_bytes(b"abc")
    source = source_of(root)
    info = listed(source)["a"]

    def fail(*args):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(module.os, "pread", fail)
    with pytest.raises(Unavailable, match="Input/output error"):
        source.read("a", 0, 3, info)


def test_a_change_while_reading_is_noticed(root, monkeypatch):
    (root / "a").write_bytes(b"abc")
    source = source_of(root)
    info = listed(source)["a"]
    real = os.pread

    def meddle(descriptor, length, offset):
        data = real(descriptor, length, offset)
        os.utime(root / "a", ns=(1, 1))
        return data

    monkeypatch.setattr(module.os, "pread", meddle)
    with pytest.raises(Changed):
        source.read("a", 0, 3, info)


def test_short_reads_are_continued(root, monkeypatch):
    (root / "a").write_bytes(bytes(range(100)))
    source = source_of(root)
    info = listed(source)["a"]
    real = os.pread
    monkeypatch.setattr(module.os, "pread", lambda descriptor, length, offset: real(descriptor, min(length, 7), offset))
    assert source.read("a", 3, 95, info) == bytes(range(3, 95))


def test_the_identity_is_the_real_path(root, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(root)
    assert source_of(link).identity == source_of(root).identity
    assert open_source(root.as_uri(), env={}).identity == source_of(root).identity


def test_many_files_come_in_batches(root, monkeypatch):
    monkeypatch.setattr(module, "_BATCH", 10)
    for number in range(25):
        (root / f"{number}").write_bytes(b"")
    assert [len(batch) for batch in source_of(root).list()] == [10, 10, 5]

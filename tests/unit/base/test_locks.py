"""Locks end with their holder, are on the current file, and keep processes apart."""

from __future__ import annotations

import fcntl
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hotset.base.locks import FileLock, RangeLocks
from tests.support.processes import Child, wait_until

HOLD_FILE = """
import sys
from pathlib import Path
from hotset.base.locks import FileLock
lock = FileLock(Path(sys.argv[1]), shared=sys.argv[2] == "shared")
lock.acquire()
print("held", flush=True)
sys.stdin.readline()
lock.release()
print("released", flush=True)
sys.stdin.readline()
"""

HOLD_RANGE = """
import sys
from pathlib import Path
from hotset.base.locks import RangeLocks
locks = RangeLocks(Path(sys.argv[1]))
for place in map(int, sys.argv[2:]):
    assert locks.try_acquire(place)
print("held", flush=True)
sys.stdin.readline()
"""


def holder(path: Path, kind: str) -> Child:
    child = Child([sys.executable, "-c", HOLD_FILE, path, kind])
    child.expect("held")
    return child


def test_exclusive_keeps_other_processes_out_until_released(tmp_path: Path):
    path = tmp_path / "lock"
    with holder(path, "exclusive") as other:
        assert not FileLock(path).try_acquire()
        assert not FileLock(path, shared=True).try_acquire()
        other.tell("")
        other.expect("released")
        mine = FileLock(path)
        assert mine.try_acquire()
        mine.release()


def test_shared_locks_share_and_keep_the_exclusive_one_out(tmp_path: Path):
    path = tmp_path / "lock"
    with holder(path, "shared"):
        mine = FileLock(path, shared=True)
        assert mine.try_acquire()
        assert not FileLock(path).try_acquire()
        mine.release()


def test_a_lock_ends_with_kill_9_of_its_holder(tmp_path: Path):
    path = tmp_path / "lock"
    with holder(path, "exclusive") as other:
        other.kill()
        with FileLock(path) as mine:
            assert mine.held


def test_two_locks_of_one_process_exclude_each_other(tmp_path: Path):
    with FileLock(tmp_path / "lock"):
        assert not FileLock(tmp_path / "lock").try_acquire()


def test_the_lock_is_on_the_current_file_after_unlink_and_recreate(tmp_path: Path):
    path = tmp_path / "lock"
    with holder(path, "exclusive"):
        path.unlink()
        # The old file's lock does not count any more: the path names another file.
        with FileLock(path) as mine:
            assert os.fstat(mine.fd).st_ino == path.stat().st_ino
            assert not FileLock(path).try_acquire()


def test_a_waiter_whose_file_is_unlinked_meanwhile_locks_the_new_file(tmp_path: Path):
    path = tmp_path / "lock"
    first = FileLock(path)
    first.acquire()
    waiter = FileLock(path)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(waiter.acquire)
        wait_until(lambda: waits_for_flock(path), what="the second one to wait")
        path.unlink()
        path.touch()
        first.release()
        waiting.result(30)
    assert os.fstat(waiter.fd).st_ino == path.stat().st_ino
    waiter.release()


def test_without_create_a_missing_or_vanished_file_is_said(tmp_path: Path):
    path = tmp_path / "lock"
    with pytest.raises(FileNotFoundError):
        FileLock(path, create=False).acquire()
    path.touch()
    first = FileLock(path)
    first.acquire()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(FileLock(path, create=False, shared=True).acquire)
        wait_until(lambda: waits_for_flock(path), what="the second one to wait")
        path.unlink()
        first.release()
        with pytest.raises(FileNotFoundError):
            waiting.result(30)


def test_no_descriptor_is_left_by_release_refusal_or_error(tmp_path: Path, no_leaks):
    lock = FileLock(tmp_path / "lock")
    for _ in range(3):
        with lock:
            assert not FileLock(tmp_path / "lock").try_acquire()
    lock.release()
    with pytest.raises(FileNotFoundError):
        FileLock(tmp_path / "absent", create=False).try_acquire()


def test_an_exclusive_lock_does_not_live_on_in_a_forked_child(tmp_path: Path):
    """A DataLoader's worker, forked by one thread while another holds the lock, must not hold it for its whole life."""
    lock = FileLock(tmp_path / "lock")
    lock.acquire()
    readable, writable = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(writable)
        os.read(readable, 1)  # lives until the test is over
        os._exit(0)
    try:
        os.close(readable)
        lock.release()
        assert FileLock(tmp_path / "lock").try_acquire()
    finally:
        os.close(writable)
        os.waitpid(child, 0)


def test_a_shared_lock_lives_on_in_a_forked_child(tmp_path: Path):
    """A lease is held by the workers as well, also when the process that opened the dataset lets go."""
    lock = FileLock(tmp_path / "lock", shared=True)
    lock.acquire()
    readable, writable = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(writable)
        os.read(readable, 1)
        os._exit(0)
    os.close(readable)
    lock.release()
    assert not FileLock(tmp_path / "lock").try_acquire()
    os.close(writable)
    os.waitpid(child, 0)
    assert FileLock(tmp_path / "lock").try_acquire()


def test_the_mode_is_set_whatever_the_umask(tmp_path: Path):
    before = os.umask(0o077)
    try:
        with FileLock(tmp_path / "lock", mode=0o664):
            assert (tmp_path / "lock").stat().st_mode & 0o777 == 0o664
        RangeLocks(tmp_path / "ranges", mode=0o664).close()
        assert (tmp_path / "ranges").stat().st_mode & 0o777 == 0o664
    finally:
        os.umask(before)


def test_counting_under_the_lock_loses_nothing(tmp_path: Path):
    counter = tmp_path / "counter"
    counter.write_text("0")

    def count() -> None:
        for _ in range(100):
            with FileLock(tmp_path / "lock"):
                counter.write_text(str(int(counter.read_text()) + 1))

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counter.read_text() == "400"


def test_ranges_exclude_other_processes_byte_by_byte(tmp_path: Path):
    path = tmp_path / "claims"
    with Child([sys.executable, "-c", HOLD_RANGE, path, "7", str(2**62 - 1)]) as other:
        other.expect("held")
        locks = RangeLocks(path)
        assert not locks.try_acquire(7)
        assert not locks.try_acquire(2**62 - 1)
        assert not locks.try_acquire(0, 100)
        assert locks.try_acquire(6)
        assert locks.try_acquire(8, 1000)
        locks.close()


def test_ranges_are_released_by_kill_9(tmp_path: Path):
    path = tmp_path / "claims"
    with Child([sys.executable, "-c", HOLD_RANGE, path, "3", "4"]) as other:
        other.expect("held")
        locks = RangeLocks(path)
        assert not locks.try_acquire(3)
        other.kill()
        assert locks.try_acquire(3, 2)
        locks.close()


def test_ranges_of_two_objects_in_one_process_exclude_each_other(tmp_path: Path):
    """Unlike POSIX locks, which one close() of any descriptor of the file would drop."""
    one, two = RangeLocks(tmp_path / "claims"), RangeLocks(tmp_path / "claims")
    assert one.try_acquire(5)
    assert not two.try_acquire(5)
    os.close(os.open(tmp_path / "claims", os.O_RDWR))
    assert not two.try_acquire(5)
    one.release(5)
    assert two.try_acquire(5)
    two.close()
    assert one.try_acquire(5)
    one.close()
    one.close()


def test_claimed_bytes_take_no_room(tmp_path: Path):
    locks = RangeLocks(tmp_path / "claims")
    assert locks.try_acquire(2**61, 2**20)
    locks.close()
    assert (tmp_path / "claims").stat().st_size == 0


def waits_for_flock(path: Path) -> bool:
    """Whether somebody is blocked in flock(2) on the file, as the kernel tells."""
    inode = f":{path.stat().st_ino} " if path.exists() else None
    lines = Path("/proc/locks").read_text().splitlines()
    return any("->" in line and "FLOCK" in line and (inode is None or inode in line) for line in lines)


def test_a_held_lock_is_seen_by_plain_flock(tmp_path: Path):
    """Other tools (flock(1), an administrator's script) see the same lock."""
    with FileLock(tmp_path / "lock"), (tmp_path / "lock").open() as file, pytest.raises(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)

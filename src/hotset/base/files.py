"""Publishing files so that a reader sees the whole thing or nothing, whenever the writer dies.

The order is always: write under a name nobody looks for, sync, then rename or link to the final name, then sync the
directory. On tmpfs the syncs are left out: nothing there survives a power loss anyway.
"""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

__all__ = [
    "BLOCK",
    "boot_id",
    "filesystem_magic",
    "free_bytes",
    "fsync_directory",
    "half_removed",
    "is_tmpfs",
    "network_filesystem",
    "remove_directory",
    "replace_file",
    "rounded",
    "temporary_name",
    "tmpfile",
    "usage_of",
]

BLOCK = 4096

_DOOMED = ".doomed"
_TMPFS = 0x01021994
_NETWORK = {
    0x6969: "NFS",
    0x517B: "SMB",
    0xFE534D42: "SMB",
    0xFF534D42: "CIFS",
    0x00C36400: "CephFS",
    0x0BD00BD0: "Lustre",
    0x47504653: "GPFS",
    0x19830326: "BeeGFS",
    0x5346414F: "AFS",
    0x01021997: "9p",
    0x65735546: "FUSE",
}

_libc = ctypes.CDLL(None, use_errno=True)


def rounded(size: int) -> int:
    """``size`` rounded up to whole blocks: what a full file of that length takes."""
    return -(-size // BLOCK) * BLOCK


def boot_id() -> bytes:
    """16 bytes that differ after each boot of the kernel."""
    return uuid.UUID(Path("/proc/sys/kernel/random/boot_id").read_text().strip()).bytes


def filesystem_magic(path: Path) -> int:
    """The type number of the file system that holds ``path`` (see statfs(2))."""
    buffer = ctypes.create_string_buffer(
        256
    )  # struct statfs is 120 bytes; its first word is f_type on x86-64 and arm64
    if _libc.statfs(os.fsencode(path), buffer) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), str(path))
    return int.from_bytes(buffer.raw[:8], "little") & 0xFFFFFFFF


def is_tmpfs(path: Path) -> bool:
    return filesystem_magic(path) == _TMPFS


def network_filesystem(path: Path) -> str | None:
    """The kind of network file system that holds ``path``, or None for a local one."""
    return _NETWORK.get(filesystem_magic(path))


def free_bytes(path: Path) -> int:
    stat = os.statvfs(path)
    return stat.f_bavail * stat.f_frsize


def usage_of(directory: Path) -> int:
    """Bytes that the file system has given to everything below ``directory``, hard links counted once (as du does)."""
    seen: set[tuple[int, int]] = set()
    total = 0
    pending = [directory]
    while pending:
        current = pending.pop()
        try:
            total += os.lstat(current).st_blocks * 512
            entries = list(os.scandir(current))
        except FileNotFoundError:
            continue  # somebody evicted it while we looked
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                pending.append(Path(entry.path))
                continue
            try:
                stat = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            if stat.st_nlink > 1:
                if (stat.st_dev, stat.st_ino) in seen:
                    continue
                seen.add((stat.st_dev, stat.st_ino))
            total += stat.st_blocks * 512
    return total


def fsync_directory(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def temporary_name(path: Path) -> Path:
    """A name beside ``path`` that no two writers share; it starts with a dot and so is never taken for content."""
    return path.with_name(f".{path.name}.{uuid.uuid4().hex}")


def remove_directory(path: Path) -> None:
    """Remove a directory with all that is in it; it is renamed first, so that half of it never looks whole. A process that
    is killed on its way leaves what `half_removed` finds. FileNotFoundError if there is none.
    """
    doomed = Path(f"{temporary_name(path)}{_DOOMED}")
    path.rename(doomed)
    shutil.rmtree(doomed, ignore_errors=True)


def half_removed(directory: Path) -> list[Path]:
    """What somebody began to remove from ``directory`` with `remove_directory`: nobody needs it, so go on with it."""
    try:
        entries = os.listdir(directory)
    except FileNotFoundError:
        return []
    return [directory / name for name in entries if name.startswith(".") and name.endswith(_DOOMED)]


def replace_file(path: Path, data: bytes, *, mode: int = 0o644, durable: bool = True) -> None:
    """Put ``data`` at ``path`` atomically: a reader sees the old content or the new one."""
    temporary = temporary_name(path)
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(file.fileno(), mode)
            if durable:
                os.fdatasync(file.fileno())
        temporary.rename(path)
    except BaseException:
        with suppress(FileNotFoundError):
            temporary.unlink()
        raise
    if durable:
        fsync_directory(path.parent)


class Unpublished:
    """A file without a name yet; `publish` gives it one, exactly once and never over an existing file."""

    def __init__(self, fd: int, directory_fd: int) -> None:
        self.fd = fd
        self._directory_fd = directory_fd

    def publish(self, name: str) -> bool:
        """Link the file as ``name`` into its directory; False if somebody else was first."""
        try:
            # linkat(2) by /proc is the way for a process without CAP_DAC_READ_SEARCH. Python passes AT_SYMLINK_FOLLOW
            # only when a dir_fd is given; without it the call fails with EXDEV.
            os.link(
                f"/proc/self/fd/{self.fd}",
                name,
                src_dir_fd=self._directory_fd,
                dst_dir_fd=self._directory_fd,
                follow_symlinks=True,
            )
        except FileExistsError:
            return False
        return True


@contextmanager
def tmpfile(directory: Path, mode: int) -> Iterator[Unpublished]:
    """A nameless file in ``directory``: gone without a trace unless published. The descriptor closes with the block."""
    directory_fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fd = os.open(".", os.O_RDWR | os.O_TMPFILE | os.O_CLOEXEC, 0o600, dir_fd=directory_fd)
        try:
            os.fchmod(fd, mode)  # not at open: the umask of one user must not lock the group out
            yield Unpublished(fd, directory_fd)
        finally:
            os.close(fd)
    finally:
        os.close(directory_fd)


def allocate(fd: int, offset: int, length: int) -> None:
    """Reserve disk blocks; a file system that cannot is left to find out at the write."""
    try:
        os.posix_fallocate(fd, offset, length)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
            raise


def write_all(fd: int, buffers: Sequence[bytes | memoryview], offset: int) -> None:
    """pwritev until everything is written: a signal or a nearly full disk may shorten a single call."""
    left = sum(map(len, buffers))
    while left:
        written = os.pwritev(fd, buffers, offset)
        left -= written
        offset += written
        if left:
            buffers = [memoryview(b"".join(buffers))[written:]]

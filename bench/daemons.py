"""Programs that serve for a while, behind a port or a mount: started, waited for, always ended."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.support.processes import dying_with_parent, wait_until

__all__ = ["accepts", "listening", "mounted", "without_fuse"]


@contextlib.contextmanager
def listening(command: list[str], address: str) -> Iterator[None]:
    """Run a program that listens at ``address`` (host:port) for the time of the block."""
    process = subprocess.Popen(
        dying_with_parent(command), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        wait_until(lambda: process.poll() is not None or accepts(address), what=f"{command[0]} to answer")
        if process.poll() is not None:
            raise RuntimeError(f"{Path(command[0]).name} ended at once with status {process.returncode}")
        yield
    finally:
        process.kill()
        process.wait()


def accepts(address: str) -> bool:
    host, _, port = address.partition(":")
    with contextlib.suppress(OSError), socket.create_connection((host, int(port)), timeout=1):
        return True
    return False


def without_fuse() -> str | None:
    """Why nothing can be mounted here, or None."""
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        return "no access to /dev/fuse"
    if not (shutil.which("fusermount3") or shutil.which("fusermount")):
        return "no fusermount3 (Debian: fuse3)"
    return None


@contextlib.contextmanager
def mounted(command: list[str], place: Path, *, env: Mapping[str, str]) -> Iterator[None]:
    """Run a program that serves a mount at ``place`` in the foreground, for the time of the block."""
    process = subprocess.Popen(
        dying_with_parent(command), env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    try:
        wait_until(lambda: process.poll() is not None or os.path.ismount(place), what=f"the mount of {command[0]}")
        if process.poll() is not None:
            said = process.stderr.read().decode(errors="replace").strip() if process.stderr else ""
            raise RuntimeError(f"{Path(command[0]).name} mount ended: {said[-300:]}")
        yield
    finally:
        unmount = shutil.which("fusermount3") or shutil.which("fusermount") or "umount"
        subprocess.run([unmount, "-u", "-z", str(place)], capture_output=True, check=False)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(10)
        process.kill()
        process.wait()

"""What `hotset doctor` asks the machine. Reads /proc and /sys, changes nothing."""

from __future__ import annotations

import resource
from contextlib import suppress
from pathlib import Path

__all__ = ["MemoryLimit", "cgroup_memory_limit", "descriptor_limit", "map_limit", "total_memory"]

MemoryLimit = tuple[int, Path]
"""Bytes, and the file that says so."""


def cgroup_memory_limit(proc: Path = Path("/proc"), sys: Path = Path("/sys/fs/cgroup")) -> MemoryLimit | None:
    """The smallest memory limit of this process's control group and those above it; None if there is none."""
    found: list[MemoryLimit] = []
    with suppress(OSError):
        for line in (proc / "self" / "cgroup").read_text(encoding="utf-8").splitlines():
            number, controllers, path = line.split(":", 2)
            if number == "0" and not controllers:
                found += _limits(sys, path, "memory.max")
            elif "memory" in controllers.split(","):
                found += _limits(sys / "memory", path, "memory.limit_in_bytes")
    return min(found, default=None)


def _limits(root: Path, path: str, name: str) -> list[MemoryLimit]:
    found = []
    group = root / path.strip("/")
    # In a container the path is often that of the host, which does not exist here; the root then has our own limit.
    for directory in (group, *group.parents):
        if directory != root and root not in directory.parents:
            break
        with suppress(OSError, ValueError):  # "max" is no number
            limit = int((directory / name).read_text(encoding="ascii"))
            if limit < 2**60:  # version 1 says "unlimited" with a huge number
                found.append((limit, directory / name))
    return found


def total_memory(proc: Path = Path("/proc")) -> int:
    for line in (proc / "meminfo").read_text(encoding="ascii").splitlines():
        name, _, value = line.partition(":")
        if name == "MemTotal":
            return int(value.split()[0]) * 1024
    return 0


def map_limit(proc: Path = Path("/proc")) -> int:
    """How many memory maps a process may have."""
    return int((proc / "sys" / "vm" / "max_map_count").read_text(encoding="ascii"))


def descriptor_limit() -> int:
    """How many descriptors this process may open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 2**31 if soft == resource.RLIM_INFINITY else soft

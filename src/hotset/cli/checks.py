"""The checks of `hotset doctor`: each looks at one thing and says what is wrong with it and what mends it."""

from __future__ import annotations

import difflib
import os
import platform
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from hotset.base.files import free_bytes, is_tmpfs, network_filesystem
from hotset.base.sizes import format_size
from hotset.cli.machine import cgroup_memory_limit, descriptor_limit, map_limit, total_memory
from hotset.cli.text import plural
from hotset.config import alnair
from hotset.config.settings import VARIABLES, Settings, runtime_directory
from hotset.errors import HotsetError

if TYPE_CHECKING:
    from hotset.source import SourceOptions

__all__ = ["Finding", "cache", "datasets", "limits", "memory", "runtime", "source", "variables", "versions"]

KNOWN = {**VARIABLES, **alnair.VARIABLES}
#: Descriptors that a filler needs beside its connections.
DESCRIPTORS = 128
#: Memory maps that a reader keeps at most, with some for the interpreter and its libraries.
MAPS = 20_000
#: Part of a memory limit that a cache in memory should leave to the job itself.
LEFT_TO_THE_JOB = 0.3


@dataclass(frozen=True)
class Finding:
    """``wrong`` is what keeps something from working; ``note`` is what a person may want to know."""

    subject: str
    state: Literal["ok", "note", "wrong"]
    text: str
    remedy: str = ""

    def encoded(self) -> dict[str, str]:
        return asdict(self)


def versions() -> Iterator[Finding]:
    from hotset import __version__

    text = f"hotset {__version__}, Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    if platform.system() == "Linux" and platform.machine() in {"x86_64", "aarch64"}:
        yield Finding("version", "ok", text)
    else:
        yield Finding("version", "wrong", text, "hotset runs on Linux, on x86-64 and arm64")


def variables(env: Mapping[str, str]) -> Iterator[Finding]:
    """Ours only; those of the clouds are looked at with a source. A URI is shown without what is secret in it."""
    from hotset.source import display_uri

    for name in sorted(name for name in env if name.startswith("HOTSET_")):
        if name not in KNOWN:
            close = difflib.get_close_matches(name, KNOWN, n=1)
            remedy = f"did you mean {close[0]}?" if close else f"known are {', '.join(KNOWN)}"
            yield Finding("environment", "note", f"{name} is no variable of hotset and has no effect", remedy)
            continue
        try:
            Settings.of({"HOME": env.get("HOME", "/"), name: env[name]})
            alnair.AlnairSettings.of({name: env[name]})
        except HotsetError as error:
            yield Finding("environment", "wrong", str(error), f"{name} is {KNOWN[name]}")
        else:
            yield Finding("environment", "ok", f"{name}={display_uri(env[name])}")


def cache(settings: Settings) -> Iterator[Finding]:
    """The cache directory: there or to be made, on which file system, with how much room."""
    from hotset.tier.node import CacheDirectory
    from hotset.tier.node.cache import DEFAULT_SHARE

    root = settings.cache
    place = next(path for path in (root, *root.parents) if path.exists())
    kind = network_filesystem(place)
    if kind is not None:
        yield Finding(
            "cache", "wrong", f"{root} lies on {kind}, where locks and memory maps are not safe",
            "set HOTSET_CACHE to a directory on a local disk, or below /dev/shm",
        )  # fmt: skip
        return
    where = f"{root}, {'in memory (tmpfs)' if is_tmpfs(place) else 'on a local file system'}"
    free = free_bytes(place)
    if place != root:
        if not os.access(place, os.W_OK | os.X_OK):
            yield Finding(
                "cache", "wrong", f"{root} does not exist and cannot be made: {place} is not writable",
                "set HOTSET_CACHE to a directory of your own",
            )  # fmt: skip
            return
        quota = settings.quota or int(free * DEFAULT_SHARE)
        yield Finding(
            "cache", "ok", f"{where}; it will be made by the first load, with a quota of {format_size(quota)}"
        )
        return
    try:
        directory = CacheDirectory(root)
    except HotsetError as error:
        yield Finding("cache", "wrong", str(error))
        return
    used = directory.usage()
    quota = settings.quota or directory.quota
    room = f"{format_size(used)} of {format_size(quota)} used, {format_size(free)} free on the file system"
    if used + free < quota:
        yield Finding(
            "cache", "note", f"{where}; {room}: the file system will be full before the quota is",
            f"set HOTSET_QUOTA to at most {format_size(used + free)}, or make room",
        )  # fmt: skip
    else:
        yield Finding("cache", "ok", f"{where}; {room}")


def memory(
    settings: Settings,
    limit: Callable[[], tuple[int, Path] | None] = cgroup_memory_limit,
    total: Callable[[], int] = total_memory,
) -> Iterator[Finding]:
    """A cache in memory is charged to the control group of whoever fills it (rule 9 of the design)."""
    place = next(path for path in (settings.cache, *settings.cache.parents) if path.exists())
    found = limit()
    bound, source = found if found is not None else (total(), Path("/proc/meminfo"))
    text = f"{format_size(bound)} ({'limit of the control group' if found else 'of the machine'})"
    if not is_tmpfs(place):
        yield Finding("memory", "ok", text)
        return
    quota = _quota_of(settings, place)
    most = int(bound * (1 - LEFT_TO_THE_JOB))
    if quota > most:
        yield Finding(
            "memory", "wrong" if found else "note",
            f"{text}, and the cache in memory may take {format_size(quota)} of it: whoever fills it can be killed",
            f"set HOTSET_QUOTA to at most {format_size(most)}, or raise the limit ({source})",
        )  # fmt: skip
    else:
        yield Finding("memory", "ok", f"{text}; the cache takes at most {format_size(quota)} of it")


def _quota_of(settings: Settings, place: Path) -> int:
    from hotset.tier.node import CacheDirectory
    from hotset.tier.node.cache import DEFAULT_SHARE

    if settings.quota is None and place == settings.cache:
        try:
            return CacheDirectory(place).quota
        except HotsetError:
            pass  # told by the check of the cache
    return settings.quota or int(free_bytes(place) * DEFAULT_SHARE)


def limits(
    settings: Settings, descriptors: Callable[[], int] = descriptor_limit, maps: Callable[[], int] = map_limit
) -> Iterator[Finding]:
    needed = settings.max_requests + DESCRIPTORS
    if descriptors() < needed:
        yield Finding(
            "limits", "wrong",
            f"this process may open {descriptors()} descriptors; {settings.max_requests} requests need {needed}",
            f"ulimit -n {max(4096, needed)}, or set HOTSET_MAX_REQUESTS to {max(1, descriptors() - DESCRIPTORS)}",
        )  # fmt: skip
    else:
        yield Finding("limits", "ok", f"{descriptors()} descriptors (ulimit -n)")
    if maps() < MAPS:
        yield Finding(
            "limits", "wrong", f"a process may have {maps()} memory maps; a large dataset needs up to {MAPS}",
            "sysctl -w vm.max_map_count=65530",
        )  # fmt: skip
    else:
        yield Finding("limits", "ok", f"{maps()} memory maps (vm.max_map_count)")


def runtime(settings: Settings) -> Iterator[Finding]:
    try:
        yield Finding("runtime", "ok", f"sockets of fillers in {runtime_directory(settings)}")
    except HotsetError as error:
        yield Finding("runtime", "wrong", str(error))


def datasets(settings: Settings) -> Iterator[Finding]:
    """Whether everything in the cache can be read."""
    from hotset.tier.node import CacheDirectory
    from hotset.tier.node.inventory import describe_all

    if not settings.cache.exists():
        return
    try:
        directory = CacheDirectory(settings.cache)
    except HotsetError:
        return  # told by the check of the cache
    whole = 0
    for info in describe_all(directory):
        if info.damage is None:
            whole += 1
            continue
        remedy = f"hotset reload {info.name}" if info.sources else f"hotset drop {info.name}, then load it again"
        yield Finding("datasets", "wrong", f"{info.name}: {info.damage}", remedy)
    yield Finding("datasets", "ok", f"{plural(whole, 'dataset')} in the cache")


def source(uri: str, options: SourceOptions, env: Mapping[str, str]) -> Iterator[Finding]:
    """How the source would be reached, and whether it can be listed and read: a page of a listing, a byte of an object."""
    from hotset.base.retry import RetryPolicy
    from hotset.source import Retrying, describe_environment, open_source

    about = describe_environment(uri, env, options=options)
    details = [
        f"endpoint {about.endpoint}" if about.endpoint else "",
        f"region {about.region}" if about.region else "",
        f"credentials: {about.credentials}" if about.credentials else "",
        "through a proxy" if about.proxy else "",
        f"certificates of {about.ca_file}" if about.ca_file else "",
    ]
    text = f"{about.source}: {', '.join(filter(None, details)) or about.scheme}"
    if about.problem is not None:
        yield Finding("source", "wrong", f"{text}: {about.problem}")
        return
    yield Finding("source", "ok", text)
    try:
        opened = Retrying(open_source(uri, options=options, env=env), RetryPolicy(attempts=2, deadline=20.0))
        try:
            batch = next((batch for batch in opened.list() if batch), ())
            if batch:
                first = batch[0]
                opened.read(first.key, 0, min(1, first.size), first)
        finally:
            opened.close()
    except HotsetError as error:
        yield Finding("source", "wrong", str(error))
        return
    if batch:
        yield Finding("source", "ok", f"can be listed and read (first page: {plural(len(batch), 'object')})")
    else:
        yield Finding("source", "wrong", f"{about.source} can be listed, but has no objects", "check the prefix")

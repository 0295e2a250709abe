"""What a user may set by environment variables. The only reader of the process's environment."""

from __future__ import annotations

import math
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hotset.base.sizes import parse_size
from hotset.errors import Denied, InvalidInput

__all__ = ["VARIABLES", "Settings", "environment", "runtime_directory"]

#: Every variable of ours, and what it means. `hotset doctor` prints this; `docs/cli.md` has the same as a table.
VARIABLES = {
    "HOTSET_CACHE": "the cache directory (default: hotset in the user's cache directory)",
    "HOTSET_QUOTA": "how large the cache directory may become, e.g. 200GiB (default: 80 % of the free space, once)",
    "HOTSET_MAX_RATE": "bytes a second that one filler may fetch, e.g. 100MB (default: no limit)",
    "HOTSET_MAX_REQUESTS": "the largest number of parallel requests of one filler (default: 256)",
    "HOTSET_STAGING": "memory for objects fetched ahead that have no place in the cache (default: 256MiB)",
    "HOTSET_LOOKAHEAD": "bytes that a filler fetches ahead of the reading (default: 1GiB)",
    "HOTSET_FRESH_FOR": "seconds for which a listing is good enough to open without listing again (default: 300)",
    "HOTSET_TRUST_DOMAIN": "datasets of different domains never share data (default: local)",
    "HOTSET_RUNTIME": "directory for the fillers' sockets (default: hotset in XDG_RUNTIME_DIR, else in /tmp)",
}


def environment() -> dict[str, str]:
    """A copy of the process's environment, for everything below that needs a cloud's variables."""
    return dict(os.environ)


@dataclass(frozen=True)
class Settings:
    """What the variables say; see `VARIABLES` for their meaning."""

    cache: Path
    quota: int | None = None
    max_rate: float | None = None
    max_requests: int = 256
    staging: int = 256 * 2**20
    lookahead: int = 2**30
    fresh_for: float = 300.0
    trust_domain: str = "local"
    runtime: Path | None = None

    @classmethod
    def of(cls, env: Mapping[str, str]) -> Settings:
        """From environment variables; `InvalidInput` names the variable that makes no sense."""

        def size(name: str, default: int | None = None) -> int | None:
            if not (text := env.get(name)):
                return default
            try:
                return parse_size(text)
            except InvalidInput as error:
                raise InvalidInput(f"{name}: {error}") from error

        def number(name: str, default: float, *, least: float, whole: bool = False) -> float:
            if not (text := env.get(name)):
                return default
            try:
                value = float(text)
            except ValueError as error:
                raise InvalidInput(f"{name}: {text!r} is not a number") from error
            if not least <= value < math.inf or (whole and value != int(value)):
                raise InvalidInput(f"{name}: {text!r} is not a {'whole ' if whole else ''}number from {least:g} on")
            return value

        home = env.get("XDG_CACHE_HOME") or os.path.join(env.get("HOME") or os.path.expanduser("~"), ".cache")
        return cls(
            cache=Path(env.get("HOTSET_CACHE") or os.path.join(home, "hotset")).expanduser().absolute(),
            quota=size("HOTSET_QUOTA"),
            max_rate=size("HOTSET_MAX_RATE"),
            max_requests=int(number("HOTSET_MAX_REQUESTS", 256, least=1, whole=True)),
            staging=size("HOTSET_STAGING", 256 * 2**20) or 0,
            lookahead=size("HOTSET_LOOKAHEAD", 2**30) or 0,
            fresh_for=number("HOTSET_FRESH_FOR", 300.0, least=0),
            trust_domain=env.get("HOTSET_TRUST_DOMAIN") or "local",
            runtime=_runtime_choice(env),
        )


def _runtime_choice(env: Mapping[str, str]) -> Path:
    if env.get("HOTSET_RUNTIME"):
        return Path(env["HOTSET_RUNTIME"])
    base = env.get("XDG_RUNTIME_DIR")
    # A socket's path has at most 107 bytes.
    if base and len(base) < 70 and os.path.isdir(base):
        return Path(base) / "hotset"
    return Path("/tmp") / f"hotset-{os.geteuid()}"  # noqa: S108  (checked to be ours and closed before use)


def runtime_directory(settings: Settings) -> Path:
    """The directory for sockets, made if necessary. `Denied` if somebody else could interfere with it."""
    path = settings.runtime or Path("/tmp") / f"hotset-{os.geteuid()}"  # noqa: S108
    if len(os.fsencode(path)) > 80:
        raise InvalidInput(f"{path} is too long for a socket's path; set HOTSET_RUNTIME to a shorter one")
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = path.lstat()
    except OSError as error:
        raise Denied(f"cannot make {path} ({error.strerror}); set HOTSET_RUNTIME to a directory of your own") from error
    if status.st_uid != os.geteuid() or not stat.S_ISDIR(status.st_mode) or status.st_mode & 0o077:
        raise Denied(f"{path} must be a directory of yours that nobody else can enter; set HOTSET_RUNTIME")
    return path

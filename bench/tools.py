"""JuiceFS, built once from its Go module into the user's cache directory.

``go install`` refuses it, because its go.mod replaces dependencies; so the module is downloaded, copied out of the
read-only module cache and built there. The tags leave out storage and metadata engines that the benchmarks do not use
(the same as its own ``make juicefs.lite``): a few minutes of building instead of many.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

__all__ = ["JUICEFS_VERSION", "CannotBuildError", "juicefs"]

JUICEFS_VERSION = "1.3.1"

_MODULE = f"github.com/juicedata/juicefs@v{JUICEFS_VERSION}"
_TAGS = (
    "nogateway,nowebdav,nocos,nobos,nohdfs,noibmcos,noobs,nooss,noqingstor,nosftp,noswift,noazure,nogs,noufile,nob2,"
    "nonfs,nodragonfly,nosqlite,nomysql,nopg,notikv,nobadger,noetcd"
)


class CannotBuildError(Exception):
    """JuiceFS is not there and cannot be built; the message says why."""


def juicefs() -> Path:
    """The program, built on the first call on this machine. Raises `CannotBuildError`."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hotset" / "tools"
    program = home / f"juicefs-v{JUICEFS_VERSION}" / "juicefs"
    if program.exists():
        return program
    home.mkdir(parents=True, exist_ok=True)
    with (home / "juicefs.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists():  # another run may have built it while this one waited
            _build(program)
    return program


def _build(program: Path) -> None:
    go = shutil.which("go")
    if go is None:
        raise CannotBuildError("JuiceFS is built from its Go module, and there is no `go` on the PATH")
    if not (shutil.which("gcc") or shutil.which("cc")):
        raise CannotBuildError("JuiceFS needs CGO, and there is no C compiler on the PATH")
    print(f"building JuiceFS {JUICEFS_VERSION} (once, some minutes) ...", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory(dir=program.parents[1], prefix=".build-") as scratch:
        module = json.loads(_go([go, "mod", "download", "-json", _MODULE], scratch))
        source = Path(scratch) / "source"
        shutil.copytree(module["Dir"], source)
        for directory in (source, *(path for path in source.rglob("*") if path.is_dir())):
            directory.chmod(0o755)  # the module cache is read-only, and its copy must be removable
        built = Path(scratch) / "juicefs"
        _go(["nice", go, "build", "-tags", _TAGS, "-ldflags", "-s -w", "-o", str(built), "."], str(source))
        program.parent.mkdir(exist_ok=True)
        built.rename(program)


def _go(command: list[str], directory: str) -> str:
    env = os.environ | {"CGO_ENABLED": "1"}
    done = subprocess.run(command, cwd=directory, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CannotBuildError(f"{' '.join(command[:4])} failed: {(done.stderr or done.stdout).strip()[-1000:]}")
    return done.stdout

"""Servers and proxies that the tests run against, built once from their Go modules into the user's cache directory.

`tool` builds or finds one; `require` does the same for a test and turns a machine without Go into a skip with a reason
(with CI=true: into a failure). ``python -m tests.support.tools`` builds all of them.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

# Read once, at import: tests run in an environment of their own (conftest), the tools belong to the user.
_ENV = dict(os.environ)
_CACHE = Path(_ENV.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hotset" / "tools"
CI = _ENV.get("CI", "").lower() in {"1", "true"}


class ToolMissingError(Exception):
    """The tool is not there and cannot be built; the message says why."""


@dataclass(frozen=True)
class GoTool:
    """A main package of a Go module at a fixed version."""

    package: str
    version: str

    @property
    def installs(self) -> str:
        """The name that ``go install`` gives to the program."""
        return self.package.rpartition("/")[2]


TOOLS = {
    "versitygw": GoTool("github.com/versity/versitygw/cmd/versitygw", "v1.8.0"),
    "toxiproxy-server": GoTool("github.com/Shopify/toxiproxy/v2/cmd/server", "v2.5.0"),
    "toxiproxy-cli": GoTool("github.com/Shopify/toxiproxy/v2/cmd/cli", "v2.5.0"),
}


def tool(name: str) -> Path:
    """The program ``name``, built on the first call on this machine. Raises `ToolMissingError`."""
    wanted = TOOLS[name]
    program = _CACHE / f"{name}-{wanted.version}" / name
    if program.exists():
        return program
    _CACHE.mkdir(parents=True, exist_ok=True)
    with (_CACHE / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists():  # another process may have built it while this one waited
            _build(wanted, program)
    return program


def require(name: str) -> Path:
    """`tool` for a test: skips with the reason if the tool cannot be had, fails if CI=true."""
    import pytest

    try:
        return tool(name)
    except ToolMissingError as error:
        if CI:
            pytest.fail(str(error))
        pytest.skip(str(error))


def _build(wanted: GoTool, program: Path) -> None:
    go = shutil.which("go", path=_ENV.get("PATH"))
    if go is None:
        raise ToolMissingError(f"{program.name} is built from its Go module, and there is no `go` on the PATH")
    print(f"building {program.name} {wanted.version} (once) ...", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory(dir=_CACHE, prefix=".build-") as scratch:
        env = _ENV | {"GOBIN": scratch, "CGO_ENABLED": "0"}
        target = f"{wanted.package}@{wanted.version}"
        done = subprocess.run(
            [go, "install", target], env=env, cwd=scratch, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise ToolMissingError(f"go install {target} failed:\n{done.stderr.strip()[-2000:]}")
        program.parent.mkdir(exist_ok=True)
        (Path(scratch) / wanted.installs).rename(program)


def main() -> int:
    """Build everything; a machine without Go is told, and only CI minds."""
    missing = False
    for name in TOOLS:
        try:
            tool(name)
        except ToolMissingError as error:
            missing = True
            print(f"{name}: {error}", file=sys.stderr)
    return int(missing and CI)


if __name__ == "__main__":
    raise SystemExit(main())

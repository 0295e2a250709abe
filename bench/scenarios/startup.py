"""What a person waits for before anything happens: the import and the help text."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator

from bench.report import AT_MOST, Bound, Row, plain
from bench.session import Session
from bench.timing import take_turns
from tests.support.processes import clean_environment

__all__ = ["run"]

_IMPORT = "import time; begun = time.perf_counter(); import hotset; hotset.open; print(time.perf_counter() - begun)"
_HELP = "import sys; sys.argv[0] = 'hotset'; from hotset.cli import main; main()"


def run(session: Session) -> Iterator[Row]:
    taken = take_turns({"import": _import_seconds, "help": _help_seconds}, session.turns + 4)
    yield plain("import hotset", taken["import"].best * 1e3, unit="ms", bound=Bound(AT_MOST, 150, "ms"))
    yield plain("hotset --help", taken["help"].best * 1e3, unit="ms", bound=Bound(AT_MOST, 300, "ms"))


def _import_seconds() -> float:
    return float(_python("-c", _IMPORT))


def _help_seconds() -> float:
    begun = time.perf_counter()
    _python("-c", _HELP, "--help")
    return time.perf_counter() - begun


def _python(*arguments: str) -> str:
    command = [sys.executable, *arguments]
    return subprocess.run(command, env=clean_environment(), check=True, capture_output=True, text=True).stdout

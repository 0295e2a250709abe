"""``python -m bench``: run the scenarios, print the table, write JSON and a picture."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from bench.chart import draw
from bench.peers import PEERS
from bench.report import Row, as_json, as_table, machine, unavailable, what_broke
from bench.scenarios import SCENARIOS
from bench.session import Session
from tests.support.s3 import versitygw

_QUICK_SIZE, _QUICK_TURNS = 0.1, 2
_FULL_SIZE, _FULL_TURNS = 1.0, 3


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status: 1 if a scenario broke off. A requirement that is not met is a finding, not an error."""
    options = _parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, _leave)
    chosen = options.only or list(SCENARIOS)
    size = options.size or (_QUICK_SIZE if options.quick else _FULL_SIZE)
    turns = options.turns or (_QUICK_TURNS if options.quick else _FULL_TURNS)
    peers = {name: peer for name, peer in PEERS.items() if options.peers is None or name in options.peers}
    with (
        tempfile.TemporaryDirectory(dir=options.root, prefix="hotset-bench-") as root,
        versitygw(f"{root}/s3") as server,
    ):
        # For what is opened in this process. Nothing of the user's configuration may change what is measured.
        os.environ.update(server.env() | {"HOTSET_CACHE": f"{root}/unused"})
        session = Session(Path(root), server, size, turns, peers)
        outcomes = {name: _run(name, session) for name in chosen}
        versions = {name: peer.version() for name, peer in peers.items() if not session.reason(name)}
    rows = [row for outcome in outcomes.values() for row in outcome.rows]
    print(f"\n{as_table(rows)}")
    settings = {"size": size, "turns": turns, "versions": versions}
    options.out.mkdir(parents=True, exist_ok=True)
    found = {name: outcome.rows for name, outcome in outcomes.items()}
    (options.out / "results.json").write_text(as_json(found, settings=settings))
    (options.out / "results.md").write_text(_heading(settings) + as_table(rows) + "\n")
    draw(rows, options.out / "results.png")
    print(f"\nwritten to {options.out}: results.json, results.md, results.png")
    return int(any(outcome.broken for outcome in outcomes.values()))


def _leave(number: int, _frame: object) -> NoReturn:
    """End as after Ctrl-C: everything that was started is ended, everything that was written is removed."""
    raise SystemExit(128 + number)


@dataclass
class _Outcome:
    rows: list[Row]
    broken: bool = False


def _run(name: str, session: Session) -> _Outcome:
    """The rows of a scenario, printed as they come. One that breaks off keeps what it has and says why it ended."""
    outcome = _Outcome([])
    print(f"\n{name}", file=sys.stderr, flush=True)
    try:
        for row in SCENARIOS[name](session):
            outcome.rows.append(row)
            print("  " + as_table([row]).splitlines()[-1], file=sys.stderr, flush=True)
    except Exception as error:  # a peer or hotset may fail in any way; the other scenarios still say something
        traceback.print_exc()
        outcome.rows.append(unavailable(name, "-", what_broke(error)))
        outcome.broken = True
    return outcome


def _heading(settings: dict[str, object]) -> str:
    host = machine()
    return f"{host['cpu']} ({host['cpus']} cores), Linux {host['kernel']}, size {settings['size']}\n\n"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description="hotset beside its limits and its peers")
    parser.add_argument("--quick", action="store_true", help="a tenth of the data, fewer turns: for a look")
    parser.add_argument("--size", type=float, help="share of each workload's objects (default 1, quick: 0.1)")
    parser.add_argument("--turns", type=int, help="how often each contestant runs (default 3, quick: 2)")
    parser.add_argument("--only", action="append", choices=list(SCENARIOS), help="a scenario; may be repeated")
    parser.add_argument("--peers", type=_peer_names, help=f"comma-separated, of: {', '.join(PEERS)}")
    parser.add_argument("--root", type=Path, default=_default_root(), help="where the data lies while it runs")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "out", help="where the results go")
    return parser


def _peer_names(text: str) -> list[str]:
    names = [name for name in text.split(",") if name]
    for name in names:
        if name not in PEERS:
            raise argparse.ArgumentTypeError(f"no peer {name!r}; there are {', '.join(PEERS)}")
    return names


def _default_root() -> Path:
    shared = Path("/dev/shm")
    return shared if shared.is_dir() and os.access(shared, os.W_OK) else Path(tempfile.gettempdir())


if __name__ == "__main__":
    raise SystemExit(main())

"""The command line: one module a command, each of them thin over the library.

A command takes an `Output` first and says its result there, once, as a document and as text. What it needs is imported
inside it, so that `hotset --help` and completion stay quick.
"""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> int:
    """The entry point `hotset`: runs the command line of this process; the exit code."""
    from hotset.cli.app import run

    return run(sys.argv[1:])

"""Where a command's words go: its one result to standard output, everything else to standard error."""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Mapping

__all__ = ["Interrupted", "Output"]


class Interrupted(KeyboardInterrupt):
    """Ctrl-C, after the command has put things in order; the message says what is done and how to go on."""


class Output:
    """The two streams of one command, and how the user wants them."""

    def __init__(self, *, as_json: bool = False, debug: bool = False) -> None:
        self.as_json = as_json
        self.debug = debug

    def result(self, document: Mapping[str, object], text: str) -> None:
        """The result, said once: one JSON document with ``--json``, else ``text``."""
        print(json.dumps(document, indent=2) if self.as_json else text, flush=True)

    def note(self, text: str) -> None:
        """Something beside the result."""
        print(text, file=sys.stderr, flush=True)

    def fail(self, error: BaseException, message: str | None = None) -> None:
        """Why there is no result: a line on standard error, and with ``--json`` a document in the result's place."""
        words = message or str(error) or type(error).__name__
        if self.debug and error.__traceback__ is not None:
            traceback.print_exception(error)
        if self.as_json:
            print(json.dumps({"error": {"kind": type(error).__name__, "message": words}}, indent=2), flush=True)
        print(f"error: {words}", file=sys.stderr, flush=True)

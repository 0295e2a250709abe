"""`hotset doctor`: is this machine ready, and if not, what mends it."""
from __future__ import annotations
EXAMPLES = "hotset doctor"
def doctor(out: "Output") -> None:
    """x"""
from hotset.cli.output import Output

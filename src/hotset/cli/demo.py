"""`hotset demo`: is this machine ready, and if not, what mends it."""
from __future__ import annotations
EXAMPLES = "hotset demo"
def demo(out: "Output") -> None:
    """x"""
from hotset.cli.output import Output

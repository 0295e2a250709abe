"""Work in a new interpreter: nothing of an earlier contestant is in its memory, and it may use what must not be forked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar, cast

from tests.support.processes import Call, ChildFailed, call

__all__ = ["expect", "fresh"]

T = TypeVar("T")

_DEADLINE = 1800.0


def fresh(function: Callable[..., T], *args: object, env: Mapping[str, str]) -> T:
    """What ``function(*args)`` returns in a new process with a clean environment and ``env``."""
    with call(function, *args, env=env) as child:
        return cast("T", child.result(timeout=_DEADLINE))


def expect(child: Call, text: str) -> None:
    """Wait until the child prints a line with ``text``. If it ends instead, raise what its function raised."""
    try:
        child.expect(text, timeout=_DEADLINE)
    except ChildFailed:
        child.result()
        raise

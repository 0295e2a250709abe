"""Which keys of a source belong to the dataset: glob patterns, compiled once to one regular expression each way."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from hotset.errors import InvalidInput

__all__ = ["glob_regex", "key_filter"]


def glob_regex(pattern: str) -> str:
    r"""The regular expression that matches the whole of a key that ``pattern`` matches.

    ``*`` and ``?`` stand for characters other than ``/``, ``**`` for any, ``[abc]`` and ``[!abc]`` for one of a set,
    ``\`` takes the next character literally. A pattern without a slash is about the last part of a key (``*.jpg``
    matches ``a/b.jpg``); one with a slash is about the whole key, counted from the root. A slash at the end means
    everything below (``val/`` is ``val/**``).
    """
    if not pattern or pattern == "/":
        raise InvalidInput("an include or exclude pattern is empty")
    text = pattern + "**" if pattern.endswith("/") else pattern
    anywhere = "/" not in text
    text = text.removeprefix("/")
    parts = [r"(?:.*/)?"] if anywhere else []
    position = 0
    while position < len(text):
        part, position = _translate(text, position, pattern)
        parts.append(part)
    return "".join(parts)


def _translate(text: str, position: int, pattern: str) -> tuple[str, int]:
    """The regular expression for what begins at ``position``, and the position after it."""
    character = text[position]
    if character == "*":
        if text.startswith("**/", position):
            return r"(?:.*/)?", position + 3
        if text.startswith("**", position):
            return ".*", position + 2
        return "[^/]*", position + 1
    if character == "?":
        return "[^/]", position + 1
    if character == "\\" and position + 1 < len(text):
        return re.escape(text[position + 1]), position + 2
    if character == "[":
        close = text.find("]", position + 2)
        if close < 0:
            raise InvalidInput(f"the pattern {pattern!r} has a [ without ]; write \\[ for the character itself")
        chosen = text[position + 1 : close]
        negate = chosen[0] in "!^"
        chosen = chosen[1:] if negate else chosen
        escaped = re.sub(r"([\\\[\]^&~|])", r"\\\1", chosen)
        try:
            re.compile(f"[{escaped}]")
        except re.error as error:
            raise InvalidInput(f"the pattern {pattern!r} has a wrong set [{chosen}]") from error
        return (f"(?!/)[^{escaped}]" if negate else f"(?!/)[{escaped}]"), close + 1
    return re.escape(character), position + 1


def key_filter(*, include: Sequence[str] = (), exclude: Sequence[str] = ()) -> Callable[[str], bool] | None:
    """The predicate "some include pattern matches, or there is none, and no exclude pattern does".

    None if there is no pattern at all, so that a caller can leave out the work.
    """
    wanted = _any_of(include)
    unwanted = _any_of(exclude)
    if wanted is None:
        return None if unwanted is None else lambda key: unwanted(key) is None
    if unwanted is None:
        return lambda key: wanted(key) is not None
    return lambda key: wanted(key) is not None and unwanted(key) is None


def _any_of(patterns: Sequence[str]) -> Callable[[str], re.Match[str] | None] | None:
    if isinstance(patterns, str):
        raise InvalidInput("give include and exclude as a list of patterns, not as one string")
    if not patterns:
        return None
    return re.compile("|".join(f"(?:{glob_regex(pattern)})" for pattern in patterns), re.DOTALL).fullmatch

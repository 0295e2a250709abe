"""Which keys of a source belong to the dataset: glob patterns, compiled once to one regular expression each way.

And what their keys begin with, so that a store need not list the rest.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from hotset.errors import InvalidInput

__all__ = ["EVERYTHING", "glob_regex", "key_beginnings", "key_filter", "literal_pattern"]

#: What all keys begin with.
EVERYTHING = ("",)

_SPECIAL = re.compile(r"[*?\[\\]")


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


def literal_pattern(beginning: str) -> str:
    """The pattern of all keys that begin with this text, whatever characters it has."""
    return "/" + _SPECIAL.sub(r"\\\g<0>", beginning) + "**"


def key_beginnings(include: Sequence[str], mount: str = "") -> tuple[str, ...]:
    """What the keys that ``include`` accepts begin with, below the path ``mount``: sorted, none within another.

    A hint for listings: not every key that begins so is accepted.
    """
    if not include:
        return EVERYTHING
    path = f"{mount.strip('/')}/" if mount else ""
    found: list[str] = []
    for beginning in sorted(map(_beginning, include)):
        if beginning.startswith(path) or path.startswith(beginning):
            below = beginning[len(path) :]
            if not (found and below.startswith(found[-1])):
                found.append(below)
    return tuple(found)


def _beginning(pattern: str) -> str:
    """The text before the first special character; nothing if the pattern is about the last part of keys."""
    if "/" not in pattern:
        return ""
    text = pattern.removeprefix("/")
    literal = ""
    position = 0
    while (match := _SPECIAL.search(text, position)) is not None:
        literal += text[position : match.start()]
        position = match.start() + 2
        if match[0] != "\\" or position > len(text):  # at the end it is a character like any other
            return literal
        literal += text[match.start() + 1]
    return literal + text[position:]


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
        negate = text[position + 1 : position + 2] in ("!", "^")
        first = position + 2 if negate else position + 1
        close = text.find("]", first + 1)  # a bracket in the first place is one of the set
        if close < 0:
            raise InvalidInput(f"the pattern {pattern!r} has a [ without ]; write \\[ for the character itself")
        chosen = _set(text[first:close], pattern)
        return (f"(?!/)[^{chosen}]" if negate else f"(?!/)[{chosen}]"), close + 1
    return re.escape(character), position + 1


def _set(text: str, pattern: str) -> str:
    """The inside of a regular expression's set for the inside of a pattern's: characters and ranges, nothing else."""
    parts = []
    position = 0
    while position < len(text):
        low = text[position]
        if text[position + 1 : position + 2] == "-" and position + 2 < len(text):
            high = text[position + 2]
            if low > high:
                raise InvalidInput(f"the pattern {pattern!r} has an empty range {low}-{high}")
            parts.append(f"{re.escape(low)}-{re.escape(high)}")
            position += 3
        else:
            parts.append(re.escape(low))
            position += 1
    return "".join(parts)


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

"""Small real images, each of one colour that follows from its number; and what is none."""

from __future__ import annotations

import io
from collections.abc import Iterable

from PIL import Image

NO_IMAGE = b"this is no image"


def colour(number: int) -> tuple[int, int, int]:
    return number % 256, (7 * number) % 256, (31 * number) % 256


def image(number: int, *, size: int = 8, kind: str = "PNG") -> bytes:
    sink = io.BytesIO()
    Image.new("RGB", (size, size), colour(number)).save(sink, kind, **({"quality": 95} if kind == "JPEG" else {}))
    return sink.getvalue()


def class_tree(
    count: int, *, classes: Iterable[str] = ("cat", "dog", "eel"), bad: Iterable[int] = ()
) -> dict[str, bytes]:
    """Key -> PNG, in key order: image n of the tree has colour n."""
    names = sorted(classes)
    keys = sorted(f"{names[number % len(names)]}/{number:04}.png" for number in range(count))
    wrong = set(bad)
    return {key: NO_IMAGE if number in wrong else image(number) for number, key in enumerate(keys)}

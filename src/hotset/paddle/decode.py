"""From the bytes of an object to what a sample is made of."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from paddle.vision import image_load

from hotset.errors import InvalidInput

__all__ = ["Decode", "decoder"]

Decode = Literal["bytes", "image", "pil"] | Callable[[bytes], Any]


def decoder(decode: Decode) -> Callable[[bytes], Any]:
    if callable(decode):
        return decode
    known: dict[str, Callable[[bytes], Any]] = {"bytes": bytes, "image": _image, "pil": _pil}
    if decode not in known:
        raise InvalidInput(f"decode is one of {', '.join(map(repr, known))} or a function of the bytes, not {decode!r}")
    return known[decode]


def _pil(data: bytes) -> Any:
    """An RGB image of Pillow, as the transforms of `paddle.vision` take it."""
    return image_load(io.BytesIO(data), backend="pil").convert("RGB")


def _image(data: bytes) -> Any:
    """An RGB image as an array of uint8, (height, width, 3)."""
    return np.asarray(_pil(data))

"""From the bytes of an object to what a sample is made of, with as few copies as torch allows."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from typing import Any, Literal

import torch

from hotset.errors import InvalidInput

__all__ = ["Decode", "decoder"]

Buffer = bytes | memoryview
#: `torchvision.io.ImageReadMode.RGB`.
_RGB = 3
Decode = Literal["bytes", "tensor", "image", "pil"] | Callable[[Buffer], Any]

# torch says once in a program that such a buffer must not be written to: decoders only read, and whoever asks for
# "tensor" is told by the documentation.
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    torch.frombuffer(b"once", dtype=torch.uint8)


def decoder(decode: Decode) -> tuple[Callable[[Buffer], Any], bool]:
    """The function, and whether it is content with a view of the cache instead of bytes of its own."""
    if callable(decode):
        return decode, False
    known: dict[str, tuple[Callable[[Buffer], Any], bool]] = {
        "bytes": (bytes, False),
        "tensor": (_tensor, True),
        "image": (_image, True),
        "pil": (_pil, True),
    }
    if decode not in known:
        raise InvalidInput(f"decode is one of {', '.join(map(repr, known))} or a function of the bytes, not {decode!r}")
    if decode == "image":
        _need_torchvision()
    return known[decode]


def _tensor(data: Buffer) -> torch.Tensor:
    """The bytes as they lie in the cache: not to be written to."""
    return torch.frombuffer(data, dtype=torch.uint8) if len(data) else torch.empty(0, dtype=torch.uint8)


def _image(data: Buffer) -> torch.Tensor:
    """An RGB image as (3, height, width) of uint8, by the library's own decoders."""
    import torchvision.io  # noqa: F401  registers the operator, also in a spawned worker

    # torchvision's operator: the function around it, `torchvision.io.decode_image`, warns at each call since 0.29.
    image: torch.Tensor = torch.ops.image.decode_image(_tensor(data), _RGB, False)
    return image


def _pil(data: Buffer) -> Any:
    """An RGB image as torchvision's ImageFolder gives it to transforms."""
    from PIL import Image

    with Image.open(io.BytesIO(data)) as image:
        return image.convert("RGB")


def _need_torchvision() -> None:
    try:
        import torchvision.io  # noqa: F401
    except ImportError as error:
        raise InvalidInput('decode="image" needs torchvision: pip install "hotset[torch,vision]"') from error

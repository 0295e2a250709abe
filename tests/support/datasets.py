"""Generated datasets: content follows from the key, so any object can be checked byte by byte without a copy of it all.

An object's first line says whose it is, which turns mixed-up bytes into a readable failure; the rest is as random, and
so as incompressible, as a JPEG.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

_WORD = 8


def content(key: str, size: int, *, seed: int = 0) -> bytes:
    """`size` bytes that follow from key and seed, in any process, on any machine. Another seed: a changed object."""
    title = f"{key} #{seed}\n".encode()
    entropy = int.from_bytes(hashlib.blake2b(title, digest_size=16).digest())
    # The raw stream of a bit generator is stable between versions of numpy.
    noise = np.random.SFC64(entropy).random_raw(size // _WORD + 1)
    return (title + noise.astype("<u8", copy=False).tobytes())[:size]


@dataclass(frozen=True)
class Generated(Mapping[str, bytes]):
    """Key -> content, made when asked for. Keys come in sorted order, as a listing gives them."""

    n: int
    mean_size: int
    seed: int
    spread: float
    key_of: Callable[[int], str]
    index_of: Callable[[str], int]

    def __len__(self) -> int:
        return self.n

    def __iter__(self) -> Iterator[str]:
        return map(self.key_of, range(self.n))

    def __contains__(self, key: object) -> bool:
        try:
            index = self.index_of(str(key))
        except ValueError:
            return False
        return 0 <= index < self.n and self.key_of(index) == key

    def __getitem__(self, key: str) -> bytes:
        return content(key, self.size(key), seed=self.seed)

    def expected(self, key: str) -> bytes:
        """The same under the name that reads well in a test."""
        return self[key]

    def size(self, key: str) -> int:
        """Length of one object, without making it: uniform in mean_size * (1 ± spread)."""
        if key not in self:
            raise KeyError(key)
        if not self.spread:
            return self.mean_size
        drawn = int.from_bytes(hashlib.blake2b(f"{key} {self.seed}".encode(), digest_size=4).digest()) / 2**32
        return round(self.mean_size * (1 + self.spread * (2 * drawn - 1)))

    def check(self, key: str, data: bytes | memoryview) -> None:
        """Fail, saying where and with whose bytes, unless `data` is exactly the content of `key`."""
        wanted = self[key]
        if data == wanted:
            return
        found = bytes(data)
        if len(found) != len(wanted):
            raise AssertionError(f"{key}: {len(found)} bytes instead of {len(wanted)}; begins with {found[:80]!r}")
        differing = np.frombuffer(found, np.uint8) != np.frombuffer(wanted, np.uint8)
        place = int(differing.argmax())
        here = slice(place, place + 16)
        raise AssertionError(
            f"{key}: {int(differing.sum())} of {len(wanted)} bytes are wrong, the first at {place}: "
            f"{found[here].hex()} instead of {wanted[here].hex()}; begins with {found[:80]!r}"
        )


def image_tree(n: int, size: int = 33_000, seed: int = 0, *, spread: float = 0.5) -> Generated:
    """A tree as torchvision's ImageFolder likes it: train/n01440764/n01440764_10026.JPEG."""
    per_class = max(20, -(-n // 1000))

    def key_of(index: int) -> str:
        label, number = divmod(index, per_class)
        synset = f"n{1440764 + 13 * label:08}"
        return f"train/{synset}/{synset}_{10000 + number}.JPEG"

    def index_of(key: str) -> int:
        label, remainder = divmod(int(key[7:15]) - 1440764, 13)
        if remainder:
            raise ValueError(key)
        return label * per_class + int(key[26:].removesuffix(".JPEG")) - 10000

    return Generated(n, size, seed, spread, key_of, index_of)


def many_small(n: int, size: int = 1_000, seed: int = 0) -> Generated:
    """Objects of one size, a thousand to a directory: samples/00012/00012345.bin."""

    def key_of(index: int) -> str:
        return f"samples/{index // 1000:05}/{index:08}.bin"

    def index_of(key: str) -> int:
        return int(key[14:].removesuffix(".bin"))

    return Generated(n, size, seed, 0.0, key_of, index_of)


def awkward(seed: int = 0) -> dict[str, bytes]:
    """Legal objects that naive code trips over: strange names, no bytes, odd sizes, one of several MiB."""
    names = [
        "plus+sign",
        "per%20cent",
        "a blank",
        "é/ü.txt",
        "日本/語",
        "hash#mark",
        "question?mark=1&b",
        "quote'\"s",
        "dots...x",
    ]
    names += [
        "deep/" * 20 + "leaf",
        "~tilde",
        "semi;colon,comma",
        "(round)[square]{curly}",
        "star*",
        "back`tick",
        ".hidden",
    ]
    sizes = {"empty": 0, "one": 1, "page-1": 4095, "page": 4096, "page+1": 4097, "large": (5 << 20) + 7}
    named = {f"names/{name}": content(name, 100, seed=seed) for name in names}
    return named | {f"sizes/{name}": content(name, size, seed=seed) for name, size in sizes.items()}

"""A generated image dataset: deterministic JPEGs of about 33 KB in a tree of classes, as torchvision's ImageFolder likes it."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

__all__ = ["Images"]

SIDE = 224
QUALITY = 92
#: The strongest grain of a picture, from which its size follows: with `QUALITY` this makes files of about 33 KB.
GRAIN = (60, 150)


@dataclass(frozen=True)
class Images:
    """``count`` images, evenly spread over ``classes`` classes."""

    count: int
    classes: int = 100

    def key(self, index: int) -> str:
        """``train/n00000017/n00000017_00042.JPEG``"""
        label = index % self.classes
        return f"train/n{label:08}/n{label:08}_{index // self.classes:05}.JPEG"

    def content(self, index: int, *, version: int = 0) -> bytes:
        """The file of one image. A class has a palette, an image has shapes and grain of its own."""
        palette = np.random.default_rng(index % self.classes).random((1, 1, 3), dtype=np.float32)
        random = np.random.default_rng([version, index])
        coarse = (0.5 * palette + 0.5 * random.random((7, 7, 3), dtype=np.float32)) * 170
        smooth = np.asarray(Image.fromarray(coarse.astype(np.uint8)).resize((SIDE, SIDE), Image.Resampling.BICUBIC))
        noise = np.frombuffer(random.bytes(SIDE * SIDE), np.uint8).reshape(SIDE, SIDE, 1)
        grain = (noise * random.integers(*GRAIN, dtype=np.uint16) >> 8).astype(np.uint8)
        file = io.BytesIO()
        Image.fromarray(smooth // 2 + grain).save(file, "JPEG", quality=QUALITY)
        return file.getvalue()

    def write(self, root: Path, progress: Callable[[int], object], *, threads: int) -> int:
        """Write all of them below ``root``; the bytes written."""
        for label in range(min(self.classes, self.count)):
            (root / self.key(label)).parent.mkdir(parents=True, exist_ok=True)

        def write_one(index: int) -> int:
            return (root / self.key(index)).write_bytes(self.content(index))

        total = 0
        with ThreadPoolExecutor(threads) as pool:
            try:
                for done, size in enumerate(_in_order(pool, write_one, self.count), 1):
                    total += size
                    progress(done)
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        return total


def _in_order(pool: ThreadPoolExecutor, action: Callable[[int], int], count: int) -> Iterator[int]:
    yield from pool.map(action, range(count))

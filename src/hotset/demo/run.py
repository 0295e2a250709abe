"""The demo from beginning to end. Whatever it starts or writes is gone afterwards, but for the chart and the numbers."""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Protocol

import hotset
from hotset.base.files import free_bytes, is_tmpfs
from hotset.base.sizes import format_size
from hotset.config.settings import Settings
from hotset.demo.images import Images
from hotset.demo.measure import LATER_EPOCHS, direct_epoch, first_epoch, later_epochs, reload_one, shuffled
from hotset.demo.report import Report, draw
from hotset.demo.server import serve
from hotset.errors import Denied, Full

__all__ = ["Steps", "run_demo"]

BUCKET, FOLDER = "demo", "train"
#: Bytes that the cache may take at most, for each image.
ROOM = 2 * 40_000


class Steps(Protocol):
    """Tells a person what is going on."""

    def step(self, text: str, total: int = 0) -> AbstractContextManager[Callable[[int], object]]:
        """One step, for the length of a block; the block may say how far of ``total`` it is."""


def run_demo(count: int, out: Path, env: Mapping[str, str], steps: Steps) -> tuple[Report, Path]:
    """Measure with ``count`` images; write ``demo.json`` and ``demo.png`` into ``out``. Returns the chart's path."""
    _check_room(count, out)
    started = time.perf_counter()
    images = Images(count)
    with (
        _no_runtime_left(env),
        tempfile.TemporaryDirectory(prefix="hotset-demo-") as place,
        _cache_directory(count) as cache,
    ):
        root = Path(place) / "s3"
        with steps.step(f"{count:,} JPEG images into a bucket", count) as tick:
            total = images.write(root / BUCKET, tick, threads=max(2, os.cpu_count() or 2))
        with serve(root, env) as server:
            uri = f"s3://{BUCKET}/{FOLDER}"
            with steps.step("direct from S3: every image from the server, in every epoch", count) as tick:
                direct = direct_epoch(uri, server, shuffled(count, 0), images, tick)
            opening = time.perf_counter()
            name = "hotset-demo"
            quota = max(count * ROOM, 64 * 2**20)
            with hotset.open(uri, name, cache=cache, quota=quota, options=server.options) as dataset:
                opened = time.perf_counter() - opening
                with steps.step("hotset, first epoch: the same, and kept", count) as tick:
                    first = first_epoch(dataset, shuffled(count, 1), tick)
                dataset.load()  # nothing is left but to seal the last packs
                with steps.step("hotset, later epochs: from the cache"):
                    later = later_epochs(dataset, [shuffled(count, 2 + n) for n in range(LATER_EPOCHS)], images)
                with steps.step("one image is overwritten at the source; reload"):
                    key = images.key(count // 2)
                    server.put(BUCKET, key, images.content(count // 2, version=1))
                    reload = reload_one(dataset, name, cache, server, key.removeprefix(f"{FOLDER}/"))
    report = Report(count, total, opened, (direct, first, later), reload, time.perf_counter() - started)
    out.mkdir(parents=True, exist_ok=True)
    with steps.step("the chart"):
        (out / "demo.json").write_text(json.dumps(report.encoded(), indent=2) + "\n", encoding="utf-8")
        draw(report, out / "demo.png")
    return report, out / "demo.png"


def _check_room(count: int, out: Path) -> None:
    """What would stop the demo at its end is better said at its beginning."""
    place = next(path for path in (out.absolute(), *out.absolute().parents) if path.exists())
    if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
        raise Denied(f"cannot write into {out}; choose another directory with --out")
    temporary = Path(tempfile.gettempdir())
    if free_bytes(temporary) < 2 * count * ROOM:
        need = format_size(2 * count * ROOM)
        raise Full(
            f"the demo needs {need} for temporary files and {temporary} has less; set TMPDIR, or take fewer --images"
        )


@contextmanager
def _no_runtime_left(env: Mapping[str, str]) -> Iterator[None]:
    """Take the directory for sockets away again if it was made for the demo, and nobody else has come to use it."""
    runtime = Settings.of(env).runtime
    made = runtime is not None and not runtime.exists()
    try:
        yield
    finally:
        if made and runtime is not None:
            with suppress(OSError):  # not made after all, or in use
                runtime.rmdir()


@contextmanager
def _cache_directory(count: int) -> Iterator[str]:
    """A cache of the demo's own: in memory if there is room, else where temporary files are."""
    memory = Path("/dev/shm")  # noqa: S108  (a private directory is made in it)
    roomy = (
        memory.is_dir() and is_tmpfs(memory) and free_bytes(memory) > 2 * count * ROOM and os.access(memory, os.W_OK)
    )
    with tempfile.TemporaryDirectory(prefix="hotset-demo-", dir=memory if roomy else None) as place:
        yield place

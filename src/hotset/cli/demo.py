"""`hotset demo`: measure, on this machine, what hotset brings."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated, NoReturn

import typer

from hotset.cli.options import Show, ShowProgress
from hotset.cli.output import Interrupted, Output
from hotset.cli.progress import Reporter, Status, reporter
from hotset.cli.text import count, duration
from hotset.errors import NotFound

__all__ = ["EXAMPLES", "demo"]

EXAMPLES = """\
hotset demo
hotset demo --images 1000 --out /tmp/demo --json | jq '.epochs[].images_per_second'
"""

_LIBRARIES = {"PIL", "matplotlib"}


def demo(
    out: Output,
    *,
    images: Annotated[int, typer.Option(min=256, max=100_000, help="How many images to make.")] = 4000,
    directory: Annotated[Path, typer.Option("--out", help="Where to write the chart and the numbers.")] = Path(
        "demo-out"
    ),
    progress: ShowProgress = Show.auto,
) -> None:
    """See what hotset brings, on this machine.

    Starts a real S3 server on loopback, fills it with generated images, and reads them directly, then through hotset:
    first epoch, later epochs, and a reload after one image changed. Takes less than a minute, needs no root and no
    network, and leaves nothing behind but a chart and the numbers.
    """
    from hotset.config.settings import environment

    try:
        from hotset.demo.report import table
        from hotset.demo.run import run_demo
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in _LIBRARIES:
            raise
        raise NotFound(f"the demo needs {error.name}: pip install 'hotset[demo]'") from error
    report = reporter(progress)
    try:
        with _ended_like_ctrl_c():
            result, chart = run_demo(images, directory, environment(), _Steps(report))
    except KeyboardInterrupt:
        report.close()
        raise Interrupted("stopped; the server is down and all temporary files are gone") from None
    finally:
        report.close()
    chart = chart.absolute()
    words = f"\n{table(result)}\n\nchart: {chart}\nnumbers: {chart.with_suffix('.json')}"
    out.result({**result.encoded(), "chart": str(chart)}, words)


class _Steps:
    """Each step is shown while it lasts, and leaves a line with its duration."""

    def __init__(self, report: Reporter) -> None:
        self._report = report

    @contextmanager
    def step(self, text: str, total: int = 0) -> Iterator[Callable[[int], object]]:
        started = time.monotonic()
        self._report.show(Status(text, "..."))

        def tick(done: int) -> None:
            self._report.show(
                Status(text, f"{count(done)} of {count(total)}", done / total, {"done": done, "total": total})
            )

        yield tick
        self._report.say(f"{text}: {duration(time.monotonic() - started)}")


@contextmanager
def _ended_like_ctrl_c() -> Iterator[None]:
    """A polite kill cleans up as Ctrl-C does."""

    def stop(_number: int, _frame: FrameType | None) -> NoReturn:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)

"""Showing work that takes a while: on a terminal, in a log, to a program. All of it on standard error."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TextIO

from hotset.base.sizes import format_size
from hotset.cli.options import Show
from hotset.cli.text import count, duration, percent, plural, rate

if TYPE_CHECKING:
    from hotset.fill.progress import FillStats, Progress

__all__ = ["Reporter", "Status", "checking", "listing", "loading", "reporter"]

#: Seconds between two lines in a log.
LINE_EVERY = 5.0


@dataclass(frozen=True)
class Status:
    """One moment of the work. ``share`` is None while nobody knows how much there is to do."""

    phase: str
    text: str
    share: float | None = None
    facts: Mapping[str, object] = field(default_factory=dict)


def listing(objects: int) -> Status:
    return Status("listing", plural(objects, "object") if objects else "asking the source", None, {"objects": objects})


def loading(progress: Progress, stats: FillStats) -> Status:
    """Objects, bytes, rates, time left and errors of a load."""
    parts = [
        f"{count(progress.objects)} of {plural(progress.total_objects, 'object')}",
        f"{format_size(progress.bytes)} of {format_size(progress.total_bytes)}",
    ]
    if progress.bytes_per_second > 0:
        parts.append(f"{count(progress.objects_per_second)} objects/s, {rate(progress.bytes_per_second)}")
    if progress.seconds_left is not None and not progress.finished:
        parts.append(f"{duration(progress.seconds_left)} left")
    if stats.retried:
        parts.append(f"{count(stats.retried)} retried")
    if progress.failed:
        parts.append(f"{count(progress.failed)} failed")
    facts = {
        "objects": progress.objects,
        "total_objects": progress.total_objects,
        "bytes": progress.bytes,
        "total_bytes": progress.total_bytes,
        "objects_per_second": round(progress.objects_per_second, 1),
        "bytes_per_second": round(progress.bytes_per_second),
        "seconds_left": None if progress.seconds_left is None else round(progress.seconds_left, 1),
        "retried": stats.retried,
        "throttled": stats.throttled,
        "failed": progress.failed,
    }
    return Status("loading", ", ".join(parts), progress.share, facts)


def checking(phase: str, done: int, total: int) -> Status:
    """Work on ``total`` bytes that are here already."""
    share = done / total if total else 1.0
    text = f"{format_size(done)} of {format_size(total)}"
    return Status(phase, text, share, {"bytes": done, "total_bytes": total})


class Reporter(Protocol):
    """Shows one status after the other, each in the place of the one before."""

    def show(self, status: Status) -> None:
        """Called a few times a second, and at each change of phase."""

    def say(self, text: str) -> None:
        """Something that is to stay."""

    def close(self) -> None:
        """Before anything else is written. Idempotent."""


class _Silent:
    def show(self, status: Status) -> None:
        pass

    def say(self, text: str) -> None:
        pass

    def close(self) -> None:
        pass


class _Lines:
    """For logs: a line when a phase begins, and then every few seconds."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock
        self._phase = ""
        self._next = 0.0

    def show(self, status: Status) -> None:
        now = self._clock()
        if status.phase == self._phase and now < self._next:
            return
        self._phase, self._next = status.phase, now + LINE_EVERY
        share = "" if status.share is None else f"{percent(status.share)}, "
        print(f"{status.phase}: {share}{status.text}", file=self._stream, flush=True)

    def say(self, text: str) -> None:
        print(text, file=self._stream, flush=True)

    def close(self) -> None:
        pass


class _Documents:
    """For programs: one JSON document a line."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock
        self._phase = ""
        self._next = 0.0

    def show(self, status: Status) -> None:
        now = self._clock()
        if status.phase == self._phase and now < self._next:
            return
        self._phase, self._next = status.phase, now + 0.5
        print(json.dumps({"phase": status.phase, **status.facts}), file=self._stream, flush=True)

    def say(self, text: str) -> None:
        print(json.dumps({"said": text}), file=self._stream, flush=True)

    def close(self) -> None:
        pass


class _Bar:
    """For people: a bar and a line of numbers, gone when the work is done."""

    def __init__(self, stream: TextIO) -> None:
        from rich.console import Console
        from rich.live import Live

        # A bar was asked for, or the stream is a terminal: rich need not find out by itself.
        self._live = Live(console=Console(file=stream, force_terminal=True), refresh_per_second=8, transient=True)
        self._live.start()

    def show(self, status: Status) -> None:
        from rich.columns import Columns
        from rich.console import Group, RenderableType
        from rich.progress_bar import ProgressBar
        from rich.spinner import Spinner
        from rich.text import Text

        first: RenderableType
        if status.share is None:
            first = Spinner("dots", text=f"{status.phase}: {status.text}")
            self._live.update(first)
            return
        head = Text(f"{status.phase} {percent(status.share)}".ljust(16), style="bold")
        first = Columns([head, ProgressBar(total=1.0, completed=status.share, width=48)])
        self._live.update(Group(first, Text(status.text, style="dim", overflow="ellipsis", no_wrap=True)))

    def say(self, text: str) -> None:
        self._live.console.print(text, highlight=False, markup=False)

    def close(self) -> None:
        self._live.stop()


def reporter(show: Show, *, as_json: bool = False) -> Reporter:
    """The reporter for ``show``; "auto" asks the terminal, and is silent if a program reads the result."""
    stream = sys.stderr
    if show is Show.none or (show is Show.auto and as_json):
        return _Silent()
    if show is Show.json:
        return _Documents(stream)
    if show is Show.bar or (show is Show.auto and stream.isatty()):
        return _Bar(stream)
    return _Lines(stream)

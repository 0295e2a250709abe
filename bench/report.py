"""What a run found: rows, printed as a table and written as JSON. No measuring and no drawing here."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

__all__ = [
    "AT_LEAST",
    "AT_MOST",
    "Bound",
    "Row",
    "as_json",
    "as_table",
    "compared",
    "cost",
    "machine",
    "plain",
    "quantity",
    "speed",
    "unavailable",
    "what_broke",
]

AT_LEAST = ">="
AT_MOST = "<="


@dataclass(frozen=True)
class Bound:
    """What a row must reach: ``Bound(AT_LEAST, 0.8)``. ``unit`` is empty where the bounded value is a ratio."""

    direction: str
    limit: float
    unit: str = ""

    def holds(self, value: float) -> bool:
        return value >= self.limit if self.direction == AT_LEAST else value <= self.limit

    def __str__(self) -> str:
        return f"{self.direction} {self.limit:g}{' ' + self.unit if self.unit else ''}"


@dataclass(frozen=True)
class Row:
    """One line of the table. ``ratio`` is None where there is nothing to divide by; ``met`` where nothing is required."""

    work: str
    hotset: str
    peer: str = "-"
    peer_value: str = "-"
    ratio: float | None = None
    required: str = ""
    met: bool | None = None
    note: str = ""
    limit: float | None = None  #: the required ratio, for the picture


def speed(
    work: str, hotset: float, peer: str, other: float, *, unit: str, at_least: float | None = None, note: str = ""
) -> Row:
    """How many times as fast as the peer hotset is. Both values are times (``s``, ``us``) or rates (``.../s``)."""
    ratio = hotset / other if unit.endswith("/s") else other / hotset
    bound = None if at_least is None else Bound(AT_LEAST, at_least)
    return compared(work, hotset, peer, other, unit, ratio, bound, note)


def cost(
    work: str, hotset: float, peer: str, other: float, *, unit: str, at_most: float | None = None, note: str = ""
) -> Row:
    """How many times the peer's time hotset needs: for work that cannot be quicker than the peer's."""
    bound = None if at_most is None else Bound(AT_MOST, at_most)
    return compared(work, hotset, peer, other, unit, hotset / other, bound, note)


def plain(work: str, value: float, *, unit: str, bound: Bound | None = None, note: str = "") -> Row:
    """A number of hotset alone."""
    required, met = ("", None) if bound is None else (str(bound), bound.holds(value))
    return Row(work, quantity(value, unit), required=required, met=met, note=note)


def unavailable(work: str, peer: str, reason: str) -> Row:
    """A peer that could not take part, so that nobody wonders where it went."""
    return Row(work, "-", peer, "not run", note=reason)


def what_broke(error: Exception) -> str:
    """One line for a table."""
    return f"broke off: {type(error).__name__}: {error}".splitlines()[0][:120]


def compared(
    work: str, hotset: float, peer: str, other: float, unit: str, ratio: float, bound: Bound | None, note: str = ""
) -> Row:
    """A row whose ratio the caller has worked out."""
    required, met = ("", None) if bound is None else (str(bound), bound.holds(ratio))
    return Row(
        work, quantity(hotset, unit), peer, quantity(other, unit), ratio, required, met, note, bound and bound.limit
    )


def quantity(value: float, unit: str) -> str:
    if unit.endswith("/s") or unit in {"GETs", "LISTs", "bytes"}:
        return f"{value:,.0f} {unit}"
    return f"{value:,.2f} {unit}" if value < 100 else f"{value:,.0f} {unit}"


def as_table(rows: Iterable[Row]) -> str:
    """The rows as a Markdown table, aligned so that it reads well in a terminal, too."""
    head = ("work", "hotset", "peer", "peer's", "ratio", "required", "met?")
    body = [
        (
            row.work,
            row.hotset,
            row.peer,
            row.peer_value + (f" ({row.note})" if row.note else ""),
            "-" if row.ratio is None else f"{row.ratio:.2f}",
            row.required or "-",
            {True: "yes", False: "NO", None: "-"}[row.met],
        )
        for row in rows
    ]
    widths = [max(len(line[column]) for line in [head, *body]) for column in range(len(head))]
    lines = [head, tuple("-" * width for width in widths), *body]
    return "\n".join(
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |" for line in lines
    )


def as_json(results: Mapping[str, Sequence[Row]], *, settings: Mapping[str, object]) -> str:
    document = {
        "machine": machine(),
        "settings": dict(settings),
        "scenarios": {name: [asdict(row) for row in rows] for name, rows in results.items()},
    }
    return json.dumps(document, indent=2) + "\n"


def machine() -> dict[str, object]:
    """What a reader must know to judge the numbers."""
    info = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    models = [line.partition(":")[2].strip() for line in info.splitlines() if line.startswith("model name")]
    return {
        "cpu": models[0] if models else platform.processor(),
        "cpus": len(models),
        "kernel": platform.release(),
        "python": platform.python_version(),
    }

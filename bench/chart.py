"""The ratios of a run as one picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bench.report import Row

__all__ = ["draw"]

_COLOURS = {True: "#2a7f62", False: "#b3433a", None: "#7a8aa0"}


def draw(rows: Sequence[Row], path: Path) -> None:
    """One bar a row that has a ratio, on a logarithmic axis, with a tick where the requirement lies."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    shown = [row for row in rows if row.ratio is not None and row.ratio > 0]
    if not shown:
        return
    figure, axes = plt.subplots(figsize=(11, 1.2 + 0.28 * len(shown)), layout="constrained")
    for place, row in enumerate(reversed(shown)):
        assert row.ratio is not None
        axes.barh(place, row.ratio, color=_COLOURS[row.met], height=0.7)
        axes.text(row.ratio, place, f" {row.ratio:.2f}", va="center", fontsize=8)
        if row.limit is not None:
            axes.plot([row.limit, row.limit], [place - 0.42, place + 0.42], color="black", linewidth=1.5)
    axes.set_yticks(range(len(shown)), [f"{row.work} / {row.peer}" for row in reversed(shown)], fontsize=8)
    axes.set_xscale("log")
    axes.axvline(1, color="grey", linewidth=0.7)
    axes.set_xlabel("hotset / peer (black tick: required; green: met, red: not met)")
    axes.margins(x=0.12)
    figure.savefig(path, dpi=120)
    plt.close(figure)

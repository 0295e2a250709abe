"""What the demo found, as a table, a document and a chart."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hotset.base.sizes import format_size
from hotset.demo.measure import BATCH, DIRECT_THREADS, Epoch, Reload

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["V100", "Report", "draw", "table"]

#: Images a second that one V100 takes while it trains ResNet-50 (from a published study of a JuiceFS cache).
V100 = 383

#: Of the chart over time, drawn from the one measured direct epoch and the median later one.
EPOCHS = 5

_GRAY, _WARM, _HOT = "#8c96a3", "#f0a04b", "#d9480f"
_INK, _FAINT = "#22272e", "#d5dae0"


@dataclass(frozen=True)
class Report:
    """All numbers of one run."""

    images: int
    bytes: int
    open_seconds: float
    epochs: tuple[Epoch, Epoch, Epoch]  #: direct, first, later
    reload: Reload
    seconds: float

    def encoded(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "images": self.images,
            "bytes": self.bytes,
            "batch": BATCH,
            "direct_threads": DIRECT_THREADS,
            "images_per_second_of_a_v100": V100,
            "open_seconds": round(self.open_seconds, 4),
            "epochs": [
                {
                    "name": epoch.name,
                    "seconds": round(epoch.seconds, 6),
                    "images_per_second": round(epoch.images_per_second, 1),
                    "v100s_fed": round(epoch.images_per_second / V100, 2),
                    "first_batch_seconds": round(epoch.first_batch_seconds, 6),
                }
                for epoch in self.epochs
            ],
            "reload": asdict(self.reload),
            "seconds": round(self.seconds, 1),
            "machine": {"cores": os.cpu_count(), "architecture": platform.machine(), "system": platform.system()},
        }


def table(report: Report) -> str:
    """For the terminal."""
    direct = report.epochs[0]
    head = ("", "images/s", "V100s fed", "against direct", "first batch")
    rows = [
        (
            epoch.name,
            f"{epoch.images_per_second:,.0f}",
            f"{epoch.images_per_second / V100:,.1f}",
            f"{epoch.images_per_second / direct.images_per_second:,.1f} x",
            f"{epoch.first_batch_seconds * 1000:,.1f} ms",
        )
        for epoch in report.epochs
    ]
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    lines = [
        "  ".join(
            [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        )
        for row in (head, *rows)
    ]
    change = report.reload
    fetched = f"{change.gets} GET{'' if change.gets == 1 else 's'} ({format_size(change.fetched_bytes)})"
    lines.append("")
    lines.append(f"one image changed: reload found {change.modified}, fetched with {fetched} in {change.seconds:.1f} s")
    lines.append(f"{report.images:,} images, {format_size(report.bytes)}, shuffled, in batches of {BATCH}")
    lines.append(f"direct: {DIRECT_THREADS} threads with the client library that hotset uses, the fastest that we know")
    lines.append(f"a V100 takes {V100} images/s (ResNet-50); decoding, the same for all, is not part of the numbers")
    return "\n".join(line.rstrip() for line in lines)


def draw(report: Report, path: Path) -> None:
    """The chart, as PNG."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    with plt.rc_context({
        "font.size": 11, "axes.edgecolor": _FAINT, "axes.labelcolor": _INK, "text.color": _INK,
        "xtick.color": _INK, "ytick.color": _INK,
    }):  # fmt: skip
        figure, (rates, progress) = plt.subplots(1, 2, figsize=(12.4, 4.9), width_ratios=[1.15, 1])
        _draw_rates(rates, report)
        _draw_progress(progress, report)
        figure.suptitle("hotset: the first epoch caches, every later one runs from memory", x=0.012, ha="left",
                        fontsize=15, fontweight="bold")  # fmt: skip
        size = f"{report.images:,} JPEG images, {format_size(report.bytes)}, from an S3 server on this machine"
        change = f"One image changed → reload: {report.reload.gets} GET"
        figure.text(0.012, 0.018, f"{size}; shuffled, batches of {BATCH}. {change}. V100: {V100} images/s.", fontsize=9,
                    color="#57606a")  # fmt: skip
        figure.tight_layout(rect=(0, 0.045, 1, 0.97), w_pad=3)
        figure.savefig(path, dpi=150, metadata={"Software": "hotset demo"})
        plt.close(figure)


def _draw_rates(axes: Axes, report: Report) -> None:
    from matplotlib.ticker import NullLocator

    rates = [epoch.images_per_second for epoch in report.epochs]
    places = range(len(rates))
    bars = axes.barh(places, rates, color=(_GRAY, _WARM, _HOT), height=0.6)
    labels = [
        f"{rate:,.0f} images/s\nfeeds {rate / V100:,.0f} V100{'' if round(rate / V100) == 1 else 's'}" for rate in rates
    ]
    for text in axes.bar_label(bars, labels, padding=7, fontsize=11, linespacing=1.35):
        text.set_bbox({"facecolor": "white", "edgecolor": "none", "pad": 1})
    axes.set_yticks(places, [epoch.name.replace(", ", "\n") for epoch in report.epochs])
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlim(100, max(rates) * 30)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_title("images per second (logarithmic)", loc="left", fontsize=11, color="#57606a")
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(left=False)
    axes.grid(axis="x", color=_FAINT, linewidth=0.6)
    axes.set_axisbelow(True)


def _draw_progress(axes: Axes, report: Report) -> None:
    """Several epochs over time: one after the other, directly and with hotset."""
    direct, first, later = report.epochs
    series = (("direct", _GRAY, [direct] * EPOCHS), ("hotset", _HOT, [first, *[later] * (EPOCHS - 1)]))
    end = 0.0
    for name, color, epochs in series:
        seconds, images = _one_after_the_other(epochs)
        axes.plot(seconds, images, color=color, linewidth=2.4, solid_capstyle="round", label=name)
        axes.plot(seconds[-1], images[-1], "o", color=color, markersize=6)
        axes.annotate(f"{name}: {seconds[-1]:.1f} s", (seconds[-1], images[-1]), xytext=(0, 8), fontsize=11,
                      textcoords="offset points", ha="center", color=color, fontweight="bold")  # fmt: skip
        end = max(end, seconds[-1])
    axes.set_xlim(0, end * 1.15)
    axes.set_ylim(0, report.images * (EPOCHS + 0.6))
    axes.set_yticks([report.images * epoch for epoch in range(1, EPOCHS + 1)])
    axes.yaxis.set_major_formatter(lambda images, _: f"{images / report.images:.0f}")
    axes.grid(axis="y", color=_FAINT, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(left=False)
    axes.set_ylabel("epochs done")
    axes.set_xlabel("seconds")
    axes.set_title(f"{EPOCHS} epochs, one after the other", loc="left", fontsize=11, color="#57606a")
    axes.spines[["top", "right"]].set_visible(False)


def _one_after_the_other(epochs: Sequence[Epoch]) -> tuple[list[float], list[int]]:
    seconds: list[float] = []
    images: list[int] = []
    since, before = 0.0, 0
    for epoch in epochs:
        seconds += [since + moment for moment, _ in epoch.timeline]
        images += [before + count for _, count in epoch.timeline]
        since, before = seconds[-1], images[-1]
    return seconds, images

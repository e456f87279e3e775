"""Drawing of figures: one palette and style, one function per kind of figure, on axes and plain values.

The report, `chestfed.Study`, comparisons, the site card and MLflow all draw with these; `run_figures.py` says which
figures a study has. A `Picture` comes with a text that says what is seen in it.
"""

from __future__ import annotations

import base64
import io
import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from chestfed.core.checkpoint import write_atomically
from chestfed.core.provenance import Origin
from chestfed.results.evaluation.calibration import reliability
from chestfed.results.evaluation.labeled import Column

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

#: Colors of Okabe and Ito, and a dark red of Tol: readers with any color vision tell them apart, and each has contrast
#: 3:1 or more to the ground, in the light and in the dark form of a page. Markers differ too; dashes come with a
#: color that returns.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#882255", "#000000")
DASHES: tuple[Any, ...] = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)))
MARKERS = "osD^vP"
#: Text of figures, and lines that are only there for orientation.
INK, FAINT = "#1a1a1a", "#8a8a8a"

#: The mean, beside the colors of the diseases.
MEAN = "#5a5a5a"

#: More points than this make a curve no finer, only larger.
_POINTS = 200
#: Letters of a title that fit on an inch.
_LETTERS = 11
#: Inches from one label at the end of a line to the next.
_LABEL = 0.16
#: Lines with fewer points have markers.
_MARKED = 30
_STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.titlesize": 10,
    "figure.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.fontsize": 8,
    "legend.handlelength": 2.6,
    "svg.fonttype": "path",
    "svg.hashsalt": "chestfed",
    "path.simplify_threshold": 0.5,
}


@dataclass(frozen=True)
class Picture:
    """A figure, the name of its files, and what is seen in it."""

    name: str
    alt: str
    figure: Figure

    @cached_property
    def svg(self) -> bytes:
        """Drawn on demand only."""
        out = io.BytesIO()
        self._draw(out, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
        return _compact(out.getvalue())

    @property
    def uri(self) -> str:
        """The SVG as an address that needs no file and no network."""
        return "data:image/svg+xml;base64," + base64.b64encode(self.svg).decode()

    def save(self, folder: Path) -> None:
        """Write `<name>.svg` and `<name>.png`."""
        write_atomically(folder / f"{self.name}.svg", lambda path: path.write_bytes(self.svg))
        self.save_png(folder)

    def save_png(self, folder: Path) -> None:
        """Write `<name>.png`."""
        about = {"format": "png", "dpi": 200, "metadata": {"Software": None}}
        write_atomically(folder / f"{self.name}.png", lambda path: self._draw(path, **about))

    def _draw(self, out: Any, **about: Any) -> None:
        from matplotlib import rc_context

        with rc_context(_STYLE):
            if (layout := self.figure.get_layout_engine()) is not None:
                for _ in range(2):  # the ticks, and so the room their labels take, depend on the size of the axes
                    layout.execute(self.figure)
                self.figure.set_layout_engine(None)  # with one, matplotlib draws every file twice
            self.figure.savefig(out, **about)


class Drawing:
    """One figure while it is drawn, with one or several `axes`; the `picture` after that. Its title says synthetic."""

    def __init__(
        self,
        origin: Origin,
        name: str,
        title: str,
        size: tuple[float, float] = (3.6, 3.7),
        columns: int = 1,
        *,
        long_names: bool = False,
    ) -> None:
        self._origin, self._name, self._title, self._size, self._columns = origin, name, title, size, columns
        self._long_names = long_names  # beside the axes, which they make narrow
        self._said: list[str] = []

    def __enter__(self) -> Drawing:
        from matplotlib import rc_context
        from matplotlib.figure import Figure

        self._context = rc_context(_STYLE)
        self._context.__enter__()
        self._figure: Figure = Figure(figsize=self._size, layout="constrained")
        every = self._figure.subplots(1, self._columns, sharey=True, squeeze=False)[0]
        self.every: list[Axes] = list(every)
        self.axes: Axes = self.every[0]
        for axes in self.every:
            axes.grid(alpha=0.25, linewidth=0.6)
        title = f"{self._origin.tag}: {self._title}" if self._origin.tag else self._title
        title = textwrap.fill(title, int(_LETTERS * self._size[0]))
        centered = self._columns > 1 or self._long_names
        put = self._figure.suptitle if centered else self.axes.set_title  # above narrow axes a title would be cut off
        put(title, parse_math=False)
        return self

    def __exit__(self, *error: object) -> None:
        self._context.__exit__(None, None, None)

    def say(self, text: str) -> None:
        """Add to what is seen."""
        self._said.append(text)

    def nothing(self, reason: str) -> None:
        """There is nothing to draw, because of this."""
        self.axes.text(0.5, 0.5, reason, ha="center", va="center", transform=self.axes.transAxes)
        self.axes.set(xticks=[], yticks=[])
        self.say(f"nothing to draw, {reason}")

    def picture(self, seen: str) -> Picture:
        """The finished figure."""
        details = f": {'; '.join(self._said)}" if self._said else ""
        return Picture(self._name, f"{self._origin.alt}{seen}{details}.", self._figure)


@dataclass(frozen=True)
class Curve:
    """The labeled test images of one disease, of both classes, as one model ranks them."""

    place: int  #: of its color, dashes and marker: that of K among all K of the study, the same in all figures
    label: str  #: what the legend calls it
    column: Column
    auc: float  #: as in the table
    #: false_positives, true_positives: the rates of the ROC curve.
    false_positives: np.ndarray
    true_positives: np.ndarray


def new_axes(size: tuple[float, float] = (5.0, 4.2)) -> Axes:
    """Axes of a new pyplot figure, inches."""
    from matplotlib import pyplot

    return pyplot.subplots(layout="constrained", figsize=size)[1]


def line_style(number: int, *, marked: bool = False) -> dict[str, Any]:
    """Keywords of matplotlib's `plot` for the `number`-th line (from 0); with a marker if `marked`."""
    turn = number // len(COLORS)  # a color that comes again has dashes and another marker
    return {
        "color": COLORS[number % len(COLORS)],
        "linestyle": DASHES[turn % len(DASHES)],
        "marker": MARKERS[(number + turn) % len(MARKERS)] if marked else None,
        "markersize": 4,
        "linewidth": 1.5,
    }


def locate_k(ks: Sequence[int], k: int) -> int:
    """The number of a K's line, the same in all figures: the largest K has the first color, the smallest the second."""
    return 0 if k == ks[-1] else 1 + list(ks).index(k)


def roc(ax: Axes, curves: Sequence[Curve]) -> None:
    """ROC curves; the diagonal is a score without information."""
    ax.plot([0, 1], [0, 1], color=FAINT, linewidth=0.8)
    for curve in curves:
        x, y = _thinned(curve.false_positives, curve.true_positives)
        ax.plot(x, y, label=f"{curve.label}  {curve.auc:.3f}", **line_style(curve.place))
    _unit_square(ax, "false-positive rate", "true-positive rate")
    legend(ax, "AUC")


def precision_recall(ax: Axes, curves: Sequence[Curve]) -> list[float]:
    """Precision-recall curves; returns their average precisions.

    Between two thresholds the precision is not on a straight line: steps, as the average precision sums them. The gray
    line is the share of positives, a score without information; it is left out where the curves differ in it.
    """
    from sklearn.metrics import average_precision_score, precision_recall_curve

    averages = []
    shares = {curve.column.positives / len(curve.column.positive) for curve in curves}
    if len(shares) == 1:
        ax.axhline(shares.pop(), color=FAINT, linewidth=0.8)
    for curve in curves:
        precision, recall, _ = precision_recall_curve(curve.column.positive, curve.column.score)
        precision[-1] = precision[-2]  # scikit-learn ends at a precision of 1 that no threshold has
        averages.append(float(average_precision_score(curve.column.positive, curve.column.score)))
        x, y = _thinned(recall[::-1], precision[::-1])
        label = f"{curve.label}  {averages[-1]:.3f}"
        ax.plot(x, y, label=label, drawstyle="steps-pre", **line_style(curve.place))
    _unit_square(ax, "recall", "precision")
    legend(ax, "average precision")
    return averages


def calibration(ax: Axes, curves: Sequence[Curve], bins: int) -> None:
    """Observed rate against mean score, in bins of equally many images; the diagonal is perfect."""
    ax.plot([0, 1], [0, 1], color=FAINT, linewidth=0.8)
    for curve in curves:
        points = [(point.mean_score, point.observed_rate) for point in reliability(curve.column, bins)]
        ax.plot(*zip(*points, strict=True), label=curve.label, **line_style(curve.place, marked=True))
    _unit_square(ax, "mean score of a bin", "observed rate")
    legend(ax)


def decision_curve(ax: Axes, rows: pd.DataFrame, label: str, chosen: float) -> None:
    """Net benefit over thresholds, with its interval; the chosen threshold as a line."""
    at, benefit = rows["threshold"], rows["net_benefit"]
    ax.plot(at, rows["net_benefit_all"], color=FAINT, linewidth=0.8, label="call all")
    ax.axhline(0, color=FAINT, linewidth=0.8, linestyle=":", label="call none")
    ax.plot(at, benefit, label=label, **line_style(0))
    ax.fill_between(at, rows["net_benefit_low"], rows["net_benefit_high"], alpha=0.2)
    ax.axvline(chosen, color=FAINT, linewidth=0.8, linestyle="--", label=f"threshold {chosen:g}")
    top = max(float(benefit.max()), float(rows["net_benefit_all"].max()), 0.01)
    ax.set(xlabel="threshold (probability)", ylabel="net benefit", xlim=(0, 1), ylim=(-0.3 * top, 1.2 * top))
    legend(ax)


def rounds(
    ax: Axes,
    lines: Sequence[tuple[int, str, Any, Any]],
    ylabel: str,
    stage_ends: Sequence[int] = (),
    *,
    marked: bool = True,
) -> None:
    """Values against rounds: per line its place, label, x and y; dotted where a stage ends and the next begins."""
    from matplotlib.ticker import MaxNLocator

    for place, label, x, y in lines:
        ax.plot(x, y, label=label, **line_style(place, marked=marked and len(x) < _MARKED))
    if lines:
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    for end in stage_ends if lines else ():
        ax.axvline(end + 0.5, color=FAINT, linewidth=0.8, linestyle=":")
    ax.set(xlabel="round", ylabel=ylabel)
    legend(ax)


def auc_by_k(ax: Axes, rows: pd.DataFrame, label: str, *, intervals: bool = True, **style: Any) -> None:
    """AUC against K: `rows` of one disease have `k`, `auc`, `low`, `high`, in the order of K."""
    ax.plot(rows["k"], rows["auc"], label=label, **style)
    if intervals:
        ax.vlines(rows["k"], rows["low"], rows["high"], color=style["color"], linewidth=1.2)
    ax.set_xticks(rows["k"], [str(k) for k in rows["k"]])
    ax.set(xlabel="K, number that train together", ylabel="AUC, 95% interval" if intervals else "AUC")


def forest(ax: Axes, rows: pd.DataFrame, xlabel: str) -> None:
    """Differences with their intervals, from the top: `rows` have `name`, `difference`, `low`, `high`.

    Those whose interval is above zero, below it, or contains it have different colors.
    """
    ax.axvline(0, color=FAINT, linewidth=0.8)
    for height, row in enumerate(rows.to_dict("records")):
        if not np.isnan(row["low"]):
            ax.hlines(height, row["low"], row["high"], color=_color_difference(row), linewidth=2)
        if not np.isnan(row["difference"]):
            ax.plot(row["difference"], height, "o", color=_color_difference(row), markersize=5)
    _name_rows(ax, rows, xlabel)


def intervals(ax: Axes, rows: pd.DataFrame, xlabel: str) -> None:
    """AUCs with their intervals, from the top: `rows` have `name`, `auc`, `low`, `high`."""
    for height, row in enumerate(rows.to_dict("records")):
        ax.hlines(height, row["low"], row["high"], color=COLORS[0], linewidth=2)
        ax.plot(row["auc"], height, "o", color=COLORS[0], markersize=5)
    _name_rows(ax, rows, xlabel)


def _name_rows(ax: Axes, rows: pd.DataFrame, xlabel: str) -> None:
    """Names of rows at the left, the first at the top, and so few values below that they stand apart."""
    ax.set_yticks(range(len(rows)), list(rows["name"]))
    ax.set_ylim(len(rows) - 0.5, -0.5)
    ax.set_xlabel(xlabel)
    ax.locator_params(axis="x", nbins=5, steps=[1, 2, 5, 10])


def gains_along(ax: Axes, labels: Sequence[str], lines: Sequence[tuple[str, pd.DataFrame]]) -> None:
    """Differences at places of an axis: per line its name, and rows with `position`, `difference`, `low`, `high`."""
    ax.axhline(0, color=FAINT, linewidth=0.8)
    for number, (name, rows) in enumerate(lines):
        style = line_style(number, marked=True)
        x = rows["position"] + 0.08 * (number - (len(lines) - 1) / 2)  # intervals side by side
        ax.plot(x, rows["difference"], label=name, **style)
        ax.vlines(x, rows["low"], rows["high"], color=style["color"], linewidth=1.2)
    ax.set_xticks(range(len(labels)), list(labels))
    label_ends(ax)


def gray_levels(ax: Axes, sites: Sequence[tuple[int, str, np.ndarray]]) -> None:
    """Histograms of sites, each with its place, name and shares `[bins]`: the first as an area, the others as lines."""
    for number, (place, name, part) in enumerate(sites):
        middles = _middles(part)
        if number == 0:
            ax.fill_between(middles, 100 * part, step="mid", color=COLORS[0], alpha=0.55, linewidth=0, label=name)
        else:
            ax.plot(middles, 100 * part, label=name, **line_style(place))
    highest = max(float(part[1:].max()) for _, _, part in sites)
    ax.set(xlim=(0, 256), ylim=(0, 115 * highest or 1))  # black margins would flatten everything else
    ax.set(xlabel="gray level", ylabel="% of the pixels")
    legend(ax)


def shares(counts: Any) -> np.ndarray:
    """Share of the pixels per bin of a histogram, float64 `[bins]`."""
    values = np.asarray(counts, float)
    return values / max(1.0, values.sum())


def moments(part: np.ndarray) -> tuple[float, float]:
    """Mean and standard deviation of the gray levels, 0 to 255, of the shares of a histogram."""
    middles = _middles(part)
    mean = float(part @ middles)
    return mean, float(np.sqrt(part @ (middles - mean) ** 2))


def bars(ax: Axes, counts: Mapping[str, int], xlabel: str, ylabel: str) -> None:
    """A bar per group."""
    ax.bar(range(len(counts)), list(counts.values()), color=COLORS[0], width=0.85)
    ax.set_xticks(range(len(counts)), list(counts), rotation=30 if len(counts) > 8 else 0)
    ax.set_xlim(-0.6, max(len(counts), 5) - 0.4)  # a single bar is not a wall
    ax.grid(axis="x", visible=False)
    ax.set(xlabel=xlabel, ylabel=ylabel)


def thumbnail(pixels: np.ndarray) -> str:
    """A PNG of pixels uint8 `[s, s]` or `[s, s, 3]` as an address that needs no file."""
    from PIL import Image

    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(out.getvalue()).decode()


def legend(ax: Axes, title: str | None = None) -> None:
    """Below the axes, where it covers nothing, if anything was drawn."""
    handles, labels = ax.get_legend_handles_labels()
    if handles:
        longest = max(map(len, labels))
        columns = 1 if longest > 30 else 2 if longest > 6 else 3
        height = ax.figure.bbox.height / ax.figure.dpi  # the labels of the x axis need about half an inch of it
        ax.legend(
            title=title,
            loc="upper center",
            bbox_to_anchor=(0.5, -0.75 / height),
            ncols=columns,
            frameon=False,
            title_fontsize=8,
            columnspacing=1.2,
        )


def label_ends(ax: Axes) -> None:
    """Names of the lines at their right ends, moved apart where they would overlap, in place of a legend."""
    from sklearn.isotonic import isotonic_regression

    ends: list[tuple[float, float, Line2D]] = []
    for line in ax.get_lines():
        along, heights = (np.asarray(values, float) for values in line.get_data())
        seen = np.flatnonzero(np.isfinite(heights))
        if len(seen) and not str(line.get_label()).startswith("_"):
            ends.append((float(heights[seen[-1]]), float(along[seen[-1]]), line))
    if not ends:
        return
    ends.sort(key=lambda end: end[0])
    low, high = ax.get_ylim()
    inches = max(ax.figure.bbox.height / ax.figure.dpi - 1.0, 1.0)  # of the axes; titles and labels need the rest
    steps = (high - low) * _LABEL / inches * np.arange(len(ends))
    places = isotonic_regression([end[0] for end in ends] - steps) + steps  # the least moved that do not overlap
    for place, (y, x, line) in zip(places, ends, strict=True):
        ax.annotate(
            str(line.get_label()),
            (x, y),
            (1.06, place),
            textcoords=("axes fraction", "data"),
            va="center",
            fontsize=8,
            fontweight="bold" if line.get_linewidth() > 2 else "normal",
            annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": line.get_color(), "linewidth": 1.2, "shrinkA": 1, "shrinkB": 3},
        )


def _color_difference(row: Mapping[Any, Any]) -> str:
    """The color of a difference: its interval is above zero, below it, or contains it."""
    return COLORS[0] if row["low"] > 0 else COLORS[1] if row["high"] < 0 else MEAN


def _unit_square(ax: Axes, xlabel: str, ylabel: str) -> None:
    """Both axes from 0 to 1, in the same scale."""
    ax.set(xlim=(-0.01, 1.01), ylim=(-0.01, 1.01), aspect="equal", xlabel=xlabel, ylabel=ylabel)


def _middles(part: np.ndarray) -> np.ndarray:
    """Gray level in the middle of each bin."""
    return (np.arange(len(part)) + 0.5) * 256 / len(part)


def _thinned(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """At most `_POINTS` points of a curve, its ends among them."""
    if len(x) <= _POINTS:
        return x, y
    chosen = np.unique(np.linspace(0, len(x) - 1, _POINTS).round().astype(int))
    return x[chosen], y[chosen]


def _compact(svg: bytes) -> bytes:
    """Shorten an SVG: coordinates to a hundredth of a point, and no line breaks in paths."""

    def shortened(path: re.Match[bytes]) -> bytes:
        return re.sub(rb"\s+", b" ", re.sub(rb"(\.\d\d)\d+", rb"\1", path[0]))

    return re.sub(rb' d="[^"]*"', shortened, svg)

"""The report's figures. Each comes with a text that says what is seen in it."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from chestfed.core.checkpoint import write_atomically
from chestfed.core.diseases import TITLES
from chestfed.core.provenance import Origin
from chestfed.evaluation.calibration import reliability_per_disease
from chestfed.evaluation.comparison import Comparison
from chestfed.evaluation.labelled import Column, labelled_columns
from chestfed.evaluation.metrics import average_precision_per_disease
from chestfed.report.colours import COLOURS, FAINT, INK, MARKERS, line_style
from chestfed.results.run_folder import KResult, RunFolder

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: More points than this make a curve no finer, only larger.
_POINTS = 200
#: A calibration curve has at most so many bins, and at least so many images in each on average: with 15 bins, as for
#: the ECE, a small test set leaves too few.
_CURVE_BINS, _PER_BIN = 8, 20

_STYLE = {
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.framealpha": 0.85,
    "legend.edgecolor": "none",
    "legend.fontsize": 8,
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
        """Drawn when it is asked for: not everybody wants it."""
        from matplotlib import rc_context

        out = io.BytesIO()
        nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        with rc_context(_STYLE):
            self.figure.savefig(out, format="svg", metadata=nothing)
        return _compact(out.getvalue())

    @property
    def uri(self) -> str:
        """The SVG as an address that needs no file and no network."""
        return "data:image/svg+xml;base64," + base64.b64encode(self.svg).decode()

    def save(self, folder: Path) -> None:
        """Write `<name>.svg` and `<name>.png`."""
        write_atomically(folder / f"{self.name}.svg", lambda path: path.write_bytes(self.svg))
        write_atomically(folder / f"{self.name}.png", self._save_png)

    def _save_png(self, path: Path) -> None:
        self.figure.savefig(path, format="png", dpi=200, metadata={"Software": None})


def roc_curves(run: RunFolder) -> list[Picture]:
    """One figure per disease, with all K."""
    from sklearn.metrics import roc_curve

    pictures = []
    for j, disease in enumerate(run.diseases):
        with Drawing(run, f"roc-{disease}", _title(disease)) as drawing:
            drawing.axes.plot([0, 1], [0, 1], color=FAINT, linewidth=0.8)
            counts = ""
            for number, (result, column) in enumerate(columns(run, j)):
                counts = f"{column.positives} positive and {column.negatives} negative images"
                if column.reason:
                    drawing.nothing(column.reason)
                    break
                auc = _row(run, result.k)["diseases"][disease]["auc"]
                x, y, _ = roc_curve(column.positive, column.score)
                drawing.line(number, *thinned(x, y), f"K={result.k}  {auc:.3f}")
                drawing.say(f"K={result.k} has an AUC of {auc:.3f}")
            drawing.label("false-positive rate", "true-positive rate", "AUC", "best")
            drawing.unit_square()
        pictures.append(drawing.picture(f"ROC curves of {_title(disease)} on {counts}"))
    return pictures


def precision_recall_curves(run: RunFolder) -> list[Picture]:
    """One figure per disease, with all K; the grey line is the share of positives, what chance would reach."""
    from sklearn.metrics import precision_recall_curve

    pictures = []
    for j, disease in enumerate(run.diseases):
        with Drawing(run, f"precision-recall-{disease}", _title(disease)) as drawing:
            share = ""
            for number, (result, column) in enumerate(columns(run, j)):
                if column.reason:
                    drawing.nothing(column.reason)
                    break
                prevalence = column.positives / len(column.positive)
                share = f", where {prevalence:.0%} of the images are positive"
                (found,) = average_precision_per_disease(
                    result.scores[:, j : j + 1], result.labels[:, j : j + 1], [disease]
                )
                precision, recall, _ = precision_recall_curve(column.positive, column.score)
                precision[-1] = precision[-2]  # scikit-learn ends at a precision of 1 that no threshold has
                if number == 0:
                    drawing.axes.axhline(prevalence, color=FAINT, linewidth=0.8)
                x, y = thinned(recall[::-1], precision[::-1])
                drawing.line(number, x, y, f"K={result.k}  {found.value:.3f}", steps=True)
                drawing.say(f"K={result.k} has an average precision of {found.value:.3f}")
            drawing.label("recall", "precision", "average precision", "best")
            drawing.unit_square()
        pictures.append(drawing.picture(f"Precision-recall curves of {_title(disease)}{share}"))
    return pictures


def calibration_curves(run: RunFolder) -> list[Picture]:
    """One figure per disease, with the smallest and the largest K only: more would hide each other."""
    pictures = []
    ends = [run.results[0], run.results[-1]] if len(run.results) > 1 else [run.results[0]]
    for j, disease in enumerate(run.diseases):
        with Drawing(run, f"calibration-{disease}", _title(disease)) as drawing:
            drawing.axes.plot([0, 1], [0, 1], color=FAINT, linewidth=0.8)
            for result in ends:
                scores, labels = result.scores[:, j : j + 1], result.labels[:, j : j + 1]
                (curve,) = reliability_per_disease(scores, labels, [disease], _bins(labels))
                if curve.reason:
                    drawing.nothing(curve.reason)
                    break
                x, y = [part.mean_score for part in curve.bins], [part.observed_rate for part in curve.bins]
                drawing.line(run.results.index(result), x, y, f"K={result.k}", marked=True)
                known = ~np.isnan(labels[:, 0])
                excess = float((scores[known, 0] - labels[known, 0]).mean())
                drawing.say(
                    f"at K={result.k} the scores are on average {abs(excess):.2f} "
                    f"{'above' if excess > 0 else 'below'} the observed rates"
                )
            drawing.label("mean score of a bin", "observed rate", "", "upper left")
            drawing.unit_square()
        pictures.append(drawing.picture(f"Calibration of {_title(disease)}"))
    return pictures


def auc_per_round(run: RunFolder) -> list[Picture]:
    """One figure for the mean (if there are several diseases) and one per disease, with all K."""
    several = len(run.diseases) > 1
    pictures = []
    for name in (*(["mean"] if several else []), *run.diseases):
        title = "Mean over the diseases" if name == "mean" else _title(name)
        with Drawing(run, f"auc-per-round-{name}", title) as drawing:
            for number, result in enumerate(run.results):
                values = [entry.get("mean_auc") if name == "mean" else _of(entry, name) for entry in result.rounds]
                points = [(e["round"], v) for e, v in zip(result.rounds, values, strict=True) if v is not None]
                if not points:
                    continue
                x, y = zip(*points, strict=True)
                drawing.line(number, x, y, f"K={result.k}", marked=len(points) < 30)
                (first, start), (last, end) = points[0], points[-1]
                drawing.say(f"K={result.k} goes from {start:.3f} in round {first} to {end:.3f} in round {last}")
            drawing.rounds()
            low, high = drawing.axes.get_ylim()
            if high - low < 0.1:  # closer, and noise would look like progress
                drawing.axes.set_ylim((low + high) / 2 - 0.05, (low + high) / 2 + 0.05)
            drawing.label("round", "AUC", "", "best")
        pictures.append(drawing.picture(f"AUC per round, {title}"))
    return pictures


def per_round(run: RunFolder) -> list[Picture]:
    """Loss, bytes, seconds and the drift of the clients per round, with all K."""
    kinds = (
        ("loss", "Training loss", "loss, mean over clients", False),
        ("bytes", "Bytes per round", "MB, all clients, up and down", False),
        ("seconds", "Time per round", "seconds", False),
        ("drift", "Client drift", "mean squared distance", True),
        ("gradient_drift", "Client drift of the gradients", "mean squared distance", True),
    )
    pictures = []
    for name, title, unit, logarithmic in kinds:
        with Drawing(run, f"{name.replace('_', '-')}-per-round", title) as drawing:
            for number, result in enumerate(run.results):
                x = np.array([entry["round"] for entry in result.rounds])
                y = np.array([_quantity(entry, name) for entry in result.rounds], float)
                if logarithmic and not (y > 0).any():
                    drawing.say(f"K={result.k} has none")
                    continue
                if np.isnan(y).all():
                    drawing.say(f"K={result.k} was not recorded")
                    continue
                drawing.line(number, x, np.where(y > 0, y, np.nan) if logarithmic else y, f"K={result.k}")
                if name == "seconds":
                    drawing.say(f"K={result.k} takes {np.nanmedian(y):.3g} in the median, {np.nanmax(y):.3g} at most")
                else:
                    drawing.say(f"K={result.k} goes from {y[0]:.3g} in round {x[0]} to {y[-1]:.3g} in round {x[-1]}")
            if logarithmic and drawing.drawn:
                drawing.axes.set_yscale("log")
            if logarithmic and not drawing.drawn:
                drawing.nothing("one client: no drift")
            if name == "seconds" and not drawing.drawn:
                drawing.nothing("not recorded")
            drawing.rounds()
            drawing.label("round", unit, "", "best")
            if name in ("bytes", "seconds") and drawing.drawn:
                drawing.axes.set_ylim(bottom=0)
        pictures.append(drawing.picture(f"{title}, {unit}"))
    return pictures


def mean_differences(run: RunFolder, comparisons: Sequence[Comparison]) -> Picture:
    """Differences of the mean AUC to the smallest K, with intervals."""
    smallest = run.results[0].k
    with Drawing(run, "mean-difference", f"Mean AUC less that of K={smallest}", size=(4.8, 2.6)) as drawing:
        drawing.axes.axvline(0, color=FAINT, linewidth=0.8)
        for place, (result, found) in enumerate(zip(run.results[1:], comparisons, strict=True)):
            mean = found.mean
            if mean.difference is None:
                continue
            colour = COLOURS[(place + 1) % len(COLOURS)]
            if mean.interval is not None:
                ends = [mean.interval.low, mean.interval.high]
                drawing.axes.plot(ends, [place, place], color=colour, linewidth=2)
                drawing.say(f"K={result.k} {mean.difference:+.3f}, from {ends[0]:+.3f} to {ends[1]:+.3f}")
            else:
                drawing.say(f"K={result.k} {mean.difference:+.3f}")
            drawing.axes.plot(mean.difference, place, MARKERS[(place + 1) % len(MARKERS)], color=colour)
        drawing.axes.set_yticks(range(len(comparisons)), [f"K={result.k}" for result in run.results[1:]])
        drawing.axes.set_ylim(len(comparisons) - 0.5, -0.5)
        drawing.axes.set_xlabel("difference of the mean AUC, with 95% interval")
    return drawing.picture(f"Difference of the mean AUC to K={smallest}, with 95% intervals")


def grey_levels(run: RunFolder) -> list[Picture]:
    """One figure per card: its histogram, and the first client's as a line."""
    assert run.sites is not None
    cards, bins = run.sites["sites"], run.sites["bins"]
    middles = (np.arange(bins) + 0.5) * 256 / bins
    first = _shares(cards[0])
    pictures = []
    for number, card in enumerate(cards):
        shares = _shares(card)
        mean = float(shares @ middles)
        spread = float(np.sqrt(shares @ (middles - mean) ** 2))
        name = card["name"].replace(" ", "-")
        with Drawing(run, f"grey-levels-{name}", f"Grey levels, {card['name']}", size=(3.6, 2.2)) as drawing:
            drawing.axes.fill_between(middles, 100 * shares, step="mid", color=COLOURS[0], alpha=0.6, linewidth=0)
            if number:
                drawing.line(1, middles, 100 * first, cards[0]["name"])
            black = f", {100 * shares[0]:.0f}% black" if shares[0] > 0.1 else ""
            top = max(float(shares[1:].max()), float(first[1:].max()))
            drawing.axes.set_ylim(0, 115 * top)  # the padding's black would flatten everything else
            drawing.axes.set_xlim(0, 256)
            drawing.label("grey level", "% of the pixels", "", "upper right")
        pictures.append(
            drawing.picture(
                f"Histogram of the grey levels of {card['name']}: mean {mean:.0f} of 255, "
                f"standard deviation {spread:.0f}{black}"
            )
        )
    return pictures


def thumbnail(pixels: np.ndarray) -> str:
    """A PNG of pixels uint8 `[s, s]` or `[s, s, 3]` as an address that needs no file."""
    from PIL import Image

    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(out.getvalue()).decode()


class Marked(Protocol):
    """What a figure is about: something that may be synthetic."""

    @property
    def origin(self) -> Origin:
        """Title and text say it of phantoms."""
        ...


class Drawing:
    """One figure while it is drawn; the `picture` after that."""

    def __init__(self, run: Marked, name: str, title: str, size: tuple[float, float] = (3.6, 3.2)) -> None:
        self._run, self._name, self._title, self._size = run, name, title, size
        self._said: list[str] = []
        self.drawn = 0

    def __enter__(self) -> Drawing:
        from matplotlib import rc_context
        from matplotlib.figure import Figure

        self._context = rc_context(_STYLE)
        self._context.__enter__()
        self._figure: Figure = Figure(figsize=self._size, layout="constrained")
        self.axes: Axes = self._figure.subplots()
        self.axes.grid(alpha=0.25, linewidth=0.6)
        mark = self._run.origin.tag
        self.axes.set_title(f"{mark}: {self._title}" if mark else self._title)
        return self

    def __exit__(self, *error: object) -> None:
        self._context.__exit__(None, None, None)

    def line(self, number: int, x: Any, y: Any, label: str, *, marked: bool = False, steps: bool = False) -> None:
        """A line in the colour, dashes and marker of the `number`-th K; in `steps`, level up to each x."""
        drawstyle = "steps-pre" if steps else "default"
        self.axes.plot(x, y, label=label, drawstyle=drawstyle, **line_style(number, marked=marked))
        self.drawn += 1

    def say(self, text: str) -> None:
        """Add to what is seen."""
        self._said.append(text)

    def nothing(self, reason: str) -> None:
        """There is nothing to draw, because of this."""
        self.axes.text(0.5, 0.5, reason, ha="center", va="center", transform=self.axes.transAxes)
        self.axes.set(xticks=[], yticks=[])
        self.say(f"nothing to draw, {reason}")

    def unit_square(self) -> None:
        """Both axes from 0 to 1, in the same scale."""
        self.axes.set(xlim=(-0.01, 1.01), ylim=(-0.01, 1.01), aspect="equal")

    def rounds(self) -> None:
        """Whole rounds on the axis, and dotted lines where a stage ends and the next begins."""
        assert isinstance(self._run, RunFolder)
        from matplotlib.ticker import MaxNLocator

        if not self.drawn:
            return
        self.axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        for before, after in zip(self._run.results[0].rounds, self._run.results[0].rounds[1:], strict=False):
            if before["stage"] != after["stage"]:
                self.axes.axvline(before["round"] + 0.5, color=FAINT, linewidth=0.8, linestyle=":")

    def label(self, x: str, y: str, legend: str, place: str) -> None:
        """Titles of the axes and of the legend."""
        self.axes.set(xlabel=x, ylabel=y)
        if self.drawn:
            self.axes.legend(title=legend or None, loc=place, title_fontsize=8)

    def picture(self, seen: str) -> Picture:
        """The finished figure."""
        said = f": {'; '.join(self._said)}" if self._said else ""
        return Picture(self._name, f"{self._run.origin.alt}{seen}{said}.", self._figure)


def _compact(svg: bytes) -> bytes:
    """The same picture with coordinates to a hundredth of a point, and without line breaks in paths."""

    def shortened(path: re.Match[bytes]) -> bytes:
        return re.sub(rb"\s+", b" ", re.sub(rb"(\.\d\d)\d+", rb"\1", path[0]))

    return re.sub(rb' d="[^"]*"', shortened, svg)


def columns(run: RunFolder, j: int) -> list[tuple[KResult, Column]]:
    """Each K with the labelled images of the j-th disease."""
    found = []
    for result in run.results:
        (column,) = labelled_columns(result.scores[:, j : j + 1], result.labels[:, j : j + 1], [run.diseases[j]])
        found.append((result, column))
    return found


def _row(run: RunFolder, k: int) -> dict[str, Any]:
    return next(row for row in run.table["rows"] if row["k"] == k)


def _bins(labels: np.ndarray) -> int:
    """Bins of a calibration curve of these labels `[n, 1]`."""
    return int(np.clip((~np.isnan(labels)).sum() // _PER_BIN, 2, _CURVE_BINS))


def thinned(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """At most `_POINTS` points of a curve, its ends among them."""
    if len(x) <= _POINTS:
        return x, y
    chosen = np.unique(np.linspace(0, len(x) - 1, _POINTS).round().astype(int))
    return x[chosen], y[chosen]


def _of(entry: dict[str, Any], disease: str) -> float | None:
    return entry.get("auc", {}).get(disease)


def _quantity(entry: dict[str, Any], name: str) -> float:
    if name == "bytes":
        return (entry["bytes_up"] + entry["bytes_down"]) / 1e6
    value = entry[name]
    return np.nan if value is None else float(value)


def _shares(card: dict[str, Any]) -> np.ndarray:
    counts = np.asarray(card["grey_levels"], float)
    return counts / max(1.0, counts.sum())


def _title(disease: str) -> str:
    return TITLES.get(disease, disease)

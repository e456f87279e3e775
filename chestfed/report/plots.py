"""What `Study` draws, on arrays: each function draws into axes that it is given, one line per K."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from chestfed.evaluation.calibration import reliability_per_disease
from chestfed.report.colours import FAINT, INK, MARKERS, line_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class Curve:
    """One model on the images that are labelled for one disease, of both classes.

    Attributes
    ----------
    place
        Colour, dashes and marker: the place of K among all K of the study, the same in all figures.
    label
        What the legend calls it.
    positive
        bool `[n]`.
    score
        float `[n]`, in [0, 1].
    """

    place: int
    label: str
    positive: np.ndarray
    score: np.ndarray


def new_axes(size: tuple[float, float] = (5.0, 4.2)) -> Axes:
    """Axes of a new figure, inches."""
    from matplotlib import pyplot

    return pyplot.subplots(layout="constrained", figsize=size)[1]


def roc(ax: Axes, curves: Sequence[Curve]) -> None:
    """ROC curves; the diagonal is a score without information."""
    from sklearn.metrics import roc_curve

    ax.plot([0, 1], [0, 1], ":", color=FAINT, linewidth=1)
    for curve in curves:
        false, true, _ = roc_curve(curve.positive, curve.score, drop_intermediate=False)
        ax.plot(false, true, label=curve.label, **line_style(curve.place))
    ax.set(xlabel="1 - specificity", ylabel="sensitivity", aspect="equal")
    ax.legend(title="AUC", frameon=False)


def precision_recall(ax: Axes, curves: Sequence[Curve]) -> None:
    """Precision-recall curves; the level line is the share of positives, a score without information."""
    from sklearn.metrics import average_precision_score, precision_recall_curve

    for curve in curves:
        precision, recall, _ = precision_recall_curve(curve.positive, curve.score)
        precision[-1] = precision[-2]  # scikit-learn ends at a precision of 1 that no threshold has
        average = average_precision_score(curve.positive, curve.score)
        label = f"{curve.label}: {average:.3f}"
        # Between two thresholds the precision is not on a straight line: steps, as the average precision sums them.
        ax.plot(recall, precision, drawstyle="steps-post", label=label, **line_style(curve.place))
        ax.axhline(curve.positive.mean(), linestyle=":", color=FAINT, linewidth=1)
    ax.set(xlabel="recall (sensitivity)", ylabel="precision (PPV)", ylim=(-0.02, 1.02))
    ax.legend(title="average precision", frameon=False, loc="lower left")


def calibration(ax: Axes, curves: Sequence[Curve], bins: int) -> None:
    """Observed rate against mean score, in bins of equally many images; the diagonal is perfect."""
    ax.plot([0, 1], [0, 1], ":", color=FAINT, linewidth=1)
    for curve in curves:
        (found,) = reliability_per_disease(curve.score[:, None], curve.positive[:, None].astype(float), [""], bins)
        x, y = [one.mean_score for one in found.bins], [one.observed_rate for one in found.bins]
        ax.plot(x, y, label=curve.label, **line_style(curve.place, marked=True))
    ax.set(xlabel="mean score of the bin", ylabel="observed rate", aspect="equal")
    ax.legend(frameon=False)


def auc_with_intervals(ax: Axes, rows: pd.DataFrame) -> None:
    """AUC against K with its interval: `rows` have `k`, `auc`, `low`, `high`, in the order of K."""
    for place, (k, auc, low, high) in enumerate(rows[["k", "auc", "low", "high"]].to_numpy(float)):
        colour = line_style(place)["color"]
        if not np.isnan(low):
            ax.vlines(k, low, high, color=colour, linewidth=2)
        if not np.isnan(auc):
            ax.plot(k, auc, linestyle="", color=colour, marker=MARKERS[place % len(MARKERS)])
    ax.set_xticks(rows["k"], [f"K={k}" for k in rows["k"]])
    ax.set_ylabel("AUC, 95% interval")
    ax.grid(axis="y", alpha=0.3)


def differences(ax: Axes, rows: pd.DataFrame) -> None:
    """A forest plot, drawn from the top: `rows` have `name`, `difference`, `low`, `high`."""
    ax.axvline(0, color=FAINT, linewidth=1)
    for place, (difference, low, high) in enumerate(rows[["difference", "low", "high"]].to_numpy(float)):
        if not np.isnan(low):
            ax.hlines(place, low, high, color=INK, linewidth=1.5)
        if not np.isnan(difference):
            ax.plot(difference, place, "o", color=INK, markersize=5)
    ax.set_yticks(range(len(rows)), list(rows["name"]))
    ax.set_ylim(len(rows) - 0.5, -0.5)
    ax.set_xlabel("difference of the AUC, 95% interval")
    ax.grid(axis="x", alpha=0.3)


def rounds(ax: Axes, lines: Sequence[tuple[int, str, pd.DataFrame, str]], ylabel: str) -> None:
    """A column against communication rounds: per line its place, label, frame (with `round`) and column."""
    from matplotlib.ticker import MaxNLocator

    for place, label, frame, column in lines:
        marked = len(frame) < 40
        ax.plot(frame["round"], frame[column], label=label, **line_style(place, marked=marked))
    ax.set(xlabel="communication rounds", ylabel=ylabel)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.legend(frameon=False)
    ax.grid(alpha=0.3)

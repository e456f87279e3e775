"""A study's figures as a few PNG files, many curves to a file: what a page of runs shows beside its numbers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from chestfed.core.diseases import TITLES
from chestfed.evaluation.metrics import average_precision_per_disease
from chestfed.report import figures
from chestfed.report.figures import FAINT, Drawing, Picture
from chestfed.results.run_folder import RunFolder

if TYPE_CHECKING:
    from PIL.Image import Image

#: Pixels per inch, and figures side by side.
_DPI, _COLUMNS = 110, 3
_WIDE = (5.6, 3.4)
#: Of the mean, beside the colours of the diseases.
_MEAN = "#767676"


def save_study(run: RunFolder, folder: Path) -> None:
    """Write K against AUC, and ROC, precision-recall and AUC per round with all K, into `folder`."""
    _save([k_against_auc(run)], folder)
    _sheet(figures.roc_curves(run), folder / "roc.png")
    _sheet(figures.precision_recall_curves(run), folder / "precision_recall.png")
    _sheet(figures.auc_per_round(run), folder / "auc_per_round.png")


def save_one_k(run: RunFolder, folder: Path) -> None:
    """Write ROC, precision-recall and AUC per round of the only K, with all diseases in each, into `folder`."""
    _save([_roc(run), _precision_recall(run), _auc_per_round(run)], folder)


def k_against_auc(run: RunFolder) -> Picture:
    """AUC of each disease by K, and the mean with its 95% interval."""
    ks = [row["k"] for row in run.table["rows"]]
    with Drawing(run, "auc_by_k", "AUC at the first hospital by K", size=_WIDE) as drawing:
        for number, disease in enumerate(run.diseases):
            aucs = [row["diseases"][disease]["auc"] for row in run.table["rows"]]
            drawing.line(number, ks, _numbers(aucs), _title(disease), marked=True)
        if len(run.diseases) > 1:
            means = _numbers([row["mean_auc"] for row in run.table["rows"]])
            drawing.axes.plot(ks, means, color=_MEAN, linewidth=3, label="mean, 95% interval")
            for k, row in zip(ks, run.table["rows"], strict=True):
                if row["mean_interval"] is not None:
                    drawing.axes.plot([k, k], row["mean_interval"], color=_MEAN, linewidth=1.2)
        drawing.axes.set_xticks(ks)
        drawing.axes.set(xlabel="K, number of clients", ylabel="AUC")
        _legend_beside(drawing)
    return drawing.picture("AUC by number of clients")


def _roc(run: RunFolder) -> Picture:
    from sklearn.metrics import roc_curve

    with Drawing(run, "roc", f"K={run.results[0].k}: ROC", size=_WIDE) as drawing:
        drawing.axes.plot([0, 1], [0, 1], color=FAINT, linewidth=0.8)
        for j, disease in enumerate(run.diseases):
            ((_, column),) = figures.columns(run, j)
            if not column.reason:
                x, y, _ = roc_curve(column.positive, column.score)
                auc = run.table["rows"][0]["diseases"][disease]["auc"]
                drawing.line(j, *figures.thinned(x, y), f"{_title(disease)}  {auc:.3f}")
        drawing.unit_square()
        drawing.axes.set(xlabel="false-positive rate", ylabel="true-positive rate")
        _legend_beside(drawing, "AUC")
    return drawing.picture("ROC curves")


def _precision_recall(run: RunFolder) -> Picture:
    from sklearn.metrics import precision_recall_curve

    result = run.results[0]
    found = average_precision_per_disease(result.scores, result.labels, run.diseases)
    with Drawing(run, "precision_recall", f"K={result.k}: precision and recall", size=_WIDE) as drawing:
        for j, disease in enumerate(run.diseases):
            ((_, column),) = figures.columns(run, j)
            if not column.reason:
                precision, recall, _ = precision_recall_curve(column.positive, column.score)
                precision[-1] = precision[-2]  # scikit-learn ends at a precision of 1 that no threshold has
                label = f"{_title(disease)}  {found[j].value:.3f}"
                drawing.line(j, *figures.thinned(recall[::-1], precision[::-1]), label, steps=True)
        drawing.unit_square()
        drawing.axes.set(xlabel="recall", ylabel="precision")
        _legend_beside(drawing, "average precision")
    return drawing.picture("Precision-recall curves")


def _auc_per_round(run: RunFolder) -> Picture:
    result = run.results[0]
    evaluated = [entry for entry in result.rounds if "auc" in entry]
    with Drawing(run, "auc_per_round", f"K={result.k}: AUC per round", size=_WIDE) as drawing:
        rounds = [entry["round"] for entry in evaluated]
        for j, disease in enumerate(run.diseases):
            values = _numbers([entry["auc"].get(disease) for entry in evaluated])
            drawing.line(j, rounds, values, _title(disease), marked=len(rounds) < 30)
        drawing.rounds()
        drawing.axes.set(xlabel="round", ylabel="AUC")
        _legend_beside(drawing)
    return drawing.picture("AUC per round")


def _legend_beside(drawing: Drawing, title: str | None = None) -> None:
    """Beside the axes: with many diseases it would hide the curves."""
    handles, labels = drawing.axes.get_legend_handles_labels()
    if handles:
        where = {"loc": "upper left", "bbox_to_anchor": (1.02, 1)}
        drawing.axes.legend(handles, labels, title=title, **where, frameon=False, title_fontsize=8)


def _numbers(values: Sequence[float | None]) -> np.ndarray:
    """NaN for what is not defined: the line has a gap there."""
    return np.array([np.nan if value is None else value for value in values], float)


def _title(disease: str) -> str:
    return TITLES.get(disease, disease)


def _save(pictures: Sequence[Picture], folder: Path) -> None:
    for picture in pictures:
        _drawn(picture, 0.15, 0.64).save(folder / f"{picture.name}.png", "PNG")


def _sheet(pictures: Sequence[Picture], file: Path) -> None:
    """Figures of one size in rows of `_COLUMNS`, in one PNG."""
    from PIL import Image

    parts = [_drawn(picture, 0.2, 0.96) for picture in pictures]
    width, height = parts[0].size
    columns = min(_COLUMNS, len(parts))
    sheet = Image.new("RGB", (columns * width, -(-len(parts) // columns) * height), "white")
    for number, part in enumerate(parts):
        sheet.paste(part, (number % columns * width, number // columns * height))
    sheet.save(file, "PNG")


def _drawn(picture: Picture, left: float, right: float) -> Image:
    """The figure's pixels. Its margins (shares of the width) are set: to find the best takes as long as to draw."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from PIL import Image

    figure = picture.figure
    figure.set_layout_engine("none")
    figure.axes[0].set_position((left, 0.15, right - left, 0.75))
    figure.set_dpi(_DPI)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")

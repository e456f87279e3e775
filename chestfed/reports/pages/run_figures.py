"""Which figures a study has: those of its page, and those of its run in MLflow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pandas as pd

from chestfed.core.diseases import format_title
from chestfed.reports.pages import figures
from chestfed.reports.pages.figures import Curve, Drawing, Picture, line_style
from chestfed.results.evaluation.estimates import average_roc
from chestfed.results.tables.answer import find_gain_view
from chestfed.results.tables.columns import COMMON, TARGET_IMAGES
from chestfed.results.tables.frames import Results, list_records
from chestfed.results.tables.titles import name_model

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from chestfed.results.evaluation.decisions import Decisions
    from chestfed.results.tables.files import Round
    from chestfed.results.tables.run_folder import RunFolder

#: A calibration curve has at most so many bins, and at least so many images in each on average: with 15 bins, as for
#: the ECE, a small test set leaves too few.
_CURVE_BINS, _PER_BIN = 8, 20
#: Axes of a comparison: columns of the curves that the AUC is drawn against, with their titles.
_AXES = {"round": "communication rounds", "bytes": "bytes sent, all clients, up and down", "images": "images seen"}
#: Inches of the figures on the first screen: letters stay readable on a phone.
_FIRST = (4.4, 3.3)


def list_curves(run: RunFolder, disease: str, ks: Sequence[int] | None = None) -> list[Curve]:
    """The curve of each finished K, or of these; without those whose test images are of one class."""
    j, curves = run.diseases.index(disease), []
    for k in run.ks if ks is None else ks:
        auc = run.row(k).diseases[j].value
        if auc is None or run.row(k).scores_stay:
            continue
        column = run.columns(k)[j]
        x, y = average_roc(column)
        curves.append(Curve(figures.locate_k(run.ks, k), f"K={k}", column, auc, x, y))
    return curves


def draw_page(run: RunFolder, results: Results) -> dict[str, list[Picture]]:
    """All figures of a study's page, by section."""
    from_scores = {"roc": roc_curves, "precision_recall": precision_recall_curves, "calibration": calibration_curves}
    return {
        "answer": [auc_by_k(results)],
        "differences": draw_differences(results),
        **{name: [] if run.scores_stay else draw(run) for name, draw in from_scores.items()},
        "auc_per_round": auc_per_round(run),
        "per_round": per_round(run),
        "classes": draw_classes(run),
    }


def roc_curves(run: RunFolder) -> list[Picture]:
    """One figure per disease, with the smallest and the largest K: those between would hide each other."""

    def draw(drawing: Drawing, curves: Sequence[Curve]) -> str:
        figures.roc(drawing.axes, curves)
        for curve in curves:
            drawing.say(f"{curve.label} has an AUC of {curve.auc:.3f}")
        column = curves[0].column
        return f" on {column.positives} positive and {column.negatives} negative images"

    return _per_disease(run, "roc", "ROC curves", draw)


def precision_recall_curves(run: RunFolder) -> list[Picture]:
    """One figure per disease, with the smallest and the largest K."""

    def draw(drawing: Drawing, curves: Sequence[Curve]) -> str:
        for curve, average in zip(curves, figures.precision_recall(drawing.axes, curves), strict=True):
            drawing.say(f"{curve.label} has an average precision of {average:.3f}")
        column = curves[0].column
        return f", where {column.positives / len(column.positive):.0%} of the images are positive"

    return _per_disease(run, "precision-recall", "Precision-recall curves", draw)


def calibration_curves(run: RunFolder) -> list[Picture]:
    """One figure per disease, with the smallest and the largest K."""

    def draw(drawing: Drawing, curves: Sequence[Curve]) -> str:
        bins = int(np.clip(len(curves[0].column.positive) // _PER_BIN, 2, _CURVE_BINS))
        figures.calibration(drawing.axes, curves, bins)
        for curve in curves:
            excess = float((curve.column.score - curve.column.positive).mean())
            side = "above" if excess > 0 else "below"
            drawing.say(f"at {curve.label} the scores are on average {abs(excess):.2f} {side} the observed rates")
        return ""

    return _per_disease(run, "calibration", "Calibration", draw)


def draw_decisions(run: RunFolder, decisions: Decisions) -> list[Picture]:
    """Decision curve of each disease: net benefit of the largest K with its interval, and of calling every image."""
    pictures = []
    for disease, rows in decisions.curve.groupby("disease", sort=False):
        title = format_title(str(disease))
        with Drawing(run.origin, f"decision-{disease}", title) as drawing:
            if rows["net_benefit"].isna().all():
                drawing.nothing("it needs images with the disease and without it")
            else:
                figures.decision_curve(drawing.axes, rows, f"K={run.ks[-1]}", decisions.thresholds[str(disease)])
                better = rows["threshold"][rows["net_benefit"] > rows["net_benefit_all"].clip(lower=0)]
                drawing.say(f"the model is above both at {len(better)} of {len(rows)} thresholds")
        pictures.append(drawing.picture(f"Decision curve of {title}"))
    return pictures


def auc_per_round(run: RunFolder) -> list[Picture]:
    """One figure for the mean (if there are several diseases) and one per disease, with all K."""
    pictures = []
    for name in (*(["mean"] if len(run.diseases) > 1 else []), *run.diseases):
        title = "Mean over the diseases" if name == "mean" else format_title(name)
        with Drawing(run.origin, f"auc-per-round-{name}", title) as drawing:
            lines = list_auc_lines(run, name)
            figures.rounds(drawing.axes, lines, "AUC", _stage_ends(run, run.ks[0]))
            for _, label, x, y in lines:
                drawing.say(f"{label} goes from {y[0]:.3f} in round {x[0]} to {y[-1]:.3f} in round {x[-1]}")
            low, high = drawing.axes.get_ylim()
            if high - low < 0.1:  # closer, and noise would look like progress
                drawing.axes.set_ylim((low + high) / 2 - 0.05, (low + high) / 2 + 0.05)
        pictures.append(drawing.picture(f"AUC per round, {title}"))
    return pictures


def list_auc_lines(run: RunFolder, name: str = "mean") -> list[tuple[int, str, list[int], list[float]]]:
    """Per K its place, label, and the rounds and AUCs (of a disease, or the mean) where it was evaluated."""
    lines = []
    for k in run.ks:
        values = [
            (e["round"], e.get("mean_auc") if name == "mean" else e.get("auc", {}).get(name)) for e in run.rounds(k)
        ]
        points = [(number, value) for number, value in values if value is not None]
        if points:
            place = figures.locate_k(run.ks, k)
            lines.append((place, f"K={k}", [number for number, _ in points], [value for _, value in points]))
    return lines


def per_round(run: RunFolder) -> list[Picture]:
    """Loss, bytes, seconds and the drift of the clients per round, with all K."""
    kinds = (
        ("loss", "Training loss", "loss, mean over clients", ""),
        ("bytes", "Bytes per round", "MB, all clients, up and down", ""),
        ("seconds", "Time per round", "seconds", "not recorded"),
        ("drift", "Client drift", "mean squared distance", "one client: no drift"),
        ("gradient_drift", "Client drift of the gradients", "mean squared distance", "one client: no drift"),
    )
    return [_one_per_round(run, *kind) for kind in kinds]


def _one_per_round(run: RunFolder, name: str, title: str, unit: str, nothing: str) -> Picture:
    logarithmic = name.endswith("drift")
    with Drawing(run.origin, f"{name.replace('_', '-')}-per-round", title) as drawing:
        lines: list[tuple[int, str, Any, Any]] = []
        for k in run.ks:
            x = np.array([entry["round"] for entry in run.rounds(k)])
            y = np.array([_quantity(entry, name) for entry in run.rounds(k)], float)
            if np.isnan(y).all() or (logarithmic and not (y > 0).any()):
                drawing.say(f"K={k} {'has none' if logarithmic else 'was not recorded'}")
                continue
            place = figures.locate_k(run.ks, k)
            lines.append((place, f"K={k}", x, np.where(y > 0, y, np.nan) if logarithmic else y))
            if name == "seconds":
                drawing.say(f"K={k} takes {np.nanmedian(y):.3g} in the median, {np.nanmax(y):.3g} at most")
            else:
                drawing.say(f"K={k} goes from {y[0]:.3g} in round {x[0]} to {y[-1]:.3g} in round {x[-1]}")
        figures.rounds(drawing.axes, lines, unit, _stage_ends(run, run.ks[0]), marked=False)
        if logarithmic and lines:
            drawing.axes.set_yscale("log")
        elif name in ("bytes", "seconds") and lines:
            drawing.axes.set_ylim(bottom=0)
        if not lines:
            drawing.nothing(nothing)
    return drawing.picture(f"{title}, {unit}")


def draw_differences(results: Results) -> list[Picture]:
    """Differences of the mean AUC to the smallest K, with intervals; none without."""
    rows = results.gains("study", disease="mean")
    if rows.empty:
        return []
    reference = rows["reference"].iloc[0]
    drawing = Drawing(
        results.origin, "mean-difference", f"Mean AUC minus that of {reference}", (4.8, 2.6), long_names=True
    )
    seen = f"Difference of the mean AUC to {reference}, with 95% intervals"
    return [_forest(drawing, rows.assign(name=rows["model"]), seen)]


def draw_means(results: Results) -> list[Picture]:
    """Mean AUC of each model with its interval: for runs of one seed, whose differences are not tested."""
    rows = results.view("study", disease="mean").dropna(subset="auc")
    if len(rows) < 2:
        return []
    size = (4.8, 1.8 + 0.3 * len(rows))
    with Drawing(results.origin, "mean-auc", "Mean AUC of each model", size, long_names=True) as drawing:
        rows = rows.assign(name=rows["model"]).astype({"low": float, "high": float})
        figures.intervals(drawing.axes, rows, "mean AUC, with 95% interval over test patients")
        for row in rows.to_dict("records"):
            drawing.say(f"{row['name']} {row['auc']:.3f}, from {row['low']:.3f} to {row['high']:.3f}")
    return [drawing.picture("Mean AUC of each model, with 95% intervals")]


def _format_auc(auc: float) -> str:
    return "without an AUC" if np.isnan(auc) else f"{auc:.3f}"


def _forest(drawing: Drawing, rows: pd.DataFrame, seen: str) -> Picture:
    """Differences of mean AUCs with their intervals; `rows` as `figures.forest` takes them."""
    with drawing:
        figures.forest(drawing.axes, rows, "difference of the mean AUC,\nwith 95% interval")
        for row in rows.dropna(subset="difference").to_dict("records"):
            between = "" if np.isnan(row["low"]) else f", from {row['low']:+.3f} to {row['high']:+.3f}"
            drawing.say(f"{row['name']} {row['difference']:+.3f}{between}")
    return drawing.picture(seen)


def gray_levels(run: RunFolder) -> list[Picture]:
    """One figure per site: its histogram, and the first client's as a line."""
    pictures = []
    cards = run.sites["sites"]
    for number, card in enumerate(cards):
        levels, first = figures.shares(card["gray_levels"]), figures.shares(cards[0]["gray_levels"])
        mean, spread = figures.moments(levels)
        name, file = card["name"], f"gray-levels-{card['name'].replace(' ', '-')}"
        with Drawing(run.origin, file, f"Gray levels, {name}", (3.6, 2.6)) as drawing:
            figures.gray_levels(drawing.axes, [(0, name, levels), *([(1, cards[0]["name"], first)] if number else [])])
        black = f", {100 * levels[0]:.0f}% black" if levels[0] > 0.1 else ""
        seen = f"Histogram of the gray levels of {name}: mean {mean:.0f} of 255, standard deviation {spread:.0f}{black}"
        pictures.append(drawing.picture(seen))
    return pictures


def draw_classes(run: RunFolder) -> list[Picture]:
    """Images per class and client of a collection; none of sites."""
    cards = [card for card in run.sites["sites"] if card.get("classes")]
    if len(cards) < 2:
        return []
    counts = np.array([card["classes"] for card in cards])
    with Drawing(run.origin, "classes", "Images per client and class", (5.6, 1.0 + 0.25 * len(cards))) as drawing:
        drawing.axes.grid(visible=False)
        shown = drawing.axes.imshow(counts, aspect="auto", cmap="Blues", interpolation="nearest", vmin=0)
        drawing.axes.set_yticks(range(len(cards)), [card["name"] for card in cards])
        drawing.axes.set_xlabel("class")
        drawing.axes.figure.colorbar(shown, ax=drawing.axes, label="images")
        for card, row in zip(cards, counts, strict=True):
            drawing.say(f"{card['name']} has {row.sum():,} images of {(row > 0).sum()} classes")
    return [drawing.picture("Images per client and class")]


def draw_curves(results: Results) -> list[Picture]:
    """Mean AUC against rounds, bytes and images; the band goes from the lowest seed to the highest.

    None where no model has several runs, or each was evaluated after its last round only.
    """
    if results.curves.empty or results.curves.groupby("model")["round"].nunique().max() < 2:
        return []
    from matplotlib.ticker import EngFormatter

    which = f"{results.repeats or '1 seed'}, band: lowest to highest"
    with Drawing(results.origin, "curves", f"{results.title}; {which}", (15, 4.2), len(_AXES)) as drawing:
        for axes, (column, title) in zip(drawing.every, _AXES.items(), strict=True):
            ends = []
            for number, (label, part) in enumerate(results.curves.groupby("model", sort=False)):
                style, by_round = line_style(number, marked=True) | {"markersize": 3}, part.groupby("round")
                x, y = by_round[column].mean(), by_round["mean_auc"]
                if column == "bytes" and x.iloc[-1] == 0:
                    continue  # nothing is sent: there is no place for it on this axis
                axes.plot(x, y.mean(), label=label, **style)
                axes.fill_between(x, y.min(), y.max(), color=style["color"], alpha=0.12, linewidth=0)
                ends.append(x.iloc[-1])
            axes.set_xlabel(title)
            if ends and max(ends) > 5 * min(ends):
                axes.set_xscale("log")
            elif column == "round":
                axes.locator_params(axis="x", integer=True)
            elif column == "bytes":
                axes.xaxis.set_major_formatter(EngFormatter("B"))
        several = results.view("study")["disease"].nunique() > 2
        drawing.axes.set_ylabel("mean AUC over the diseases" if several else "AUC")
        handles, labels = drawing.axes.get_legend_handles_labels()
        drawing.axes.figure.legend(handles, labels, loc="outside right center", frameon=False)
    return [drawing.picture("Mean AUC of each run against rounds, bytes and images")]


def draw_seeds(results: Results) -> list[Picture]:
    """Mean AUC against K of every training seed, and the mean over them; none where a K is not one model."""
    study = results.view("study")
    if results.in_groups or not results.by_k or study["k"].nunique() < 2:
        return []
    with Drawing(results.origin, "auc-by-k", "Mean AUC by K", _FIRST, long_names=True) as drawing:
        for k, auc in draw_over_seeds(drawing.axes, results).items():
            drawing.say(f"K={k} {_format_auc(auc)}")
    return [drawing.picture("Mean AUC by number of clients, over the training seeds")]


def draw_over_seeds(ax: Axes, results: Results) -> pd.Series:
    """A faint line per seed, the mean over them, and the intervals of the differences; returns the mean of each K."""
    each = results.view_counted("seeds").groupby(["k", *results.draws])["auc"].mean().unstack(results.draws)
    ax.plot(each.index, each, color=figures.FAINT, linewidth=1, marker=".")
    ax.plot([], [], color=figures.FAINT, marker=".", label="each training run")
    mean = pd.DataFrame({"k": each.index, "auc": each.mean(axis=1)})
    label = f"mean of {results.repeats}"
    figures.auc_by_k(ax, mean, label, intervals=False, color=figures.COLORS[0], linewidth=3)
    gains = results.gains("study", disease="mean").dropna(subset="low")
    if len(gains):
        ks, start = gains["k"].astype(int), mean["auc"].iloc[0]
        about = f"95% interval of the difference to K={each.index[0]},\nover patients and runs"
        ends = start + gains["low"], start + gains["high"]
        ax.vlines(ks, *ends, label=about, color=figures.COLORS[1], linewidth=1.5)
    figures.legend(ax)
    return mean["auc"]


def draw_gains_by_images(results: Results) -> list[Picture]:
    """Draw gains by joining at the target against the number of its training images; none where that does not vary.

    With `alternatives` what each of them gains over own data, else each K over the first.
    """
    if results.design != TARGET_IMAGES:
        return []
    target = str(results.about["target"])
    rows = results.gains("alternatives", disease="mean", hospital=target)
    if rows.empty:
        rows = results.gains("study", disease="mean")
    rows = rows.dropna(subset="difference")
    if rows.empty:
        return []
    reference = rows["reference"].iloc[0]
    limits = list(dict.fromkeys(row["target_images"] for row in results.list_estimates("study")))
    counts = ["all" if limit is None else str(limit) for limit in limits]
    rows = rows.assign(
        model=[name_model("", 0, row["k"], row["kind"], "k") for row in list_records(rows)],
        place=["all" if row["target_images"] is None else str(row["target_images"]) for row in list_records(rows)],
    )
    with Drawing(
        results.origin, "gains-by-images", f"Gain at {target} by its number of images", _FIRST, long_names=True
    ) as drawing:
        parts = rows.groupby("model", sort=False)
        figures.gains_along(drawing.axes, counts, [(str(name), _place(part, counts)) for name, part in parts])
        drawing.axes.set(xlabel=f"training images of {target}", ylabel=f"mean AUC minus that of {reference}")
        for row in rows.to_dict("records"):
            drawing.say(f"{row['model']} with {row['place']} target images {row['difference']:+.3f}")
    return [drawing.picture("Gain of joining against the number of the target's training images, 95% intervals")]


def _place(rows: pd.DataFrame, places: Sequence[str]) -> pd.DataFrame:
    """The rows with their position among the places."""
    return rows.assign(position=rows["place"].map(places.index))


def auc_by_k(results: Results) -> Picture:
    """AUC of each disease by K, and the mean with its 95% interval."""
    frame = results.view("study")
    diseases = list(frame["disease"].unique()[:-1])
    with Drawing(results.origin, "auc_by_k", f"AUC {_name_place(results)} by K", _FIRST, long_names=True) as drawing:
        several = len(diseases) > 1
        for number, disease in enumerate(diseases):
            rows, style = frame[frame["disease"] == disease], line_style(number, marked=True)
            style |= {"color": style["color"] if several else figures.MEAN}
            figures.auc_by_k(drawing.axes, rows, format_title(disease), intervals=not several, **style)
        main = frame[frame["disease"] == ("mean" if several else diseases[0])]
        if several:
            style = {"color": figures.INK, "linewidth": 3, "marker": "o"}
            figures.auc_by_k(drawing.axes, main, "mean", **style)
        for row in main.to_dict("records"):
            between = "" if np.isnan(row["low"]) else f", from {row['low']:.3f} to {row['high']:.3f}"
            drawing.say(f"K={row['k']} {_format_auc(row['auc'])}{between}")
        figures.label_ends(drawing.axes)
    return drawing.picture("AUC by number of clients")


def _name_place(results: Results) -> str:
    target = results.about.get("target")
    return f"at {target}" if target else str(results.about["where"])


def draw_hospitals(results: Results) -> list[Picture]:
    """The last K minus own data at every hospital, or minus the first K, with intervals; none without."""
    view = find_gain_view(results)
    rows = results.gains(view, disease="mean")
    rows = rows[rows["kind"] == COMMON] if view == "alternatives" else rows
    if rows.empty:
        return []
    title = f"Mean AUC at each hospital, {rows['model'].iloc[0]} minus {rows['reference'].iloc[0]}"
    size = (_FIRST[0], max(_FIRST[1], 0.8 + 0.24 * len(rows)))
    drawing = Drawing(results.origin, "hospital-gains", title, size, long_names=True)
    return [_forest(drawing, rows.assign(name=rows["place"]), title)]


def _per_disease(
    run: RunFolder,
    name: str,
    seen: str,
    draw: Callable[[Drawing, Sequence[Curve]], str],
) -> list[Picture]:
    """A figure per disease, with the smallest and the largest K; `draw` returns the caption of its images."""
    pictures, ks = [], sorted({run.ks[0], run.ks[-1]})
    for j, disease in enumerate(run.diseases):
        with Drawing(run.origin, f"{name}-{disease}", format_title(disease)) as drawing:
            curves, about = list_curves(run, disease, ks), ""
            if curves:
                about = draw(drawing, curves)
            else:
                drawing.nothing(run.row().diseases[j].reason)
        pictures.append(drawing.picture(f"{seen} of {format_title(disease)}{about}"))
    return pictures


def _stage_ends(run: RunFolder, k: int) -> list[int]:
    entries = run.rounds(k)
    return [a["round"] for a, b in pairwise(entries) if a["stage"] != b["stage"]]


def _quantity(entry: Round, name: str) -> float:
    if name == "bytes":
        return (entry["bytes_up"] + entry["bytes_down"]) / 1e6
    value = cast(dict[str, float | None], entry).get(name)
    return np.nan if value is None else float(value)

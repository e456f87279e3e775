"""The one style of all figures."""

from __future__ import annotations

import itertools

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from matplotlib.text import Text

from chestfed.core.provenance import Origin
from chestfed.reports.pages.figures import COLORS, Drawing, forest, label_ends, line_style, moments, shares
from chestfed.reports.pages.run_figures import draw_curves, draw_means
from chestfed.results.tables.frames import Results, make_differences, make_estimates

mpl.use("Agg")


def test_twenty_five_lines_look_different() -> None:
    styles = [line_style(number, marked=True) for number in range(25)]
    assert len({(style["color"], str(style["linestyle"]), style["marker"]) for style in styles}) == 25
    assert [style["color"] for style in styles[: len(COLORS)]] == list(COLORS)
    assert {style["linestyle"] for style in styles[: len(COLORS)]} == {"-"}
    assert line_style(3)["marker"] is None


def test_picture_tagged_described_repeatable() -> None:
    pictures = []
    for _ in range(2):
        with Drawing(Origin.SYNTHETIC, "name", "Title") as drawing:
            drawing.nothing("no images")
        pictures.append(drawing.picture("Curves"))
    assert pictures[0].alt == "Synthetic radiographs. Curves: nothing to draw, no images."
    assert pictures[0].figure.axes[0].get_title() == "SYNTHETIC: Title"
    assert pictures[0].svg == pictures[1].svg


def test_labels_at_the_ends_do_not_overlap() -> None:
    heights = {"a": 0.80, "b": 0.801, "c": 0.80, "d": 0.5}
    with Drawing(Origin.REAL, "name", "Title") as drawing:
        for name, height in heights.items():
            drawing.axes.plot([1, 2], [0.6, height], label=name)
        label_ends(drawing.axes)
    figure = drawing.picture("Lines").figure
    figure.draw_without_rendering()
    boxes = [Text.get_window_extent(text) for text in figure.axes[0].texts]  # without the lines to the ends
    assert {text.get_text() for text in figure.axes[0].texts} == set(heights)
    assert not any(one.overlaps(other) for one, other in itertools.combinations(boxes, 2))
    assert figure.axes[0].get_legend() is None


@pytest.mark.parametrize("ends", [(-0.083, 0.112), (-0.02, 0.011), (-0.31, -0.12), (0.0, 0.0009), (-1.0, 1.0)])
def test_values_below_a_forest_stand_apart(ends: tuple[float, float]) -> None:
    rows = pd.DataFrame({"name": ["chestxray8"], "difference": [sum(ends) / 2], "low": ends[:1], "high": ends[1:]})
    drawing = Drawing(Origin.SYNTHETIC, "name", "Title", (4.4, 3.3), long_names=True)
    with drawing:
        forest(drawing.axes, rows, "difference")
    picture = drawing.picture("Differences")
    axes = picture.figure.axes[0]
    with mpl.rc_context({"font.size": 9}):  # as in the file; matplotlib's ticks depend on it
        picture.figure.draw_without_rendering()
        least, most = axes.get_xlim()
        labels = zip(axes.get_xticks(), axes.get_xticklabels(), strict=True)
        boxes = [text.get_window_extent().padded(1) for place, text in labels if least <= place <= most]
    assert len(boxes) >= 2
    assert not any(one.overlaps(other) for one, other in itertools.combinations(boxes, 2))


def test_moments_of_a_histogram() -> None:
    mean, spread = moments(shares([1, 0, 0, 1]))
    assert (mean, spread) == (128.0, 96.0)
    assert np.array_equal(shares([0, 0]), [0, 0])


def test_silent_runs_are_not_drawn() -> None:
    rows = [
        {"model": name, "seed": seed, "round": number, "bytes": sent * number, "images": 8 * number}
        | {"mean_auc": 0.5 + 0.1 * number + 0.01 * seed}
        for name, sent in (("fedavg", 100), ("centralized", 0))
        for seed in (1, 2)
        for number in (1, 2)
    ]
    frames = make_estimates([{"view": "study", "disease": "edema"}]), make_differences([]), pd.DataFrame(rows)
    (picture,) = draw_curves(Results("Title", Origin.MIXED, {"seeds": [1, 2]}, *frames))
    drawn = [[line.get_label() for line in axes.get_lines()] for axes in picture.figure.axes]
    assert drawn == [["fedavg", "centralized"], ["fedavg"], ["fedavg", "centralized"]]
    line = picture.figure.axes[0].get_lines()[0]
    assert list(line.get_ydata()) == [0.615, 0.715]
    assert picture.alt.startswith("Partly synthetic. ")


def test_one_evaluated_round_is_no_curve() -> None:
    rows = [
        {"model": name, "seed": 1, "round": number, "bytes": 8, "images": 8, "mean_auc": 0.5}
        for name, number in (("fedavg", 7), ("codasca", 9))
    ]
    frames = make_estimates([{"view": "study", "disease": "edema"}]), make_differences([]), pd.DataFrame(rows)
    assert draw_curves(Results("Title", Origin.REAL, {"seeds": [1]}, *frames)) == []


def test_methods_of_one_seed_are_drawn() -> None:
    rows = [
        {"view": "study", "disease": "mean", "model": name, "auc": auc, "low": auc - 0.1, "high": auc + 0.1}
        for name, auc in (("codasca", 0.75), ("fedavg", 0.5))
    ]
    (picture,) = draw_means(Results("Title", Origin.SYNTHETIC, {}, make_estimates(rows), make_differences([])))
    (axes,) = picture.figure.axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["codasca", "fedavg"]
    assert [float(line.get_xdata()[0]) for line in axes.get_lines()] == [0.75, 0.5]
    assert "codasca 0.750, from 0.650 to 0.850" in picture.alt
    assert draw_means(Results("Title", Origin.REAL, {}, make_estimates(rows[:1]), make_differences([]))) == []


def test_a_dollar_in_a_title_is_a_dollar() -> None:
    with Drawing(Origin.REAL, "a", "costs $x_$") as drawing:
        drawing.axes.plot([1], [2])
    assert drawing.picture("A point").svg

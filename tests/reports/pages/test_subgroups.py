"""The table of AUCs by sex, age and view on a study's page."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import roc_auc_score

from chestfed.reports.pages.subgroups import make_subgroup_grids
from chestfed.results.evaluation.estimates import auc_estimates
from chestfed.results.evaluation.intervals.methods import Intervals
from chestfed.results.evaluation.labeled import LEAST_PATIENTS, Scored
from chestfed.results.evaluation.summary import summarize
from chestfed.results.tables.grid import number, pair
from chestfed.results.tables.run_folder import RunFolder
from tests.results.tables.finished_runs import NAMES, write_run


@pytest.fixture(autouse=True)
def _ten_patients(monkeypatch: pytest.MonkeyPatch) -> None:
    """As for users: tests of other rooms count diseases with one patient."""
    monkeypatch.setattr("chestfed.results.evaluation.labeled.LEAST_PATIENTS", LEAST_PATIENTS)


@pytest.fixture
def folder(tmp_path: Path, unchecked: None) -> Path:
    """Forty images of thirty patients: sex of all but three, one patient above 80, all others below 40."""
    run = write_run(tmp_path / "run")
    file = run / "k2" / "predictions.parquet"
    frame = pd.read_parquet(file)
    sex = np.where(frame["patient"] % 2 == 0, "F", "M").astype(object)
    sex[:3] = None
    age = np.where(frame["patient"] == 7, ">=80", "<40")
    frame.assign(group_sex=sex, group_age=age).to_parquet(file, index=False)
    return run


def test_group_has_auc_counts_and_interval(folder: Path) -> None:
    grid = make_subgroup_grids(RunFolder(folder), Intervals())[0]
    heads = ["sex F", "sex M", "sex missing", "within sex", "age <40", "age >=80", "within age"]
    assert [line.head for line in grid.lines] == heads
    frame = pd.read_parquet(folder / "k2" / "predictions.parquet")
    women = frame[frame["group_sex"] == "F"]
    line = grid.lines[0]
    assert line.cells[0].text == str(len(women))
    assert line.cells[0].below == (f"{women['patient'].nunique()} patients",)
    for name, cell in zip(NAMES, line.cells[1:], strict=False):
        known = women.dropna(subset=[f"label_{name}"])
        label = known[f"label_{name}"]
        assert cell.text == f"{roc_auc_score(label, known[f'score_{name}']):.3f}"
        interval, counts = cell.below
        assert interval.startswith("[")
        assert counts == f"{label.sum():.0f} / {(1 - label).sum():.0f}"
    assert line.cells[-1].below  # the mean has an interval


def test_intervals_are_by_the_given_method(folder: Path) -> None:
    frame = pd.read_parquet(folder / "k2" / "predictions.parquet")
    women = frame[frame["group_sex"] == "F"]
    labels, scores = (women[[f"{part}_{name}" for name in NAMES]].to_numpy() for part in ("label", "score"))
    scored = Scored(scores, labels, women["patient"].to_numpy(), NAMES)
    shown = set()
    for how in (Intervals(), Intervals("percentile", 50)):
        grid = make_subgroup_grids(RunFolder(folder), how)[0]
        assert f"({how.method})" in grid.caption
        expected = [pair(estimate.interval) for estimate in auc_estimates(scored, how) if estimate.interval]
        assert [cell.below[0] for cell in grid.lines[0].cells[1:]] == expected
        shown.add(tuple(expected))
    assert len(shown) == 2


def test_within_groups_stands_over_all_pairs(folder: Path) -> None:
    grid = make_subgroup_grids(RunFolder(folder), Intervals())[0]
    frame = pd.read_parquet(folder / "k2" / "predictions.parquet")
    line = next(line for line in grid.lines if line.head == "within sex")
    assert int(line.cells[0].text) <= frame["group_sex"].notna().sum()
    for name, cell in zip(NAMES, line.cells[1:], strict=False):
        known = frame.dropna(subset=[f"label_{name}"])
        positive, score = known[f"label_{name}"] == 1, known[f"score_{name}"]
        pairs = [
            (score[p] > score[n]) + (score[p] == score[n]) / 2
            for p in known.index[positive]
            for n in known.index[~positive]
            if known["group_sex"][p] == known["group_sex"][n]
        ]
        assert cell.text == number(float(np.mean(pairs)))
        assert cell.below[-1] == f"all pairs {roc_auc_score(positive, score):.3f}"


def test_small_groups_have_no_mean(folder: Path) -> None:
    grid = make_subgroup_grids(RunFolder(folder), Intervals())[0]
    of_group = {line.head: line for line in grid.lines}
    for head in ("sex missing", "age >=80"):
        *diseases, mean = of_group[head].cells[1:]
        assert (mean.text, mean.below) == ("-", ("over 0",))
        assert all(cell.below[0].startswith("no ") for cell in diseases if cell.text == "-")
        assert all(cell.text == "-" or cell.below[-1].endswith("few") for cell in diseases)
    file = folder / "k2" / "predictions.parquet"
    frame = pd.read_parquet(file)
    positives = frame.loc[frame["label_edema"] == 1, "patient"].unique()
    for count, over in ((LEAST_PATIENTS - 1, "over 1"), (LEAST_PATIENTS, "over 2")):  # patients, not images of them
        sex = np.where(frame["patient"].isin(positives[count:]), "F", "M")
        frame.assign(group_sex=sex).to_parquet(file, index=False)
        grid = make_subgroup_grids(RunFolder(folder), Intervals())[0]
        assert grid.lines[1].cells[1].below[-1].endswith("few") == (count < LEAST_PATIENTS)
        assert {line.cells[-1].below[-1] for line in grid.lines[:2]} == {over}  # both over the same diseases


def test_page_and_evaluate_have_one_mean(folder: Path) -> None:
    """The mean of a group on the page is that of `chestfed evaluate` on the same images."""
    grid = make_subgroup_grids(RunFolder(folder), Intervals())[0]
    frame = pd.read_parquet(folder / "k2" / "predictions.parquet")
    labels, scores = (frame[[f"{part}_{name}" for name in NAMES]].to_numpy() for part in ("label", "score"))
    scored = Scored(scores, labels, frame["patient"].to_numpy(), NAMES)
    groups = {"sex": frame["group_sex"], "age": frame["group_age"]}
    table = summarize(scored, "frontal-image", Intervals(), groups, probabilities=False).subgroups
    means = table[table["disease"] == "mean"]["auc"]
    assert [line.cells[-1].text for line in grid.lines] == [number(None if pd.isna(x) else x) for x in means]


@pytest.mark.parametrize("how", [Intervals(), Intervals("percentile", 50)])
def test_worst_group_has_one_interval(folder: Path, how: Intervals) -> None:
    """The AUCs and intervals of the table of gaps are those of the table of groups."""
    file = folder / "k2" / "predictions.parquet"
    frame = pd.read_parquet(file)
    frame.assign(group_sex=np.where(frame["patient"] % 2 == 0, "F", "M")).to_parquet(file, index=False)
    grid, gaps = make_subgroup_grids(RunFolder(folder), how)
    heads, lines = [cell.text for cell in grid.columns], {line.head: line for line in grid.lines}
    assert len(gaps.lines) == len(NAMES)
    for line in gaps.lines:
        *ends, gap = line.cells
        aucs = []
        for end in ends:
            group, _, auc = end.text.rpartition(" ")
            cell = lines[group].cells[heads.index(line.head) - 1]
            assert (cell.text, cell.below[0]) == (auc, *end.below)
            aucs.append(float(auc))
        assert float(gap.text) == pytest.approx(aucs[1] - aucs[0], abs=0.0011)
        assert 0 <= aucs[0] <= aucs[1]


def test_study_without_groups_has_no_table(tmp_path: Path) -> None:
    assert make_subgroup_grids(RunFolder(write_run(tmp_path / "run")), Intervals()) == []

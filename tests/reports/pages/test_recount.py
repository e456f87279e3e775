"""Numbers of the default study, counted again from label files and predictions without code of the suite."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from mlflow import MlflowClient
from rich.console import Console
from scipy.stats import kurtosis, t
from sklearn.metrics import average_precision_score, brier_score_loss, roc_auc_score, roc_curve

from chestfed.app.commands.study.summary import render_summary
from chestfed.reports.pages.subgroups import make_subgroup_grids
from chestfed.results.evaluation.intervals.methods import Intervals
from chestfed.results.tables.answer import answer_study
from chestfed.results.tables.collect import load_results
from chestfed.results.tables.run_folder import RunFolder

#: Column of CheXpert's label file -> disease.
FINDINGS = {
    "Cardiomegaly": "cardiomegaly",
    "Edema": "edema",
    "Consolidation": "consolidation",
    "Atelectasis": "atelectasis",
    "Pleural Effusion": "pleural_effusion",
}


@pytest.fixture(scope="module")
def run(tiny_study: Path) -> Path:
    (folder,) = (tiny_study / "runs").glob("synthetic-source_addition_samples-*")
    return folder


def list_places(run: Path) -> Iterator[tuple[int, str, pd.DataFrame]]:
    """K, hospital and predictions of everything that was scored."""
    for k in (1, 2):
        yield k, "chexpert", pd.read_parquet(run / f"k{k}" / "predictions.parquet")
        for folder in sorted((run / f"k{k}" / "hospitals").iterdir()):
            yield k, folder.name, pd.read_parquet(folder / "predictions.parquet")


def count_aucs(frame: pd.DataFrame) -> pd.Series:
    """AUC of each disease that has both classes, and their mean."""
    aucs = {}
    for disease in FINDINGS.values():
        part = frame.dropna(subset=f"label_{disease}")
        if part[f"label_{disease}"].nunique() == 2:
            aucs[disease] = roc_auc_score(part[f"label_{disease}"], part[f"score_{disease}"])
    return pd.Series({**aucs, "mean": sum(aucs.values()) / len(aucs)})


@pytest.fixture(scope="module")
def counted(run: Path) -> pd.Series:
    """The AUCs by K, hospital and disease."""
    return pd.concat({(k, place): count_aucs(frame) for k, place, frame in list_places(run)})


def test_labels_are_those_of_the_files(tiny_study: Path, run: Path) -> None:
    file = pd.read_csv(tiny_study / "synthetic_hospitals" / "synthetic-chexpert" / "valid.csv")
    frontal = file[file["Frontal/Lateral"] == "Frontal"]
    patients = frontal["Path"].str.extract(r"/(patient\d+)/")[0]
    table = pd.read_csv(run / "table.csv").query("k == 2").set_index("disease")
    for finding, disease in FINDINGS.items():
        assert table.loc[disease, ["positives", "negatives"]].tolist() == [
            (frontal[finding] == v).sum() for v in (1, 0)
        ]
        of_class = [patients[frontal[finding] == value].nunique() for value in (1, 0)]
        assert table.loc[disease, ["positive_patients", "negative_patients"]].tolist() == of_class
    assert (table["images"] == len(frontal)).all()
    assert (table["patients"] == patients.nunique()).all()
    for k in (1, 2):
        scored = pd.read_parquet(run / f"k{k}" / "predictions.parquet")
        assert [scored[f"label_{name}"].sum() for name in FINDINGS.values()] == [
            frontal[name].sum() for name in FINDINGS
        ]


def test_tables_have_the_aucs(run: Path, counted: pd.Series) -> None:
    study = pd.read_csv(run / "table.csv").dropna(subset="auc").set_index(["k", "disease"])["auc"]
    at = pd.read_csv(run / "hospitals.csv").dropna(subset="auc").set_index(["k", "hospital", "disease"])["auc"]
    assert study.to_dict() == pytest.approx(counted.xs("chexpert", level=1)[study.index].to_dict(), abs=1e-12)
    assert at.to_dict() == pytest.approx(counted[at.index].to_dict(), abs=1e-12)
    gains = pd.read_csv(run / "hospital_gains.csv").dropna(subset="difference").set_index(["hospital", "disease"])
    expected = counted[2] - counted[1]
    assert gains["difference"].to_dict() == pytest.approx(expected[gains.index].to_dict(), abs=1e-12)
    assert set(gains.index.get_level_values(0)) == {"chexpert", "chestxray8"}


def share_beaten(scores: pd.Series, others: pd.Series) -> pd.Series:
    """The share of the other class that each score beats; a tie is one half."""
    above = scores.to_numpy()[:, None] - others.to_numpy()
    return pd.Series(((above > 0) + 0.5 * (above == 0)).mean(axis=1), scores.index)


def list_effects(frame: pd.DataFrame, disease: str) -> tuple[pd.DataFrame, float]:
    """Of each patient the two sums of structural components (Obuchowski 1997), and the degrees of freedom.

    `frame` has the columns `label_...`, `patient` and one `score...` per model; the last model less the first is meant.
    """
    frame = frame.dropna(subset=f"label_{disease}")
    positive = frame[frame[f"label_{disease}"] == 1]
    negative = frame[frame[f"label_{disease}"] == 0]
    of_class = {}
    for name, rows, others in (("+", positive, negative), ("-", negative, positive)):
        (first, *rest) = (share_beaten(rows[column], others[column]) for column in frame.filter(like="score"))
        values = rest[-1] - first if rest else first
        sums = (values - values.mean()).groupby(rows["patient"]).sum() / len(rows)
        of_class[name] = sums if name == "+" else -sums
    effects = pd.DataFrame(of_class)
    rarer = min(of_class.values(), key=len)
    excess = max(0.0, kurtosis(rarer))
    return effects, 2 / (2 / (len(rarer) - 1) + excess / len(rarer))


def variance_of(effects: pd.DataFrame) -> float:
    factors = {name: n / (n - 1) for name, n in effects.notna().sum().items()} | {
        "all": len(effects) / (len(effects) - 1)
    }
    squares = sum(factors[name] * (effects[name] ** 2).sum() for name in "+-")
    return float(squares + 2 * factors["all"] * (effects["+"] * effects["-"]).sum())


def test_intervals_are_those_of_the_paper(run: Path) -> None:
    """Of every AUC of one disease, and of every difference of one."""
    table = pd.read_csv(run / "table.csv").query("disease != 'mean'").set_index(["k", "disease"])
    found = pd.read_csv(run / "significance.csv").query("disease != 'mean'").set_index("disease")
    first, second = (pd.read_parquet(run / f"k{k}" / "predictions.parquet") for k in (1, 2))
    assert (first["image"] == second["image"]).all()
    counted = 0
    for disease in FINDINGS.values():
        single = second[["patient", f"label_{disease}", f"score_{disease}"]]
        both = first[["patient", f"label_{disease}"]].assign(
            score_1=first[f"score_{disease}"], score_2=second[f"score_{disease}"]
        )
        row = table.loc[(2, disease)]
        effects, freedom = list_effects(single, disease)
        width = t.ppf(0.975, freedom) * np.sqrt(variance_of(effects)) / (row["auc"] * (1 - row["auc"]))
        odds = row["auc"] / (1 - row["auc"]) * np.exp([-width, width])
        assert [row["low"], row["high"]] == pytest.approx((odds / (1 + odds)).tolist(), abs=1e-9), disease
        effects, _ = list_effects(both, disease)
        width = t.ppf(0.975, effects.notna().sum().min() - 1) * np.sqrt(variance_of(effects))
        row = found.loc[disease]
        ends = np.clip([row["difference"] - width, row["difference"] + width], -1, 1).tolist()
        assert row[["low", "high"]].tolist() == pytest.approx(ends, abs=1e-9), disease
        counted += 1
    assert counted == len(FINDINGS)


def count_recognized(frame: pd.DataFrame) -> float:
    """Findings among 1,000 images that are recognized, each disease at a specificity of 90% or more."""
    total = 0.0
    for disease in FINDINGS.values():
        known = frame.dropna(subset=f"label_{disease}")
        label = known[f"label_{disease}"]
        false, true, _ = roc_curve(label, known[f"score_{disease}"], drop_intermediate=False)
        total += 1000 * label.mean() * true[false <= 0.1 + 1e-9].max()
    return total


def test_groups_have_the_aucs(run: Path) -> None:
    frame = pd.read_parquet(run / "k2" / "predictions.parquet")
    grid = make_subgroup_grids(RunFolder.open(run), Intervals())[0]
    shown = {line.head: [cell.text for cell in line.cells] for line in grid.lines}
    numbers = 0
    for column, group in frame[["group_sex", "group_view"]].melt().dropna().drop_duplicates().to_numpy():
        part = frame[frame[column] == group]
        images, *aucs = shown[f"{column.removeprefix('group_')} {group}"]
        assert images == f"{len(part):,}"
        expected = count_aucs(part)
        for text, disease in zip(aucs, FINDINGS.values(), strict=False):
            if disease in expected:
                assert text == f"{expected[disease]:.3f}"
                numbers += 1
    assert numbers


def test_first_screen_has_the_numbers(run: Path, counted: pd.Series) -> None:
    results = load_results(RunFolder.open(run))
    answer = answer_study(results)
    console = Console(width=80, file=io.StringIO(), record=True)
    console.print(render_summary(results, answer))
    text = console.export_text()
    before, after = (counted[k, "chexpert", "mean"] for k in (1, 2))
    assert f"from {before:.3f} to {after:.3f} ({after - before:+.3f}" in " ".join(text.split())
    for place in ("chexpert", "chestxray8"):
        first, second = (counted[k, place, "mean"] for k in (1, 2))
        (line,) = re.findall(rf"^{place} .*$", text, re.MULTILINE)
        numbers = [float(number) for number in re.findall(r"[-+]?\d\.\d{3}", line)]
        assert numbers[:3] == pytest.approx([first, second, second - first], abs=0.0005)
    frame = pd.read_parquet(run / "k2" / "predictions.parquet")
    assert f"{len(frame)} images of {frame['patient'].nunique()} patients" in " ".join(text.split())
    rates = [frame[f"label_{name}"].mean() for name in FINDINGS.values()]
    assert f"{1000 * sum(rates):,.0f} findings" in " ".join(text.split())
    models = (pd.read_parquet(run / f"k{k}" / "predictions.parquet") for k in (1, 2))
    reference, model = map(count_recognized, models)
    assert f"{model:,.0f} detected instead of {reference:,.0f}" in " ".join(text.split())


def test_page_has_the_numbers(tiny_page: Path, run: Path, counted: pd.Series) -> None:
    html = tiny_page.read_text(encoding="utf-8")
    cells = set(re.findall(r"[-+−]?\d\.\d{3}", html))
    for (k, place, disease), auc in counted.items():
        if place == "chexpert" or disease == "mean" or k == 2:
            assert f"{auc:.3f}" in cells, (k, place, disease)
    frame = pd.read_parquet(run / "k2" / "predictions.parquet")
    for disease in FINDINGS.values():
        truth, score = frame[f"label_{disease}"], frame[f"score_{disease}"]
        assert f"Brier {brier_score_loss(truth, score):.3f}" in html
        assert f"{average_precision_score(truth, score):.3f}" in cells


def test_mlflow_has_the_numbers(tiny_study: Path, run: Path, counted: pd.Series) -> None:
    client = MlflowClient(f"sqlite:///{tiny_study / 'runs' / 'mlflow.db'}")
    metrics = client.get_run(json.loads((run / "mlflow.json").read_text())["run"]).data.metrics
    expected = {f"mean_auc/K{k}": counted[k, "chexpert", "mean"] for k in (1, 2)}
    change = counted[2] - counted[1]
    expected |= {f"change_at/{place}": change[place, "mean"] for place in ("chexpert", "chestxray8")}
    expected |= {f"auc_at/{place}": counted[2, place, "mean"] for place in ("chexpert", "chestxray8")}
    expected |= {"gain": change["chexpert", "mean"]}
    expected |= {f"gain_per_disease/{name}": change["chexpert", name] for name in counted[2, "chexpert"].index[:-1]}
    expected |= {f"auc_per_disease/{name}": counted[2, "chexpert", name] for name in counted[2, "chexpert"].index[:-1]}
    for name, value in expected.items():
        exact = name.startswith("auc_per_disease/")  # the others are rounded
        assert metrics[name] == pytest.approx(value, abs=1e-9 if exact else 5.1e-5), name

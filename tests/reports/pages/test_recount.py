"""Numbers of the default study, counted again from label files and predictions by pandas and scikit-learn alone."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
from mlflow import MlflowClient
from rich.console import Console
from sklearn.metrics import average_precision_score, brier_score_loss, roc_auc_score

from chestfed.app.commands.study.summary import render_summary
from chestfed.reports.pages.page import make_report
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


def test_page_has_the_numbers(run: Path, counted: pd.Series) -> None:
    html = make_report(RunFolder.open(run)).html
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
    expected = {f"auc/K{k}": counted[k, "chexpert", "mean"] for k in (1, 2)}
    change = counted[2] - counted[1]
    expected |= {f"change_at/{place}": change[place, "mean"] for place in ("chexpert", "chestxray8")}
    expected |= {f"auc_at/{place}": counted[2, place, "mean"] for place in ("chexpert", "chestxray8")}
    expected |= {"gain/mean": change["chexpert", "mean"]}
    expected |= {f"gain_per_disease/{name}": change["chexpert", name] for name in counted[2, "chexpert"].index[:-1]}
    expected |= {f"auc_per_disease/{name}": counted[2, "chexpert", name] for name in counted[2, "chexpert"].index[:-1]}
    for name, value in expected.items():
        assert metrics[name] == pytest.approx(value, abs=1e-9), name

"""A test set with images of several hospitals: its AUC is the mean of theirs, unless they are pooled by name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import roc_auc_score

from chestfed.core.bundled import bundled
from chestfed.core.errors import ConfigError
from chestfed.reports.pages.page import make_report
from chestfed.results.tables.run_folder import RunFolder
from chestfed.studies.experiment.loading import load_pipeline
from chestfed.studies.experiment.resolved import identity
from chestfed.studies.training.data.experiment import load_images
from tests.studies.training.tiny_studies import SETTINGS, SMALL, read_rows, run, study

PIPELINE = bundled("pipelines") / "source_addition_samples.yaml"
HELD_OUT = [*(f"sites.{n}.test_fraction=0.3" for n in (0, 1)), "evaluation.split=test"]


@pytest.fixture(scope="module")
def folder(home: Path) -> Path:
    called = run(home, study("--out", "runs", "--no-tracking", "--verbose", settings=[*SETTINGS, *HELD_OUT]))
    assert called.code == 0, called.err
    assert "mean of the AUCs of 2 hospitals" in " ".join(called.out.split())
    (run_path,) = (home / "runs").glob("synthetic-source_addition_samples-*")
    return run_path


def mean_of_hospitals(predictions: pd.DataFrame, disease: str) -> float:
    """From the stored scores, by scikit-learn."""
    aucs = [
        roc_auc_score(part[f"label_{disease}"], part[f"score_{disease}"])
        for _, part in predictions.dropna(subset=f"label_{disease}").groupby("hospital")
        if part[f"label_{disease}"].nunique() == 2
    ]
    return float(np.mean(aucs))


@pytest.mark.slow
def test_auc_is_mean_over_hospitals(folder: Path) -> None:
    run_folder = RunFolder.open(folder)
    for k in (1, 2):
        predictions, row = run_folder.predictions(k), run_folder.row(k)
        assert list(predictions["hospital"].unique()) == ["chexpert", "chestxray8"]
        expected = [mean_of_hospitals(predictions, disease.disease) for disease in row.diseases]
        assert [disease.value for disease in row.diseases] == pytest.approx(expected)
        assert row.mean.value == pytest.approx(np.mean(expected))
        last = run_folder.rounds(k)[-1]
        assert list(last["auc"].values()) == pytest.approx(expected)
    at_hospitals = pd.read_csv(folder / "hospitals.csv").query("k == 2 and disease != 'mean'")
    means = at_hospitals.groupby("disease")["auc"].mean()
    assert means.to_dict() == pytest.approx({disease.disease: disease.value for disease in run_folder.row(2).diseases})


@pytest.mark.slow
def test_tables_name_what_aucs_are_over(folder: Path, undrawn: None) -> None:
    words = "mean of the AUCs of 2 hospitals"
    table = pd.read_csv(folder / "table.csv")
    assert set(table["protocol"]) == {f"frontal-image, held-out patients, {words}"}
    assert set(pd.read_csv(folder / "hospitals.csv")["protocol"]) == {"frontal-image, held-out patients"}
    assert set(table["hospitals"]) <= {1, 2}
    assert pd.read_csv(folder / "significance.csv")["protocol"].str.contains(words).all()
    assert words in make_report(RunFolder.open(folder)).html


def test_differences_are_of_the_means(folder: Path) -> None:
    table = pd.read_csv(folder / "significance.csv").set_index("disease")
    rows = [RunFolder.open(folder).row(k) for k in (1, 2)]
    for estimate, other in zip(*(row.aucs for row in rows), strict=True):
        assert table.loc[estimate.disease, "difference"] == pytest.approx(other.value - estimate.value)


@pytest.mark.slow
def test_pooled_images_are_one_test_set(home: Path, folder: Path) -> None:
    sites = [*SMALL, *HELD_OUT, "k=[1,2]"]
    data = []
    for over in ("mean", "pooled"):
        pipeline = load_pipeline(PIPELINE, [*sites, f"evaluation.over_hospitals={over}"]).resolve()
        data += load_images([read_rows(pipeline, PIPELINE, home / "synthetic_hospitals")], home / "cache")
    mean, pooled = (part.test.attach_scores(np.zeros(part.test.labels.shape)) for part in data)
    assert mean.hospitals is not None
    assert pooled.hospitals is None
    assert (mean.labels == pooled.labels).all()
    assert data[0].digests == data[1].digests


def test_mean_over_hospitals_in_digest() -> None:
    several = [
        load_pipeline(PIPELINE, [*SMALL, *HELD_OUT, f"evaluation.over_hospitals={choice}"]).resolve()
        for choice in ("mean", "pooled")
    ]
    assert [identity(pipeline)["evaluation"]["over_hospitals"] for pipeline in several] == ["mean", "pooled"]
    with pytest.raises(ConfigError):
        load_pipeline(PIPELINE, [*SMALL, "evaluation.over_hospitals=other"]).resolve()


@pytest.mark.slow_but("more0-words0")
@pytest.mark.parametrize(
    ("more", "words"),
    [
        ([], ["test images of 1 hospital besides the target"]),
        (HELD_OUT, ["images of 2 hospitals, the target included", "AUC: mean of the AUCs of 2 hospitals"]),
        ([*HELD_OUT, "evaluation.over_hospitals=pooled"], ["AUC: images of 2 hospitals pooled"]),
    ],
)
def test_a_dry_run_names_the_hospitals(home: Path, more: list[str], words: list[str]) -> None:
    called = run(home, study("--dry-run", settings=[*SMALL, "k=[1,2]", *more]))
    assert called.code == 0, called.err
    text = " ".join(called.out.split())
    for word in words:
        assert word.removeprefix("test ") in text

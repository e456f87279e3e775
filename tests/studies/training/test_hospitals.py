"""Every K at every hospital that takes part, on patients of its own who trained nothing."""

from __future__ import annotations

import json
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import chestfed
from chestfed.core.bundled import bundled
from chestfed.results.tables.run_folder import RunFolder
from chestfed.studies.experiment.device import prepare_machine
from chestfed.studies.experiment.loading import load_pipeline
from chestfed.studies.training.data.experiment import Experiment, make_selection
from chestfed.studies.training.data.sites import OWN_TEST, TEST, TRAIN, open_sites, with_validation
from tests.studies.training.tiny_studies import SMALL, command, read_rows, run

PIPELINE = bundled("pipelines") / "source_addition_samples.yaml"


def load_experiment(home: Path, *overrides: str) -> Experiment:
    pipeline = load_pipeline(PIPELINE, [*SMALL, *overrides]).resolve()
    return read_rows(pipeline, PIPELINE, home / "synthetic_hospitals")


@pytest.fixture
def folder(tiny_study: Path) -> Path:
    (run,) = (tiny_study / "runs").glob("synthetic-source_addition_samples-*")
    return run


def test_each_hospital_has_its_own_split(home: Path) -> None:
    rows = load_experiment(home)
    assert rows.joins == {"chexpert": 1, "chestxray8": 2, "padchest": 3, "mimic_cxr": 4, "vindr": 5}
    tests, hospitals = rows.select_scored()
    assert list(hospitals) == list(rows.joins)
    assert hospitals["chexpert"] is tests["chexpert"]
    assert list(tests) == ["chexpert"]
    for site in rows.sites:
        test_set, training = hospitals[site.name], site.select(TRAIN)
        assert len(training.frame)
        assert set(test_set.frame["role"]) == {TEST if site.name == "chexpert" else OWN_TEST}
        assert set(test_set.frame["split"]) == {"valid" if site.name == "chexpert" else "test"}
        assert not set(training.frame["patient"]) & set(test_set.frame["patient"])
        assert ((site.table.frame["role"] == "unused") == (site.table.frame["reason"] != "")).all()


def test_rows_stay_in_the_process(home: Path) -> None:
    """A job of a cluster is a file in the runs folder."""
    rows = load_experiment(home)
    stored = pickle.dumps(rows)
    patients = {str(patient) for site in rows.sites for patient in site.table.frame["patient"]}
    assert max(map(len, patients)) > 4
    assert [patient for patient in patients if len(patient) > 4 and patient.encode() in stored] == []
    sent = pickle.loads(stored)
    assert [(site.name, site.facts, len(site.table.frame)) for site in sent.sites] == [
        (site.name, site.facts, 0) for site in rows.sites
    ]


@pytest.mark.slow_but("overrides0-joins0")
@pytest.mark.parametrize(
    ("overrides", "joins"),
    [
        (["k=[2,3]"], {"chexpert": 2, "chestxray8": 2, "padchest": 3}),
        (["evaluation.hospitals=none"], {}),
        (["k=[1]"], {}),
    ],
)
def test_only_participants_are_scored(home: Path, overrides: list[str], joins: dict[str, int]) -> None:
    rows = load_experiment(home, *overrides)
    assert rows.joins == joins
    assert list(rows.select_scored()[1]) == list(joins)


def test_fractions_share_the_common_test_set(home: Path) -> None:
    parts = [f"sites.{n}.test_fraction=0.3" for n in (0, 1)]
    rows = load_experiment(home, *parts, "evaluation.split=test", "k=[1,2]")
    tests, hospitals = rows.select_scored()
    assert len(tests) == 2
    assert hospitals == tests


def test_search_scores_no_hospital(home: Path) -> None:
    pipeline = with_validation(load_pipeline(PIPELINE, SMALL).resolve(), 0.3)
    sites = open_sites(pipeline, PIPELINE, home / "synthetic_hospitals")
    rows = make_selection(pipeline, sites, prepare_machine(pipeline.runtime))
    assert (rows.select_scored()[1], rows.joins) == ({}, {})


def test_table_holds_auc_of_stored_scores(folder: Path) -> None:
    table = pd.read_csv(folder / "hospitals.csv")
    run = RunFolder(folder)
    assert table.groupby("hospital", sort=False)["k"].unique().map(list).to_dict() == {
        "chexpert": [1, 2],
        "chestxray8": [1, 2],
    }
    protocols = table.groupby("hospital", sort=False)["protocol"].unique().map(list).to_dict()
    assert protocols == {"chexpert": ["frontal-image, valid split"], "chestxray8": ["frontal-image, test split"]}
    assert table.query("hospital == 'chestxray8'").groupby("k")["takes_part"].first().tolist() == [False, True]
    for k in (1, 2):
        (target,) = table.query("hospital == 'chexpert' and disease == 'mean' and k == @k")["auc"]
        assert target == run.row(k).mean.value
        stored = pd.read_parquet(folder / f"k{k}" / "hospitals" / "chestxray8" / "predictions.parquet")
        label, score = stored["label_edema"].to_numpy(), stored["score_edema"].to_numpy()
        pairs = score[label == 1][:, None] - score[label == 0][None]
        (auc,) = table.query("hospital == 'chestxray8' and disease == 'edema' and k == @k")["auc"]
        assert auc == pytest.approx(((pairs > 0) + 0.5 * (pairs == 0)).mean())
    assert chestfed.Study.load(folder).hospitals()["auc"].tolist() == pytest.approx(table["auc"].tolist(), nan_ok=True)


def test_gains_are_differences_of_aucs(folder: Path) -> None:
    gains, study = pd.read_csv(folder / "hospital_gains.csv"), pd.read_csv(folder / "significance.csv")
    target = gains.query("hospital == 'chexpert'").reset_index(drop=True)
    columns = ["disease", "difference", "low", "high"]
    pd.testing.assert_frame_equal(target[columns], study[columns])
    other = gains.query("hospital == 'chestxray8'").set_index("disease")
    wide = pd.read_csv(folder / "hospitals.csv").query("hospital == 'chestxray8'")
    wide = wide.pivot(index="disease", columns="k", values="auc")
    np.testing.assert_allclose(other["difference"], (wide[2] - wide[1])[other.index], atol=1e-12)


@pytest.mark.slow
def test_missing_or_stale_is_scored_again(furnish: Callable[[Path], Path], folder: Path, tmp_path: Path) -> None:
    furnish(tmp_path)
    again = tmp_path / "runs" / folder.name
    shutil.copytree(folder, again)
    before = (again / "hospitals.csv").read_bytes()
    shutil.rmtree(again / "k1" / "hospitals")
    file = again / "k2" / "hospitals" / "chestxray8" / "predictions.parquet"
    stale = pd.read_parquet(file)
    stale["label_edema"] = 1 - stale["label_edema"]
    stale.to_parquet(file, index=False)
    called = run(tmp_path, command("runs", "--no-tracking"))
    assert called.code == 0, called.err
    assert called.out.count("from the earlier run") == 2
    assert (again / "hospitals.csv").read_bytes() == before
    assert "mean AUC at" in called.out
    assert json.loads((again / "hospitals.json").read_text())["untested"] == []


@pytest.mark.slow
def test_unscored_run_removes_old_tables(folder: Path, home: Path) -> None:
    copy = Path(shutil.copytree(folder, home / "unscored" / folder.name))
    called = run(home, command("unscored", "--no-tracking", "--set", "evaluation.hospitals=none"))
    assert called.code == 0, called.err
    assert not list(copy.glob("hospital*"))
    assert RunFolder(copy).ks == (1, 2)

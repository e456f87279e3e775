"""Several splits of the patients, through the command: who is tested, tables, page, resumption, and what is refused."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest

import chestfed
from chestfed.core.bundled import bundled
from chestfed.core.errors import ConfigError
from chestfed.results.tables.collect import read_comparison
from chestfed.results.tables.predictions import load_predictions
from chestfed.results.tables.run_folder import RunFolder
from chestfed.studies.experiment.loading import load_pipeline
from chestfed.studies.training.data.sites import OWN_TEST, TEST, TRAIN, VALID, StudySite, open_sites, open_splits
from tests.command_line import Called
from tests.studies.training.tiny_studies import FILE, SETTINGS, SMALL, run, study

TURN = [*SETTINGS, "evaluation.split=test", "sites.0.test_fraction=0.4", "sites.0.validation_fraction=0.2"]
WORDS = study("--out", "runs", "--no-tracking", "--splits", "2", settings=TURN)


@pytest.fixture(autouse=True, scope="module")
def _two_patients_count() -> Iterator[None]:
    """Half of a tiny hospital has no ten."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("chestfed.results.evaluation.labeled.LEAST_PATIENTS", 2)
        yield


@pytest.fixture(scope="module")
def both_splits(home: Path) -> Called:
    called = run(home, WORDS)
    assert called.code == 0, called.err
    return called


@pytest.fixture(scope="module")
def summary(home: Path, both_splits: Called) -> Path:
    (folder,) = (home / "runs").glob("synthetic-comparison-*")
    return folder


def list_folders(home: Path) -> list[Path]:
    """The run folders of splits 0 and 1."""
    folders = (home / "runs").glob("synthetic-source_addition_samples-*")
    return sorted(folders, key=lambda folder: RunFolder(folder).settings.split)


def test_each_split_tests_other_patients(home: Path, summary: Path) -> None:
    folders = list_folders(home)
    first, second = (set(load_predictions(folder, 1).frames[0]["patient"]) for folder in folders)
    assert first
    assert second
    assert not first & second
    table = pd.read_csv(summary / "table.csv")
    assert set(table["patients"]) == {len(first | second)}
    assert (set(table["splits"]), set(table["seeds"]), set(table["split"].dropna())) == ({2}, {1}, set())
    each = pd.read_csv(summary / "results.csv")
    assert each.groupby(["k", "split"]).size().tolist() == [5] * 4
    assert [RunFolder(folder).settings.rotation.tested for folder in folders] == [pytest.approx(0.4 / (0.6 * 0.8))] * 2


def test_mean_and_interval_over_splits(home: Path, summary: Path) -> None:
    table = pd.read_csv(summary / "table.csv").set_index(["k", "disease"])
    runs = pd.concat([pd.read_csv(folder / "table.csv") for folder in list_folders(home)])
    expected = runs.query("disease != 'mean'").groupby(["k", "disease"])["auc"].mean().dropna()
    assert table.loc[expected.index, "auc"].to_numpy() == pytest.approx(expected.to_numpy())
    gains = pd.read_csv(summary / "significance.csv").set_index("disease")
    mean = gains.loc["mean"]
    assert mean["low"] < mean["difference"] < mean["high"]
    assert json.loads(mean["of_seeds"]).keys() == {"1, split 0", "1, split 1"}
    assert mean["difference"] == pytest.approx(sum(json.loads(mean["of_seeds"]).values()) / 2)


def test_answer_names_splits(summary: Path, both_splits: Called) -> None:
    assert "over two splits of patients" in " ".join(both_splits.out.split())
    results = read_comparison(summary)
    assert (results.splits, results.seeds, results.repeats) == ((0, 1), (1,), "2 splits of patients")
    opened = chestfed.Study.load(summary)
    assert opened.by_seed().index.names == ["k", "seed", "split"]
    assert opened.study(1, split=1).folder != opened.study(1, split=0).folder


@pytest.mark.usefixtures("undrawn")
def test_page_of_splits(home: Path, summary: Path) -> None:
    called = run(home, ["", "", "", "report", str(summary)])
    assert called.code == 0, called.err
    assert "2 splits of patients" in (summary / "report.html").read_text()


def test_splits_are_resumed(home: Path, both_splits: Called) -> None:
    again = run(home, WORDS)
    assert (again.code, again.out.count("from the earlier run")) == (0, 4)
    assert len(list_folders(home)) == 2


def test_compare_groups_splits(home: Path, summary: Path) -> None:
    few, many = ([str(folder / f"k{k}") for folder in list_folders(home)] for k in (1, 2))
    called = run(home, ["", "", "", "compare", "--group-seeds", *few, *many])
    assert called.code == 0, called.err
    (file,) = (home / "runs" / "paired").glob("*/differences.csv")
    mean = pd.read_csv(file).set_index("disease").loc["mean"]
    stored = pd.read_csv(summary / "significance.csv").set_index("disease").loc["mean"]
    for name in ("difference", "low", "high", "p", "splits"):
        assert mean[name] == pytest.approx(stored[name])
    other = run(home, ["", "", "", "compare", "--group-seeds", *few, many[0]])
    assert re.search("other splits of the patients", other.err)


def test_held_out_patients_of_a_split(home: Path, summary: Path) -> None:
    for folder in list_folders(home):
        site = bundled("site_configs") / "synthetic" / "chexpert.yaml"
        words = ["evaluate", str(folder / "k1"), "--site", str(site), "--data", "synthetic_hospitals"]
        called = run(home, ["", "", "", *words, "--split", "held-out", "--out", f"scored-{folder.name}"])
        assert called.code == 0, called.err


def test_first_splits_share_no_patient(tiny_hospitals: Path) -> None:
    keys = [*SMALL, "evaluation.split=test", "sites.0.test_fraction=0.25", "sites.1.validation_fraction=0.3"]
    pipeline = load_pipeline(FILE, keys).resolve()
    splits = open_splits(pipeline, FILE, tiny_hospitals, range(5))
    tested = [_people(sites[0], TEST) for sites in splits.values()]
    assert sum(map(len, tested[:4])) == len(set().union(*tested[:4]))
    assert tested[4] & set().union(*tested[:4])
    for sites, held in zip(splits.values(), tested, strict=True):
        assert not held & _people(sites[0], TRAIN)
        assert _people(sites[1], OWN_TEST) == _people(splits[0][1], OWN_TEST)
    validated = [_people(sites[1], VALID) for sites in splits.values()]
    assert not validated[0] & validated[1]
    alone = open_sites(pipeline, FILE, tiny_hospitals)
    assert (alone[0].table.frame["role"] == splits[0][0].table.frame["role"]).all()


def _people(site: StudySite, role: str) -> set[str]:
    return set(site.select(role).frame["patient"])


def test_every_split_trains_with_own_seed() -> None:
    pipeline = load_pipeline(FILE, [*TURN, "seed=4"]).resolve()
    seeds = [pipeline.model_copy(update={"split": split}).training_seed for split in range(3)]
    assert seeds[0] == 4
    assert len({*seeds}) == 3


@pytest.mark.parametrize("key", ["splits=2", "split=1"])
def test_splits_without_turn_are_refused(key: str) -> None:
    with pytest.raises(ConfigError) as of_sites:
        load_pipeline(FILE, [*SMALL, key])
    with pytest.raises(ConfigError) as of_collection:
        load_pipeline(FILE.parent / "digits_ih.yaml", [key])
    assert all(key.partition("=")[0] in str(error.value) for error in (of_sites, of_collection))

"""`chestfed power`: a plan from a pipeline's test set, and one from a pilot."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from chestfed.app.commands import power as module
from chestfed.core.errors import ConfigError
from chestfed.results.evaluation.joining.planning import assume, tabulate
from chestfed.results.evaluation.training_seeds import seeds_test
from chestfed.results.tables import predictions, run_folder
from chestfed.results.tables.predictions import Predictions
from tests.cases import assert_refused


def test_table_of_a_pipeline(
    chestfed: Callable[..., Any], copied_hospitals: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        module, "_count_patients", lambda path, data: ([(60, 140), (30, 170)], "a: 200 test images", 200)
    )
    shown = chestfed("power", "mine", "--difference", "0.05", "--seeds", "3,5", "--csv", "t.csv", "--figure", "t.svg")
    expected = tabulate(assume([(60, 140), (30, 170)]), 0.05, [3, 5])
    pd.testing.assert_frame_equal(pd.read_csv("t.csv"), expected, check_dtype=False)
    assert "a: 200 test images" in shown.out
    assert "times the 200 of this test set" in shown.out
    assert Path("t.svg").read_text().count("<path") > 2


def test_few_patients_are_refused(copied_hospitals: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(module, "_count_patients", lambda path, data: ([(9, 140)], "a: 149 test images", 149))
    with assert_refused(ConfigError, "no plan"):
        module.power([Path("mine")])


def make_predictions(k: int, seeds: int = 3) -> Predictions:
    rng = np.random.default_rng(0)
    patients, labels = np.repeat(np.arange(60), 2), (rng.random(120) < 0.4) * 1.0
    common = rng.standard_normal(120)
    frames = []
    for _ in range(seeds):
        score = k * labels + common + 0.4 * rng.standard_normal(120)
        frame = pd.DataFrame({"image": [f"{i}" for i in range(120)], "patient": patients})
        frames.append(frame.assign(score_edema=1 / (1 + np.exp(-score)), label_edema=labels))
    return Predictions(f"K={k}", str(k), tuple(frames), "frontal-image", None, "key", tuple(range(seeds)))


def give_pilot(monkeypatch: pytest.MonkeyPatch, seeds: int) -> None:
    monkeypatch.setattr(run_folder.RunFolder, "open", lambda path: SimpleNamespace(ks=(1, 2)))
    monkeypatch.setattr(predictions, "load_predictions", lambda path, k: make_predictions(k or 2, seeds))
    monkeypatch.setattr(predictions, "group_seeds", lambda models: list(models))


def test_pilot_gives_the_variances(monkeypatch: pytest.MonkeyPatch) -> None:
    give_pilot(monkeypatch, 3)
    assumptions, planned, patients = module._learn([Path("run")], None)
    assert patients == 60
    a, b = make_predictions(1), make_predictions(2)
    (runs_a, runs_b) = ([run.scores for run in model.scored(("edema",))] for model in (a, b))
    scored = a.scored(("edema",))[0]
    test = seeds_test(runs_a, runs_b, scored.labels, scored.patients)
    assert assumptions.freedom == test.freedom
    assert f"{test.difference:+.3f}" in planned
    frame = a.frames[0]
    expected = tuple(frame.loc[frame["label_edema"] == value, "patient"].nunique() for value in (1, 0))
    assert assumptions.counts == (expected,)


def test_a_pilots_rare_disease_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def make(k: int) -> Predictions:
        plain = make_predictions(k)
        label = (plain.frames[0]["patient"] < 9) * 1.0  # nine patients: its AUC is in no mean
        frames = [frame.assign(score_mass=frame["score_edema"], label_mass=label) for frame in plain.frames]
        return replace(plain, frames=tuple(frames))

    monkeypatch.setattr("chestfed.results.evaluation.labeled.LEAST_PATIENTS", 10)
    give_pilot(monkeypatch, 3)
    expected, _, _ = module._learn([Path("run")], None)
    monkeypatch.setattr(predictions, "load_predictions", lambda path, k: make(k or 2))
    assert module._learn([Path("run")], None)[0] == expected


def test_other_studies_are_no_pilot(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    give_pilot(monkeypatch, 3)
    with assert_refused(ConfigError, "no pilot", models=4):
        module._learn([Path("run"), Path("other")], None)
    with assert_refused(ConfigError, "no pilot"):
        module.power([tmp_path, tmp_path])


def test_one_seed_is_no_pilot(monkeypatch: pytest.MonkeyPatch) -> None:
    give_pilot(monkeypatch, 1)
    with assert_refused(ConfigError, "one seed"):
        module._learn([Path("run")], None)


def test_names_of_pipelines_and_of_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = Path("runs/synthetic-source_addition_samples-0123")
    run.mkdir(parents=True)
    (run / "study.json").touch()
    assert module._find_paths([Path("source_addition_samples")]) == [Path("source_addition_samples")]
    assert module._find_paths([Path("0123")]) == [run]
    Path("mine.yaml").touch()
    assert module._find_paths([Path("mine")]) == [Path("mine.yaml")]
    run.rename(run.with_name("mine-0123"))
    with assert_refused(ConfigError, "several"):
        module._find_paths([Path("mine")])


@pytest.mark.parametrize("text", ["1,3", "3;5", ""])
def test_numbers_of_seeds_are_checked(text: str) -> None:
    import typer

    with pytest.raises(typer.BadParameter):
        module._read_numbers(text)

"""Which batch-norm statistics `evaluate` scores with: those of the study that the model is from."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest

import chestfed
from chestfed.core.bundled import bundled
from chestfed.core.errors import ConfigError
from chestfed.results.batch_norm import describe_statistics
from tests.command_line import call

SITES = bundled("site_configs") / "synthetic"
DATA = ["--data", "synthetic_hospitals", "--resamples", "20"]


@pytest.fixture
def run(tiny_study: Path) -> Path:
    (found,) = (tiny_study / "runs").glob("synthetic-source_addition_samples-*")
    return found


def evaluate(tiny_study: Path, out: Path, model: object, site: str, split: str, *options: str) -> tuple[dict, str]:
    words = ["evaluate", model, "--site", SITES / f"{site}.yaml", *DATA, "--split", split, "--out", out, *options]
    called = call(*words, folder=tiny_study)
    assert called.code == 0, called.err
    return json.loads((out / "evaluation.json").read_text()), " ".join(called.out.split())


@pytest.mark.parametrize(("site", "split"), [("chexpert", "valid"), ("chestxray8", "test")])
def test_a_hospital_has_the_aucs_of_its_study(tiny_study: Path, run: Path, tmp_path: Path, site: str, split: str) -> None:
    table = pd.read_csv(run / "hospitals.csv").query("hospital == @site").set_index(["k", "disease"])["auc"]
    for k in (1, 2):
        found, shown = evaluate(tiny_study, tmp_path / str(k), run, site, split, "--k", str(k))
        aucs = {row["disease"]: row["value"] for row in found["metrics"] if row["metric"] == "auc"}
        expected = table.loc[k]
        assert {name: aucs[name] for name in expected.index if aucs[name] is not None} == expected.dropna().to_dict()
        assert found["batch_norm"] == "own"
        assert describe_statistics("own", "the site") in shown

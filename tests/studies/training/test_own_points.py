"""Clients with models of their own: which file holds whose, and what scores images of no client."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
import torch

from chestfed.core.bundled import bundled
from chestfed.core.checkpoint import load_checkpoint
from chestfed.results.tables.run_folder import RunFolder
from chestfed.studies.experiment.loading import load_pipeline
from chestfed.studies.training.run_files import describe_test_set
from tests.command_line import call
from tests.studies.training.tiny_studies import SMALL, read_collection, run, study

HELD_OUT = [*(f"sites.{n}.test_fraction=0.3" for n in (0, 1)), "evaluation.split=test", "k=[2]"]


def load_tensors(file: Path) -> torch.Tensor:
    return torch.cat([tensor.flatten() for tensor in load_checkpoint(file)[0].values()])


def test_hospitals_evaluate_own_models(home: Path) -> None:
    settings = [*SMALL, *HELD_OUT, "methods=[{algorithm: fedper}]"]
    called = run(home, study("--out", "personal", "--no-tracking", settings=settings))
    assert called.code == 0, called.err
    assert "belong to no client" not in called.out
    (folder,) = (home / "personal").glob("synthetic-source_addition_samples-*")
    target, other, common = (
        load_tensors(folder / "k2" / name)
        for name in ("model.safetensors", "hospitals/chestxray8/model.safetensors", "common.safetensors")
    )
    assert torch.equal(target, load_tensors(folder / "k2" / "hospitals" / "chexpert" / "model.safetensors"))
    assert not torch.equal(target, other)
    assert not torch.equal(target, common)
    stored = pd.read_csv(folder / "hospitals.csv").query("disease == 'edema'").set_index("hospital")["auc"]
    files = {"chexpert": "k2/hospitals/chexpert/model", "chestxray8": "k2/hospitals/chestxray8/model"}
    for site, file in (files | {"padchest": "k2/common"}).items():
        split = ["--split", "held-out"] if site in files else ["--split", "test"]
        yaml = bundled("site_configs") / "synthetic" / f"{site}.yaml"
        words = ["--site", yaml, "--data", "synthetic_hospitals", "--out", f"personal/{site}", "--resamples", "20"]
        evaluated = call("evaluate", folder, *words, *split, folder=home)
        assert evaluated.code == 0, evaluated.err
        assert f"{file}.safetensors" in "".join(evaluated.out.split())
        if site in files:
            metrics = pd.read_csv(home / "personal" / site / "metrics.csv")
            (auc,) = metrics.query("disease == 'edema' and metric == 'auc'")["value"]
            assert auc == pytest.approx(stored[site], nan_ok=True)
    assert RunFolder.open(folder).row(2).clients == ("chexpert", "chestxray8")


@pytest.mark.parametrize(
    ("algorithm", "words"),
    [("fedper", "personal parts averaged too"), ("ditto", "the server's model"), ("fedavg", "")],
)
def test_common_model_is_named(algorithm: str, words: str) -> None:
    file = bundled("pipelines") / "digits_ih.yaml"
    pipeline = load_pipeline(file, ["collection.clients=2", "windows=[]", f"methods=[{{algorithm: {algorithm}}}]"])
    named = describe_test_set(read_collection(pipeline.resolve()))["scored_with"]
    assert words in named
    assert bool(words) == bool(named)

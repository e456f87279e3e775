"""A network of one's own through a study: its code is part of the identity, and its model file is opened again."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from chestfed.core.bundled import bundled
from chestfed.experiment.device import prepare_machine
from chestfed.experiment.loading import load_pipeline
from chestfed.experiment.pipeline import Pipeline
from chestfed.models import title_of
from chestfed.scoring.scorers import Declared, open_scorer
from chestfed.training.identity import identify, stage_1_identity
from chestfed.training.public_clients import load_collection
from chestfed.training.run import run_study

SETTINGS = [
    *("collection.clients=2", "federated.window=2", "federated.batch_size=4", "federated.stage_steps=2"),
    *("federated.stages=1", "pretrain.epochs=0.02", "evaluation.resamples=0", "runtime.threads=1", "comparison=null"),
    'model={name: "labnet:TINY", patch: 4}',
]


def loaded() -> Pipeline:
    sys.modules.pop("labnet", None)
    return load_pipeline(bundled("pipelines") / "digits_ih.yaml", SETTINGS).for_algorithm()


def test_a_study_with_a_network_of_ones_own_is_identified_by_its_code_and_can_be_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(Path(__file__).parents[1] / "models" / "tiny_transformer.py", tmp_path / "labnet.py")
    monkeypatch.chdir(tmp_path)
    pipeline = loaded()
    machine, data = prepare_machine(pipeline.runtime), load_collection(pipeline, None)
    study = run_study(pipeline, "own", data, machine, tmp_path / "runs")
    assert study.table.model == title_of(pipeline.model) == "Tiny transformer"

    scorer = open_scorer(str(study.folder), Declared(), machine)
    assert scorer.kind == "chestfed model, Tiny transformer"
    assert scorer.notes == ()
    size = scorer.preprocess.size
    assert np.isfinite(scorer.call(torch.zeros(1, 3, size, size)).detach().numpy()).all()

    before = identify(pipeline, data, machine)
    with (tmp_path / "labnet.py").open("a") as file:
        file.write("\n# another version\n")
    after = identify(loaded(), data, machine)
    assert after.digest != before.digest
    assert stage_1_identity(after, data).digest != stage_1_identity(before, data).digest
    assert len(open_scorer(str(study.folder), Declared(), machine).notes) == 1
    sys.modules.pop("labnet", None)

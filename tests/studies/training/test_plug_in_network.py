"""A network of one's own through a study: its code is part of the identity, and its model file is opened again."""

from __future__ import annotations

import shutil
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from chestfed.core.bundled import bundled
from chestfed.core.errors import ChestfedError
from chestfed.learning.models import name_network
from chestfed.studies.experiment.device import prepare_machine
from chestfed.studies.experiment.loading import load_pipeline
from chestfed.studies.experiment.pipeline import Pipeline
from chestfed.studies.scoring.scorers import Declared, open_scorer
from chestfed.studies.training.data.collection import load_collection
from chestfed.studies.training.identity import identify, stage_1_identity
from chestfed.studies.training.loop import History
from chestfed.studies.training.reporting import Reporter, Reporters
from chestfed.studies.training.run import run_study, train_k
from tests.cases import assert_refused

SETTINGS = [
    *("collection.clients=2", "federated.window=2", "federated.batch_size=4", "federated.stage_steps=2"),
    *("federated.stages=1", "pretrain.epochs=0.02", "evaluation.resamples=0", "runtime.threads=1", "windows=[]"),
    'model={name: "labnet:TINY", patch: 4}',
]


def loaded() -> Pipeline:
    sys.modules.pop("labnet", None)
    return load_pipeline(bundled("pipelines") / "digits_ih.yaml", SETTINGS).resolve()


def test_plug_in_network_identified_by_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = Path(__file__).parents[2] / "learning" / "models" / "tiny_transformer.py"
    shutil.copy(source, tmp_path / "labnet.py")
    monkeypatch.chdir(tmp_path)

    class Edited(Reporter):
        """The code is changed while a study of it is under way."""

        def round_done(self, k: int, history: History, rounds: int) -> None:
            (tmp_path / "labnet.py").write_text("raise RuntimeError('another version')\n")

    pipeline = loaded()
    machine = prepare_machine(pipeline.runtime)
    data = load_collection(pipeline, None, machine)
    study = run_study(data, "own", tmp_path / "runs", Reporters([Edited()]))
    shutil.copy(source, tmp_path / "labnet.py")
    assert study.results.about["model"] == name_network(pipeline.model) == "Tiny transformer"

    scorer = open_scorer(str(study.folder), Declared(), machine)
    assert scorer.kind == "chestfed model, Tiny transformer"
    assert scorer.notes == ()
    size = scorer.preprocess.size
    assert np.isfinite(scorer.call(torch.zeros(1, 3, size, size)).detach().numpy()).all()

    before, stage_1 = identify(data), stage_1_identity(data)
    with (tmp_path / "labnet.py").open("a") as file:
        file.write("\n# another version\n")
    edited = replace(data, pipeline=loaded())
    assert identify(edited).digest != before.digest
    assert stage_1_identity(edited).digest != stage_1.digest
    runs = tmp_path / "runs"
    with assert_refused(ChestfedError, "plug-in changed"):  # a process of `--jobs`, begun too late
        train_k(replace(data, pipeline=loaded()), "own", runs, 1, Reporters())
    assert [folder.name for folder in runs.glob("own-*")] == [study.folder.name]
    assert len(open_scorer(str(study.folder), Declared(), machine).notes) == 1
    sys.modules.pop("labnet", None)

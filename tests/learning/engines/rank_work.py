"""What the processes of test_ranks.py do."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from chestfed.core import checkpoint
from chestfed.core.errors import TrainingError
from chestfed.learning.engines import declaration
from chestfed.learning.engines.client import NetworkClient
from chestfed.learning.engines.torchrun import Options
from chestfed.studies.experiment.device import prepare_machine
from chestfed.studies.training import pretrain as stage_1
from chestfed.studies.training.assemble import Deployment
from chestfed.studies.training.data.collection import load_collection
from chestfed.studies.training.data.experiment import Experiment
from chestfed.studies.training.deployments.ranks import Ranks
from chestfed.studies.training.loop import Trained, train_federated
from tests.studies.training.test_resume_algorithms import Interrupted, make_pipeline

PIPELINES = [
    make_pipeline(name, "pretrain.epochs=0.02", "federated.stage_output=algorithm", "evaluation.batch_size=16", *more)
    for name, more in (
        ("coda", ("model.norm=batch", "federated.weights=images")),
        ("pdmm", ()),
        (
            "fedper",
            (
                "federated.stage_output=last",
                "federated.compression={kind: 8_bits}",
                "federated.server_optimizer={kind: yogi}",
                "federated.local_steps={stragglers: 0.5}",
            ),
        ),
        ("mime", ("federated.stage_output=last",)),
        ("fedxl2", ("federated.stage_output=last",)),
        ("codasca", ("runtime.dtype=float64", "model.norm=group")),
    )
]
MACHINE = prepare_machine(PIPELINES[0].runtime)


def train(setup: Experiment, folder: Path, deployment: Deployment, stop_after: int = 0) -> Trained:
    for stage in ("stage1", "stage2"):
        (folder / stage).mkdir(parents=True, exist_ok=True)
    start = deployment.pretrain(setup, folder / "stage1", lambda step, loss: None)

    def report(history: Any) -> None:
        if len(history) == stop_after:
            raise Interrupted

    return train_federated(setup, 3, start, folder / "stage2", report, deployment)


def differences(setups: list[Experiment], folder: Path, ranks: Deployment) -> list[str]:
    """What is not as in one process: of a whole run, and of one that was begun in one process."""
    deviations = []
    for number, (pipeline, setup) in enumerate(zip(PIPELINES, setups, strict=False)):
        subfolder = folder / str(number)
        alone, spread = train(setup, subfolder / "alone", Deployment()), train(setup, subfolder / "ranks", ranks)
        try:
            train(setup, subfolder / "begun", Deployment(), stop_after=1)
        except Interrupted:
            resumed = train(setup, subfolder / "begun", ranks)
        for what, other in (("whole", spread), ("resumed", resumed)):
            for part in ("history", "scores", "buffers", "point"):
                mine, theirs = (
                    getattr(run.outputs if part in ("scores", "buffers") else run, part) for run in (alone, other)
                )
                if part == "point":
                    mine, theirs = (
                        torch.cat([p.primal for p in run.points.local.values()] or [run.point.primal])
                        for run in (alone, other)
                    )
                equal = mine == theirs if part == "history" else bool((mine == theirs).all())
                if not equal:
                    deviations.append(f"{pipeline.federated.spec.name}, {what}: {part}")
    return deviations


def killed_once_there_is(flag: Path) -> None:
    """Let a gradient kill the process."""
    original = NetworkClient.__call__

    def gradients(self: NetworkClient, primal: Tensor, dual: Tensor) -> tuple[Tensor, Tensor]:
        if flag.exists():
            os.kill(os.getpid(), signal.SIGKILL)
        return original(self, primal, dual)

    NetworkClient.__call__ = gradients  # type: ignore[method-assign]


def main(folder: Path, variables: dict[str, str], count: int) -> None:
    """A rank, in a fork, with the variables of a launcher; rank 0 leaves `report.json` in the folder.

    The first `count` of PIPELINES are run.
    """
    os.environ.update(variables)
    setups = [load_collection(pipeline, None, prepare_machine(pipeline.runtime)) for pipeline in PIPELINES[:count]]
    checkpoint.SECONDS_BETWEEN_SAVES, stage_1.CHECKPOINT_STEPS = 0.0, 2
    if declaration.rank() == 1:
        killed_once_there_is(folder / "killed")
    with Ranks(Options(name="torchrun", timeout=60), MACHINE) as ranks:
        if not ranks.leads:
            ranks.serve(lambda: setups)
            return
        ranks.begin(setups)
        report: dict[str, Any] = {"differences": differences(setups, folder, ranks)}
        (folder / "killed").touch()
        try:
            train(setups[0], folder / "again", ranks)
        except TrainingError as error:
            report["error"] = str(error)
        (folder / "report.json").write_text(json.dumps(report))

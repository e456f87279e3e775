"""What the processes of test_torch_distributed.py do: `rank_work FOLDER`, with a launcher's variables."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from torch import Tensor

from chestfed.core.errors import TrainingError
from chestfed.engines import declaration
from chestfed.engines.client import NetworkClient
from chestfed.engines.torch_distributed import Options
from chestfed.experiment.device import prepare_machine
from chestfed.training import loop
from chestfed.training.assemble import Deployment
from chestfed.training.deployments.ranks import Ranks
from chestfed.training.loop import Trained, train_federated
from chestfed.training.pretrain import pretrain
from chestfed.training.public_clients import load_collection
from tests.training.test_resume_algorithms import Interrupted, pipeline_of

PIPELINES = [
    pipeline_of(name, "pretrain.epochs=0.02", "federated.stage_output=algorithm", *more)
    for name, more in (("coda", ("model.norm=batch",)), ("pdmm", ()))
]
DATA = [load_collection(pipeline, None) for pipeline in PIPELINES]
MACHINE = prepare_machine(PIPELINES[0].runtime)


def train(number: int, folder: Path, deployment: Deployment, stop_after: int = 0) -> Trained:
    pipeline, data = PIPELINES[number], DATA[number]
    for stage in ("stage1", "stage2"):
        (folder / stage).mkdir(parents=True, exist_ok=True)
    start = pretrain(pipeline, data, MACHINE, folder / "stage1", lambda step, loss: None)

    def report(history: Any) -> None:
        if len(history) == stop_after:
            raise Interrupted

    return train_federated(pipeline, data, MACHINE, 3, start, folder / "stage2", report, deployment)


def differences(folder: Path, ranks: Deployment) -> list[str]:
    """What is not as in one process: of a whole run, and of one that was begun in one process."""
    found = []
    for number, pipeline in enumerate(PIPELINES):
        own = folder / str(number)
        alone, spread = train(number, own / "alone", Deployment()), train(number, own / "ranks", ranks)
        try:
            train(number, own / "begun", Deployment(), stop_after=1)
        except Interrupted:
            resumed = train(number, own / "begun", ranks)
        for what, other in (("whole", spread), ("resumed", resumed)):
            for part in ("history", "scores", "buffers", "point"):
                mine, theirs = (
                    getattr(its.outputs if part in ("scores", "buffers") else its, part) for its in (alone, other)
                )
                if part == "point":
                    mine, theirs = mine.primal, theirs.primal
                equal = mine == theirs if part == "history" else bool((mine == theirs).all())
                if not equal:
                    found.append(f"{pipeline.federated.spec.name}, {what}: {part}")
    return found


def killed_once_there_is(flag: Path) -> None:
    """Let a gradient kill the process."""
    original = NetworkClient.gradients

    def gradients(self: NetworkClient, primal: Tensor, dual: Tensor) -> tuple[Tensor, Tensor]:
        if flag.exists():
            os.kill(os.getpid(), signal.SIGKILL)
        return original(self, primal, dual)

    NetworkClient.gradients = gradients  # type: ignore[method-assign]


def main(folder: Path) -> None:
    loop.SECONDS_BETWEEN_SAVES = 0.0
    if declaration.rank() == 1:
        killed_once_there_is(folder / "killed")
    with Ranks(Options(name="torchrun", timeout=60), MACHINE) as ranks:
        studies = list(zip(PIPELINES, DATA, strict=True))
        if not ranks.leads:
            ranks.serve(lambda: studies)
            return
        ranks.begin(studies)
        told: dict[str, Any] = {"differences": differences(folder, ranks)}
        (folder / "killed").touch()
        try:
            train(0, folder / "again", ranks)
        except TrainingError as error:
            told["error"] = str(error)
        print(json.dumps(told))


if __name__ == "__main__":
    main(Path(sys.argv[1]))

"""What the processes of test_ranks.py do."""

from __future__ import annotations

import json
import os
import signal
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from chestfed.core import checkpoint
from chestfed.core.errors import TrainingError
from chestfed.engines import declaration
from chestfed.engines.client import NetworkClient
from chestfed.engines.torchrun import Options
from chestfed.experiment.device import prepare_machine
from chestfed.training import pretrain as stage_1
from chestfed.training.assemble import Deployment
from chestfed.training.clients import Setup
from chestfed.training.deployments.ranks import Ranks
from chestfed.training.loop import Trained, train_federated
from chestfed.training.pretrain import Pretrained, new_network, pretrain
from chestfed.training.public_clients import load_collection
from tests.training.test_resume_algorithms import Interrupted, pipeline_of

PIPELINES = [
    pipeline_of(name, "pretrain.epochs=0.02", "federated.stage_output=algorithm", *more)
    for name, more in (
        ("coda", ("model.norm=batch", "federated.weights=images")),
        ("pdmm", ()),
        ("codasca", ("model.norm=group", "pretrain.epochs=0.06", "pretrain.batch_size=5", "pretrain.lr=0.01")),
        ("coda", ("model.norm=group", "federated.weights=images")),
    )
]
DATA = [load_collection(pipeline, None) for pipeline in PIPELINES]
#: Of a batch of 5 images two ranks have 2 and 3, and a third of the labels is missing.
TARGET, *OTHERS = DATA[2].clients
PARTLY = np.where(np.arange(len(TARGET.labels))[:, None] % 3 == 0, np.float32("nan"), TARGET.labels)
DATA[2] = replace(DATA[2], clients=(replace(TARGET, labels=PARTLY), *OTHERS))
MACHINE = prepare_machine(PIPELINES[0].runtime)
SETUPS = [Setup(pipeline, data, MACHINE) for pipeline, data in zip(PIPELINES, DATA, strict=True)]


def train(number: int, folder: Path, deployment: Deployment, stop_after: int = 0) -> Trained:
    setup = SETUPS[number]
    for stage in ("stage1", "stage2"):
        (folder / stage).mkdir(parents=True, exist_ok=True)
    start = pretrain(setup, folder / "stage1", lambda step, loss: None)

    def report(history: Any) -> None:
        if len(history) == stop_after:
            raise Interrupted

    return train_federated(setup, 3, start, folder / "stage2", report, deployment)


def differences(folder: Path, ranks: Deployment) -> list[str]:
    """What is not as in one process: of a whole run, and of one that was begun in one process."""
    found = []
    for number, pipeline in enumerate(PIPELINES[:2]):
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


def distances(mine: Trained, theirs: Trained) -> dict[str, float]:
    """Of two runs the largest relative difference of each column of the history, and of scores and weights."""
    columns = [key for key, value in mine.history[0].items() if isinstance(value, float | int)]
    found = {key: [(a[key], b[key]) for a, b in zip(mine.history, theirs.history, strict=True)] for key in columns}
    told = {key: max(abs(a - b) / (abs(a) or 1.0) for a, b in pairs) for key, pairs in found.items()}
    told["scores"] = float(np.abs(mine.outputs.scores - theirs.outputs.scores).max())
    return told | {"weights": float((mine.point.primal - theirs.point.primal).abs().max())}


def all_reduced(folder: Path, ranks: Ranks) -> list[dict[str, Any]]:
    """Of each algorithm with a server: how far its run is from that of one process, and what it saves at rank 0."""
    found = []
    for number in (0, 2):
        received, runs = [], []
        for all_reduce in (False, True):
            ranks.options = Options(name="torchrun", all_reduce=all_reduce)
            before = ranks.link.received
            runs.append(train(number, folder / f"{number} {all_reduce}", ranks))
            received.append(ranks.link.received - before)
        network, buffers = runs[0].point.primal.numel(), runs[0].outputs.buffers.numel()
        found.append(distances(*runs) | {"rounds": len(runs[0].history), "saved": received[0] - received[1]})
        found[-1] |= {"primal": network, "dual": runs[0].point.dual.numel(), "buffers": buffers}
    return found


def split(folder: Path, ranks: Ranks) -> dict[str, float]:
    """How far stage 1 over two ranks is from that of one process, and interrupted from uninterrupted."""
    ranks.options = Options(name="torchrun", split_batches=True)

    def run(name: str, deployment: Deployment, report: Any = lambda step, loss: None) -> Pretrained:
        (folder / name).mkdir(parents=True, exist_ok=True)
        return deployment.pretrain(SETUPS[2], folder / name, report)

    def stop(step: int, loss: float) -> None:
        raise Interrupted

    alone, together = run("alone", Deployment()), run("split", ranks)
    with suppress(Interrupted):
        run("stopped", ranks, stop)
    again = run("stopped", ranks)
    return {
        "moved": float((alone.weights - new_network(PIPELINES[2], MACHINE).parameters()).abs().max()),
        "weights": float((alone.weights - together.weights).abs().max()),
        "losses": float(np.abs(np.subtract(alone.losses, together.losses)).max()),
        "again": float((again.weights - together.weights).abs().max()),
        "steps": len(alone.losses),
    }


def split_rounds(folder: Path, ranks: Ranks) -> list[dict[str, Any]]:
    """Of each algorithm: how far stage 2 over two ranks is from that of one process; and a resumed run of CODASCA."""
    found = []
    for number in (3, 2):
        own = folder / str(number)
        alone = train(number, own / "alone", Deployment())
        ranks.options = Options(name="torchrun", split_rounds=True)
        together = train(number, own / "split", ranks)
        found.append(distances(alone, together))
    with suppress(Interrupted):
        train(number, own / "stopped", ranks, stop_after=1)
    again = train(number, own / "stopped", ranks)
    return [*found, {"again": max(distances(together, again).values())}]


def killed_once_there_is(flag: Path) -> None:
    """Let a gradient kill the process."""
    original = NetworkClient.gradients

    def gradients(self: NetworkClient, primal: Tensor, dual: Tensor) -> tuple[Tensor, Tensor]:
        if flag.exists():
            os.kill(os.getpid(), signal.SIGKILL)
        return original(self, primal, dual)

    NetworkClient.gradients = gradients  # type: ignore[method-assign]


def main(folder: Path, variables: dict[str, str]) -> None:
    """A rank, in a fork, with the variables of a launcher; rank 0 leaves `told.json` in the folder."""
    os.environ.update(variables)
    checkpoint.SECONDS_BETWEEN_SAVES, stage_1.CHECKPOINT_STEPS = 0.0, 2
    if declaration.rank() == 1:
        killed_once_there_is(folder / "killed")
    with Ranks(Options(name="torchrun", timeout=60), MACHINE) as ranks:
        if not ranks.leads:
            ranks.serve(lambda: SETUPS)
            return
        ranks.begin(SETUPS)
        told: dict[str, Any] = {"differences": differences(folder, ranks), "split": split(folder / "split", ranks)}
        told["split_rounds"] = split_rounds(folder / "rounds", ranks)
        told["all_reduced"] = all_reduced(folder / "sums", ranks)
        (folder / "killed").touch()
        try:
            train(0, folder / "again", ranks)
        except TrainingError as error:
            told["error"] = str(error)
        (folder / "told.json").write_text(json.dumps(told))

"""Every algorithm in the study: interrupted and continued it takes the same steps; it sends what the formula says."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from chestfed.cli import bundled
from chestfed.study.catalogue import CATALOGUE
from chestfed.study.collection_data import load_collection
from chestfed.study.federated import History, Trained, train_federated
from chestfed.study.federated_config import PEER_ALGORITHMS
from chestfed.study.machine import prepare_machine
from chestfed.study.pipeline import Pipeline, load_pipeline
from chestfed.study.plan import bytes_per_client_round
from chestfed.study.pretrain import pretrain

SETTINGS = [
    "collection.clients=3",
    "model.blocks=[1]",
    "federated.window=2",
    "federated.batch_size=4",
    "federated.stages=2",
    "federated.stage_steps=4",
    "federated.auxiliary=2",
    "evaluation.every=1000",
    "runtime.threads=1",
    "comparison=null",
]
NAMES = [entry.name for entry in CATALOGUE]


class Interrupted(Exception):
    pass


def pipeline_of(algorithm: str, *more: str) -> Pipeline:
    settings = [*SETTINGS, f"federated.algorithm={algorithm}", *more]
    return load_pipeline(bundled("pipelines") / "digits_ih.yaml", settings).for_algorithm()


def train(pipeline: Pipeline, folder: Path, stop_after: int | None = None) -> Trained:
    machine = prepare_machine(pipeline.runtime)
    data = load_collection(pipeline, None)
    for stage in ("stage1", "stage2"):
        (folder / stage).mkdir(parents=True, exist_ok=True)
    start = pretrain(pipeline, data, machine, folder / "stage1", lambda step, loss: None)

    def report(history: History) -> None:
        if stop_after is not None and len(history) == stop_after:
            raise Interrupted

    return train_federated(pipeline, data, machine, 3, start, folder / "stage2", report)


@pytest.mark.parametrize("algorithm", NAMES)
def test_interrupted_after_any_round_it_ends_in_the_same_bits(algorithm: str, tmp_path: Path) -> None:
    pipeline = pipeline_of(algorithm)
    whole = train(pipeline, tmp_path / "whole")
    rounds = pipeline.federated.rounds
    for stop_after in {1, rounds // 2, rounds // 2 + 1}:
        folder = tmp_path / f"stopped-{stop_after}"
        with pytest.raises(Interrupted):
            train(pipeline, folder, stop_after)
        again = train(pipeline, folder)
        assert torch.equal(again.point.primal, whole.point.primal)
        assert torch.equal(again.point.dual, whole.point.dual)
        assert again.history == whole.history
        assert (again.scores == whole.scores).all()


@pytest.mark.parametrize("algorithm", NAMES)
@pytest.mark.parametrize("norm", ["group", "batch"])
def test_the_bytes_recorded_are_those_of_the_formula(algorithm: str, norm: str, tmp_path: Path) -> None:
    if norm == "batch" and algorithm in PEER_ALGORITHMS:
        pytest.skip("nobody averages running statistics")
    pipeline = pipeline_of(algorithm, f"model.norm={norm}", "federated.returned=last")
    trained = train(pipeline, tmp_path / "run")
    buffers = trained.buffers.numel()
    assert (buffers > 0) == (norm == "batch")
    up, down = bytes_per_client_round(pipeline, trained.network.size, buffers)
    last_of_a_stage = [stage.rounds for stage in pipeline.federated.schedule]
    for entry in trained.history:
        if algorithm == "coda" and entry["round"] in (last_of_a_stage[0], sum(last_of_a_stage)):
            continue  # it sends alpha once more, and v goes down for it
        assert entry["bytes_up"] == 3 * up
        assert entry["bytes_down"] == 3 * down


def test_centralised_training_sees_as_many_images_and_sends_nothing(tmp_path: Path) -> None:
    pipeline = pipeline_of("centralised", "federated.objective=auc")
    trained = train(pipeline, tmp_path / "run")
    assert trained.history[-1]["images"] == 2 * 3 * 4  # window, clients whose images were moved, batch
    assert all(entry["bytes_up"] == entry["bytes_down"] == 0 for entry in trained.history)
    assert all(entry["drift"] == 0 for entry in trained.history)

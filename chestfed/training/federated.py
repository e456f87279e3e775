"""Stage 2 for one K: the classifier is discarded, and the first K clients train by federated AUC maximization."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from chestfed.algorithms.variables import Point, named_tensors
from chestfed.core.checkpoint import load_checkpoint, save_checkpoint
from chestfed.engines.client import NetworkClient
from chestfed.engines.in_process import InProcessEngine
from chestfed.engines.monitor import ClassMonitor
from chestfed.engines.peers import PeerEngine
from chestfed.evaluation.auc import mean_auc
from chestfed.experiment.device import Machine
from chestfed.experiment.methods import engine_of_stage, objective_of, returned_round
from chestfed.experiment.pipeline import Pipeline
from chestfed.images.batches import TrainBatches
from chestfed.models import FlatModule, build_model, reset_classifier
from chestfed.training.clients import ClientData, StudyData, pooled
from chestfed.training.pretrain import Pretrained
from chestfed.training.test_scores import evaluate, score

#: Within a stage the state is saved when so much time has passed since the last save: it is that of all clients,
#: gigabytes for a large network.
SECONDS_BETWEEN_SAVES = 60.0

#: One entry per finished round: counters, loss, drift, and AUCs where the round was evaluated.
History = list[dict[str, Any]]


@dataclass(frozen=True)
class Trained:
    """The result of stage 2: the last stage's point, buffers, scores of the test set `[n, J]`, and the rounds."""

    point: Point
    buffers: Tensor
    scores: np.ndarray
    history: History
    network: FlatModule


@dataclass
class _Progress:
    """Where training stands: finished rounds of the current stage; the point and buffers put aside to be returned."""

    federation: Any
    stage: int
    round: int
    history: History
    kept: Point
    kept_buffers: Tensor


Engine = InProcessEngine | PeerEngine


def client_weights(clients: Sequence[ClientData], mode: str) -> list[float]:
    """Aggregation weights: 1/K each, or the share of the training rows."""
    if mode == "uniform":
        return [1 / len(clients)] * len(clients)
    total = sum(client.training_rows for client in clients)
    return [client.training_rows / total for client in clients]


def common_positive_ratio(clients: Sequence[ClientData], weights: Sequence[float]) -> Tensor:
    """The one p per disease, float64 `[J]`: the clients' ratios, averaged with the aggregation weights.

    With these p the weighted sum of the clients' losses is the loss of the pooled (weighted) data. It takes a
    single exchange of J ratios. A client that does not label a disease is left out of that disease's mean.
    """
    ratios = np.stack([client.positive_ratios() for client in clients])
    share = np.where(np.isnan(ratios), 0.0, np.asarray(weights)[:, None])
    total = share.sum(axis=0)
    p = np.divide((np.nan_to_num(ratios) * share).sum(axis=0), total, out=np.zeros_like(total), where=total > 0)
    return torch.from_numpy(p)


def own_ratio(client: ClientData) -> Tensor:
    """The client's own positive ratio per disease, float64 `[J]`; 0 without labels."""
    return torch.from_numpy(np.nan_to_num(client.positive_ratios()))


def train_federated(
    pipeline: Pipeline,
    data: StudyData,
    machine: Machine,
    k: int,
    pretrained: Pretrained,
    folder: Path,
    report: Callable[[History], None],
) -> Trained:
    """Run stage 2 with the first `k` clients, or what is left of it.

    State is written to `folder` at the end of a stage, and after a round that ends `SECONDS_BETWEEN_SAVES` or more
    after the last save. `report(history)` is called after every round, and after the state if that is written.

    Raises
    ------
    TrainingError
        If a client's update is not finite.
    """
    settings = pipeline.federated
    network = _network(pipeline, data, machine, pretrained)
    participants: Sequence[ClientData] = data.clients[:k]
    weights = client_weights(participants, settings.weights)
    p = common_positive_ratio(participants, weights).to(network.grad)
    objective = objective_of(settings, p)
    monitor = None
    if settings.trains_on == "ratio_loss":
        images, labels = participants[0].some_of_each_class(settings.auxiliary, pipeline.seed)
        monitor = ClassMonitor(network, images.to(machine.device), labels.to(machine.device), autocast=machine.autocast)
    images_per_step = settings.images_per_step
    if settings.algorithm == "centralised":
        participants, weights, images_per_step = [pooled(participants)], [1.0], images_per_step * k
    composed = settings.trains_on == "compositional_auc"

    def batches_of(client: ClientData, stream: str) -> TrainBatches:
        return client.train_batches(images_per_step, pipeline.seed, stream, pipeline.augment, machine)

    clients = [
        NetworkClient(
            client.name,
            batches_of(client, client.name),
            network,
            objective if settings.positive_ratio == "common" else objective_of(settings, own_ratio(client).to(p)),
            device=machine.device,
            autocast=machine.autocast,
            large_batch=settings.large_batch,
            inner_batches=batches_of(client, f"{client.name} inner") if composed else None,
        )
        for client in participants
    ]

    def engine_of(stage: int) -> Engine:
        return engine_of_stage(settings, stage, p, clients, weights, pipeline.seed, monitor)

    stages, evaluated = settings.schedule, frozenset(pipeline.evaluated_rounds)
    state_file = folder / "state.safetensors"
    engine = engine_of(0)
    start = Point(
        torch.cat([network.parameters(), torch.zeros(objective.extra_size).to(p)]),
        torch.zeros(objective.dual_size).to(p),
    )
    progress = _Progress(engine.start_stage(start, network.buffers()), 0, 0, [], start, network.buffers())
    if state_file.exists():
        progress = _load(state_file, engine, progress, clients)
        engine = engine_of(min(progress.stage, len(stages) - 1))
        report(progress.history)

    scores, saved = None, time.monotonic()
    try:
        while progress.stage < len(stages):
            progress.federation, record = engine.run_round(progress.federation)
            progress.round += 1
            point, beyond = engine.current(progress.federation), []
            drawn = returned_round(settings, pipeline.seed, progress.stage)
            if progress.round == drawn:
                progress.kept, progress.kept_buffers = point, progress.federation.buffers
            if progress.round == stages[progress.stage].rounds:
                beyond = [engine.finish_stage(progress.federation)]
                point, buffers = beyond[0].point, progress.federation.buffers
                if drawn is not None:
                    point, buffers = progress.kept, progress.kept_buffers
                progress.stage, progress.round = progress.stage + 1, 0
                if progress.stage < len(stages):
                    beyond.append(engine.restart(point, buffers))
                    point = beyond[1].point
                engine = engine_of(min(progress.stage, len(stages) - 1))
                progress.federation = engine.start_stage(point, buffers)
            entry = asdict(record) | {
                "round": len(progress.history) + 1,
                "stage": progress.stage + (progress.round > 0),
            }
            for part in beyond:
                entry["bytes_up"] += part.bytes_up
                entry["bytes_down"] += part.bytes_down
                entry["images"] += part.images
            if entry["round"] in evaluated:
                scores = _score(network, point, progress.federation.buffers, data, pipeline, machine)
                entry |= _aucs(scores, data)
            progress.history.append(entry)
            if progress.round == 0 or time.monotonic() - saved >= SECONDS_BETWEEN_SAVES:
                _save(state_file, engine, progress, clients)
                saved = time.monotonic()
            report(progress.history)
    finally:
        for client in clients:
            client.close()

    point, buffers = engine.current(progress.federation), progress.federation.buffers
    if scores is None:  # everything was done before this start
        scores = _score(network, point, buffers, data, pipeline, machine)
    return Trained(point, buffers, scores, progress.history, network)


def _network(pipeline: Pipeline, data: StudyData, machine: Machine, pretrained: Pretrained) -> FlatModule:
    network = FlatModule(build_model(pipeline.model, len(data.diseases), pipeline.seed), machine.device)
    network.bind(pretrained.weights.to(machine.device).clone())
    network.load_buffers(pretrained.buffers.to(machine.device))
    reset_classifier(network.module, pipeline.seed)
    return network


def _score(
    network: FlatModule, point: Point, buffers: Tensor, data: StudyData, pipeline: Pipeline, machine: Machine
) -> np.ndarray:
    return score(network, point.primal, buffers, data.test, pipeline.evaluation.batch_size, machine)


def _aucs(scores: np.ndarray, data: StudyData) -> dict[str, Any]:
    results = evaluate(scores, data.test)
    return {"auc": {result.disease: result.auc for result in results}, "mean_auc": mean_auc(results)}


def _save(path: Path, engine: Engine, progress: _Progress, clients: Sequence[NetworkClient]) -> None:
    tensors = engine.tensors(progress.federation)
    tensors |= {f"kept.{name}": tensor for name, tensor in named_tensors(progress.kept).items()}
    tensors["kept_buffers"] = progress.kept_buffers
    first = {_place(tensor): name for name, tensor in reversed(tensors.items())}
    same = {name: first[_place(tensor)] for name, tensor in tensors.items() if first[_place(tensor)] != name}
    values = {
        "same": same,
        "stage": progress.stage,
        "round": progress.round,
        "history": progress.history,
        "positions": [client.positions() for client in clients],
        "images_seen": [client.images_seen for client in clients],
        "gradients_computed": [client.gradients_computed for client in clients],
    }
    save_checkpoint(path, {name: tensor for name, tensor in tensors.items() if name not in same}, values)


def _place(tensor: Tensor) -> tuple[Any, ...]:
    """Where a tensor lies in memory: the clients' common reference point, say, is one tensor and is stored once."""
    return tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype


def _load(path: Path, engine: Engine, blank: _Progress, clients: Sequence[NetworkClient]) -> _Progress:
    """The saved progress; `blank` is that of the start."""
    stored, values = load_checkpoint(path)
    device = blank.kept.primal.device
    tensors = {name: tensor.to(device) for name, tensor in stored.items()}
    tensors |= {name: tensors[first] for name, first in values["same"].items()}
    for index, client in enumerate(clients):
        client.seek(values["positions"][index])
        client.images_seen = values["images_seen"][index]
        client.gradients_computed = values["gradients_computed"][index]
    return _Progress(
        engine.restored(tensors, blank.federation),
        values["stage"],
        values["round"],
        values["history"],
        Point(tensors["kept.primal"], tensors["kept.dual"]),
        tensors["kept_buffers"],
    )

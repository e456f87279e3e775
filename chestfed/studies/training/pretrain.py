"""Stage 1: cross-entropy on the target site's training images, with Adam (source paper, section 6.2)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from chestfed.core.checkpoint import SaveTimes, load_state, report_damage, save_state
from chestfed.core.errors import TrainingError
from chestfed.core.randomness import stream_seed
from chestfed.learning.algorithms.variables import is_finite
from chestfed.learning.engines.client import NetworkClient
from chestfed.learning.models import MODELS, FlatModule, build_model, convert_numbers
from chestfed.learning.objectives.cross_entropy import CrossEntropy
from chestfed.studies.experiment.device import Machine
from chestfed.studies.experiment.pipeline import Pipeline
from chestfed.studies.training.data.experiment import Experiment

#: Name of the file of a state, of stage 2 too.
STATE: Final = "state.safetensors"
#: Steps after which the mean loss is reported and the state may be saved.
CHECKPOINT_STEPS = 25


@dataclass(frozen=True)
class Pretrained:
    """Weights `[d]` and buffers after stage 1, on the CPU, and the mean loss of each `CHECKPOINT_STEPS`."""

    weights: Tensor
    buffers: Tensor
    losses: list[float]


def new_network(pipeline: Pipeline, machine: Machine) -> FlatModule:
    """The network with its first weights, on the device."""
    model = build_model(pipeline.model, len(pipeline.tasks), pipeline.training_seed)
    if machine.dtype != "float32":
        convert_numbers(model, getattr(torch, machine.dtype))
    return FlatModule(
        model,
        machine.device,
        channels_last=machine.channels_last,
        recomputed=MODELS.find(pipeline.model.name).recomputed if machine.recompute else "",
        compiled=machine.compile,
    )


def pretrain(experiment: Experiment, folder: Path, report: Callable[[int, float], None]) -> Pretrained:
    """Run stage 1, or what is left of it.

    `report(step, loss)` is called every `CHECKPOINT_STEPS` with the number of finished steps.

    Raises
    ------
    DamagedError
        If the saved state is damaged, or of another folder.
    TrainingError
        If the weights are not finite.
    """
    pipeline, machine, state_file = experiment.pipeline, experiment.machine, folder / STATE
    settings = pipeline.pretrain
    steps = settings.steps(experiment.clients[0].training_rows)

    network = new_network(pipeline, machine)
    weights = torch.nn.Parameter(network.parameters())
    adam = torch.optim.Adam([weights], lr=settings.lr, weight_decay=settings.weight_decay, fused=True)
    client = _target_client(experiment, network)
    vector = weights.detach()  # one tensor object for the same storage, so that the network is bound to it once
    done, losses, buffers = 0, [], network.buffers()
    if state_file.exists():
        tensors, values = load_state(state_file, machine.device)
        with report_damage(state_file):
            if values["folder"] != folder.name:  # which names what determines it
                raise ValueError(f"it is of {values['folder']}, not of {folder.name}")
            done, losses = values["step"], values["losses"]
            _put(tensors, vector, adam, done)
            buffers = tensors["buffers"]
        report(done, losses[-1] if losses else float("nan"))

    empty, times = torch.zeros(0, device=machine.device), SaveTimes()
    try:
        while done < steps:
            client.seek([done])
            until = min(done + CHECKPOINT_STEPS, steps)
            with client.training(buffers):
                for step in range(done, until):
                    adam.param_groups[0]["lr"] = settings.lr_at(step, steps)
                    weights.grad = client(vector, empty)[0]
                    adam.step()
            if not is_finite(vector):
                raise TrainingError(
                    f"stage 1 diverged (NaN or infinite weights) before step {until}: lower pretrain.lr"
                )
            buffers, done = client.buffers(), until
            losses.append(client.mean_loss())
            if done == steps or times.due:
                values = {"folder": folder.name, "step": done, "losses": losses}
                times.save(partial(_save, state_file, weights, buffers, adam, values))
            report(done, losses[-1])
    finally:
        client.close()
    return Pretrained(weights.detach().cpu(), buffers.cpu(), losses)


def _target_client(experiment: Experiment, network: FlatModule) -> NetworkClient:
    """The target site as a client."""
    pipeline, machine, target = experiment.pipeline, experiment.machine, experiment.clients[0]
    size, stream = pipeline.pretrain.batch_size, f"pretrain {target.name}"
    return NetworkClient(
        target.name,
        target.train_batches(size, pipeline.training_seed, stream, pipeline.augment, machine),
        network,
        CrossEntropy(target.labeled_share().to(network.grad)),
        device=machine.device,
        autocast=machine.autocast,
        seed=stream_seed(pipeline.training_seed, "pretrain"),
        loss_draws=False,
    )


def _put(tensors: dict[str, Tensor], vector: Tensor, adam: torch.optim.Adam, done: int) -> None:
    """Put saved weights into `vector` and moments into `adam`."""
    if tensors["weights"].shape != vector.shape:
        raise ValueError("it is of another network")
    if done:
        moments = {name: tensors[f"adam.{name}"] for name in ("step", "exp_avg", "exp_avg_sq")}
        adam.load_state_dict({"state": {0: moments}, "param_groups": adam.state_dict()["param_groups"]})
    vector.copy_(tensors["weights"])


def _save(path: Path, weights: Tensor, buffers: Tensor, adam: torch.optim.Adam, values: dict[str, Any]) -> None:
    moments = {f"adam.{name}": tensor for name, tensor in adam.state_dict()["state"][0].items()}
    save_state(path, {"weights": weights, "buffers": buffers, **moments}, values)

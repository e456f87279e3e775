"""Stage 1: cross-entropy on the target site's training images, with Adam (source paper, section 6.2)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Final

import torch
from torch import Tensor

from chestfed.core.checkpoint import SaveTimes, load_state, report_damage, save_state
from chestfed.core.errors import TrainingError
from chestfed.core.randomness import stream_seed
from chestfed.learning.algorithms.variables import is_finite
from chestfed.learning.engines.client import NetworkClient
from chestfed.learning.engines.parts import Parts
from chestfed.learning.models import MODELS, FlatModule, build_model, convert_numbers
from chestfed.learning.objectives.cross_entropy import CrossEntropy
from chestfed.studies.experiment.device import Machine
from chestfed.studies.experiment.pipeline import Pipeline
from chestfed.studies.training.data.experiment import Experiment
from chestfed.studies.training.reporting import tell

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


class StageOne:
    """Stage 1 at work in one process: network, optimizer and images; `done` steps are finished.

    Several processes that share the parts of each batch have one each, whose numbers are equal after every step.
    """

    def __init__(self, experiment: Experiment, parts: Parts) -> None:
        pipeline, machine = experiment.pipeline, experiment.machine
        self._settings = pipeline.pretrain
        self.steps = self._settings.steps(experiment.clients[0].training_rows)
        network = new_network(pipeline, machine)
        self.weights = torch.nn.Parameter(network.parameters())
        self.client = _target_client(experiment, network, parts)
        self.vector = self.weights.detach()  # one tensor for the same storage: the network is bound to it once
        self.done, self.buffers = 0, network.buffers()
        self._empty = torch.zeros(0, device=machine.device)

    @cached_property
    def adam(self) -> torch.optim.Adam:
        """The optimizer, made when it is needed: torch imports its compiler with it, which takes seconds."""
        return torch.optim.Adam(
            [self.weights], lr=self._settings.lr, weight_decay=self._settings.weight_decay, fused=True
        )

    def put(self, tensors: Mapping[str, Tensor], done: int) -> None:
        """Go on from what `tensors` gave after so many steps."""
        _put(tensors, self.vector, self.adam, done)
        self.buffers, self.done = tensors["buffers"], done

    def tensors(self) -> dict[str, Tensor]:
        """All that the next step needs, by name."""
        state = self.adam.state_dict()["state"]
        moments = {f"adam.{name}": tensor for name, tensor in state[0].items()} if state else {}
        return {"weights": self.weights, "buffers": self.buffers, **moments}

    def run(self) -> None:
        """The next steps, up to `CHECKPOINT_STEPS`; raises TrainingError if the weights are not finite then."""
        self.client.seek([self.done])
        until = min(self.done + CHECKPOINT_STEPS, self.steps)
        with self.client.training(self.buffers):
            for step in range(self.done, until):
                self.adam.param_groups[0]["lr"] = self._settings.lr_at(step, self.steps)
                self.weights.grad = self.client(self.vector, self._empty)[0]
                self.adam.step()
        if not is_finite(self.vector):
            raise TrainingError(f"stage 1 diverged (NaN or infinite weights) before step {until}: lower pretrain.lr")
        self.buffers, self.done = self.client.buffers(), until


def pretrain(
    experiment: Experiment,
    folder: Path,
    report: Callable[[int, float], None],
    parts: Parts | None = None,
    begun: Callable[[StageOne], None] = lambda stage: None,
) -> Pretrained:
    """Run stage 1, or what is left of it.

    `report(step, loss)` is called every `CHECKPOINT_STEPS` with the number of finished steps. `parts` are those of the
    batches that are computed here, None: all; `begun` is called before the first step, to start the other processes.

    Raises
    ------
    DamagedError
        If the saved state is damaged, or of another folder.
    TrainingError
        If the weights are not finite.
    """
    state_file = folder / STATE
    stage = StageOne(experiment, parts or Parts(experiment.pipeline.runtime.passes))
    losses: list[float] = []
    if state_file.exists():
        tensors, values = load_state(state_file, experiment.machine.device)
        with report_damage(state_file):
            if values["folder"] != folder.name:  # which names what determines it
                raise ValueError(f"it is of {values['folder']}, not of {folder.name}")
            losses = values["losses"]
            stage.put(tensors, values["step"])
        if stage.done < stage.steps:
            tell("noted", f"resuming stage 1 after batch {stage.done} of {stage.steps}")
        else:
            tell("stage_1_found")
        report(stage.done, losses[-1] if losses else float("nan"))

    times = SaveTimes()
    begun(stage)
    try:
        while stage.done < stage.steps:
            stage.run()
            losses.append(stage.client.mean_loss())
            if stage.done == stage.steps or times.due:
                values = {"folder": folder.name, "step": stage.done, "losses": losses}
                times.save(partial(save_state, state_file, stage.tensors(), values))
            report(stage.done, losses[-1])
    finally:
        stage.client.close()
    return Pretrained(stage.vector.cpu(), stage.buffers.cpu(), losses)


def assist(experiment: Experiment, parts: Parts, tensors: Mapping[str, Tensor], done: int) -> None:
    """Compute parts of the batches in stage 1 that another process leads, from its tensors after so many steps."""
    stage = StageOne(experiment, parts)
    stage.put(tensors, done)
    try:
        while stage.done < stage.steps:
            stage.run()
    finally:
        stage.client.close()


def _target_client(experiment: Experiment, network: FlatModule, parts: Parts) -> NetworkClient:
    """The target site as a client."""
    pipeline, machine, target = experiment.pipeline, experiment.machine, experiment.clients[0]
    size, stream = pipeline.pretrain.batch_size, f"pretrain {target.name}"
    return NetworkClient(
        target.name,
        target.train_batches(size, pipeline.training_seed, stream, pipeline.augment, machine, share=parts.select),
        network,
        CrossEntropy(target.labeled_share().to(network.grad)),
        device=machine.device,
        autocast=machine.autocast,
        seed=stream_seed(pipeline.training_seed, "pretrain"),
        loss_draws=False,
        parts=parts,
    )


def _put(tensors: Mapping[str, Tensor], vector: Tensor, adam: torch.optim.Optimizer, done: int) -> None:
    """Put saved weights into `vector` and moments into `adam`."""
    if tensors["weights"].shape != vector.shape:
        raise ValueError("it is of another network")
    if done:
        moments = {name: tensors[f"adam.{name}"] for name in ("step", "exp_avg", "exp_avg_sq")}
        adam.load_state_dict({"state": {0: moments}, "param_groups": adam.state_dict()["param_groups"]})
    vector.copy_(tensors["weights"])

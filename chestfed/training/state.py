"""The state of stage 2 on disk: everything that a round needs, so that a killed study resumes bit by bit."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from chestfed.algorithms.variables import Point, named_tensors
from chestfed.core.checkpoint import load_checkpoint, save_checkpoint
from chestfed.core.errors import ChestfedError
from chestfed.engines.engine import Engine
from chestfed.training.assemble import Team

#: One entry per finished round: counters, loss, drift, and AUCs where the round was evaluated.
History = list[dict[str, Any]]


@dataclass
class Progress:
    """Where training stands.

    `round` counts the finished rounds of the current `stage`; `federation` is the engine's state; `kept` is the mean of
    the points of the stage's rounds, or, with `kept_buffers`, the point of the round that was drawn.
    """

    engine: Engine
    federation: Any
    stage: int
    round: int
    history: History
    kept: Point
    kept_buffers: Tensor


def at_the_start(team: Team) -> Progress:
    """Nothing trained yet."""
    engine, buffers = team.engine_of(0), team.network.buffers()
    return Progress(engine, engine.start_stage(team.start, buffers), 0, 0, [], team.start, buffers)


def save_progress(path: Path, progress: Progress) -> None:
    """Write one checkpoint; a tensor that several states share is stored once."""
    tensors = progress.engine.tensors(progress.federation) | named_tensors(progress.kept, "kept")
    tensors["kept_buffers"] = progress.kept_buffers
    first = {_place(tensor): name for name, tensor in reversed(tensors.items())}
    same = {name: first[_place(tensor)] for name, tensor in tensors.items() if first[_place(tensor)] != name}
    values = {
        "same": same,
        "stage": progress.stage,
        "round": progress.round,
        "history": progress.history,
    }
    save_checkpoint(path, {name: tensor for name, tensor in tensors.items() if name not in same}, values)


def load_progress(path: Path, team: Team) -> Progress:
    """The saved progress; the clients' batches go on where they were.

    Raises
    ------
    ChestfedError
        If the file is damaged, or of an earlier version.
    """
    stored, values = load_checkpoint(path)
    if "turns" not in stored:
        raise ChestfedError(f"{path}: written by an earlier version of chestfed. Delete it to start this part again.")
    blank = at_the_start(team)
    device = blank.kept.primal.device
    tensors = {name: tensor.to(device) for name, tensor in stored.items()}
    tensors |= {name: tensors[first] for name, first in values["same"].items()}
    engine = team.engine_of(values["stage"])
    federation = engine.restored(tensors, blank.federation)
    kept = Point(tensors["kept.primal"], tensors["kept.dual"])
    history = values["history"]
    return Progress(engine, federation, values["stage"], values["round"], history, kept, tensors["kept_buffers"])


def _place(tensor: Tensor) -> tuple[Any, ...]:
    """Where a tensor lies in memory: the clients' common reference point, say, is one tensor and is stored once."""
    return tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype

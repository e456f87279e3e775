"""The state of stage 2 on disk: everything that a round needs, so that a killed study resumes bit by bit."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from torch import Tensor

from chestfed.algorithms.variables import Point, named_tensors
from chestfed.core.checkpoint import as_damaged, load_checkpoint, save_checkpoint
from chestfed.engines.engine import Engine
from chestfed.engines.fleet import BlankFleet
from chestfed.training.assemble import Team

#: Name of the file, of stage 1 too.
STATE: Final = "state.safetensors"
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


def save_progress(path: Path, progress: Progress, team: Team) -> None:
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
        "clients": list(team.cohort.names),
    }
    save_checkpoint(path, {name: tensor for name, tensor in tensors.items() if name not in same}, values)


def load_progress(path: Path, team: Team) -> Progress:
    """The saved progress; the clients' batches go on where they were.

    Raises
    ------
    DamagedError
        If the file is damaged, of an earlier version or of other clients.
    """
    stored, values = load_checkpoint(path)
    blank = at_the_start(replace(team, fleet=BlankFleet(team.fleet.names)))
    device = blank.kept.primal.device
    tensors = {name: tensor.to(device) for name, tensor in stored.items()}
    with as_damaged(path):
        if "turns" not in stored or values.get("clients") != list(team.cohort.names):
            raise ValueError("of an earlier version of chestfed, or of other clients")
        return _restored(team, blank, tensors, values)


def _restored(team: Team, blank: Progress, tensors: dict[str, Tensor], values: dict[str, Any]) -> Progress:
    tensors |= {name: tensors[first] for name, first in values["same"].items()}
    engine = team.engine_of(values["stage"])
    federation = engine.restored(tensors, blank.federation)
    kept = Point(tensors["kept.primal"], tensors["kept.dual"])
    history = values["history"]
    return Progress(engine, federation, values["stage"], values["round"], history, kept, tensors["kept_buffers"])


def _place(tensor: Tensor) -> tuple[Any, ...]:
    """Where a tensor lies in memory: the clients' common reference point, say, is one tensor and is stored once."""
    return tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype

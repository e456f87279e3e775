"""The state of stage 2 on disk: everything that a round needs, so that a killed study resumes bit by bit."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from torch import Tensor

from chestfed.algorithms.variables import Point, named_tensors
from chestfed.core.checkpoint import as_damaged, load_state, save_state
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
    """Write one checkpoint."""
    tensors = progress.engine.tensors(progress.federation) | named_tensors(progress.kept, "kept")
    tensors["kept_buffers"] = progress.kept_buffers
    values = {"stage": progress.stage, "round": progress.round, "history": progress.history}
    save_state(path, tensors, {**values, "clients": list(team.cohort.names)})


def load_progress(path: Path, team: Team) -> Progress:
    """The saved progress; the clients' batches go on where they were.

    Raises
    ------
    DamagedError
        If the file is damaged, of an earlier version or of other clients.
    """
    blank = at_the_start(replace(team, fleet=BlankFleet(team.fleet.names)))
    tensors, values = load_state(path, blank.kept.primal.device)
    with as_damaged(path):
        if "turns" not in tensors or values.get("clients") != list(team.cohort.names):
            raise ValueError("of an earlier version of chestfed, or of other clients")
        engine = team.engine_of(values["stage"])
        federation = engine.restored(tensors, blank.federation)
        kept, buffers = Point(tensors["kept.primal"], tensors["kept.dual"]), tensors["kept_buffers"]
        return Progress(engine, federation, values["stage"], values["round"], values["history"], kept, buffers)

"""Stage 2 for one K: the classifier is discarded, and the first K clients train round by round.

The state on disk is everything that a round needs, so that a killed study resumes bit by bit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from torch import Tensor

from chestfed.algorithms.variables import Point, named_tensors
from chestfed.core import stopping
from chestfed.core.checkpoint import SaveTimes, as_damaged, load_state, save_state
from chestfed.core.errors import DamagedError
from chestfed.core.manifest import Part
from chestfed.engines.engine import Engine, StageEnd
from chestfed.engines.fleet import BlankFleet
from chestfed.evaluation.estimates import mean_of
from chestfed.experiment.pipeline import Pipeline
from chestfed.experiment.rules import returned_round
from chestfed.models import FlatModule
from chestfed.training.assemble import Deployment, Team, assemble
from chestfed.training.clients import Outputs, Setup
from chestfed.training.identity import identify
from chestfed.training.pretrain import STATE, Pretrained

Trains = TypeVar("Trains")

#: One entry per finished round: counters, loss, drift, and AUCs where the round was evaluated.
History = list[dict[str, Any]]


@dataclass
class Progress:
    """Where training stands.

    `round` counts the finished rounds of the current `stage`; `federation` is the engine's state; `kept` is the mean of
    the points of the stage's rounds, or, with `kept_buffers`, the point of the round that was drawn.
    """

    engine: Engine[Any]
    federation: Any
    stage: int
    round: int
    history: History
    kept: Point
    kept_buffers: Tensor


@dataclass(frozen=True)
class Trained:
    """The result of stage 2: the last stage's point, what it gives on the test set, and the rounds."""

    point: Point
    outputs: Outputs
    history: History
    network: FlatModule


def train_federated(
    setup: Setup,
    k: int,
    pretrained: Pretrained,
    folder: Path,
    report: Callable[[History], None],
    deployment: Deployment | None = None,
) -> Trained:
    """Run stage 2 with the first `k` clients, or what is left of it.

    State is written to `folder` at the end of a stage, and after a round in which `SaveTimes` says so; after every
    round where clients keep their own states.
    `report(history)` follows each round, and the state if that is written. `deployment`: where the clients compute.

    Raises
    ------
    TrainingError
        If a client's update is not finite.
    DamagedError
        If the saved state is not what was written, or is of another K or run.
    """
    deployment, test = deployment or Deployment(), setup.data.test
    part = Part(identify(setup).digest, f"k{k}")
    team = assemble(setup, k, pretrained, deployment)
    evaluated, state_file = frozenset(setup.pipeline.evaluated_rounds), folder / STATE

    def outputs_of(point: Point, buffers: Tensor) -> Outputs:
        return deployment.score(setup, team.network, point.primal, buffers, test)

    progress = _load_progress(state_file, part, team) if state_file.exists() else _at_the_start(team)
    if progress.history:
        report(progress.history)
    outputs, times = None, SaveTimes()
    try:
        while progress.stage < len(team.settings.schedule):
            entry, point, ends = _run_round(team, progress)
            entry |= _spent(setup.pipeline, k, entry["round"])
            if entry["round"] in evaluated:
                outputs = outputs_of(point, progress.federation.buffers)
                aucs = test.aucs(outputs)
                entry |= {"auc": aucs, "mean_auc": mean_of(aucs.values())}
            for name, end in ends.items():
                entry[f"auc_of_{name}"] = mean_of(test.aucs(outputs_of(end.point, end.buffers)).values())
            if ends and (rule := team.settings.stage_output) != "algorithm":
                entry[f"auc_of_{rule}"] = entry["mean_auc"]
            progress.history.append(entry)
            if progress.round == 0 or team.fleet.keeps_its_states or times.due:
                times.save(partial(_save_progress, state_file, part, progress, team))
            report(progress.history)
    finally:
        team.fleet.close()

    point = progress.engine.current(progress.federation)
    if outputs is None:  # everything was done before this start
        outputs = outputs_of(point, progress.federation.buffers)
    return Trained(point, outputs, progress.history, team.network)


def retrain_if_damaged(state: Path, train: Callable[[], Trains], warn: Callable[[str], object]) -> Trains:
    """Train on from a saved state, or from the beginning if that is damaged; signals wait until it is saved."""
    with stopping.defer_signals():
        try:
            return train()
        except DamagedError:
            state.unlink()
            warn(f"{state}: damaged, so this part is trained again")
            return train()


def _run_round(team: Team, progress: Progress) -> tuple[dict[str, Any], Point, dict[str, StageEnd]]:
    """One round, and the change to the next stage if it ends one: what to record, and the point to evaluate.

    After the last round of all also what the other rules of output would have returned, by their names.
    """
    progress.federation, record = progress.engine.run_round(progress.federation)
    progress.round += 1
    point = progress.engine.current(progress.federation)
    _keep(team, progress, point)
    beyond: list[StageEnd] = []
    outputs: dict[str, StageEnd] = {}
    if progress.round == team.settings.schedule[progress.stage].rounds:
        engine, state, kept = progress.engine, progress.federation, progress.kept
        beyond = _end_stage(team, progress)
        rule = team.settings.stage_output
        if progress.stage == len(team.settings.schedule) and rule != "random_round":
            # Not counted as images or bytes: nothing is trained on it.
            outputs = {"last": StageEnd(point, state.buffers), "average": engine.with_statistics(kept, state)}
            outputs.pop(rule, None)  # it is scored as the run's own
        point = beyond[-1].point
    entry = asdict(record) | {
        "round": len(progress.history) + 1,
        "stage": progress.stage + (progress.round > 0),
    }
    if not entry["absent"]:
        del entry["absent"]
    for part in beyond:
        entry["bytes_up"] += part.bytes_up
        entry["bytes_down"] += part.bytes_down
        entry["images"] += part.images
    return entry, point, outputs


def _spent(pipeline: Pipeline, k: int, rounds: int) -> dict[str, float | None]:
    """The privacy budget of the model, and together with those of smaller K, in which the same images are."""
    settings = pipeline.federated
    if settings.privacy is None:
        return {}
    before = pipeline.k.index(k) * settings.rounds
    return {"epsilon": settings.epsilon(rounds), "epsilon_of_all": settings.epsilon(before + rounds)}


def _keep(team: Team, progress: Progress, point: Point) -> None:
    """Put aside what the stage may return besides its last point: the one of the drawn round, or the mean so far."""
    drawn = returned_round(team.settings, team.cohort.seed, progress.stage)
    if drawn is None:
        kept, share = progress.kept if progress.round > 1 else point, 1 / progress.round
        progress.kept = Point(kept.primal.lerp(point.primal, share), kept.dual.lerp(point.dual, share))
    elif progress.round == drawn:
        progress.kept, progress.kept_buffers = point, progress.federation.buffers


def _end_stage(team: Team, progress: Progress) -> list[StageEnd]:
    """Put the point that the stage returns at the start of the next one; what was sent and seen for it."""
    engine, state = progress.engine, progress.federation
    match team.settings.stage_output:
        case "last":
            end = StageEnd(engine.current(state), state.buffers, turns=state.turns)
        case "average":
            end = engine.with_statistics(progress.kept, state)
        case "random_round":
            end = StageEnd(progress.kept, progress.kept_buffers, turns=state.turns)
        case "algorithm":
            end = engine.finish_stage(state)
    ends = [end]
    progress.stage, progress.round = progress.stage + 1, 0
    if progress.stage < len(team.settings.schedule):
        ends.append(engine.restart(end))
    progress.engine = team.engine_of(progress.stage)
    progress.federation = progress.engine.start_stage(ends[-1].point, ends[-1].buffers, ends[-1].turns)
    return ends


def _at_the_start(team: Team) -> Progress:
    engine, buffers = team.engine_of(0), team.network.buffers()
    return Progress(engine, engine.start_stage(team.start, buffers), 0, 0, [], team.start, buffers)


def _save_progress(path: Path, part: Part, progress: Progress, team: Team) -> None:
    tensors = progress.engine.tensors(progress.federation) | named_tensors(progress.kept, "kept")
    tensors["kept_buffers"] = progress.kept_buffers
    values = {"stage": progress.stage, "round": progress.round, "history": progress.history}
    save_state(path, tensors, {**values, "part": str(part)})


def _load_progress(path: Path, part: Part, team: Team) -> Progress:
    """The saved progress; the clients' batches go on where they were."""
    blank = _at_the_start(replace(team, fleet=BlankFleet(team.fleet.names)))
    tensors, values = load_state(path, blank.kept.primal.device)
    with as_damaged(path):
        if values["part"] != str(part):
            raise ValueError(f"it is of {values['part']}, not of {part}")
        engine = team.engine_of(values["stage"])
        federation = engine.restored(tensors, blank.federation)
        kept, buffers = Point(tensors["kept.primal"], tensors["kept.dual"]), tensors["kept_buffers"]
        return Progress(engine, federation, values["stage"], values["round"], values["history"], kept, buffers)

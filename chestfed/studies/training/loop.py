"""Stage 2 for one K: the classifier is discarded, and the first K clients train round by round.

The state on disk is everything that a round needs, so that a killed study resumes bit by bit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from torch import Tensor

from chestfed.core.checkpoint import SaveTimes, load_state, report_damage, save_state
from chestfed.core.errors import DamagedError
from chestfed.core.manifest import Part
from chestfed.core.processes import stopping
from chestfed.learning.abilities import Can
from chestfed.learning.algorithms.variables import Point, named_tensors
from chestfed.learning.algorithms.variables import mean_of as mean_point
from chestfed.learning.engines.engine import Engine, StageEnd
from chestfed.learning.engines.fleet import BlankFleet, Fleet
from chestfed.learning.engines.server import ClassMonitor
from chestfed.learning.models import FlatModule
from chestfed.studies.experiment.pipeline import Pipeline
from chestfed.studies.experiment.rules import returned_round
from chestfed.studies.experiment.stage_2 import Federated
from chestfed.studies.training.assemble import Deployment, Federation, form_federation, starting_network, watch_classes
from chestfed.studies.training.data.clients import Outputs, TestSet
from chestfed.studies.training.data.experiment import Experiment
from chestfed.studies.training.identity import identify
from chestfed.studies.training.pretrain import STATE, Pretrained
from chestfed.studies.training.reporting import tell, warn

Trains = TypeVar("Trains")

#: One entry per finished round: counters, loss, drift, and AUCs where the round was evaluated.
History = list[dict[str, Any]]


@dataclass(frozen=True)
class ScoredPoints:
    """Points that are scored: `local` has those of clients that have their own, `common` is for all other images."""

    common: Point
    local: Mapping[str, Point] = field(default_factory=dict)

    def at(self, site: str) -> Point:
        """The point of a hospital; an empty name is none of them."""
        return self.local.get(site, self.common)


def name_common_model(settings: Federated, clients: Sequence[str], sites: Sequence[str]) -> str:
    """The model that scores those of the sites (`""`: public images) that are no clients; empty: as clients are scored.

    That is where clients have points of their own; see `Training.locate`.
    """
    others = [site for site in sites if site not in clients]
    if Can.OWN_POINTS not in settings.spec.can or not others:
        return ""
    from_server = Can.SERVER_POINT in settings.spec.can
    name = "the server's model" if from_server else "the average of the clients' models, personal parts averaged too"
    return name if len(others) == len(sites) else f"at {', '.join(others)} {name}"


@dataclass
class Training:
    """Stage 2 of one K: who trains, and where training stands.

    `round` counts the finished rounds of the current `stage`; `state` is the engine's; `output` is the mean of the
    points of the stage's rounds, or, with `output_buffers`, the point of the round that was drawn. `network` scores.
    """

    federation: Federation
    network: FlatModule
    fleet: Fleet
    monitor: ClassMonitor | None
    engine: Engine[Any]
    state: Any
    output: Point
    output_buffers: Tensor
    output_shared: Tensor
    stage: int = 0
    round: int = 0
    history: History = field(default_factory=list)
    compare_outputs: bool = True

    @property
    def settings(self) -> Federated:
        return self.federation.settings

    def run_round(self) -> tuple[dict[str, Any], Point, dict[str, StageEnd]]:
        """One round, and the change to the next stage if it ends one: what to record, and the point to evaluate.

        After the last round also what the other rules of output would have returned, by their names, if these are
        compared.
        """
        self.state, record = self.engine.run_round(self.state)
        self.round += 1
        point = self.engine.current(self.state)
        self._update_output(point)
        beyond: list[StageEnd] = []
        outputs: dict[str, StageEnd] = {}
        if self.round == self.settings.schedule[self.stage].rounds:
            engine, state, output = self.engine, self.state, self.output
            beyond = self._end_stage()
            rule = self.settings.stage_output
            last = self.stage == len(self.settings.schedule) and Can.OWN_POINTS not in self.settings.spec.can
            if last and self.compare_outputs and rule != "random_round":
                # Not counted as images or bytes: nothing is trained on it.
                outputs = {"last": StageEnd(point, state.buffers), "average": engine.with_statistics(output, state)}
                outputs.pop(rule, None)  # it is scored as the run's own
            point = beyond[-1].point
        entry = asdict(record) | {"round": len(self.history) + 1, "stage": self.stage + (self.round > 0)}
        for key in ("absent", "steps"):
            entry[key] = list(entry[key])  # as it is after a resume
            if not entry[key]:
                del entry[key]
        if math.isnan(entry["drift"]):  # undefined under secure aggregation
            del entry["drift"], entry["gradient_drift"]
        for part in beyond:
            entry["bytes_up"] += part.bytes_up
            entry["bytes_down"] += part.bytes_down
            entry["images"] += part.images
        return entry, point, outputs

    def _update_output(self, point: Point) -> None:
        """Keep what the stage may return besides its last point: that of the drawn round, or the mean so far."""
        drawn = returned_round(self.settings, self.federation.seed, self.stage)
        if drawn is None:
            output, share = self.output if self.round > 1 else point, 1 / self.round
            self.output = Point(output.primal.lerp(point.primal, share), output.dual.lerp(point.dual, share))
        elif self.round == drawn:
            self.output, self.output_buffers, self.output_shared = point, self.state.buffers, self.state.shared

    def _end_stage(self) -> list[StageEnd]:
        """Put the point that the stage returns at the start of the next one; what was sent and seen for it."""
        engine, state = self.engine, self.state
        match self.settings.stage_output:
            case "last":
                end = StageEnd(engine.current(state), state.buffers, turns=state.turns, shared=state.shared)
            case "average":
                end = engine.with_statistics(self.output, state)
            case "random_round":
                end = StageEnd(self.output, self.output_buffers, turns=state.turns, shared=self.output_shared)
            case "algorithm":
                end = engine.finish_stage(state)
        ends = [end]
        self.stage, self.round = self.stage + 1, 0
        if self.stage < len(self.settings.schedule):
            ends.append(engine.restart(end))
        self.engine = self.federation.engine(self.stage, self.fleet, self.monitor)
        start = ends[-1]
        self.state = self.engine.start_stage(start.point, start.buffers, start.turns, start.shared)
        return ends

    def locate(self, point: Point) -> ScoredPoints:
        """Points that are scored, given the server's point."""
        local = self.engine.local_points(self.state, point)
        if not local or Can.SERVER_POINT in self.settings.spec.can:
            return ScoredPoints(point, local)
        weights = dict(zip(self.federation.names, self.federation.weights, strict=True))
        share = sum(weights[name] for name in local)  # others have left
        return ScoredPoints(mean_point(list(local.values()), [weights[name] / share for name in local]), local)

    def save(self, path: Path, part: Part) -> None:
        """Write all that the next round needs."""
        tensors = self.engine.tensors(self.state) | named_tensors(self.output, "kept")
        tensors |= {"kept_buffers": self.output_buffers, "kept_shared": self.output_shared}
        values = {"stage": self.stage, "round": self.round, "history": self.history}
        save_state(path, tensors, {**values, "part": str(part)})

    def restore(self, path: Path, part: Part) -> None:
        """Continue from a saved state, the clients' batches too; `state` is any of the same shapes.

        Raises `DamagedError` if the file is not what was written, or is of another part.
        """
        tensors, values = load_state(path, self.output.primal.device)
        with report_damage(path):
            if values["part"] != str(part):
                raise ValueError(f"it is of {values['part']}, not of {part}")
            self.engine = self.federation.engine(values["stage"], self.fleet, self.monitor)
            self.state = self.engine.restored(tensors, self.state)
            self.output = Point(tensors["kept.primal"], tensors["kept.dual"])
            self.output_buffers, self.output_shared = tensors["kept_buffers"], tensors["kept_shared"]
            self.stage, self.round, self.history = values["stage"], values["round"], values["history"]


@dataclass(frozen=True)
class Trained:
    """The result of stage 2: the last stage's point, its outputs on the test set, and the rounds.

    `points` are those of the hospitals, where they differ; `point` is the one that `outputs` are of.
    """

    point: Point
    outputs: Outputs
    history: History
    network: FlatModule
    points: ScoredPoints | None = None
    buffers: Tensor | None = None


def begin_training(
    experiment: Experiment,
    k: int,
    pretrained: Pretrained,
    deployment: Deployment,
    *,
    begins: bool = True,
    keeps_classifier: bool = False,
) -> Training:
    """Stage 2 of the first `k` clients with the weights of stage 1, and a new classifier unless that is kept.

    Without `begins` no client is started, because a saved state is to be restored.
    """
    network = starting_network(experiment.pipeline, experiment.machine, pretrained)
    if keeps_classifier:
        network.bind(pretrained.weights.to(experiment.machine.device).clone())
    federation = form_federation(experiment, k)
    monitor = watch_classes(experiment, federation, network)
    start, buffers = federation.start(network), network.buffers()
    fleet = deployment.fleet(experiment, pretrained, federation, network)
    engine = federation.engine(0, fleet if begins else BlankFleet(fleet.names), monitor)
    shared = federation.start_shared(network)
    state = engine.start_stage(start, buffers, shared=shared)
    compare = experiment.pipeline.evaluation.compare_outputs
    return Training(federation, network, fleet, monitor, engine, state, start, buffers, shared, compare_outputs=compare)


def train_federated(
    experiment: Experiment,
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
    deployment, test = deployment or Deployment(), experiment.test
    part, file = Part(identify(experiment).digest, f"k{k}"), folder / STATE
    evaluated, resumed = frozenset(experiment.pipeline.evaluated_rounds), file.exists()
    training = begin_training(experiment, k, pretrained, deployment, begins=not resumed)

    def score(points: ScoredPoints, buffers: Tensor) -> Outputs:
        return score_points(experiment, deployment, training.network, points, buffers)

    if resumed:
        training.restore(file, part)
    if training.history:
        done, rounds = len(training.history), training.settings.rounds
        if done < rounds:
            tell("noted", f"resuming K={k} after round {done} of {rounds}")
        report(training.history)
    outputs, times = None, SaveTimes()
    try:
        while training.stage < len(training.settings.schedule):
            entry, point, ends = training.run_round()
            entry |= _account_privacy(experiment.pipeline, k, entry["round"])
            if entry["round"] in evaluated:
                outputs = score(training.locate(point), training.state.buffers)
                entry |= {"auc": test.aucs(outputs), "mean_auc": test.mean_auc(outputs)}
            for name, end in ends.items():
                entry[f"auc_of_{name}"] = test.mean_auc(score(ScoredPoints(end.point), end.buffers))
            if ends and (rule := training.settings.stage_output) != "algorithm":
                entry[f"auc_of_{rule}"] = entry["mean_auc"]
            training.history.append(entry)
            if training.round == 0 or training.fleet.keeps_its_states or times.due:
                times.save(partial(training.save, file, part))
            report(training.history)
        points, buffers = training.locate(training.engine.current(training.state)), training.state.buffers
        if outputs is None:  # everything was done before this start
            outputs = score(points, buffers)
    finally:
        training.fleet.close()
    return Trained(points.at(test.site), outputs, training.history, training.network, points, buffers)


def score_points(
    experiment: Experiment, deployment: Deployment, network: FlatModule, points: ScoredPoints, buffers: Tensor
) -> Outputs:
    """The test set with these points and buffers: of several hospitals each with its own."""
    test = experiment.test

    def score(part: TestSet) -> Outputs:
        return deployment.score(experiment, network, points.at(part.site).primal, buffers, part)

    if not points.local or not test.parts:
        return score(test)
    return Outputs(np.concatenate([score(part).scores for part in test.parts]), buffers)


def retrain_if_damaged(state: Path, train: Callable[[], Trains]) -> Trains:
    """Train on from a saved state, or from the beginning if that is damaged; signals wait until it is saved."""
    with stopping.defer_signals():
        try:
            return train()
        except DamagedError as error:
            state.unlink()
            what = "of another release" if error.kind == "state of another release" else "damaged"
            warn(f"{state}: {what}, so this part is trained again")
            return train()


def _account_privacy(pipeline: Pipeline, k: int, rounds: int) -> dict[str, float]:
    """The privacy budget of the model, and together with those of smaller K, in which the same images are."""
    settings, exchange = pipeline.federated, pipeline.federated.exchange()
    before = pipeline.k.index(k) * settings.rounds
    of_all = exchange.account(before + rounds)
    return {**exchange.account(rounds), **{f"{name}_of_all": value for name, value in of_all.items()}}

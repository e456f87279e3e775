"""What a hospital could do instead of using the common model, trained and scored beside the largest K.

    kN/alternatives/own_data/SITE/      both stages on the hospital's images alone
    kN/alternatives/fine_tuned/SITE/    the common model trained on at the hospital; choice.json has what was chosen
    kN/alternatives/centralized/        one model of all images in one place
        SITE/                           its result at each hospital

Each SITE folder has result.json and predictions.parquet on the hospital's held-out patients. What is finished is not
repeated; a state of training is kept as in the folder of a K.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from chestfed.algorithms.variables import Point
from chestfed.core.checkpoint import read_json, write_json
from chestfed.core.errors import TrainingError
from chestfed.core.manifest import Part
from chestfed.evaluation.estimates import mean_of
from chestfed.evaluation.intervals.methods import Intervals
from chestfed.experiment.alternatives import FineTuning, centralized_settings
from chestfed.experiment.pipeline import Pipeline
from chestfed.models import FlatModule
from chestfed.results.run_folder import ALTERNATIVES, CENTRALIZED, FINE_TUNED, OWN_DATA
from chestfed.results.table import Row
from chestfed.training.assemble import Deployment, Team, assemble
from chestfed.training.clients import ClientData, Outputs, Setup, TestSet, score
from chestfed.training.loop import History, Trained, retrain_if_damaged, train_federated
from chestfed.training.pretrain import STATE, Pretrained
from chestfed.training.run_files import read_model, write_model, write_result, write_rounds

CHOICE: Final = "choice.json"
_SETTINGS: Final = "settings.json"

#: `report(what, done, total)`: rounds of an alternative, for progress.
Report = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Hospital:
    """A hospital that could do something else: its images, and its patients for testing and for choosing settings."""

    client: ClientData
    test: TestSet
    validation: TestSet | None

    @property
    def name(self) -> str:
        return self.client.name


@dataclass(frozen=True)
class AlternativeRuns:
    """The alternatives of a study; `folder` is that of its largest K, which is finished.

    `part(folder)` identifies a folder in its manifest. `stored(folder, test)` returns the checked result of a finished
    folder. `pretrain(setup)` runs stage 1, or reads it.
    """

    setup: Setup
    folder: Path
    part: Callable[[Path], Part]
    stored: Callable[[Path, TestSet], Row | None]
    pretrain: Callable[[Setup], Pretrained]
    report: Report
    warn: Callable[[str], object]

    @property
    def pipeline(self) -> Pipeline:
        return self.setup.pipeline

    def run(self) -> None:
        """Train and score what is missing.

        Raises
        ------
        TrainingError
            If training diverges. What is finished is kept.
        """
        choices = self.pipeline.alternatives
        if choices is None:
            return
        hospitals = list(self._hospitals())
        if choices.own_data:
            for hospital in hospitals:
                self._train_alone(hospital)
        if choices.fine_tuned is not None:
            self._keep_only(FINE_TUNED, [choices.fine_tuned.model_dump(), *map(_validation_digest, hospitals)])
            for hospital in hospitals:
                self._fine_tune(hospital, choices.fine_tuned)
        if choices.centralized is not None:
            self._keep_only(CENTRALIZED, choices.centralized)
            self._train_centralized(hospitals, choices.centralized)

    def _hospitals(self) -> Iterator[Hospital]:
        """The hospitals of the largest K that are one client and have both classes in training and test images."""
        data = self.setup.data
        clients = {client.name: client for client in data.clients[: self.pipeline.k[-1]]}
        for name, test in data.hospitals.items():
            if name not in clients:
                continue  # cut into several clients, or a negative control
            trained = ((clients[name].labels == 1).any(axis=0) & (clients[name].labels == 0).any(axis=0)).any()
            if trained and any(value is not None for value in test.aucs(_blank_outputs(test)).values()):
                yield Hospital(clients[name], test, data.validation.get(name))

    def _train_alone(self, hospital: Hospital) -> None:
        folder = self._folder(OWN_DATA, hospital.name)
        is_target = hospital.test is self.setup.data.test
        if (is_target and 1 in self.pipeline.k) or self.stored(folder, hospital.test) is not None:
            return  # the target alone is K=1
        setup = self._setup_of(hospital, hospital.test)
        trained = self._train(setup, 1, self.pretrain(setup), folder, f"{hospital.name}, own data")
        self._write(folder, setup, trained, hospital.test)

    def _train_centralized(self, hospitals: list[Hospital], changes: dict[str, Any]) -> None:
        folder, k = self.folder / ALTERNATIVES / CENTRALIZED, self.pipeline.k[-1]
        missing = [one for one in hospitals if self.stored(folder / one.name, one.test) is None]
        if not missing:
            return
        pipeline = self.pipeline.model_copy(
            update={"federated": centralized_settings(self.pipeline.federated, changes), "k": [k]}
        )
        setup = replace(self.setup, pipeline=pipeline)
        trained = self._train(setup, k, self.pretrain(self.setup), folder, "centralized")
        write_model(folder, pipeline, trained, self.setup.data)
        for hospital in missing:
            outputs = self._score(trained.network, trained.point.primal, trained.outputs.buffers, hospital.test)
            self._write_row(folder / hospital.name, outputs, hospital.test)

    def _fine_tune(self, hospital: Hospital, settings: FineTuning) -> None:
        folder = self._folder(FINE_TUNED, hospital.name)
        if self.stored(folder, hospital.test) is not None:
            return
        chosen = self._common_model(hospital)
        candidates = [chosen.summary]
        for factor in settings.lr_factors:
            try:
                for candidate in self._trained_on(hospital, settings, factor):
                    candidates.append(candidate.summary)
                    if _is_better(candidate, chosen):
                        chosen = candidate
            except TrainingError as error:
                self.warn(f"{hospital.name}: fine-tuning with lr_factor {factor:g} is left out: {error}")
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / CHOICE, {"chosen": chosen.summary, "candidates": candidates})
        network = self._common_network
        outputs = self._score(network, chosen.primal, chosen.buffers, hospital.test)
        trained = Trained(Point(chosen.primal, chosen.primal[:0]), outputs, [], network)
        self._write(folder, self._setup_of(hospital, hospital.test), trained, hospital.test)

    def _trained_on(self, hospital: Hospital, settings: FineTuning, factor: float) -> Iterator[Candidate]:
        """The common model trained on with one step size, as it is after each number of epochs."""
        assert hospital.validation is not None
        federated = self.pipeline.federated
        rows, size = hospital.client.training_rows, federated.images_per_step
        rounds_of = {epochs: max(1, round(epochs * rows / size / federated.window)) for epochs in settings.epochs}
        changes: dict[str, Any] = {"stages": 1, "clients_per_round": None, "local_lr": federated.local_lr * factor}
        changes["stage_steps"] = max(rounds_of.values()) * federated.window
        setup = self._setup_of(hospital, hospital.validation, changes)
        team = self._team(setup)
        engine = team.engine_of(0)
        try:
            state = engine.start_stage(team.start, team.network.buffers())
            for number in range(1, max(rounds_of.values()) + 1):
                state, _ = engine.run_round(state)
                self.report(f"{hospital.name}, fine-tuning, step x {factor:g}", number, max(rounds_of.values()))
                for epochs in (epochs for epochs, rounds in rounds_of.items() if rounds == number):
                    primal = engine.current(state).primal[: team.network.size].clone()
                    buffers = state.buffers.clone()
                    outputs = self._score(team.network, primal, buffers, hospital.validation)
                    yield Candidate(
                        epochs, factor, mean_of(hospital.validation.aucs(outputs).values()), primal, buffers
                    )
        finally:
            team.fleet.close()

    def _common_model(self, hospital: Hospital) -> Candidate:
        """The common model as it is: the candidate without further training."""
        network = self._common_network
        primal, buffers = self._common_weights
        assert hospital.validation is not None
        outputs = self._score(network, primal, buffers, hospital.validation)
        return Candidate(0.0, 0.0, mean_of(hospital.validation.aucs(outputs).values()), primal, buffers)

    @cached_property
    def _common_network(self) -> FlatModule:
        return read_model(self.folder, self.setup)

    @cached_property
    def _common_weights(self) -> tuple[torch.Tensor, torch.Tensor]:
        network = read_model(self.folder, self.setup)
        return network.parameters().clone(), network.buffers().clone()

    def _team(self, setup: Setup) -> Team:
        """The hospital as the only client, starting with the common weights and its own p; a, b and alpha anew."""
        primal, buffers = self._common_weights
        team = assemble(setup, 1, Pretrained(primal.cpu(), buffers.cpu(), []), Deployment())
        weights = primal.to(team.start.primal)
        start = Point(torch.cat([weights, team.start.primal[len(weights) :]]), team.start.dual)
        team.network.bind(weights.clone())
        team.network.load_buffers(buffers)
        return replace(team, start=start)

    def _setup_of(self, hospital: Hospital, test: TestSet, changes: dict[str, Any] | None = None) -> Setup:
        """A study of this hospital alone."""
        federated = self.pipeline.federated.model_copy(update=changes or {"clients_per_round": None})
        pipeline = self.pipeline.model_copy(update={"k": [1], "federated": federated, "alternatives": None})
        data = replace(self.setup.data, clients=(hospital.client,), test=test, hospitals={}, joins={})
        return replace(self.setup, pipeline=pipeline, data=data)

    def _train(self, setup: Setup, k: int, pretrained: Pretrained, folder: Path, name: str) -> Trained:
        folder.mkdir(parents=True, exist_ok=True)
        rounds = setup.pipeline.federated.rounds

        def report(history: History) -> None:
            self.report(name, len(history), rounds)

        return retrain_if_damaged(
            folder / STATE, partial(train_federated, setup, k, pretrained, folder, report), self.warn
        )

    def _score(self, network: FlatModule, primal: torch.Tensor, buffers: torch.Tensor, test: TestSet) -> Outputs:
        return score(network, primal, buffers, test, self.pipeline.evaluation.batch_size, self.setup.machine)

    def _write(self, folder: Path, setup: Setup, trained: Trained, test: TestSet) -> None:
        write_model(folder, setup.pipeline, trained, setup.data)
        if trained.history:
            write_rounds(folder, trained.history)
        self._write_row(folder, trained.outputs, test)

    def _write_row(self, folder: Path, outputs: Outputs, test: TestSet) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        evaluation = self.pipeline.evaluation
        row = test.row(outputs, self.pipeline.k[-1], (), Intervals(evaluation.interval, evaluation.resamples))
        write_result(folder, self.part(folder), row, outputs.scores, test)

    def _folder(self, kind: str, site: str) -> Path:
        return self.folder / ALTERNATIVES / kind / site

    def _keep_only(self, kind: str, settings: Any) -> None:
        """Remove what was trained with other settings."""
        folder = self.folder / ALTERNATIVES / kind
        text = json.dumps(settings, sort_keys=True)
        if (folder / _SETTINGS).is_file() and read_json(folder / _SETTINGS) != {"settings": text}:
            shutil.rmtree(folder)
            self.warn(f"{kind}: other settings than before, trained again")
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / _SETTINGS, {"settings": text})


@dataclass(frozen=True)
class Candidate:
    """Weights `[d]` and buffers after so many epochs, and their mean AUC on the validation patients."""

    epochs: float
    lr_factor: float
    auc: float | None
    primal: torch.Tensor
    buffers: torch.Tensor

    @property
    def summary(self) -> dict[str, float | None]:
        return {"epochs": self.epochs, "lr_factor": self.lr_factor, "validation_auc": self.auc}


def _is_better(candidate: Candidate, chosen: Candidate) -> bool:
    return candidate.auc is not None and (chosen.auc is None or candidate.auc > chosen.auc)


def _blank_outputs(test: TestSet) -> Outputs:
    return Outputs(np.zeros(test.labels.shape), torch.zeros(0))


def _validation_digest(hospital: Hospital) -> str:
    """Which patients settings are chosen on: from keyed names and labels."""
    digest = hashlib.blake2b(digest_size=8)
    if hospital.validation is not None:
        digest.update("\n".join(hospital.validation.image_names).encode())
        digest.update(np.ascontiguousarray(hospital.validation.labels).tobytes())
    return digest.hexdigest()

"""Alternatives of a hospital to the common model, trained and scored beside the largest K.

    kN/alternatives/own_data/SITE/      both stages on the hospital's images alone
    kN/alternatives/own_data_all/SITE/  the same with its validation patients, which a hospital without a gate would use
    kN/alternatives/fine_tuned/SITE/    the common model trained on at the hospital; choice.json has what was chosen
    kN/alternatives/centralized/        one model of all images in one place
        SITE/                           its result at each hospital
    kN/alternatives/gate/SITE/          whichever of these the hospital's validation patients show to be better than its
                                        own; choice.json has what was chosen, and what that may cost

Each SITE folder has result.json and predictions.parquet on the hospital's held-out patients. What is finished is not
repeated; a state of training is kept as in the folder of a K.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import torch

from chestfed.core.checkpoint import read_json, write_json
from chestfed.core.config import drop_added
from chestfed.core.errors import TrainingError
from chestfed.core.manifest import Part
from chestfed.core.provenance import Origin
from chestfed.learning.algorithms.variables import Point
from chestfed.learning.models import FlatModule
from chestfed.results.evaluation.estimates import mean_of
from chestfed.results.evaluation.intervals.methods import Intervals
from chestfed.results.evaluation.joining import gate
from chestfed.results.evaluation.joining.gate_price import GatePrice, find_caution, price_gate
from chestfed.results.evaluation.labeled import LEAST_PATIENTS
from chestfed.results.tables.columns import CENTRALIZED, FINE_TUNED, GATE, OWN_DATA, OWN_DATA_ALL
from chestfed.results.tables.frames import Row
from chestfed.results.tables.run_folder import ALTERNATIVES, CHOICE, MODEL_FILE
from chestfed.studies.experiment.alternatives import FineTuning, Gate, centralized_settings
from chestfed.studies.experiment.options.rounds import LocalSteps
from chestfed.studies.experiment.pipeline import Pipeline
from chestfed.studies.experiment.ranges import at_k, with_values
from chestfed.studies.experiment.stage_2 import Federated
from chestfed.studies.training.assemble import Deployment
from chestfed.studies.training.data.clients import ClientData, Outputs, TestSet, pool_clients, score
from chestfed.studies.training.data.experiment import Experiment
from chestfed.studies.training.loop import History, Trained, begin_training, retrain_if_damaged, train_federated
from chestfed.studies.training.pretrain import STATE, Pretrained
from chestfed.studies.training.reporting import tell, warn
from chestfed.studies.training.run_files import read_model, write_model, write_result, write_rounds

_SETTINGS: Final = "settings.json"


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

    `part(folder)` identifies a folder in its manifest. `load(folder, test=...)` returns the checked result of a
    finished folder. `pretrain(experiment)` runs stage 1, or reads it.
    """

    experiment: Experiment
    folder: Path
    part: Callable[[Path], Part]
    load: Callable[..., Row | None]
    pretrain: Callable[[Experiment], Pretrained]

    @property
    def pipeline(self) -> Pipeline:
        return self.experiment.pipeline

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
        for name in self.list_alone():
            self.train_alone(name)
        if choices.fine_tuned is not None:
            self._keep_only(FINE_TUNED, [choices.fine_tuned.model_dump(), *map(_validation_digest, hospitals)])
            for hospital in hospitals:
                self._fine_tune(hospital, choices.fine_tuned)
        if choices.centralized is not None:
            self._keep_only(CENTRALIZED, choices.centralized)
            self._train_centralized(hospitals, choices.centralized)
        if choices.gate is not None:
            tuning = choices.fine_tuned and choices.fine_tuned.model_dump()
            rule = choices.gate.model_dump()
            drop_added(choices.gate, rule)
            settings = [rule, LEAST_PATIENTS, tuning, *map(_validation_digest, hospitals)]
            settings += [choices.own_data_settings] if choices.own_data_settings else []
            self._keep_only(GATE, settings)
            of_own_data = {hospital.name: self._list_own_settings(hospital.name) for hospital in hospitals}
            steps = [] if choices.own_data_steps == "epochs" else [choices.own_data_steps]
            self._keep_only(OWN_DATA_ALL, [of_own_data, *map(_validation_digest, hospitals), *steps])
            for hospital in hospitals:
                self._train_on_all(hospital)
                self._choose(hospital, choices.gate)

    def list_alone(self) -> list[str]:
        """The hospitals whose model of their own data is missing, those with most images first.

        Models of another number of steps, or of other settings, are removed.
        """
        if self.pipeline.alternatives is not None and self.pipeline.alternatives.own_data:
            self._keep_only(OWN_DATA, self.pipeline.alternatives.own_data_steps, first="epochs")
        self._drop_other_settings()
        missing = sorted(self._list_alone(), key=lambda hospital: -hospital.client.training_rows)
        return [hospital.name for hospital in missing]

    def train_alone(self, name: str) -> None:
        """Train and score the model of a hospital's own data, for `run_study` in another process."""
        for hospital in self._list_alone():
            if hospital.name == name:
                self._train_alone(hospital)

    def _list_alone(self) -> list[Hospital]:
        if self.pipeline.alternatives is None or not self.pipeline.alternatives.own_data:
            return []
        return [hospital for hospital in self._hospitals() if not self._is_trained_alone(hospital)]

    def _drop_other_settings(self) -> None:
        """Remove models of own data that were trained with other settings."""
        choices = self.pipeline.alternatives
        if choices is None or not choices.own_data:
            return
        for client in self.experiment.clients:
            folder, values = self._folder(OWN_DATA, client.name), self._list_own_settings(client.name)
            stored = read_json(folder / _SETTINGS) if (folder / _SETTINGS).is_file() else {}
            if folder.is_dir() and stored != values:
                shutil.rmtree(folder)
                warn(f"{OWN_DATA}, {client.name}: other settings than before, trained again")

    def _list_own_settings(self, name: str) -> dict[str, float]:
        choices = self.pipeline.alternatives
        return {} if choices is None else choices.own_data_settings.get(name, {})

    def _is_trained_alone(self, hospital: Hospital) -> bool:
        """Whether the model of a hospital's own data is there; of the target that is K=1."""
        if hospital.test is self.experiment.test and 1 in self.pipeline.k:
            return True
        return self.load(self._folder(OWN_DATA, hospital.name), test=hospital.test) is not None

    def _hospitals(self) -> Iterator[Hospital]:
        """The hospitals of the largest K that are one client and have both classes in training and test images."""
        experiment, choices = self.experiment, self.pipeline.alternatives
        clients = {client.name: client for client in experiment.clients[: self.pipeline.k[-1]]}
        for name, test in experiment.hospitals.items():
            if name not in clients or not (choices is None or choices.includes(name)):
                continue  # cut into several clients, a negative control, or left out
            trained = ((clients[name].labels == 1).any(axis=0) & (clients[name].labels == 0).any(axis=0)).any()
            if trained and any(value is not None for value in test.aucs(_blank_outputs(test)).values()):
                yield Hospital(clients[name], test, experiment.validation.get(name))

    def _train_alone(self, hospital: Hospital) -> None:
        folder = self._folder(OWN_DATA, hospital.name)
        experiment = self._isolate(hospital, hospital.test, self._list_own_settings(hospital.name))
        experiment = self._limit_stage_1(experiment)
        folder.mkdir(parents=True, exist_ok=True)
        if values := self._list_own_settings(hospital.name):
            write_json(folder / _SETTINGS, values)
        trained = self._train(experiment, 1, self.pretrain(experiment), folder, f"{hospital.name}, own data")
        self._write(folder, experiment, trained, hospital.test)

    def _train_on_all(self, hospital: Hospital) -> None:
        """Own data with the validation patients, whom a hospital that chooses nothing on them would train on."""
        folder, validation = self._folder(OWN_DATA_ALL, hospital.name), hospital.validation
        if validation is None or not len(validation.labels) or self.load(folder, test=hospital.test) is not None:
            return
        repeats = np.ones(len(validation.labels), np.int64)
        added = ClientData(hospital.name, validation.images, validation.labels, repeats, hospital.client.origin)
        client = replace(pool_clients([hospital.client, added]), name=hospital.name)
        values = self._list_own_settings(hospital.name)
        experiment = self._limit_stage_1(self._isolate(replace(hospital, client=client), hospital.test, values))
        digest = f"{experiment.digests[hospital.name]} {_validation_digest(hospital)}"
        experiment = replace(experiment, digests={**experiment.digests, hospital.name: digest})
        name = f"{hospital.name}, own data and validation patients"
        trained = self._train(experiment, 1, self.pretrain(experiment), folder, name)
        self._write(folder, experiment, trained, hospital.test)

    def _train_centralized(self, hospitals: list[Hospital], changes: dict[str, Any]) -> None:
        folder, k = self.folder / ALTERNATIVES / CENTRALIZED, self.pipeline.k[-1]
        missing = [hospital for hospital in hospitals if self.load(folder / hospital.name, test=hospital.test) is None]
        if not missing:
            return
        pipeline = self.pipeline.model_copy(
            update={"federated": centralized_settings(at_k(self.pipeline.federated, k), changes), "k": [k]}
        )
        experiment = replace(self.experiment, pipeline=pipeline)
        trained = self._train(experiment, k, self.pretrain(self.experiment), folder, "centralized")
        write_model(folder, trained, experiment, experiment.find_model_origin(k))
        for hospital in missing:
            outputs = self._score(trained.network, trained.point.primal, trained.outputs.buffers, hospital.test)
            self._write_row(folder / hospital.name, outputs, hospital.test)

    def _fine_tune(self, hospital: Hospital, settings: FineTuning) -> None:
        folder = self._folder(FINE_TUNED, hospital.name)
        if self.load(folder, test=hospital.test) is not None:
            return
        chosen = self._common_model(hospital)
        candidates = [chosen.summary]
        for factor in settings.lr_factors:
            try:
                for candidate in self._train_candidates(hospital, settings, factor):
                    candidates.append(candidate.summary)
                    if _is_better(candidate, chosen):
                        chosen = candidate
            except TrainingError as error:
                warn(f"{hospital.name}: fine-tuning with lr_factor {factor:g} is left out: {error}")
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / CHOICE, {"chosen": chosen.summary, "candidates": candidates})
        network = self._common_network
        outputs = self._score(network, chosen.primal, chosen.buffers, hospital.test)
        trained = Trained(Point(chosen.primal, chosen.primal[:0]), outputs, [], network)
        self._write(folder, self._isolate(hospital, hospital.test), trained, hospital.test, self.pipeline.k[-1])

    def _train_candidates(self, hospital: Hospital, settings: FineTuning, factor: float) -> Iterator[Candidate]:
        """The common model trained on with one step size, as it is after each number of epochs."""
        assert hospital.validation is not None
        federated = self._common_settings
        rows, size = hospital.client.training_rows, federated.images_per_step
        rounds_of = {epochs: max(1, round(epochs * rows / size / federated.window)) for epochs in settings.epochs}
        changes: dict[str, Any] = {"stages": 1, "clients_per_round": None, "local_lr": federated.local_lr * factor}
        changes["local_steps"] = None  # an epoch is counted in windows
        changes["stage_steps"] = max(rounds_of.values()) * federated.window
        experiment = isolate(self.experiment, hospital.client, hospital.validation, federated, changes)
        primal, buffers = (tensor.cpu() for tensor in self._common_weights)  # a, b and alpha anew, the hospital's own p
        training = begin_training(experiment, 1, Pretrained(primal, buffers, []), Deployment(), keeps_classifier=True)
        engine, network, state = training.engine, training.network, training.state
        try:
            for number in range(1, max(rounds_of.values()) + 1):
                state, _ = engine.run_round(state)
                name = f"{hospital.name}, fine-tuning, step x {factor:g}"
                tell("alternative_trained", name, number, max(rounds_of.values()))
                for epochs in (epochs for epochs, rounds in rounds_of.items() if rounds == number):
                    primal = engine.current(state).primal[: network.size].clone()
                    buffers = state.buffers.clone()
                    outputs = self._score(network, primal, buffers, hospital.validation)
                    auc = mean_of(hospital.validation.aucs(outputs).values())
                    yield Candidate(epochs, factor, auc, primal, buffers)
        finally:
            training.fleet.close()

    def _choose(self, hospital: Hospital, settings: Gate) -> None:
        """The gate: a model is chosen by the scores of validation images alone, and then scores the test images."""
        folder = self._folder(GATE, hospital.name)
        if self.load(folder, test=hospital.test) is not None:
            return
        networks = {name: read_model(place, self.experiment) for name, place in self._list_models(hospital).items()}
        weights = {name: (network.parameters(), network.buffers()) for name, network in networks.items()}
        validation = hospital.validation
        known: dict[str, np.ndarray] = {}
        choice, price = gate.Choice(OWN_DATA, False, (), "there are no validation images"), None
        if validation is not None:
            known = {name: self._score(networks[name], *weights[name], validation).scores for name in networks}
            choice, price = _choose_by_validation(known, validation, settings)
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / CHOICE, asdict(choice) | {"price": None if price is None else asdict(price)})
        used = {name for name in networks if name == choice.name or (choice.mixed and name == OWN_DATA)}
        judged = {name: self._score(networks[name], *weights[name], hospital.test).scores for name in used}
        scores = gate.apply(choice, OWN_DATA, judged, known)
        self._write_row(folder, Outputs(scores, torch.zeros(0)), hospital.test)

    def _list_models(self, hospital: Hospital) -> dict[str, Path]:
        """Models that the gate chooses from: kind of model -> its folder; the common model is called `common`."""
        folder = self._folder(OWN_DATA, hospital.name)
        if not (folder / MODEL_FILE).is_file():
            folder = self.folder.parent / "k1"  # the target alone
        models = {OWN_DATA: folder, "common": self.folder, FINE_TUNED: self._folder(FINE_TUNED, hospital.name)}
        return {name: place for name, place in models.items() if (place / MODEL_FILE).is_file()}

    def _common_model(self, hospital: Hospital) -> Candidate:
        """The common model as it is: the candidate without further training."""
        network = self._common_network
        primal, buffers = self._common_weights
        assert hospital.validation is not None
        outputs = self._score(network, primal, buffers, hospital.validation)
        return Candidate(0.0, 0.0, mean_of(hospital.validation.aucs(outputs).values()), primal, buffers)

    @cached_property
    def _common_network(self) -> FlatModule:
        return read_model(self.folder, self.experiment)

    @cached_property
    def _common_weights(self) -> tuple[torch.Tensor, torch.Tensor]:
        network = read_model(self.folder, self.experiment)
        return network.parameters().clone(), network.buffers().clone()

    @property
    def _common_settings(self) -> Federated:
        """The settings with which the largest K was trained."""
        return at_k(self.pipeline.federated, self.pipeline.k[-1])

    def _isolate(
        self, hospital: Hospital, test: TestSet, values: Mapping[str, float] = MappingProxyType({})
    ) -> Experiment:
        """A study of this hospital alone, with these values of its settings; it is scored at its end."""
        alone = isolate(self.experiment, hospital.client, test, with_values(self._common_settings, values))
        last = {"every": alone.pipeline.federated.rounds, "every_steps": None}
        evaluation = alone.pipeline.evaluation.model_copy(update=last)
        return replace(alone, pipeline=alone.pipeline.model_copy(update={"evaluation": evaluation}))

    def _limit_stage_1(self, alone: Experiment) -> Experiment:
        """The study of one hospital with as much of stage 1 as `alternatives.own_data_steps` says."""
        assert self.pipeline.alternatives is not None
        rows, target_rows = alone.clients[0].training_rows, self.experiment.clients[0].training_rows
        pretrain = self.pipeline.alternatives.limit_pretraining(self.pipeline.pretrain, rows, target_rows)
        return replace(alone, pipeline=alone.pipeline.model_copy(update={"pretrain": pretrain}))

    def _train(self, experiment: Experiment, k: int, pretrained: Pretrained, folder: Path, name: str) -> Trained:
        folder.mkdir(parents=True, exist_ok=True)
        rounds = experiment.pipeline.federated.rounds

        def report(history: History) -> None:
            tell("alternative_trained", name, len(history), rounds)

        return retrain_if_damaged(folder / STATE, partial(train_federated, experiment, k, pretrained, folder, report))

    def _score(self, network: FlatModule, primal: torch.Tensor, buffers: torch.Tensor, test: TestSet) -> Outputs:
        return score(network, primal, buffers, test, self.pipeline.evaluation.batch_size, self.experiment.machine)

    def _write(self, folder: Path, experiment: Experiment, trained: Trained, test: TestSet, start_k: int = 0) -> None:
        """The model of one hospital's data, and its row; `start_k`: K of the model that training began with."""
        origins = [self.experiment.find_model_origin(start_k)] if start_k else []
        write_model(folder, trained, experiment, Origin.together([*origins, experiment.find_model_origin(1)]))
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

    def _keep_only(self, kind: str, settings: Any, first: Any = None) -> None:
        """Remove what was trained with other settings; what has none written was trained with `first`."""
        folder = self.folder / ALTERNATIVES / kind
        text = json.dumps(settings, sort_keys=True)
        stored = read_json(folder / _SETTINGS).get("settings", text if first is None else json.dumps(first))
        if folder.is_dir() and stored != text:
            shutil.rmtree(folder)
            warn(f"{kind}: other settings than before, trained again")
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / _SETTINGS, {"settings": text})


def isolate(
    experiment: Experiment,
    client: ClientData,
    test: TestSet,
    settings: Federated,
    changes: Mapping[str, Any] = MappingProxyType({}),
) -> Experiment:
    """The study of one client alone, with these settings, scored on `test`; `changes` are made to the settings."""
    alone: dict[str, Any] = {
        "clients_per_round": None,
        "local_steps": _find_local_steps(experiment, client, settings),
        "by_k": {},
    }
    federated = settings.model_copy(update={**alone, **changes})
    pipeline = experiment.pipeline.model_copy(update={"k": [1], "federated": federated, "alternatives": None})
    return replace(experiment, clients=(client,), test=test, hospitals={}, joins={}, pipeline=pipeline)


def _find_local_steps(experiment: Experiment, client: ClientData, settings: Federated) -> LocalSteps | None:
    """Local steps of the client as the only one: of a number per client its own."""
    steps = settings.local_steps
    if steps is None or steps.per_client is None:
        return steps
    place = [other.name for other in experiment.clients].index(client.name)
    return steps.model_copy(update={"per_client": [steps.per_client[place]]})


def _choose_by_validation(
    scores: dict[str, np.ndarray], validation: TestSet, settings: Gate
) -> tuple[gate.Choice, GatePrice | None]:
    """What the gate chooses, and what its caution may cost; with a bound the caution is chosen by that."""
    given = OWN_DATA, scores, validation.labels, np.asarray(validation.patients)
    if settings.worst is None:
        price = next(iter(price_gate(*given, (settings.caution,))), None)
    else:
        price = find_caution(price_gate(*given), settings.worst)
        if price is not None and price.worst < -settings.worst:
            text = f"too few validation patients for alternatives.gate.worst: {settings.worst:g}"
            warn(f"{validation.site}: {text}; caution {price.caution:g}")
    return gate.choose(*given, settings.caution if price is None else price.caution), price


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

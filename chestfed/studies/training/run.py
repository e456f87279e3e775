"""Run a study, or what is left of it: stage 1 once, stage 2 for every K, the table after each.

A run folder is named by the digest of what determines the result: the resolved configuration, the content of the
sites (pixels, labels), and the code. The same command therefore finds its own unfinished work and resumes:

    runs/<pipeline>-<digest>/
        study.json       identity: configuration, digests, versions
        sites.json, thumbnails.npz      what a report says of the sites
        trained_patients.parquet        keyed names of the patients trained on
        k1/ k2/ ...      state of stage 2, model, predictions, result, manifest.json
            hospitals/<site>/    predictions and result on a hospital's own held-out patients
        table.csv
        significance.csv
        hospitals.json, hospitals.csv, hospital_gains.csv    who is scored, the AUCs there, and what they gain
        manifest.json    which run and part this is, digests of the files; also in the folder of each K and hospital
    runs/pretrained-<digest>/
        state of stage 1, shared by all studies that have it in common

What is damaged or missing when a study starts again is named and made again: files of a K from its saved state, a
damaged state by training again. A folder that holds another K, or one of another run, is named and set aside.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path

import torch
from filelock import FileLock

from chestfed.core.checkpoint import remove_orphans, write_json
from chestfed.core.diseases import format_title as disease_title
from chestfed.core.disk import check_room
from chestfed.core.errors import ChestfedError
from chestfed.core.manifest import MANIFEST, MisplacedError, Part, find_damage, write_manifest
from chestfed.core.plugins import freeze_plugins
from chestfed.core.pseudonyms import refuse_key_within
from chestfed.learning.abilities import Can
from chestfed.learning.models import FlatModule, build_model
from chestfed.results.evaluation.intervals.methods import Intervals
from chestfed.results.tables.clients.influence import describe_loss
from chestfed.results.tables.collect import collect, write_results
from chestfed.results.tables.files import SECONDS, RoundTimes, read_predictions
from chestfed.results.tables.frames import Results, Row, make_differences, read_row, write_frames
from chestfed.results.tables.run_folder import (
    COMMON_FILE,
    FILES,
    HOSPITALS,
    MODEL_FILE,
    NEEDED_OF_K,
    PREDICTIONS,
    RESULT,
    STAGE_1,
    STUDY,
    TIME,
    RunFolder,
)
from chestfed.studies.experiment.options.sampling import check_classes
from chestfed.studies.experiment.pipeline import Pipeline
from chestfed.studies.training.alternatives import AlternativeRuns
from chestfed.studies.training.assemble import Deployment
from chestfed.studies.training.costs import count_state_bytes
from chestfed.studies.training.data.clients import Outputs, TestSet
from chestfed.studies.training.data.experiment import Experiment
from chestfed.studies.training.data.mistakes import write_mistakes
from chestfed.studies.training.data.trained_patients import write_trained
from chestfed.studies.training.identity import identify, stage_1_identity
from chestfed.studies.training.loop import History, retrain_if_damaged, train_federated
from chestfed.studies.training.pretrain import STATE, Pretrained, new_network
from chestfed.studies.training.reporting import Reporters, StudyRun, current, tell, use, warn
from chestfed.studies.training.run_files import (
    groups_changed,
    lock_folder,
    predictions_match,
    read_model,
    remove_damaged,
    write_hospitals,
    write_identity,
    write_model,
    write_result,
    write_rounds,
)
from chestfed.studies.training.versions import note_maker


@dataclass(frozen=True)
class StudyResult:
    """A finished study."""

    folder: Path
    results: Results
    seen: dict[str, Row] = field(default_factory=dict)  #: with a held-out site: on each site trained on


def run_study(
    experiment: Experiment,
    name: str,
    out: Path,
    reporters: Reporters | None = None,
    deployment: Deployment | None = None,
    ahead: Callable[[Sequence[int], Sequence[str]], object] | None = None,
) -> StudyResult:
    """Run every K of the pipeline and write the tables; finished parts are taken from the run folder.

    `reporters` are the current ones if None. `deployment` says where the images are and the clients compute; None:
    here. `ahead`, if given, is called with the K that are not finished, and with the hospitals whose own data are not;
    it trains them, by `train_k` and `train_alone` in other processes.

    Raises
    ------
    ChestfedError
        If another process works in the same run folder, it is another run's, or training fails. What is finished is
        kept.
    """
    pipeline, identity, deployment = experiment.pipeline, identify(experiment), deployment or Deployment()
    refuse_key_within(out, experiment.test.key)
    folder = name_folder(experiment, name, out)
    with use(reporters or current()), lock_folder(folder), freeze_plugins():
        remove_orphans(folder)
        part = Part(identity.digest, ".")
        remove_damaged(folder, part)
        write_identity(folder, experiment)
        deployment.describe(folder, experiment)
        write_hospitals(folder, experiment)
        clients = tuple(client.name for client in experiment.clients)
        write_trained(folder, experiment.sites, clients, pipeline.model, experiment.test.key)
        write_manifest(folder, part, FILES)
        tell(
            "study_started",
            StudyRun(folder, name, pipeline, identity, experiment.origin, clients, experiment.held_out),
        )
        try:
            study = RunningStudy(experiment, folder, deployment)
            if ahead is not None:
                missing = [k for k in pipeline.k if study.load_finished(k) is None], study.alternatives.list_alone()
                if any(missing):
                    ahead(*missing)
            study.run_all_ks()
            seen = study.score_hospitals(pipeline.k[-1]) if experiment.held_out else {}
            study.alternatives.run()
            results = collect([RunFolder(folder)])
            write_results(results, folder)
            write_manifest(folder, part, FILES)
        except BaseException as error:
            tell("study_failed", error)
            raise
        tell("study_done", results)
        return StudyResult(folder, results, seen)


def train_k(experiment: Experiment, name: str, out: Path, k: int, reporters: Reporters) -> None:
    """Train and score one K of a study that `run_study` runs in another process, which holds the folder's lock.

    Raises
    ------
    ChestfedError
        If a plug-in was edited since that process began: this one has the new code, which is another study's.
    """
    with _join_study(experiment, name, out, reporters) as study:
        study.run_k(k)
        study.score_hospitals(k)


def train_alone(experiment: Experiment, name: str, out: Path, hospital: str, reporters: Reporters) -> None:
    """Train and score the model of a hospital's own data; otherwise as `train_k`."""
    with _join_study(experiment, name, out, reporters) as study:
        study.alternatives.train_alone(hospital)


@contextmanager
def _join_study(experiment: Experiment, name: str, out: Path, reporters: Reporters) -> Iterator[RunningStudy]:
    """The study that another process has begun."""
    folder = name_folder(experiment, name, out)
    if not (folder / STUDY).is_file():
        text = f"a plug-in's file was changed during the run; rerun the command ({folder.name} was not begun)"
        raise ChestfedError(text, kind="plug-in changed")
    with use(reporters), freeze_plugins():
        yield RunningStudy(experiment, folder, Deployment())


def name_folder(experiment: Experiment, name: str, out: Path) -> Path:
    """The run folder of a study."""
    return out / f"{experiment.origin.prefix}{name}-{identify(experiment).digest}"


@dataclass(frozen=True)
class RunningStudy:
    """A study at work in its folder."""

    experiment: Experiment
    folder: Path
    deployment: Deployment

    @property
    def pipeline(self) -> Pipeline:
        return self.experiment.pipeline

    def part(self, folder: Path) -> Part:
        """Part of this study that a folder is to hold."""
        return Part(self.digest, folder.relative_to(self.folder).as_posix())

    @cached_property
    def digest(self) -> str:
        """The identity of the study."""
        return identify(self.experiment).digest

    def run_all_ks(self) -> None:
        """Train and score every K, and write its table after each."""
        for place, k in enumerate(self.pipeline.k, start=1):
            row = self.load_finished(k)
            reused = row is not None
            row = row or self.run_k(k)
            self.score_hospitals(k)
            run = RunFolder(self.folder)
            results = collect([run], ks=self.pipeline.k[:place], differences=make_differences([]))
            write_frames(self.folder, results.estimates, results.differences, ("study",))
            write_manifest(self.folder, self.part(self.folder), FILES)
            tell("k_done", row, results, reused=reused)

    def load_finished(self, k: int) -> Row | None:
        """The result of a finished K."""
        folder = self.folder / f"k{k}"
        return self._finished(folder, k, self.experiment.test) if self._is_sound(folder, NEEDED_OF_K) else None

    @cached_property
    def pretrained(self) -> Pretrained:
        """Stage 1, when it is first needed."""
        pipeline, out = self.pipeline, self.folder.parent
        parameters = sum(
            part.numel() for part in build_model(pipeline.model, len(self.experiment.diseases), 0).parameters()
        )
        there = sum(file.stat().st_size for file in self.folder.rglob("*.safetensors"))
        check_room(out, count_state_bytes(parameters, len(pipeline.k)) - there, "models and states", "--out")
        return shared_stage_1(self.experiment, out, deployment=self.deployment)

    def run_k(self, k: int) -> Row:
        """Stage 2 with the first K clients, or what is left of it.

        Raises `ConfigError` if batches are to be drawn by class, and a client of the largest K cannot.
        """
        clients = self.experiment.list_clients(self.pipeline.k[-1])
        check_classes(self.pipeline.federated, {client.name: client.has_both_classes for client in clients})
        for disease, what in self.experiment.find_lacking(k).items():
            text = f"no {what} of {disease_title(disease)} among the training images: the model cannot learn it"
            warn(f"K={k}: {text}")
        pretrained, folder = self.pretrained, self.folder / f"k{k}"
        self._score_stage_1(pretrained)
        folder.mkdir(exist_ok=True)
        tell("k_started", k)
        started, resumed = time.monotonic(), (folder / STATE).exists()
        note_maker(folder, self.experiment.machine, resumed=resumed)
        times = RoundTimes(folder / SECONDS, resumed=resumed)

        def report(history: History) -> None:
            times.reached(len(history))
            tell("round_done", k, history, self.pipeline.federated.rounds)
            times.next_round()

        train = partial(train_federated, self.experiment, k, pretrained, folder, report, self.deployment)
        trained = retrain_if_damaged(folder / STATE, train)
        row = self._row(k, trained.outputs, self.experiment.test)
        if k > 1 and (loss := describe_loss(trained.history, row.aucs[-1])):
            warn(f"K={k}: {loss}")
        write_model(folder, trained, self.experiment, self.experiment.find_model_origin(k))
        write_rounds(folder, trained.history)
        if not (folder / TIME).exists():  # unless only other files of a finished K are made again
            seconds = time.monotonic() - started
            write_json(folder / TIME, {"seconds": seconds, "resumed": resumed, "on": self.experiment.machine.name})
        if k == self.pipeline.k[-1] and not row.scores_stay and self.deployment.has_test_images:
            write_mistakes(folder, self.experiment.test, trained.outputs.scores)
        write_result(folder, self.part(folder), row, trained.outputs.scores, self.experiment.test)
        return row

    def _score_stage_1(self, pretrained: Pretrained) -> None:
        """Write the AUCs after stage 1 alone, where the test images are at hand."""
        file, machine = self.folder / STAGE_1, self.experiment.machine
        if file.exists() or not self.pipeline.pretrain.epochs or not self.deployment.has_test_images:
            return
        network = new_network(self.pipeline, machine)
        network.bind(pretrained.weights.to(machine.device).clone())
        network.load_buffers(pretrained.buffers.to(machine.device))
        test, start = self.experiment.test, (network.parameters(), network.buffers())
        row = self._row(1, self.deployment.score(self.experiment, network, *start, test), test)
        write_json(file, {**self.experiment.origin.keys(), "auc": {auc.disease: auc.value for auc in row.aucs}})

    def score_hospitals(self, k: int) -> dict[str, Row]:
        """The finished model of K at the hospitals whose held-out patients are not the study's test set itself."""
        model, rows, network = self.folder / f"k{k}", {}, None
        personal = Can.OWN_POINTS in self.pipeline.federated.spec.can
        for name, test in self.experiment.hospitals.items():
            if test is self.experiment.test:
                continue
            folder = model / HOSPITALS / name
            row = self._load_hospital(folder, k, test)
            if row is None:
                network = self._read_model_at(name, k) if personal else network or read_model(model, self.experiment)
                parameters, buffers = network.parameters(), network.buffers()
                outputs = self.deployment.score(self.experiment, network, parameters, buffers, test)
                row = self._row(k, outputs, test)
                write_result(folder, self.part(folder), row, outputs.scores, test)
            rows[name] = row
        return rows

    def _read_model_at(self, name: str, k: int) -> FlatModule:
        """The model of a hospital under a personal algorithm: its own if it is among the first K clients."""
        model = self.folder / f"k{k}"
        file = COMMON_FILE
        if name in [client.name for client in self.experiment.clients[:k]]:
            file = f"{HOSPITALS}/{name}/{MODEL_FILE}"
        if not (model / file).is_file():
            self.run_k(k)  # from its saved state, which writes the models of all that have not left
        return read_model(model, self.experiment, file if (model / file).is_file() else COMMON_FILE)

    @cached_property
    def alternatives(self) -> AlternativeRuns:
        """Models that the hospitals could use instead of that of the largest K."""
        k = self.pipeline.k[-1]

        def pretrain(experiment: Experiment) -> Pretrained:
            name = f"{experiment.clients[0].name}: stage 1"
            return shared_stage_1(
                experiment, self.folder.parent, lambda step, steps, _: tell("alternative_trained", name, step, steps)
            )

        load = partial(self._load_hospital, k=k)
        return AlternativeRuns(self.experiment, self.folder / f"k{k}", self.part, load, pretrain)

    def _load_hospital(self, folder: Path, k: int, test: TestSet) -> Row | None:
        """The stored result on these images of a hospital, if there is a sound one."""
        is_sound = self._is_sound(folder, (RESULT,)) and predictions_match(folder, test)
        return self._finished(folder, k, test) if is_sound else None

    def _row(self, k: int, outputs: Outputs, test: TestSet) -> Row:
        clients = [client.name for client in self.experiment.list_clients(k)]
        evaluation = self.pipeline.evaluation
        return test.row(outputs, k, clients, Intervals(evaluation.interval, evaluation.resamples))

    def _is_sound(self, folder: Path, needed: Sequence[str]) -> bool:
        """Whether a folder has the results that belong there; else it is made ready for them."""
        if not any((folder / name).exists() for name in (MANIFEST, RESULT)):
            return False
        try:
            bad = find_damage(folder, self.part(folder), needed)
        except MisplacedError as error:
            aside = folder.with_name(f"misplaced-{folder.name}")
            shutil.rmtree(aside, ignore_errors=True)
            folder.rename(aside)
            warn(f"{error.reason}: renamed to {aside.name}, and made again")
            return False
        if bad:
            for name in (RESULT, *bad):  # without a result it counts as unfinished, whatever happens next
                (folder / name).unlink(missing_ok=True)
            warn(f"{folder}: {', '.join(bad)} damaged or missing, made again")
        return not bad

    def _finished(self, folder: Path, k: int, test: TestSet) -> Row | None:
        """A stored result, with intervals and groups as of now; None if a hospital has to be asked for these."""
        row = read_row(folder)
        settings = self.pipeline.evaluation
        same = (row.interval, row.resamples) == (settings.interval, settings.resamples)
        if row.scores_stay:
            return row if same else None
        if same and not groups_changed(folder, test):
            return row
        scores = read_predictions(folder / PREDICTIONS)[[f"score_{name}" for name in test.diseases]].to_numpy()
        row = self._row(k, Outputs(scores, torch.empty(0)), test)
        write_result(folder, self.part(folder), row, scores, test)
        return row


def shared_stage_1(
    experiment: Experiment,
    out: Path,
    report: Callable[[int, int, float], None] | None = None,
    deployment: Deployment | None = None,
) -> Pretrained:
    """Stage 1 in a folder of its own below `out`; another process that needs the same weights is waited for.

    `report(step, steps, loss)` is called on the way; by default `Reporter.pretraining` of the current reporters.
    """
    report = report or current().bind("pretraining")
    steps = experiment.pipeline.pretrain.steps(experiment.clients[0].training_rows)
    folder = out / f"{experiment.origin.prefix}pretrained-{stage_1_identity(experiment).digest}"
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / ".lock"):
        remove_orphans(folder)
        train = (deployment or Deployment()).pretrain
        return retrain_if_damaged(
            folder / STATE, lambda: train(experiment, folder, lambda step, loss: report(step, steps, loss))
        )

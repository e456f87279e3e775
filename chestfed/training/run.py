"""Run a study, or what is left of it: stage 1 once, stage 2 for every K, the table after each.

A run folder is named by the digest of what determines the result: the resolved configuration, the content of the
sites (pixels, labels), and the code. The same command therefore finds its own unfinished work and resumes:

    runs/<pipeline>-<digest>/
        study.json       identity: configuration, digests, versions
        sites.json, thumbnails.npz      what a report says of the sites
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
from operator import methodcaller
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout

from chestfed.core.checkpoint import read_json, remove_orphans, write_json
from chestfed.core.diseases import title_of as disease_title
from chestfed.core.disk import check_room
from chestfed.core.errors import ChestfedError
from chestfed.core.manifest import MANIFEST, MisplacedError, Part, find_damage, write_manifest
from chestfed.core.plugins import pinned
from chestfed.core.pseudonyms import refuse_key_within
from chestfed.evaluation.intervals.methods import Intervals
from chestfed.evaluation.protocols import describe_hospitals
from chestfed.experiment.pipeline import Pipeline
from chestfed.models import build_model, title_of
from chestfed.results.collect import Results, collect, write_results
from chestfed.results.files import SECONDS, RoundTimes, read_predictions
from chestfed.results.frames import make_differences, write_frames
from chestfed.results.influence import describe_loss
from chestfed.results.run_folder import (
    FILES,
    HOSPITALS,
    NEEDED_OF_K,
    PREDICTIONS,
    RESULT,
    SITES,
    STUDY,
    TIME,
    RunFolder,
    read_row,
)
from chestfed.results.table import Row
from chestfed.training.alternatives import AlternativeRuns
from chestfed.training.assemble import Deployment
from chestfed.training.clients import Outputs, Setup, StudyData, TestSet
from chestfed.training.identity import Identity, identify, stage_1_identity
from chestfed.training.loop import History, retrain_if_damaged, train_federated
from chestfed.training.pretrain import STATE, Pretrained
from chestfed.training.reporting import Reporters, StudyRun
from chestfed.training.run_files import (
    holds,
    read_model,
    regrouped,
    write_hospitals,
    write_identity,
    write_model,
    write_result,
    write_rounds,
)


@dataclass(frozen=True)
class StudyResult:
    """A finished study."""

    folder: Path
    results: Results
    seen: dict[str, Row] = field(default_factory=dict)  #: with a held-out site: on each site trained on


def run_study(
    setup: Setup,
    name: str,
    out: Path,
    reporters: Reporters | None = None,
    deployment: Deployment | None = None,
    ahead: Callable[[Sequence[int]], object] | None = None,
) -> StudyResult:
    """Run every K of the pipeline and write the tables; finished parts are taken from the run folder.

    `deployment` says where the images are and the clients compute; None: here. `ahead`, if given, is called with the K
    that are not finished and trains them, by `train_k` in other processes.

    Raises
    ------
    ChestfedError
        If another process works in the same run folder, it is another run's, or training fails. What is finished is
        kept.
    """
    pipeline, data, this, reporters = setup.pipeline, setup.data, identify(setup), reporters or Reporters()
    refuse_key_within(out, data.test.key)
    deployment, folder = deployment or Deployment(), _folder(out, name, data, this)
    with _locked(folder), pinned():
        remove_orphans(folder)
        part = Part(this.digest, ".")
        _remove_damaged(folder, part, reporters)
        write_identity(folder, pipeline, this, data, _describe_test_set(pipeline, data))
        deployment.describe(folder, data, pipeline)
        write_hospitals(folder, data)
        write_manifest(folder, part, FILES)
        clients = tuple(client.name for client in data.clients)
        about = StudyRun(folder, name, pipeline, this, data.origin, clients, data.held_out)
        reporters.tell(lambda reporter: reporter.study_started(about))
        try:
            running = _Running(setup, folder, reporters, deployment)
            if ahead is not None and (missing := [k for k in pipeline.k if running.stored(k) is None]):
                ahead(missing)
            running.all_k()
            seen = running.at_hospitals(pipeline.k[-1]) if data.held_out else {}
            running.alternatives()
            results = collect([RunFolder(folder)])
            write_results(results, folder)
            write_manifest(folder, part, FILES)
        except BaseException as error:
            reporters.tell(methodcaller("study_failed", error))
            raise
        reporters.tell(lambda reporter: reporter.study_done(results))
        return StudyResult(folder, results, seen)


def train_k(setup: Setup, name: str, out: Path, k: int, reporters: Reporters) -> None:
    """Train and score one K of a study that `run_study` runs in another process, which holds the folder's lock.

    Raises
    ------
    ChestfedError
        If a plug-in was edited since that process began: this one has the new code, which is another study's.
    """
    this = identify(setup)
    folder = _folder(out, name, setup.data, this)
    if not (folder / STUDY).is_file():
        raise ChestfedError(f"a plug-in's file was changed while the study ran; start the same command again (K={k})")
    with pinned():
        running = _Running(setup, folder, reporters, Deployment())
        running.one_k(k)
        running.at_hospitals(k)


def _folder(out: Path, name: str, data: StudyData, this: Identity) -> Path:
    return out / f"{data.origin.prefix}{name}-{this.digest}"


@dataclass(frozen=True)
class _Running:
    """A study at work in its folder."""

    setup: Setup
    folder: Path
    reporters: Reporters
    deployment: Deployment

    @property
    def pipeline(self) -> Pipeline:
        return self.setup.pipeline

    @property
    def data(self) -> StudyData:
        return self.setup.data

    def part(self, folder: Path) -> Part:
        """What a folder of this study is to hold."""
        return Part(self.digest, folder.relative_to(self.folder).as_posix())

    @cached_property
    def digest(self) -> str:
        """The identity of the study."""
        return identify(self.setup).digest

    def all_k(self) -> None:
        """Train and score every K, and write its table after each."""
        for place, k in enumerate(self.pipeline.k, start=1):
            row = self.stored(k)
            reused = row is not None
            row = row or self.one_k(k)
            self.at_hospitals(k)
            run = RunFolder(self.folder)
            results = collect([run], ks=self.pipeline.k[:place], differences=make_differences([]))
            write_frames(self.folder, results.estimates, results.differences, ("study",))
            write_manifest(self.folder, self.part(self.folder), FILES)
            self.reporters.tell(methodcaller("k_done", row, results, reused=reused))

    def stored(self, k: int) -> Row | None:
        """The result of a finished K."""
        own = self.folder / f"k{k}"
        return self._finished(own, k, self.data.test) if self._is_sound(own, NEEDED_OF_K) else None

    @cached_property
    def pretrained(self) -> Pretrained:
        """Stage 1, when it is first needed."""
        pipeline, out = self.pipeline, self.folder.parent

        def report(step: int, steps: int, loss: float) -> None:
            self.reporters.tell(lambda reporter: reporter.pretraining(step, steps, loss))

        parameters = sum(part.numel() for part in build_model(pipeline.model, len(self.data.diseases), 0).parameters())
        # At least, per K: the model, the last and the kept point; of stage 1: weights and moments.
        there = sum(file.stat().st_size for file in self.folder.rglob("*.safetensors"))
        check_room(out, 12 * parameters * (len(pipeline.k) + 1) - there, "models and states", "--out")
        return shared_stage_1(self.setup, out, report, self.reporters.warn, self.deployment)

    def one_k(self, k: int) -> Row:
        """Stage 2 with the first K clients, or what is left of it."""
        for disease, what in self.data.lacking(k).items():
            text = f"no {what} of {disease_title(disease)} among the training images: the model cannot learn it"
            self.reporters.warn(f"K={k}: {text}")
        pretrained, own = self.pretrained, self.folder / f"k{k}"
        own.mkdir(exist_ok=True)
        self.reporters.tell(lambda reporter: reporter.k_started(k))
        started, resumed = time.monotonic(), (own / STATE).exists()
        times = RoundTimes(own / SECONDS, resumed=resumed)

        def report(history: History) -> None:
            times.reached(len(history))
            self.reporters.tell(lambda reporter: reporter.round_done(k, history, self.pipeline.federated.rounds))
            times.next_round()

        train = partial(train_federated, self.setup, k, pretrained, own, report, self.deployment)
        trained = retrain_if_damaged(own / STATE, train, self.reporters.warn)
        row = self._row(k, trained.outputs, self.data.test)
        if k > 1 and (loss := describe_loss(trained.history, row.aucs[-1])):
            self.reporters.warn(f"K={k}: {loss}")
        write_model(own, self.pipeline, trained, self.data)
        write_rounds(own, trained.history)
        if not (own / TIME).exists():  # unless only other files of a finished K are made again
            seconds = time.monotonic() - started
            write_json(own / TIME, {"seconds": seconds, "resumed": resumed, "on": self.setup.machine.name})
        write_result(own, self.part(own), row, trained.outputs.scores, self.data.test)
        return row

    def at_hospitals(self, k: int) -> dict[str, Row]:
        """The finished model of K at the hospitals whose held-out patients are not the study's test set itself."""
        model, rows, network = self.folder / f"k{k}", {}, None
        for name, test in self.data.hospitals.items():
            if test is self.data.test:
                continue
            own = model / HOSPITALS / name
            row = self._finished(own, k, test) if self._is_sound(own, (RESULT,)) and holds(own, test) else None
            if row is None:
                network = network or read_model(model, self.setup)
                parameters, buffers = network.parameters(), network.buffers()
                outputs = self.deployment.score(self.setup, network, parameters, buffers, test)
                row = self._row(k, outputs, test)
                write_result(own, self.part(own), row, outputs.scores, test)
            rows[name] = row
        return rows

    def alternatives(self) -> None:
        """What the hospitals could do instead of using the model of the largest K."""
        k = self.pipeline.k[-1]

        def report(name: str, done: int, total: int) -> None:
            self.reporters.tell(methodcaller("alternative_trained", name, done, total))

        def pretrain(setup: Setup) -> Pretrained:
            name = f"{setup.data.clients[0].name}: stage 1"
            losses = lambda step, steps, _: report(name, step, steps)  # noqa: E731
            return shared_stage_1(setup, self.folder.parent, losses, self.reporters.warn)

        def stored(folder: Path, test: TestSet) -> Row | None:
            sound = self._is_sound(folder, (RESULT,)) and holds(folder, test)
            return self._finished(folder, k, test) if sound else None

        folder = self.folder / f"k{k}"
        AlternativeRuns(self.setup, folder, self.part, stored, pretrain, report, self.reporters.warn).run()

    def _row(self, k: int, outputs: Outputs, test: TestSet) -> Row:
        clients = [client.name for client in self.data.clients[:k]]
        evaluation = self.pipeline.evaluation
        return test.row(outputs, k, clients, Intervals(evaluation.interval, evaluation.resamples))

    def _is_sound(self, own: Path, needed: Sequence[str]) -> bool:
        """Whether a folder has the results that belong there; else it is made ready for them."""
        if not any((own / name).exists() for name in (MANIFEST, RESULT)):
            return False
        try:
            bad = find_damage(own, self.part(own), needed)
        except MisplacedError as error:
            aside = own.with_name(f"misplaced-{own.name}")
            shutil.rmtree(aside, ignore_errors=True)
            own.rename(aside)
            self.reporters.warn(f"{error.reason}: renamed to {aside.name}, and made again")
            return False
        if bad:
            for name in (RESULT, *bad):  # without a result it counts as unfinished, whatever happens next
                (own / name).unlink(missing_ok=True)
            self.reporters.warn(f"{own}: {', '.join(bad)} damaged or missing, made again")
        return not bad

    def _finished(self, own: Path, k: int, test: TestSet) -> Row | None:
        """A stored result, with intervals and groups as of now; None if a hospital has to be asked for these."""
        row = read_row(own)
        wanted = self.pipeline.evaluation
        same = (row.interval, row.resamples) == (wanted.interval, wanted.resamples)
        if row.scores_stay:
            return row if same else None
        if same and not regrouped(own, test):
            return row
        scores = read_predictions(own / PREDICTIONS)[[f"score_{name}" for name in test.diseases]].to_numpy()
        row = self._row(k, Outputs(scores, torch.empty(0)), test)
        write_result(own, self.part(own), row, scores, test)
        return row


def shared_stage_1(
    setup: Setup,
    out: Path,
    report: Callable[[int, int, float], None],
    warn: Callable[[str], object],
    deployment: Deployment | None = None,
) -> Pretrained:
    """Stage 1 in a folder of its own below `out`; another process that needs the same weights is waited for.

    `report(step, steps, loss)` is called on the way.
    """
    steps = setup.pipeline.pretrain.steps(setup.data.clients[0].training_rows)
    digest = stage_1_identity(identify(setup), setup.data).digest
    folder = out / f"{setup.data.origin.prefix}pretrained-{digest}"
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / ".lock"):
        remove_orphans(folder)
        train = (deployment or Deployment()).pretrain
        return retrain_if_damaged(
            folder / STATE, lambda: train(setup, folder, lambda step, loss: report(step, steps, loss)), warn
        )


def _describe_test_set(pipeline: Pipeline, data: StudyData) -> dict[str, Any]:
    """What captions say of the AUCs of a study: `scored` in `study.json`."""
    images, patients = data.test.counts[:2]
    model = title_of(pipeline.model)
    return {"model": model, "protocol": _protocol(pipeline, data), "images": images, "patients": patients}


def _protocol(pipeline: Pipeline, data: StudyData) -> str:
    if not pipeline.sites:
        return "test images"
    if data.held_out is not None and pipeline.held_out is not None:
        images = "all images" if pipeline.held_out.images == "all" else f"{pipeline.held_out.images} split"
        return f"{pipeline.evaluation.protocol}, {images} of {data.held_out}, on which nothing was trained"
    several = describe_hospitals(len(data.test.parts), pipeline.evaluation.over_hospitals)
    return f"{pipeline.evaluation.protocol}, {pipeline.evaluation.split} split{several}"


def _remove_damaged(folder: Path, part: Part, reporters: Reporters) -> None:
    """Remove what describes the study and cannot be used, so that it is made again; the tables are so anyway.

    Raises
    ------
    MisplacedError
        If it is the folder of another run.
    """
    if not any((folder / name).exists() for name in (MANIFEST, STUDY)):
        return
    bad = find_damage(folder, part)
    if MANIFEST in bad and not _names_run(folder / STUDY, part):
        bad.append(STUDY)
    for name in bad:
        (folder / name).unlink(missing_ok=True)
        reporters.warn(f"{folder / name}: damaged or missing, made again")
    if bad:
        (folder / SITES).unlink(missing_ok=True)  # with its pictures; both depend on the images and the seed alone


def _names_run(file: Path, part: Part) -> bool:
    try:
        return bool(read_json(file).get("digest") == part.run)
    except (ChestfedError, AttributeError):
        return False


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One process per run folder; the lock goes with the process, however it ends."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ChestfedError(
            f"{folder}: cannot be created: {error.strerror}. Choose another folder with --out."
        ) from None
    lock = FileLock(folder / ".lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise ChestfedError(f"{folder}: another process is running this study. Wait for it, or stop it.") from None
    except OSError as error:
        raise ChestfedError(f"{folder}: cannot be written: {error.strerror}. Choose another with --out.") from None
    try:
        yield
    finally:
        lock.release()

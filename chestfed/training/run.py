"""Run a study, or what is left of it: stage 1 once, stage 2 for every K, the table after each.

A run folder is named by the digest of what determines the result: the resolved configuration, the content of the
sites (pixels, labels), and the code. The same command therefore finds its own unfinished work and goes on:

    runs/<pipeline>-<digest>/
        study.json       identity: configuration, digests, versions
        sites.json, thumbnails.npz      what a report says of the sites
        k1/ k2/ ...      state of stage 2, model, predictions, result
        table.csv, table.json
        significance.csv, significance.json
    runs/pretrained-<digest>/
        state of stage 1, shared by all studies that have it in common
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from filelock import FileLock, Timeout

from chestfed.core.checkpoint import read_json, save_checkpoint, write_atomically, write_json, write_text
from chestfed.core.errors import ChestfedError
from chestfed.core.provenance import Origin
from chestfed.evaluation.auc import DiseaseAuc
from chestfed.evaluation.intervals.bootstrap import Interval
from chestfed.experiment.device import Machine
from chestfed.experiment.pipeline import Pipeline
from chestfed.models import MODELS, title_of
from chestfed.results import table as tables
from chestfed.results.run_folder import MODEL_FILE
from chestfed.results.significance import Significance, of_study
from chestfed.results.significance import write as write_significance
from chestfed.results.timing import SECONDS, RoundTimes
from chestfed.tracking import recording
from chestfed.tracking.recording import StudyRecord
from chestfed.tracking.store import Tracker
from chestfed.training.client_summary import write_site_cards
from chestfed.training.clients import NAMED_BY, StudyData
from chestfed.training.identity import Identity, identify, installed_packages, software_versions, stage_1_identity
from chestfed.training.loop import Trained, train_federated
from chestfed.training.pretrain import Pretrained, pretrain
from chestfed.training.state import History
from chestfed.training.test_scores import evaluate


class Reporter(Protocol):
    """Who is told how far the study is."""

    def pretraining(self, step: int, steps: int, loss: float) -> None:
        """Stage 1 has finished `step` of `steps` batches."""
        ...

    def round_done(self, k: int, history: History, rounds: int) -> None:
        """Stage 2 of K clients has finished `len(history)` of `rounds` rounds."""
        ...

    def row_done(self, row: tables.Row, reused: bool) -> None:
        """The result for one K is there; `reused` if it was there before."""
        ...


@dataclass(frozen=True)
class StudyResult:
    """A finished study: its folder, its table, and its other K against the smallest if there are any."""

    folder: Path
    table: tables.StudyTable
    significance: Significance | None = None


def run_study(
    pipeline: Pipeline,
    name: str,
    data: StudyData,
    machine: Machine,
    out: Path,
    tracker: Tracker,
    reporter: Reporter,
) -> StudyResult:
    """Run every K of the pipeline and write the tables; finished parts are taken from the run folder.

    Raises
    ------
    ChestfedError
        If another process works in the same run folder, or training fails. What is finished is kept.
    """
    this = identify(pipeline, data, machine)
    folder = out / f"{data.origin.prefix}{name}-{this.digest}"
    with _locked(folder):
        _write_identity(folder, pipeline, this, data)
        write_site_cards(folder, data, pipeline.seed)
        about = recording.Study(
            folder,
            name,
            pipeline,
            data,
            this.digest,
            this.configuration,
            str(this.results_version),
            software_versions(),
        )
        record = StudyRecord(tracker, about)
        record.start()
        rows: list[tables.Row] = []
        pretrained: Pretrained | None = None
        try:
            for k in pipeline.k:
                row = finished_row(folder / f"k{k}")
                reused = row is not None
                if row is None:
                    if pretrained is None:
                        pretrained = _stage_1(pipeline, data, machine, out, this, record, reporter)
                    row = _stage_2(pipeline, data, machine, k, pretrained, folder, record, reporter)
                rows.append(row)
                reporter.row_done(row, reused)
                study = StudyResult(folder, _table(pipeline, data, rows))
                _write_table(study)
                (record.k_again if reused else record.k_done)(row, study.table)
        except BaseException as error:
            record.fail(error)
            raise
        found = of_study(folder, pipeline.k, pipeline.evaluation.resamples)
        study = replace(study, significance=found)
        if found is not None:
            write_significance(found, folder, "significance")
        record.finish(study.table, found)
        return study


def _stage_1(
    pipeline: Pipeline,
    data: StudyData,
    machine: Machine,
    out: Path,
    this: Identity,
    record: StudyRecord,
    reporter: Reporter,
) -> Pretrained:
    steps = pipeline.pretrain.steps(data.clients[0].training_rows)

    def report(step: int, loss: float) -> None:
        reporter.pretraining(step, steps, loss)
        record.pretraining(step, loss)

    folder = out / f"{data.origin.prefix}pretrained-{stage_1_identity(this, data).digest}"
    folder.mkdir(exist_ok=True)
    with FileLock(folder / ".lock"):  # another study that needs the same weights is waited for
        return pretrain(pipeline, data, machine, folder, report)


def _stage_2(
    pipeline: Pipeline,
    data: StudyData,
    machine: Machine,
    k: int,
    pretrained: Pretrained,
    folder: Path,
    record: StudyRecord,
    reporter: Reporter,
) -> tables.Row:
    own = folder / f"k{k}"
    own.mkdir(exist_ok=True)
    clients = [client.name for client in data.clients[:k]]
    record.start_k(k)
    started, resumed = time.monotonic(), (own / "state.safetensors").exists()

    times = RoundTimes(own / SECONDS, resumed=resumed)

    def report(history: History) -> None:
        times.reached(len(history))
        reporter.round_done(k, history, pipeline.federated.rounds)
        record.rounds_done(history)
        times.next_round()

    trained = train_federated(pipeline, data, machine, k, pretrained, own, report)
    row = tables.make_row(
        k,
        clients,
        evaluate(trained.scores, data.test),
        trained.scores,
        data.test.labels,
        data.test.patients,
        pipeline.evaluation.resamples,
    )
    _write_model(own, pipeline, trained, data)
    write_predictions(own / "predictions.parquet", trained.scores, data)
    rounds = "".join(json.dumps(entry) + "\n" for entry in trained.history)
    write_text(own / "rounds.jsonl", rounds)
    write_json(own / "time.json", {"seconds": time.monotonic() - started, "resumed": resumed, "on": machine.name})
    write_json(own / "result.json", row_to_plain(row))  # last: its presence says that this K is finished
    return row


def _table(pipeline: Pipeline, data: StudyData, rows: list[tables.Row]) -> tables.StudyTable:
    is_paper = (
        pipeline.model.name in ("densenet121", "densenet161")
        and data.clients[0].name == "chexpert"
        and data.origin is Origin.REAL
        and data.held_out is None
    )
    return tables.StudyTable(
        title=pipeline.title,
        model=title_of(pipeline.model),
        protocol=_protocol(pipeline, data),
        images=len(data.test.labels),
        patients=int(data.test.patients.max()) + 1,
        origin=data.origin,
        rows=tuple(rows),
        paper=tables.paper_table(pipeline.model.name) if is_paper else None,
        published=_published(pipeline),
    )


def _protocol(pipeline: Pipeline, data: StudyData) -> str:
    """Which images are scored."""
    if not pipeline.sites:
        return "test images"
    if data.held_out is not None and pipeline.held_out is not None:
        images = "all images" if pipeline.held_out.images == "all" else f"{pipeline.held_out.images} split"
        return f"{pipeline.evaluation.protocol}, {images} of {data.held_out}, on which nothing was trained"
    return f"{pipeline.evaluation.protocol}, {pipeline.evaluation.split} split"


def _published(pipeline: Pipeline) -> tables.PublishedRow | None:
    """The paper's figures for this algorithm and window, if the pipeline holds them."""
    if pipeline.published is None:
        return None
    settings = pipeline.federated
    name = settings.spec.name
    for key in (f"{name}, I={settings.window}", name):
        if key in pipeline.published.auc:
            return tables.PublishedRow(pipeline.published.source, pipeline.published.auc[key])
    return None


def _write_table(study: StudyResult) -> None:
    write_text(study.folder / "table.csv", tables.as_csv(study.table))
    write_json(study.folder / "table.json", tables.as_json(study.table))


def _write_identity(folder: Path, pipeline: Pipeline, this: Identity, data: StudyData) -> None:
    """Written once per run folder; the digest guarantees that a later start would write the same identity."""
    if (folder / "study.json").exists():
        return
    value = {
        "digest": this.digest,
        "title": pipeline.title,
        **data.origin.keys(),
        "key": data.test.key,
        "configuration": pipeline.model_dump(mode="json"),
        "inputs": this.inputs,
        "quarantined": {site: len(problems) for site, problems in data.quarantined.items()},
        "results_version": this.results_version,
        "machine": this.machine,
        "versions": software_versions(),
        "packages": installed_packages(),
    }
    write_json(folder / "study.json", value)


def _write_model(folder: Path, pipeline: Pipeline, trained: Trained, data: StudyData) -> None:
    network = trained.network
    network.bind(trained.point.primal)
    network.load_buffers(trained.buffers)
    values = {
        "model": pipeline.model.model_dump(mode="json"),
        "model_source": MODELS.digest(pipeline.model.name),
        "diseases": list(data.diseases),
        "input": f"float32 [n, 3, {pipeline.preprocess.size}, {pipeline.preprocess.size}], see docs/images.md",
        "preprocess": pipeline.preprocess.model_dump(mode="json"),
        "output": "logits [n, diseases]",
        **data.origin.keys(),
    }
    tensors = network.module.state_dict()
    # Batches since this process began, which nothing reads: a resumed study would have another file for the same model.
    tensors |= {name: tensor * 0 for name, tensor in tensors.items() if name.endswith("num_batches_tracked")}
    save_checkpoint(folder / MODEL_FILE, tensors, values)


def write_predictions(path: Path, scores: np.ndarray, data: StudyData) -> None:
    """Scores and labels of the test set; images and patients by their keyed names."""
    import pandas as pd

    test = data.test
    columns: dict[str, Any] = {"image": test.image_names, "patient": test.patient_names}
    for j, disease in enumerate(data.diseases):
        columns[f"score_{disease}"] = scores[:, j]
        columns[f"label_{disease}"] = test.labels[:, j]
    frame = pd.DataFrame(columns)
    frame.attrs = {"key": test.key, "named_by": NAMED_BY}
    write_atomically(path, lambda temporary: frame.to_parquet(temporary, index=False))


def row_to_plain(row: tables.Row) -> dict[str, Any]:
    """A result as plain data, the inverse of `finished_row`."""
    return {
        "k": row.k,
        "clients": list(row.clients),
        "diseases": [vars(result) for result in row.diseases],
        "intervals": [None if part is None else [part.low, part.high] for part in row.intervals],
        "mean_interval": None if row.mean_interval is None else [row.mean_interval.low, row.mean_interval.high],
    }


def finished_row(folder: Path) -> tables.Row | None:
    """The result that `result.json` in a folder holds; None if there is none yet."""
    plain = read_json(folder / "result.json")
    if not plain:
        return None
    return tables.Row(
        plain["k"],
        tuple(plain["clients"]),
        tuple(DiseaseAuc(**result) for result in plain["diseases"]),
        tuple(None if part is None else Interval(*part) for part in plain["intervals"]),
        None if plain["mean_interval"] is None else Interval(*plain["mean_interval"]),
    )


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
    try:
        yield
    finally:
        lock.release()

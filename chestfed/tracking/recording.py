"""What MLflow is told of a study: the same as stands in its run folder, under names that read well there.

One parent run per study and one child per K. Nothing here may fail a study: all goes through `Tracker`. A K that was
finished while tracking was off or broken is recorded from its folder when the same study is started again; what is
recorded already is left alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from chestfed.core.checkpoint import read_json, write_json
from chestfed.experiment.pipeline import Pipeline
from chestfed.results.run_folder import MODEL_FILE
from chestfed.results.significance import Significance
from chestfed.results.table import Row, StudyTable
from chestfed.tracking import tables as recorded_tables
from chestfed.tracking.lineage import datasets, short_digest
from chestfed.tracking.store import Tracker
from chestfed.training.clients import StudyData

#: Per round; what is summed over the clients stands under "cost".
_COST = ("images", "gradients", "bytes_up", "bytes_down")


@dataclass(frozen=True)
class Study:
    """What a record is about; `configuration`, `code` and `versions` are those of `study.json`."""

    folder: Path
    name: str
    pipeline: Pipeline
    data: StudyData
    digest: str
    configuration: Mapping[str, Any]
    code: str
    versions: Mapping[str, str]

    @property
    def label(self) -> str:
        """Algorithm, window and seed: what studies of one pipeline differ in."""
        federated = self.pipeline.federated
        return f"{federated.spec.name} I={federated.window} seed {self.pipeline.seed}"

    @property
    def mark(self) -> str:
        """Begins every name."""
        return f"{self.data.origin} " if self.data.origin.any_synthetic else ""

    def registered_name(self, k: int) -> str:
        """Name of the model of K in the registry; its versions are the studies of this pipeline."""
        return f"chestfed-{self.data.origin.prefix}K{k}-{self.name}"


class StudyRecord:
    """The parent run of a study and its children, from the first call to the last."""

    def __init__(self, tracker: Tracker, study: Study) -> None:
        self._tracker, self._study = tracker, study
        self._parent, self._child = "", ""
        self._waiting: list[tuple[int, dict[str, float | None]]] = []
        self._rounds = 0  # of the current K that are logged or wait
        self._logged: frozenset[int] = frozenset()  # rounds of the current K that an earlier start logged
        self._pretrained: set[int] = set()  # steps of stage 1 that are logged
        self._whole = False  # recorded to the end by an earlier start

    def start(self) -> None:
        """Begin the parent run, or go on with it."""
        self._tracker.attempt(self._start)

    def pretraining(self, step: int, loss: float) -> None:
        """Stage 1 has finished `step` batches."""
        if np.isfinite(loss) and step not in self._pretrained:
            self._pretrained.add(step)
            self._tracker.log_metrics(self._parent, {"pretraining/loss": loss}, step)

    def start_k(self, k: int) -> None:
        """Begin the child of K, or go on with it."""
        self._tracker.attempt(lambda: self._start_k(k))

    def rounds_done(self, history: Sequence[Mapping[str, Any]]) -> None:
        """All rounds of the current K so far, as in `rounds.jsonl`; those that an earlier start logged are passed over.

        Rounds wait for the next one with AUCs: one message then, and AUC before loss where the page lists metrics.
        """
        for entry in history[self._rounds :]:
            if entry["round"] not in self._logged:
                self._round_done(entry)
        self._rounds = max(self._rounds, len(history))

    def _round_done(self, entry: Mapping[str, Any]) -> None:
        own = {f"round/{name}": entry[name] for name in ("loss", "drift", "gradient_drift")}
        aucs = {f"round/auc_{disease}": value for disease, value in entry.get("auc", {}).items()}
        cost = {f"cost/{name}": entry[name] for name in _COST}
        self._waiting.append((entry["round"], {"round/auc_mean": entry.get("mean_auc"), **aucs, **own, **cost}))
        if aucs:
            self._flush()

    def k_done(self, row: Row, table: StudyTable) -> None:
        """The folder of K holds its result; `table` is the study's so far."""
        self._tracker.attempt(lambda: self._k_done(row, table))

    def k_again(self, row: Row, table: StudyTable) -> None:
        """K was finished before this start: record what is not recorded yet."""
        if not self._whole:
            self._tracker.attempt(lambda: self._k_again(row, table))

    def finish(self, table: StudyTable, significance: Significance | None) -> None:
        """All K are done, and the tables are in the run folder."""
        if not self._whole:
            self._tracker.attempt(lambda: self._finish(table, significance))

    def fail(self, error: BaseException) -> None:
        """The study has ended early: mark the parent, and the child that is not done."""
        self._flush()
        status = "KILLED" if isinstance(error, KeyboardInterrupt) else "FAILED"
        for run in (self._child, "" if self._whole else self._parent):
            if run:
                self._tracker.end_run(run, status)

    def _flush(self) -> None:
        """Log the rounds that wait, the last one first."""
        if self._waiting:
            self._tracker.log_series(self._child, self._waiting[::-1])
            self._waiting = []

    def _go_on(self, child: str, parent: str) -> None:
        """With runs in which an earlier start may have logged something."""
        self._child, self._parent = child, parent
        self._rounds, self._logged = 0, self._tracker.steps(child, "round/loss")
        self._pretrained = set(self._tracker.steps(parent, "pretraining/loss"))

    def _start(self) -> None:
        study, tracker = self._study, self._tracker
        known = _known(study.folder)
        self._whole = tracker.is_finished(known)
        if self._whole:
            self._parent = known
            return
        tags = self._tags("study", k_values=", ".join(map(str, study.pipeline.k)))
        self._parent = tracker.start_run(f"{study.mark}{study.label}: {study.name}", tags, known)
        _remember(study.folder, self._parent)
        self._go_on("", self._parent)
        versions = {f"version.{package}": version for package, version in study.versions.items()}
        digests = {f"dataset.{client.replace(' ', '_')}": digest for client, digest in study.data.digests.items()}
        tracker.log_params(self._parent, {**_flat(study.configuration), **digests, **versions, "code": study.code})
        tracker.log_datasets(self._parent, lambda: datasets(study.data))

    def _start_k(self, k: int) -> None:
        study, tracker = self._study, self._tracker
        clients = [client.name for client in study.data.clients[:k]]
        name = f"{study.mark}K={k}: {clients[0] if k == 1 else f'+ {clients[-1]}'}"
        folder = study.folder / f"k{k}"
        tags = self._tags("K", k=str(k), added=clients[-1], clients=", ".join(clients))
        self._child = tracker.start_run(name, tags, _known(folder), self._parent)
        _remember(folder, self._child)
        self._go_on(self._child, self._parent)
        params = {"k": k, "seed": study.pipeline.seed}
        tracker.log_params(self._child, {**params, **_flat(study.pipeline.federated.model_dump())})
        tracker.log_datasets(self._child, lambda: datasets(study.data, k))

    def _k_done(self, row: Row, table: StudyTable) -> None:
        study, tracker, run = self._study, self._tracker, self._child
        folder = study.folder / f"k{row.k}"
        self._flush()
        tracker.log_table(run, lambda: recorded_tables.of_k(row), "auc_per_disease.json")
        tracker.log_made(run, lambda to: _figures_of_k(folder, row, table, to), "figures")
        about = self._log_model(row, table, folder)
        seconds = read_json(folder / "time.json").get("seconds")
        tracker.log_metrics(run, _test_aucs(row), step=row.k, about=about)
        tracker.log_metrics(run, {"cost/seconds": seconds}, step=row.k)
        for file in ("result.json", "rounds.jsonl"):
            tracker.log_file(run, folder / file)
        how = "" if study.pipeline.collection else recorded_tables.how_to_load(study.registered_name(row.k))
        tracker.set_tags(run, {"mlflow.note.content": recorded_tables.note_of_k(row, table, how)})
        tracker.end_run(run)
        self._child = ""

    def _k_again(self, row: Row, table: StudyTable) -> None:
        folder = self._study.folder / f"k{row.k}"
        known = _known(folder)
        if self._tracker.is_finished(known):
            self._tracker.set_tags(known, {"mlflow.parentRunId": self._parent})  # the parent may be a new one
            return
        self._start_k(row.k)
        lines = (folder / "rounds.jsonl").read_text(encoding="utf-8").splitlines()
        self.rounds_done([json.loads(line) for line in lines])
        self._k_done(row, table)

    def _finish(self, table: StudyTable, significance: Significance | None) -> None:
        study, tracker, run = self._study, self._tracker, self._parent
        tracker.log_table(run, lambda: recorded_tables.of_study(table), "auc_by_k.json")
        if significance is not None:
            tracker.log_table(run, lambda: recorded_tables.of_significance(significance), "significance.json")
        tracker.log_made(run, lambda to: _figures_of_study(study.folder, to), "figures")
        files = ("table.csv", "table.json", "study.json", "significance.csv", "significance.json", "sites.json")
        for file in files:
            if (study.folder / file).exists():
                tracker.log_file(run, study.folder / file, "run_folder")
        for row in table.rows:
            tracker.log_metrics(run, _test_aucs(row), step=row.k)
            tracker.link_model(run, _known(study.folder / f"k{row.k}"), step=row.k)
        note = recorded_tables.note_of_study(table, significance, study.folder)
        tracker.set_tags(run, {"mlflow.note.content": note})
        tracker.end_run(run)

    def _log_model(self, row: Row, table: StudyTable, folder: Path) -> dict[str, str]:
        """Log and register the model; returns what its metrics are said to be about."""
        study, tracker = self._study, self._tracker
        if study.pipeline.collection is not None:  # its images are no radiographs in files: weights are all there is
            tracker.log_file(self._child, folder / MODEL_FILE)
            return {}

        def save(to: Path, model: Any) -> None:
            from chestfed.tracking.image_model import save_image_model

            save_image_model(to, folder / MODEL_FILE, [result.disease for result in row.diseases], model)

        name = study.registered_name(row.k)
        mean = "none" if row.mean is None else f"{row.mean:.4f}"
        tags = self._tags("model", k=str(row.k), auc_mean=mean, protocol=table.protocol)
        how = recorded_tables.how_to_load(name)
        about = {
            "name": recorded_tables.about_model(table, row.k, name),
            "version": recorded_tables.note_of_k(row, table, how),
        }
        short = f"{study.mark.strip()}-K{row.k}".strip("-")
        model = tracker.log_model(self._child, short, save, name, about, tags)
        if not model:
            return {}
        digest = short_digest(study.data.digests["test set"])
        return {"model_id": model, "dataset_name": "test set", "dataset_digest": digest}

    def _tags(self, kind: str, **more: str) -> dict[str, str]:
        study = self._study
        return {
            **study.data.origin.tags(),
            "kind": kind,
            "pipeline": study.name,
            "algorithm": study.pipeline.federated.spec.name,
            "seed": str(study.pipeline.seed),
            "digest": study.digest,
            "mlflow.source.name": "chestfed study",
            "mlflow.source.type": "LOCAL",
            **({"held_out": study.data.held_out} if study.data.held_out else {}),
            **more,
        }


def _figures_of_study(folder: Path, to: Path) -> None:
    from chestfed.report.overview import save_study
    from chestfed.results.run_folder import read_run_folder

    save_study(read_run_folder(folder), to)


def _figures_of_k(folder: Path, row: Row, table: StudyTable, to: Path) -> None:
    from chestfed.report.overview import save_one_k
    from chestfed.results.run_folder import read_one_k

    save_one_k(read_one_k(folder, row, table), to)


def _test_aucs(row: Row) -> dict[str, float | None]:
    each = {f"auc_per_disease/{result.disease}": result.auc for result in row.diseases}
    return {"auc/mean": row.mean, **each}


def _known(folder: Path) -> str:
    return str(read_json(folder / "mlflow.json").get("run", ""))


def _remember(folder: Path, run: str) -> None:
    if run:
        write_json(folder / "mlflow.json", {"run": run})


def _flat(value: Any, prefix: str = "") -> dict[str, Any]:
    """Nested data as dotted keys."""
    if isinstance(value, Mapping):
        items = value.items()
    elif isinstance(value, list) and any(isinstance(part, dict) for part in value):
        items = enumerate(value)  # type: ignore[assignment]
    else:
        return {prefix: value}
    flat: dict[str, Any] = {}
    for key, part in items:
        flat |= _flat(part, f"{prefix}.{key}" if prefix else str(key))
    return flat

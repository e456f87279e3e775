"""A study in MLflow: the same as in its run folder, under names that read well on MLflow's page.

One parent run per study and one child per K. A K that was finished while MLflow was off or broken is recorded from its
folder when the same study is started again; what is recorded already is left alone.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path

import numpy as np

from chestfed.core.checkpoint import read_json, write_json
from chestfed.core.diseases import format_title
from chestfed.core.errors import ChestfedError
from chestfed.core.manifest import Part
from chestfed.core.provenance import Origin
from chestfed.reports.tracking.content import flatten, label_study, list_aucs, list_parameters, list_round, list_tags
from chestfed.reports.tracking.declaration import RecordSpec
from chestfed.reports.tracking.store import Store, local_store
from chestfed.results.tables.answer import answer_study, list_metrics
from chestfed.results.tables.clients.attendance import find_attendance, is_complete
from chestfed.results.tables.frames import TABLES, Results, Row, read_row
from chestfed.results.tables.grid import markdown
from chestfed.results.tables.run_folder import MODEL_FILE, RESULT, ROUNDS, SITES, TIME, RunFolder
from chestfed.results.tables.sentences import describe_quick
from chestfed.results.tables.views import describe_aucs, make_auc_grid
from chestfed.studies.training.loop import History
from chestfed.studies.training.reporting import Reporter, StudyRun, Summary, Trial

_FILES = (*TABLES, SITES)
#: Columns of the table of one K.
_COLUMNS = ["data", "disease", "auc", "low", "high", "positives", "negatives", "missing", "protocol", "interval_method"]
#: Decimals of tables, which are for reading; `table.csv` has all.
_DIGITS = 4
_NOTE = "mlflow.json"


class MlflowRecord(Reporter):
    """Records studies, one after the other, in the experiment of one store.

    `artifacts` is the folder of a local store's artifacts. A page is not among them: it takes longer than a small
    study, and `chestfed report` writes it when it is asked for.
    """

    name = "MLflow tracking"

    def __init__(self, uri: str, artifacts: Path) -> None:
        self._uri, self._artifacts = uri, artifacts

    @cached_property
    def _store(self) -> Store:
        return Store(self._uri, self._artifacts)

    def study_started(self, study: StudyRun) -> None:
        """Begin the parent run, or resume it."""
        self._study, self._child = study, ""
        self._parent = _recorded_run(study.folder, str(self._identify()))
        self._recorded = self._store.is_finished(self._parent)  # recorded to the end by an earlier start
        if self._recorded:
            return
        tags = self._tags("study", k_values=", ".join(map(str, study.pipeline.k)))
        self._parent = self._open_run(study.folder, str(self._identify()), label_study(study), tags)
        self._pretrained = set(self._store.list_steps(self._parent, "pretraining/loss"))
        self._store.log_params(self._parent, list_parameters(study))

    def pretraining(self, step: int, steps: int, loss: float) -> None:
        """Log the loss of stage 1."""
        if not self._recorded and np.isfinite(loss) and step not in self._pretrained:
            self._pretrained.add(step)
            self._store.log_metrics(self._parent, [(step, {"pretraining/loss": loss})])

    def k_started(self, k: int) -> None:
        """Begin the child of K, or resume it."""
        if self._recorded:  # files of the folder are made again, which are recorded
            return
        study, store = self._study, self._store
        folder, last = study.folder / f"k{k}", study.clients[k - 1]
        name = f"{_name_prefix(study.origin)}K={k}: {last if k == 1 else f'+ {last}'}"
        tags = self._tags("K", k=str(k), added=last, clients=", ".join(study.clients[:k]))
        self._child = self._open_run(folder, str(self._identify(k)), name, {**tags, "mlflow.parentRunId": self._parent})
        self._pending: list[tuple[int, dict[str, float | None]]] = []
        self._rounds = 0  # rounds of this K that are logged or wait
        self._logged = store.list_steps(self._child, "round/loss")  # by an earlier start
        params = {
            "k": k,
            "seed": study.pipeline.seed,
            "split": study.pipeline.split,
            **flatten(study.pipeline.federated.model_dump()),
        }
        store.log_params(self._child, params)

    def round_done(self, k: int, history: History, rounds: int) -> None:
        """Log the rounds that neither this start nor an earlier one has logged.

        Rounds wait for the next one with AUCs: one message then, and AUC before loss where the page lists metrics.
        """
        if self._recorded:
            return
        for entry in history[self._rounds :]:
            if entry["round"] not in self._logged:
                self._pending.append((entry["round"], list_round(entry)))
                if entry.get("auc"):
                    self._flush()
        self._rounds = max(self._rounds, len(history))

    def k_done(self, row: Row, results: Results, *, reused: bool) -> None:
        """Log the result of K, its model and files; of a K that was finished before, what is not logged yet."""
        folder = self._study.folder / f"k{row.k}"
        if self._recorded:
            return
        if reused:
            run = _recorded_run(folder, str(self._identify(row.k)))
            if self._store.is_finished(run):
                self._store.set_tags(run, {"mlflow.parentRunId": self._parent})  # the parent may be a new one
                return
            self.k_started(row.k)
            lines = (folder / ROUNDS).read_text(encoding="utf-8").splitlines()
            self.round_done(row.k, [json.loads(line) for line in lines], len(lines))
        self._flush()
        study, store, run = self._study, self._store, self._child
        alone = replace(results, estimates=results.estimates[results.estimates["k"] == row.k])
        aucs = alone.view("study")[_COLUMNS].round(_DIGITS)
        store.log_table(run, aucs, "auc_per_disease.json")
        finished = RunFolder(self._study.folder)
        cost: dict[str, float | None] = {f"cost/{name}": total for name, total in finished.costs(row.k).items()}
        last = finished.rounds(row.k)[-1]
        if "epsilon" in last and "epsilon_of_all" in last:
            cost |= {"privacy/epsilon": last["epsilon"], "privacy/epsilon_of_all": last["epsilon_of_all"]}
        cost["cost/seconds"] = read_json(folder / TIME).get("seconds")
        store.log_metrics(run, [(row.k, {**list_aucs(row), **cost})])
        for file in (MODEL_FILE, RESULT, ROUNDS):
            store.log_file(run, folder / file)
        tags, whole = {"clients": ", ".join(row.clients)}, alone.list_estimates("study", disease="mean")[0]
        if not is_complete(find_attendance(results).get(row.k)):
            name = f"{_name_prefix(study.origin)}K={row.k}: + {whole['added']}"
            tags |= {"added": whole["added"], "mlflow.runName": name}
        store.set_tags(run, {"mlflow.note.content": _describe(alone), **tags})
        store.end_run(run)
        self._child = ""

    def study_done(self, results: Results) -> None:
        """Log the tables and files of the study, and end its run."""
        if self._recorded:
            return
        study, store, run = self._study, self._store, self._parent
        aucs = results.view("study")
        by_k = aucs.pivot(index=["data", "k", "added"], columns="disease", values="auc").round(_DIGITS)
        by_k = (
            by_k[list(aucs["disease"].unique())]
            .reset_index()
            .rename(columns=lambda name: "K" if name == "k" else format_title(name))
        )
        store.log_table(run, by_k, "auc_by_k.json")
        tables = {"auc_by_hospital": results.view("hospitals"), "auc_of_alternatives": results.view("alternatives")}
        for name, rows in (tables | {"significance": results.gains("study")}).items():
            if len(rows):
                store.log_table(run, rows.dropna(axis="columns", how="all").round(_DIGITS), f"{name}.json")
        for file in _FILES:
            if (study.folder / file).exists():
                store.log_file(run, study.folder / file, "run_folder")
        ks = [int(k) for k in aucs["k"].unique()]
        store.log_metrics(run, [(ks[-1], list_metrics(results))])
        folder = RunFolder(study.folder)
        for k in ks:
            store.log_metrics(run, [(k, list_aucs(read_row(folder.folder(k))))])
        store.set_tags(run, {"mlflow.note.content": _describe(results, str(answer_study(results)))})
        store.end_run(run)

    def study_failed(self, error: BaseException) -> None:
        """Mark the parent, and the child that is not done."""
        if self._child:
            self._flush()
        status = "KILLED" if isinstance(error, KeyboardInterrupt) else "FAILED"
        for run in (self._child, "" if self._recorded else self._parent):
            if run:
                self._store.end_run(run, status)

    def summary_done(self, summary: Summary) -> None:
        """Record what several studies come to as one run; the studies have their own."""
        origin, folder = summary.origin, summary.folder
        run = self._open_run(
            folder, folder.name, f"{_name_prefix(origin)}{summary.name}", {**origin.tags(), "kind": "summary"}
        )
        self._store.log_params(run, {f"run.{name}": folder for name, folder in summary.runs.items()})
        self._store.log_metrics(run, [(0, summary.metrics)])
        for file in sorted({*folder.glob("*.csv"), *folder.glob("*.json"), *folder.glob("*.png")}):
            if file.name != _NOTE:
                self._store.log_file(run, file)
        self._store.end_run(run)

    def trial_done(self, trial: Trial, *, reused: bool) -> None:
        """Record one trial of a search as a run, unless the store has it."""
        store = self._store
        if store.is_finished(_recorded_run(trial.folder, trial.folder.name)):
            return
        about = {"kind": "trial", "pipeline": trial.search, "algorithm": trial.algorithm, "trial": str(trial.number)}
        tags = {**trial.origin.tags(), **about, "diverged": trial.diverged[:500] or "no"}
        name = f"{_name_prefix(trial.origin)}trial {trial.number}, {trial.algorithm}: {trial.search}"
        run = self._open_run(trial.folder, trial.folder.name, name, tags)
        store.log_params(run, {**trial.values, **{f"range.{key}": value for key, value in trial.ranges.items()}})
        aucs = {f"validation_auc/seed_{seed}": value for seed, value in trial.aucs.items()}
        store.log_metrics(run, [(0, {"validation_auc/mean": trial.mean, **aucs, "cost/seconds": trial.seconds})])
        store.end_run(run)

    def _identify(self, k: int | None = None) -> Part:
        """Identify the content of the folder of the study, or of a K."""
        return Part(self._study.identity.digest, "." if k is None else f"k{k}")

    def _open_run(self, folder: Path, part: str, name: str, tags: Mapping[str, str]) -> str:
        """Id of the run of a folder: opened again, or a new one; `part` says what the folder holds.

        The folder notes a mark before there is a run: a process that is killed in between leaves one that the next
        finds by it.
        """
        note = _read_note(folder, part)
        run = self._store.reopen_run(note.get("run", ""), note.get("mark", ""))
        if not run:
            mark = uuid.uuid4().hex
            write_json(folder / _NOTE, {"part": part, "mark": mark})
            run = self._store.start_run(name, {**tags, "mark": mark})
        write_json(folder / _NOTE, {"part": part, "run": run})
        return run

    def _flush(self) -> None:
        """Log the rounds that wait, the last one first."""
        if self._pending:
            self._store.log_metrics(self._child, self._pending[::-1])
            self._pending = []

    def _tags(self, kind: str, **more: str) -> dict[str, str]:
        source = {"mlflow.source.name": "chestfed study", "mlflow.source.type": "LOCAL"}
        return list_tags(self._study, kind, **source, **more)


def _describe(results: Results, answer: str = "") -> str:
    """A description in Markdown: the answer, the AUCs of each K, and the meaning of the numbers."""
    warning = f"**{results.origin.sentence}**" if results.origin.any_synthetic else ""
    aucs = "\n".join(markdown(make_auc_grid(results), ("added",), below=" {}"))
    parts = (warning, describe_quick(results), answer, aucs, f"{results.title}. {describe_aucs(results)}")
    return "\n\n".join(part for part in parts if part)


def _name_prefix(origin: Origin) -> str:
    """Begins every name."""
    return f"{origin} " if origin.any_synthetic else ""


def _read_note(folder: Path, part: str) -> dict[str, str]:
    """Read a folder's note of its run: `run`, its id, or `mark`, if it was to be made.

    Empty if the note is damaged, or came with a copy of another folder: a run is recorded twice rather than wrongly.
    """
    try:
        note = {key: str(value) for key, value in read_json(folder / _NOTE).items()}
    except (ChestfedError, AttributeError):
        return {}
    return note if note.get("part") == part else {}


def _recorded_run(folder: Path, part: str) -> str:
    """Id of the run that a folder was recorded in; empty if it was not."""
    return _read_note(folder, part).get("run", "")


def make(out: Path, uri: str | None) -> MlflowRecord:
    """The record in a store, by default that of the output folder."""
    return MlflowRecord(uri or local_store(out), out / "mlflow-artifacts")


MLFLOW = RecordSpec("mlflow", make)

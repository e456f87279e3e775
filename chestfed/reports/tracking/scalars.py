"""A record of scalars over steps, for tools that show curves: a run per study, the metrics of each K below its name."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from importlib import import_module
from typing import Any

import numpy as np

from chestfed.core.bundled import install_command
from chestfed.core.errors import ConfigError
from chestfed.reports.tracking.content import label_study, list_aucs, list_parameters, list_round, list_tags
from chestfed.results.tables.answer import answer_study, list_metrics
from chestfed.results.tables.frames import Results, Row
from chestfed.results.tables.sentences import describe_quick
from chestfed.studies.training.loop import History
from chestfed.studies.training.reporting import Reporter, StudyRun, Summary, Trial


def import_tool(module: str, record: str, title: str) -> Any:
    """The module of a tool; `record` names the record and the extra that installs it.

    Raises `ConfigError` if it is not installed.
    """
    try:
        return import_module(module)
    except ImportError:
        text = f"--record {record}: {title} is not installed: {install_command(record)}"
        raise ConfigError(text, kind="not installed", extra=record) from None


class ScalarRecord(Reporter, ABC):
    """Records studies one after the other; a subclass says how a run begins, what a scalar is, and how it ends.

    `begin` is called with an identifier that is the same when a study resumes, a name, tags and parameters.
    """

    @abstractmethod
    def begin(self, run: str, name: str, tags: Mapping[str, str], parameters: Mapping[str, Any]) -> None:
        """Begin a run, or go on with it."""

    @abstractmethod
    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Log scalars of a step, which are finite."""

    @abstractmethod
    def describe(self, text: str) -> None:
        """Describe the run that has begun, in a sentence or two."""

    @abstractmethod
    def end(self, *, failed: bool = False) -> None:
        """End the run."""

    def study_started(self, study: StudyRun) -> None:
        """Begin the run of a study."""
        self._rounds = 0
        tags = list_tags(study, "study", k_values=", ".join(map(str, study.pipeline.k)))
        self.begin(study.folder.name, label_study(study), tags, list_parameters(study))

    def pretraining(self, step: int, steps: int, loss: float) -> None:
        """Log the loss of stage 1."""
        self._log(step, {"pretraining/loss": loss})

    def k_started(self, k: int) -> None:
        """Rounds are counted from the first again."""
        self._rounds = 0

    def round_done(self, k: int, history: History, rounds: int) -> None:
        """Log rounds that are new, also those of an earlier start."""
        for entry in history[self._rounds :]:
            self._log(entry["round"], {f"K{k}/{name}": value for name, value in list_round(entry).items()})
        self._rounds = max(self._rounds, len(history))

    def k_done(self, row: Row, results: Results, *, reused: bool) -> None:
        """Log the AUCs of a K; the step is K."""
        self._log(row.k, list_aucs(row))

    def study_done(self, results: Results) -> None:
        """Log what the study found, and end its run."""
        self._log(int(results.view("study")["k"].max()), list_metrics(results))
        mark = results.origin.sentence
        self.describe(" ".join(filter(None, (mark, describe_quick(results), str(answer_study(results))))))
        self.end()

    def study_failed(self, error: BaseException) -> None:
        """End the run as failed; the error itself may name files and is not recorded."""
        self.end(failed=True)

    def summary_done(self, summary: Summary) -> None:
        """Record what several studies come to as a run of its own."""
        origin = summary.origin
        name = f"{origin} {summary.name}" if origin.any_synthetic else summary.name
        self.begin(summary.folder.name, name, {**origin.tags(), "kind": "summary"}, {})
        self._log(0, summary.metrics)
        self.end()

    def trial_done(self, trial: Trial, *, reused: bool) -> None:
        """Record one trial of a search as a run."""
        if reused:
            return
        origin = trial.origin
        name = f"{f'{origin} ' * origin.any_synthetic}trial {trial.number}, {trial.algorithm}: {trial.search}"
        tags = {**origin.tags(), "kind": "trial", "pipeline": trial.search, "algorithm": trial.algorithm}
        self.begin(f"{trial.search}-{trial.algorithm}-trial-{trial.number}", name, tags, dict(trial.values))
        aucs = {f"validation_auc/seed_{seed}": value for seed, value in trial.aucs.items()}
        self._log(trial.number, {"validation_auc/mean": trial.mean, **aucs, "cost/seconds": trial.seconds})
        self.end(failed=bool(trial.diverged))

    def _log(self, step: int, values: Mapping[str, float | None]) -> None:
        known = {name: float(value) for name, value in values.items() if value is not None and np.isfinite(value)}
        if known:
            self.log(step, known)

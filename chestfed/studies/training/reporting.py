"""Progress reporters, such as bars or an MLflow store: set once by `use`, reached from anywhere by `tell`, `warn`."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from operator import methodcaller
from typing import TYPE_CHECKING, Any

from chestfed.core.errors import ChestfedError, first_line

if TYPE_CHECKING:
    from pathlib import Path

    from chestfed.core.provenance import Origin
    from chestfed.results.tables.frames import Results, Row
    from chestfed.studies.experiment.pipeline import Pipeline
    from chestfed.studies.training.data.experiment import Experiment
    from chestfed.studies.training.identity import Identity
    from chestfed.studies.training.loop import History


@dataclass(frozen=True)
class StudyRun:
    """A study that has started. What it reads is described in the `sites.json` of its folder."""

    folder: Path
    name: str  #: the run folder's, without digest and mark
    pipeline: Pipeline
    identity: Identity
    origin: Origin
    clients: tuple[str, ...]  #: names of all clients, in the order of addition
    held_out: str | None  #: the site that the test set is from, if none of the clients is


@dataclass(frozen=True)
class Summary:
    """Results of several studies, and the folder with their tables: of all held-out sites, seeds or algorithms."""

    name: str
    origin: Origin
    folder: Path
    metrics: Mapping[str, float | None]
    runs: Mapping[str, str] = field(default_factory=dict)  #: what the studies are called -> their folders
    results: Results | None = None  #: of a comparison, to draw its figures


@dataclass(frozen=True)
class Trial:
    """Settings that a search has tried, and the validation AUC that they came to."""

    folder: Path  #: for what is noted about it
    search: str  #: the pipeline's name
    algorithm: str
    number: int  #: from 1
    values: dict[str, float]
    ranges: dict[str, list[Any]]  #: what each value was drawn from, as it is written in YAML
    aucs: dict[int, float]  #: training seed -> validation AUC, the mean over the diseases
    mean: float | None  #: over the seeds; None if training diverged
    diverged: str  #: why; empty if it did not
    seconds: float
    origin: Origin
    purpose: str = "search"  #: or `edge`: it lies beyond the best value of a range
    confirmed: Mapping[int, float] = field(default_factory=dict)  #: AUCs of further seeds, if it was among the best

    @property
    def overall(self) -> float | None:
        """Mean AUC over all its seeds."""
        aucs = [*self.aucs.values(), *self.confirmed.values()]
        return self.mean if self.mean is None or not self.confirmed else sum(aucs) / len(aucs)


class Reporter:
    """Hears about a study. Nothing happens on any event unless a subclass says what.

    A study sends `study_started`, then `pretraining` if stage 1 is needed, then per K either `k_done` alone (it was
    finished by an earlier run) or `k_started`, `round_done` and `k_done`, and at the end `study_done` or
    `study_failed`.
    """

    name = "a reporter"
    command = ""  #: shows its record, such as `tensorboard --logdir runs/tensorboard`

    def noted(self, text: str) -> None:
        """A line worth printing."""

    def drawing(self, done: int, total: int) -> None:
        """Images of sample hospitals are drawn, `done` of `total`."""

    def data_read(self, experiments: Sequence[Experiment]) -> None:
        """Data of all studies of a command are in memory."""

    def divided(self, text: str) -> None:
        """Several processes train ahead, and each study or K is found finished here; `text` says how many."""

    def progressed(self, name: str, done: int, total: int, note: str = "", unit: str = "") -> None:
        """A step, of this or of another process, has reached `done` of `total` units."""

    def study_started(self, study: StudyRun) -> None:
        """The run folder exists and describes the study and its sites."""

    def decoding(self, site: str, done: int, total: int) -> None:
        """Images of a site that are not cached are decoded, `done` of `total`."""

    def stage_1_found(self) -> None:
        """Stage 1 was trained before; one `pretraining` follows, of its last batch."""

    def pretraining(self, step: int, steps: int, loss: float) -> None:
        """Stage 1 has finished `step` of `steps` batches."""

    def k_started(self, k: int) -> None:
        """Stage 2 with K clients starts or resumes."""

    def round_done(self, k: int, history: History, rounds: int) -> None:
        """Stage 2 with K clients has finished `len(history)` of `rounds` rounds."""

    def k_done(self, row: Row, results: Results, *, reused: bool) -> None:
        """The folder of K holds its result; `results` are of all K so far; `reused`: from an earlier run."""

    def alternative_trained(self, name: str, done: int, total: int) -> None:
        """An alternative of a hospital has finished `done` of `total` rounds, or batches of stage 1."""

    def study_done(self, results: Results) -> None:
        """All K are done, and the tables are in the run folder."""

    def study_failed(self, error: BaseException) -> None:
        """The study has ended early."""

    def summary_done(self, summary: Summary) -> None:
        """All studies of a command that runs several are done, and what they come to together is written."""

    def trial_done(self, trial: Trial, *, reused: bool) -> None:
        """A search for settings has tried one; `reused`: in an earlier start."""


class StepReporter(Reporter):
    """Turns the events of a study into steps that have progressed."""

    def drawing(self, done: int, total: int) -> None:
        self.progressed("drawing synthetic radiographs", done, total, unit="image")

    def decoding(self, site: str, done: int, total: int) -> None:
        self.progressed(f"decoding {site}", done, total, unit="image")

    def pretraining(self, step: int, steps: int, loss: float) -> None:
        if steps:  # none with `pretrain.epochs: 0`
            self.progressed("stage 1: cross-entropy", step, steps, f"loss {loss:.3f}", "batch")

    def round_done(self, k: int, history: History, rounds: int) -> None:
        scored = [entry["mean_auc"] for entry in history if entry.get("mean_auc") is not None]
        note = f"mean AUC {scored[-1]:.3f}" if scored else ""
        self.progressed(f"stage 2: K={k}", len(history), rounds, note, "round")

    def alternative_trained(self, name: str, done: int, total: int) -> None:
        self.progressed(name, done, total)


class Reporters:
    """Several reporters.

    A reporter that raises never stops the training: it is removed, and `warn` reports the reason.
    """

    def __init__(self, reporters: Iterable[Reporter] = (), warn: Callable[[str], object] = warnings.warn) -> None:
        self._reporters, self.warn = list(reporters), warn

    def __contains__(self, reporter: Reporter) -> bool:
        """Whether it is still listening."""
        return reporter in self._reporters

    def add(self, reporter: Reporter) -> None:
        """Let one more reporter have all further events."""
        self._reporters.append(reporter)

    def tell(self, event: Callable[[Reporter], None]) -> None:
        """Send an event to each: `tell(lambda reporter: reporter.k_started(5))`."""
        for reporter in list(self._reporters):
            try:
                event(reporter)
            except Exception as error:
                self._reporters.remove(reporter)
                self.warn(
                    f"{reporter.name} stopped ({_reason(error)}). Training continues; results are in the run folder."
                )

    def bind(self, event: str, *given: object) -> Callable[..., None]:
        """A callable that sends this event with what is given and its own arguments, from any thread."""
        return lambda *more: self.tell(methodcaller(event, *given, *more))


_CURRENT: ContextVar[Reporters | None] = ContextVar("reporters", default=None)


@contextmanager
def use(reporters: Reporters) -> Iterator[None]:
    """Let these reporters be the current ones."""
    token = _CURRENT.set(reporters)
    try:
        yield
    finally:
        _CURRENT.reset(token)


def current() -> Reporters:
    """The reporters of the running command; none without one."""
    return _CURRENT.get() or Reporters()


def tell(event: str, *given: object, **named: object) -> None:
    """Send an event to the current reporters: `tell("k_started", 5)`."""
    current().tell(methodcaller(event, *given, **named))


def warn(text: str) -> None:
    """Have the command print a warning."""
    current().warn(text)


def _reason(error: BaseException) -> str:
    """The first line of what went wrong to begin with: libraries wrap it in advice for programmers."""
    while error.__cause__ is not None and not isinstance(error, ChestfedError):
        error = error.__cause__
    return first_line(error)

"""Progress of a command: bars in a terminal, a plain line now and then in a log."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

from chestfed.core.console import plural, say
from chestfed.core.output import output
from chestfed.studies.training.reporting import StepReporter, StudyRun

if TYPE_CHECKING:
    from chestfed.results.tables.frames import Results, Row
    from chestfed.studies.training.data.experiment import Experiment

#: Seconds between two lines of a log: short commands print none.
_PAUSE = 30.0
#: Rows of skipped images that are listed for a site.
_ROWS = 10
#: The bar between steps.
_WAITING = "preparing the next step"


class StepBars:
    """One progress bar for each kind of step, which goes when its step is done.

    Without a terminal, a line at most every 30 seconds; the end of a step has one if the step had any. `clock` gives
    seconds.
    """

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._console, self._clock = console, clock
        self._live = live = console.is_terminal and not console.is_dumb_terminal and output().mode == "text"
        self._silent = output().mode != "text"
        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=16),
            MofNCompleteColumn(),
            TextColumn("{task.fields[times]}", markup=False),
            TextColumn("{task.fields[note]}", markup=False),
        )
        self._progress = Progress(*columns, console=console, transient=True, disable=not live)
        self._tasks: dict[str, TaskID] = {}
        self._reported = self._printed = clock()
        self._began: dict[str, float] = {}
        self._named: set[str] = set()

    def __enter__(self) -> Self:
        self._reported = self._printed = self._clock()
        self._progress.start()
        if self._live:
            self._add_waiting()
        return self

    def _add_waiting(self) -> None:
        """A bar without an end, while no step reports."""
        self._tasks[_WAITING] = self._progress.add_task(_WAITING, total=None, note="", times="")

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def show(self, name: str, done: int, total: int, note: str = "", unit: str = "") -> None:
        """Move the bar of a step, made when it is first named; a log says which `unit` is counted."""
        now, over = self._clock(), done >= total
        began = self._began.setdefault(name, self._reported)  # what it took to the first report belongs to the step
        self._reported, times = now, _describe_times(now - began, done, total)
        if self._progress.disable:
            self._log(name, f"{unit} {done:,} of {total:,}".strip(), note, times, over=over)
        else:
            self._draw(name, done, total, note, times)
        if over:  # a step of this name may come again
            self._began.pop(name)
            self._named.discard(name)

    def _draw(self, name: str, done: int, total: int, note: str, times: str) -> None:
        if _WAITING in self._tasks:
            self._progress.remove_task(self._tasks.pop(_WAITING))
        if name not in self._tasks:
            self._tasks[name] = self._progress.add_task(name, total=total, note=note, times=times)
        self._progress.update(self._tasks[name], completed=done, total=total, note=note, times=times)
        if done >= total:
            self._progress.remove_task(self._tasks.pop(name))
            if not self._tasks and self._live:
                self._add_waiting()

    def _log(self, name: str, count: str, note: str, times: str, *, over: bool) -> None:
        if self._silent or not (self._reported - self._printed >= _PAUSE or (over and name in self._named)):
            return
        parts = ", ".join(filter(None, (count, note, times)))
        self._console.print(f"{name}: {parts}", highlight=False, soft_wrap=True)
        self._printed = self._reported
        self._named.add(name)


#: So many items tell the pace; the first of many may have waited for processes to start.
_KNOWN = 10


def _describe_times(seconds: float, done: int, total: int) -> str:
    """Elapsed time, and the remaining time at this pace, once enough is done to know it."""
    left = seconds * (total - done) / done if min(_KNOWN, total / 20) <= done < total else None
    return f"{_clock_text(seconds)} elapsed" + ("" if left is None else f", {_clock_text(left)} left")


def _clock_text(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}:{rest:02d}" if minutes < 60 else f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"


class Bars(StepBars, StepReporter):
    """Progress bars of a study, and what it notes."""

    name = "the progress display"
    _tells_reused = True  #: whether a K that was found finished is marked
    _is_stage_1_found = False
    _stages_1: frozenset[float] = frozenset()  #: losses of those that were trained or named: studies share them

    def progressed(self, name: str, done: int, total: int, note: str = "", unit: str = "") -> None:
        self.show(name, done, total, note, unit)

    def study_started(self, study: StudyRun) -> None:
        self._reported = self._clock()  # what hospitals were waited for until here is none of stage 1

    def stage_1_found(self) -> None:
        self._is_stage_1_found = True

    def pretraining(self, step: int, steps: int, loss: float) -> None:
        if not self._is_stage_1_found:
            super().pretraining(step, steps, loss)
        elif steps and loss not in self._stages_1 and self._tells_reused and not self._silent:
            text = f"stage 1: loss {loss:.3f} after batch {steps:,} (from the earlier run)"
            self._console.print(text, highlight=False)
        self._is_stage_1_found = False
        self._stages_1 |= {loss} if step == steps else set()

    def scoring(self, done: int, total: int) -> None:
        self.show("scoring", done, total, unit="image")

    def noted(self, text: str) -> None:
        say(self._console, text)

    def divided(self, text: str) -> None:
        say(self._console, text)
        self._tells_reused = False

    def data_read(self, experiments: Sequence[Experiment]) -> None:
        """Print what is unusual about the images."""
        for site, problems in experiments[0].quarantined.items():
            rows = [f"{problem.row}" for problem in problems if problem.row is not None]
            listed = f"{', '.join(rows[:_ROWS])}{', ...' if len(rows) > _ROWS else ''}"
            count = plural(len(problems), "missing or unreadable image")
            say(self._console, f"{site}: skipped {count} (rows of the labels: {listed})", "yellow")
        for site, notes in experiments[0].notes.items():
            say(self._console, "\n".join(f"{site}: {note}" for note in notes), "yellow")
        for pair in {pair: None for experiment in experiments for pair in experiment.shared}:
            text = f"{pair.pictures:,} images, {pair.patients:,} patients; {pair.rows_left_out:,} rows left out"
            say(self._console, f"{' and '.join(pair.sites)} share {text}", "yellow")

    def k_done(self, row: Row, results: Results, *, reused: bool) -> None:
        if reused and self._tells_reused and not self._silent:  # the table at the end has all
            mean = "undefined" if row.mean.value is None else f"{row.mean.value:.3f}"
            (whole,) = results.list_estimates("study", k=row.k, disease="mean")
            text = f"K={row.k} (+ {whole['added']}): mean AUC {mean} (from the earlier run)"
            self._console.print(text, highlight=False)

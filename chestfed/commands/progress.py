"""How far a command is: bars in a terminal, a plain line now and then in a log."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from chestfed.training.reporting import Reporter

if TYPE_CHECKING:
    from chestfed.results.collect import Results
    from chestfed.results.table import Row
    from chestfed.training.loop import History

#: Seconds between two lines of a log: short commands print none.
_PAUSE = 30.0


class StepBars:
    """One progress bar for each kind of step, which goes when its step is done.

    Without a terminal, a line at most every 30 seconds; the end of a step has one if the step had any. `clock` gives
    seconds.
    """

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._console, self._clock = console, clock
        live = console.is_terminal and not console.is_dumb_terminal
        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
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
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def show(self, name: str, done: int, total: int, note: str = "", unit: str = "") -> None:
        """Move the bar of a step, made when it is first named; a log says which `unit` is counted."""
        if self._progress.disable:
            self._log(name, done, total, note, unit)
            return
        if name not in self._tasks:
            self._tasks[name] = self._progress.add_task(name, total=total, note=note)
        self._progress.update(self._tasks[name], completed=done, total=total, note=note)
        if done >= total:  # a step of this name may come again
            self._progress.remove_task(self._tasks.pop(name))

    def _log(self, name: str, done: int, total: int, note: str, unit: str) -> None:
        now, over = self._clock(), done >= total
        began = self._began.setdefault(name, self._reported)  # what it took to the first report belongs to the step
        self._reported = now
        if now - self._printed >= _PAUSE or (over and name in self._named):
            minutes, seconds = divmod(int(now - began), 60)
            parts = [f"{unit} {done:,} of {total:,}".strip(), note, f"{minutes}:{seconds:02d}"]
            self._console.print(f"{name}: {', '.join(filter(None, parts))}", highlight=False, soft_wrap=True)
            self._printed = now
            self._named.add(name)
        if over:  # a step of this name may come again
            self._began.pop(name)
            self._named.discard(name)


class Bars(StepBars, Reporter):
    """Progress bars of a study."""

    name = "the progress display"
    tells_reused = True  #: whether a K that was found finished is marked

    def drawing(self, done: int, total: int) -> None:
        self.show("drawing phantoms", done, total, unit="image")

    def decoding(self, site: str, done: int, total: int) -> None:
        self.show(f"decoding {site}", done, total, unit="image")

    def scoring(self, done: int, total: int) -> None:
        self.show("scoring", done, total, unit="image")

    def pretraining(self, step: int, steps: int, loss: float) -> None:
        self.show("stage 1: cross-entropy", step, steps, f"loss {loss:.3f}", "batch")

    def round_done(self, k: int, history: History, rounds: int) -> None:
        scored = [entry["mean_auc"] for entry in history if entry.get("mean_auc") is not None]
        note = f"mean AUC {scored[-1]:.3f}" if scored else ""
        self.show(f"stage 2: K={k}", len(history), rounds, note, "round")

    def alternative_trained(self, name: str, done: int, total: int) -> None:
        self.show(name, done, total)

    def k_done(self, row: Row, results: Results, *, reused: bool) -> None:
        mean = "undefined" if row.mean.value is None else f"{row.mean.value:.3f}"
        again = " (from the earlier run)" if reused and self.tells_reused else ""
        self._console.print(f"K={row.k} (+ {row.clients[-1]}): mean AUC {mean}{again}", highlight=False)

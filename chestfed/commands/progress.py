"""How far a command is: bars in a terminal, a plain line now and then in a log."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

if TYPE_CHECKING:
    from chestfed.results.table import Row
    from chestfed.training.state import History

#: Seconds between two lines of a log: short commands print none.
_PAUSE = 30.0


class StepBars:
    """One progress bar for each kind of step; without a terminal, a line at most every 30 seconds.

    `clock` gives seconds.
    """

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        live = console.is_terminal and not console.is_dumb_terminal
        self._shown = _Drawn(console) if live else _Logged(console, clock)

    def __enter__(self) -> Self:
        self._shown.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._shown.stop()

    def show(self, name: str, done: int, total: int, note: str = "", unit: str = "") -> None:
        """Move the bar of a step, made when it is first named; a log says which `unit` is counted."""
        self._shown.show(name, done, total, note, unit)


class _Drawn:
    """Bars, which go when their step is done."""

    def __init__(self, console: Console) -> None:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[note]}"),
        )
        self._progress = Progress(*columns, console=console, transient=True)
        self._tasks: dict[str, TaskID] = {}

    def start(self) -> None:
        self._progress.start()

    def stop(self) -> None:
        self._progress.stop()

    def show(self, name: str, done: int, total: int, note: str, unit: str) -> None:
        if name not in self._tasks:
            self._tasks[name] = self._progress.add_task(name, total=total, note=note)
        self._progress.update(self._tasks[name], completed=done, total=total, note=note)
        if done >= total:
            self._progress.update(self._tasks[name], visible=False)


class _Logged:
    """Lines; the end of a step has one if the step had any."""

    def __init__(self, console: Console, clock: Callable[[], float]) -> None:
        self._console, self._clock = console, clock
        self._reported = self._printed = clock()
        self._began: dict[str, float] = {}
        self._named: set[str] = set()

    def start(self) -> None:
        self._reported = self._printed = self._clock()

    def stop(self) -> None:
        pass

    def show(self, name: str, done: int, total: int, note: str, unit: str) -> None:
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


class Bars(StepBars):
    """Progress bars of a study; the `Reporter` of `run_study`."""

    def drawing(self, done: int, total: int) -> None:
        """Pictures of the synthetic hospitals."""
        self.show("drawing phantoms", done, total, unit="image")

    def decoding(self, site: str, done: int, total: int) -> None:
        """Images decoded into the cache."""
        self.show(f"decoding {site}", done, total, unit="image")

    def scoring(self, done: int, total: int) -> None:
        """Images that a model has scored."""
        self.show("scoring", done, total, unit="image")

    def pretraining(self, step: int, steps: int, loss: float) -> None:
        """Stage 1."""
        self.show("stage 1: cross-entropy", step, steps, f"loss {loss:.3f}", "batch")

    def round_done(self, k: int, history: History, rounds: int) -> None:
        """Stage 2."""
        scored = [entry["mean_auc"] for entry in history if entry.get("mean_auc") is not None]
        note = f"mean AUC {scored[-1]:.3f}" if scored else ""
        self.show(f"stage 2: K={k}", len(history), rounds, note, "round")

    def row_done(self, row: Row, reused: bool) -> None:
        """The result of one K."""
        mean = "undefined" if row.mean is None else f"{row.mean:.3f}"
        again = " (from the earlier run)" if reused else ""
        self._console.print(f"K={row.k} (+ {row.clients[-1]}): mean AUC {mean}{again}", highlight=False)

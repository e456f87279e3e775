"""Progress bars of the commands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

if TYPE_CHECKING:
    from chestfed.study.federated import History
    from chestfed.study.table import Row


class StepBars:
    """One progress bar for each kind of step."""

    def __init__(self, console: Console) -> None:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[note]}"),
        )
        self._console = console
        self._progress = Progress(*columns, console=console, transient=True)
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def show(self, name: str, done: int, total: int, note: str = "") -> None:
        """Move the bar of a step, made when it is first named."""
        if name not in self._tasks:
            self._tasks[name] = self._progress.add_task(name, total=total, note=note)
        self._progress.update(self._tasks[name], completed=done, total=total, note=note)
        if done >= total:
            self._progress.update(self._tasks[name], visible=False)


class Bars(StepBars):
    """Progress bars of a study; the `Reporter` of `run_study`."""

    def drawing(self, done: int, total: int) -> None:
        """Pictures of the synthetic hospitals."""
        self.show("drawing phantoms", done, total)

    def decoding(self, site: str, done: int, total: int) -> None:
        """Images decoded into the cache."""
        self.show(f"decoding {site}", done, total)

    def pretraining(self, step: int, steps: int, loss: float) -> None:
        """Stage 1."""
        self.show("stage 1: cross-entropy", step, steps, f"loss {loss:.3f}")

    def round_done(self, k: int, history: History, rounds: int) -> None:
        """Stage 2."""
        scored = [entry["mean_auc"] for entry in history if entry.get("mean_auc") is not None]
        self.show(f"stage 2: K={k}", len(history), rounds, f"mean AUC {scored[-1]:.3f}" if scored else "")

    def row_done(self, row: Row, reused: bool) -> None:
        """The result of one K."""
        mean = "undefined" if row.mean is None else f"{row.mean:.3f}"
        again = " (from the earlier run)" if reused else ""
        self._console.print(f"K={row.k} (+ {row.clients[-1]}): mean AUC {mean}{again}", highlight=False)

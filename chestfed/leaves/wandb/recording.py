"""Runs of Weights & Biases in `OUT/wandb`, offline; `wandb sync` sends them, which the user decides."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from chestfed.reports.tracking.declaration import RecordSpec
from chestfed.reports.tracking.scalars import ScalarRecord, import_tool

PROJECT: Final = "chestfed"
#: What the package would collect by itself: code, names of host, user and files, the terminal's output, statistics.
_NOTHING_MORE: Final = {
    "console": "off",
    "host": "",
    "username": "",
    "email": "",
    "program": "chestfed",
    "disable_git": True,
    "disable_code": True,
    "save_code": False,
    "silent": True,
    "x_disable_meta": True,
    "x_disable_stats": True,
    "x_disable_machine_info": True,
    "x_save_requirements": False,
}


class WandbRecord(ScalarRecord):
    """Writes runs below `folder`. They are sent only if the environment's WANDB_MODE is `online`."""

    name = "Weights & Biases"

    def __init__(self, folder: Path) -> None:
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        self._wandb, self._folder = import_tool("wandb", "wandb", self.name), folder
        self._mode = os.environ.get("WANDB_MODE", "offline")
        if self._mode == "offline":
            self.command = f"wandb sync {shlex.quote(str(folder / 'wandb'))}/offline-run-*  (sends the runs)"
        self._run: Any = None

    def begin(self, run: str, name: str, tags: Mapping[str, str], parameters: Mapping[str, Any]) -> None:
        """Begin a run, whose tags and parameters are its config; its own axis is the step of each metric."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._run = self._wandb.init(
            project=PROJECT,
            name=name,
            id=run,
            resume="allow",
            dir=str(self._folder),
            mode=self._mode,
            config={**parameters, **tags},
            settings=self._wandb.Settings(**_NOTHING_MORE),
        )
        self._run.define_metric("*", step_metric="step")

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Log scalars with their step, which need not rise from metric to metric."""
        self._run.log({**values, "step": step})

    def describe(self, text: str) -> None:
        """The answer, in the run's summary."""
        self._run.summary["answer"] = text

    def end(self, *, failed: bool = False) -> None:
        """End the run."""
        if self._run is not None:
            self._run.finish(exit_code=int(failed))
        self._run = None


def make(out: Path, uri: str | None) -> WandbRecord:
    """The record of an output folder; raises `ConfigError` without the package."""
    return WandbRecord(out)


WANDB = RecordSpec("wandb", make)

"""Event files of TensorBoard in `OUT/tensorboard`, a folder per run."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from chestfed.reports.tracking.declaration import RecordSpec
from chestfed.reports.tracking.scalars import ScalarRecord, import_tool


class TensorBoardRecord(ScalarRecord):
    """Writes event files below `folder`; nothing is sent anywhere."""

    name = "TensorBoard"

    def __init__(self, folder: Path) -> None:
        module = import_tool("torch.utils.tensorboard", "tensorboard", self.name)
        self._writer_type, self._folder = module.SummaryWriter, folder
        self.command = f"tensorboard --logdir {shlex.quote(str(folder))}"
        self._writer: Any = None

    def begin(self, run: str, name: str, tags: Mapping[str, str], parameters: Mapping[str, Any]) -> None:
        """Begin a folder of events; parameters and tags are texts."""
        self._writer = self._writer_type(str(self._folder / run))
        self._writer.add_text("run", name)
        for title, values in (("tags", tags), ("parameters", parameters)):
            rows = "\n".join(f"| {key} | {value} |" for key, value in values.items())
            self._writer.add_text(title, f"| key | value |\n|---|---|\n{rows}")

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Write scalars."""
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def describe(self, text: str) -> None:
        """Write the answer as text."""
        self._writer.add_text("answer", text)

    def end(self, *, failed: bool = False) -> None:
        """Close the file."""
        if self._writer is not None:
            self._writer.add_text("status", "failed" if failed else "finished")
            self._writer.close()
        self._writer = None


def make(out: Path, uri: str | None) -> TensorBoardRecord:
    """The record of an output folder; raises `ConfigError` without TensorBoard."""
    return TensorBoardRecord(out / "tensorboard")


TENSORBOARD = RecordSpec("tensorboard", make)

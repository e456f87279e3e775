"""The commands that make the model file which a pipeline takes features with, from the first lines of its file."""

from __future__ import annotations

from collections.abc import Callable
from itertools import takewhile
from pathlib import Path
from typing import Final

from chestfed.core.config import Document
from chestfed.core.errors import ConfigError
from chestfed.studies.experiment.methods import PipelineFile

#: What a command names that takes the model file.
_TAKES: Final = "model.network="


def list_earlier_commands(file: Path, *, quick: bool = False) -> list[str]:
    """The commands in the first lines of a pipeline's file, or of one that it extends, before one that needs a model.

    `quick`: those of studies are quick ones.
    """
    for path in Document(file, PipelineFile).files:
        lines = takewhile(lambda line: line.startswith("#"), Path(path).read_text(encoding="utf-8").splitlines())
        text = "\n".join(line.removeprefix("#").strip() for line in lines).replace("\\\n", " ")
        commands = [" ".join(line.split()) for line in text.splitlines() if line.startswith("chestfed ")]
        if earlier := list(takewhile(lambda command: _TAKES not in command, commands)):
            return [f"{each} --quick" if quick and each.startswith("chestfed study ") else each for each in earlier]
    return []


def name_earlier_commands(check: Callable[[], None], file: Path, *, quick: bool) -> None:
    """Check something of a pipeline; where its model file is missing, the error has the commands to run first."""
    try:
        check()
    except ConfigError as error:
        commands = list_earlier_commands(file, quick=quick) if error.kind == "no model file" and file.is_file() else []
        if not commands:
            raise
        model = Path(str(error.fields["file"]))
        place = Path("runs", "FOLDER", *model.parts[-2:]).as_posix()
        lines = ["Run first:", *(f"  {command}" for command in commands)]
        lines.append(f"then this command with --set {_TAKES}{place}, where the last of them prints FOLDER")
        error.fields["commands"] = commands
        raise ConfigError("\n".join([str(error), *lines]), kind=error.kind, **error.fields) from None

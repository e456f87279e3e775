"""`chestfed new pipeline`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from chestfed.app.commands.options import known_pipelines
from chestfed.app.commands.study.command import DEFAULT_PIPELINE
from chestfed.core.bundled import bundled, list_pipelines, pipeline_file
from chestfed.core.console import command, open_console, say
from chestfed.core.errors import ConfigError
from chestfed.core.output import add_result
from chestfed.leaves.copies.copying import copy_text

Name = Annotated[str, typer.Argument(help="The new file, such as mine or studies/mine.yaml.", show_default=False)]
From = Annotated[
    str,
    typer.Option(
        "--from", metavar="BUNDLED", autocompletion=known_pipelines, help="The bundled pipeline that is copied."
    ),
]


def new_pipeline(name: Name, source: From = DEFAULT_PIPELINE.removesuffix(".yaml")) -> None:
    """Copy a bundled pipeline with its comments into a file of your own, to change it. No file is replaced.

    Example:

        chestfed new pipeline mine --from digits_methods
    """
    path = pipeline_file(source)
    if path not in list_pipelines().values():
        text = f"--from {source}: not a bundled pipeline but a file of your own: copy it, or let yours extend it"
        raise ConfigError(text, kind="not bundled", folder=str(bundled("pipelines")))
    target = Path(name if name.endswith((".yaml", ".yml")) else f"{name}.yaml")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("x", encoding="utf-8") as file:
            file.write(copy_text(path, target))
    except FileExistsError:
        raise ConfigError(f"{target} exists: choose another name", kind="exists", file=str(target)) from None
    console = open_console()
    say(console, f"written to {target}")
    say(console, f"next: {command('study', target, '--dry-run')}")
    add_result(file=str(target), copied=path.name)

"""`chestfed algorithms`."""

from __future__ import annotations

import difflib
from importlib import util
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from chestfed.commands.console import open_console, say
from chestfed.core.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import Console

    from chestfed.experiment.catalogue import Entry


def known_algorithms() -> list[str]:
    """Names of the algorithms, for tab completion."""
    from chestfed.experiment.catalogue import BY_NAME

    return list(BY_NAME)


def algorithms(
    name: Annotated[
        str | None,
        typer.Argument(help="Describe this one in detail.", autocompletion=known_algorithms, show_default=False),
    ] = None,
) -> None:
    """List the algorithms: paper, equations, what is sent, and which objectives they take.

    Example:

        chestfed algorithms scaffold
    """
    from chestfed.experiment.catalogue import BY_NAME

    if name is None:
        _print_all(open_console())
        return
    if name not in BY_NAME:
        close = difflib.get_close_matches(name, BY_NAME, 1)
        hint = f"; did you mean '{close[0]}'?" if close else ""
        raise ConfigError(f"'{name}' is not one of {', '.join(BY_NAME)}{hint}")
    _print_one(open_console(), BY_NAME[name])


def _print_all(console: Console) -> None:
    from rich.table import Table

    from chestfed.experiment.catalogue import CATALOGUE, OBJECTIVES

    table = Table(title="Algorithms: `federated.algorithm` in a pipeline, or --algorithms a,b,c", title_justify="left")
    columns = ("name", "paper", "equations, algorithm", "a client sends per round", "objectives", "non-IID clients")
    for column in columns:
        table.add_column(column, overflow="fold")
    family = None
    for entry in CATALOGUE:
        if entry.family != family:
            table.add_section()
            table.add_row(entry.family, style="bold")
            family = entry.family
        objectives = ", ".join(entry.objectives)
        table.add_row(entry.name, entry.paper, entry.where, entry.sends, objectives, entry.optimum)
    console.print(table)
    say(console, "d weights, J diseases. Non-IID clients: where it converges with a constant step size. Objectives:")
    for name, text in OBJECTIVES.items():
        console.print(f"  {name}: {text}")
    say(console, "To run the sample study with another one:  chestfed study --algorithm scaffold")
    say(console, "One algorithm in detail:  chestfed algorithms scaffold")


def _print_one(console: Console, entry: Entry) -> None:
    facts = {
        "paper": entry.paper,
        "where": entry.where,
        "a client sends per round": f"{entry.sends} numbers (d weights, J diseases)",
        "objectives": ", ".join(entry.objectives),
        "non-IID clients, constant step size": ("ends at " if entry.optimum[:3] == "the" else "") + entry.optimum,
    }
    console.print(f"{entry.name}: {entry.title} ({entry.family})\n", style="bold")
    for name, value in facts.items():
        console.print(f"{name}: {value}")
    for file in entry.file.split(", "):
        console.print(f"\nchestfed/algorithms/{file}:\n{_docstring(file)}")


def _docstring(file: str) -> str:
    """The text at the head of an algorithm's file, without importing it."""
    import ast

    package = util.find_spec("chestfed.algorithms")
    assert package is not None
    assert package.origin is not None
    source = (Path(package.origin).parent / file).read_text(encoding="utf-8")
    return ast.get_docstring(ast.parse(source)) or ""

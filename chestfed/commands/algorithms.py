"""`chestfed algorithms`."""

from __future__ import annotations

import difflib
from importlib import util
from pathlib import Path

from rich.console import Console
from rich.table import Table

from chestfed.core.errors import ConfigError
from chestfed.experiment.catalogue import BY_NAME, CATALOGUE, OBJECTIVES, Entry


def run_command(console: Console, name: str | None) -> None:
    """List all algorithms, or describe one."""
    if name is None:
        _print_all(console)
        return
    if name not in BY_NAME:
        close = difflib.get_close_matches(name, BY_NAME, 1)
        hint = f"; did you mean '{close[0]}'?" if close else ""
        raise ConfigError(f"'{name}' is none of {', '.join(BY_NAME)}{hint}")
    _print_one(console, BY_NAME[name])


def _print_all(console: Console) -> None:
    table = Table(title="Algorithms: `federated.algorithm` in a pipeline, or --algorithms a,b,c", title_justify="left")
    for column in ("name", "paper", "equations, algorithm", "a client sends per round", "objectives", "unlike clients"):
        table.add_column(column, overflow="fold")
    family = None
    for entry in CATALOGUE:
        if entry.family != family:
            table.add_section()
            table.add_row(f"[bold]{entry.family}[/bold]")
            family = entry.family
        objectives = ", ".join(entry.objectives)
        table.add_row(entry.name, entry.paper, entry.where, entry.sends, objectives, entry.optimum)
    console.print(table)
    console.print("d weights, J diseases. Unlike clients: where it ends with a constant step. Objectives:")
    for name, text in OBJECTIVES.items():
        console.print(f"  {name}: {text}", highlight=False)
    console.print("Run the sample study with another one:  chestfed study --set federated.algorithm=scaffold")
    console.print("One algorithm in detail:  chestfed algorithms scaffold")


def _print_one(console: Console, entry: Entry) -> None:
    facts = {
        "paper": entry.paper,
        "there": entry.where,
        "a client sends per round": f"{entry.sends} numbers (d weights, J diseases)",
        "objectives": ", ".join(entry.objectives),
        "unlike clients, constant step": f"it ends at {entry.optimum}" if entry.optimum[:3] == "the" else entry.optimum,
    }
    console.print(f"{entry.name}: {entry.title} ({entry.family})\n", style="bold", highlight=False)
    for name, value in facts.items():
        console.print(f"{name}: {value}", highlight=False, markup=False)
    for file in entry.file.split(", "):
        console.print(f"\nchestfed/algorithms/{file}:\n{_docstring(file)}", highlight=False, markup=False)


def _docstring(file: str) -> str:
    """The text at the head of an algorithm's file, without importing it."""
    import ast

    package = util.find_spec("chestfed.algorithms")
    assert package is not None
    assert package.origin is not None
    source = (Path(package.origin).parent / file).read_text(encoding="utf-8")
    return ast.get_docstring(ast.parse(source)) or ""

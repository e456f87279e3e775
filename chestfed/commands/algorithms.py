"""`chestfed algorithms`."""

from __future__ import annotations

import inspect
import sys

from rich.console import Console
from rich.table import Table

from chestfed.algorithms import ALGORITHMS, AlgorithmSpec
from chestfed.algorithms.declaration import Exact
from chestfed.objectives import OBJECTIVES

FAMILIES = ("min-max AUC", "compositional", "minimization", "decentralized", "reference")

#: Where an algorithm ends with heterogeneous clients and a constant step, in words.
WHERE: dict[Exact, str] = {
    "any window": "the optimum, at any window",
    "window 1": "the optimum only with a window of 1",
    "no": "off the optimum",
}


def run_command(console: Console, name: str | None) -> None:
    """List all algorithms, or describe one."""
    if name is None:
        _print_all(console)
    else:
        _print_one(console, name, ALGORITHMS.find(name))


def listed() -> list[tuple[str, AlgorithmSpec]]:
    """All built-in and installed algorithms with their names, family by family."""
    found = [(name, ALGORITHMS.find(name)) for name in ALGORITHMS.names]
    return sorted(found, key=lambda entry: FAMILIES.index(entry[1].family))


def row_of(spec: AlgorithmSpec) -> dict[str, str]:
    """What a table says of an algorithm, by column."""
    objectives = [name for name, objective in OBJECTIVES.built_in.items() if objective.kind in spec.takes]
    return {
        "paper": spec.paper,
        "equations, algorithm": spec.where,
        "a client sends per round": f"{spec.sent}: {spec.formula()}" if spec.formula() != "0" else spec.sent,
        "objectives": ", ".join(sorted(objectives, key=lambda objective: objective != spec.objective)),
        "non-IID clients": WHERE[spec.exact] + (f"; {spec.note}" if spec.note else ""),
    }


def _print_all(console: Console) -> None:
    table = Table(title="Algorithms: `federated.algorithm` in a pipeline, or --algorithms a,b,c", title_justify="left")
    family = None
    for name, spec in listed():
        row = row_of(spec)
        if family is None:
            for column in ("name", *row):
                table.add_column(column, overflow="fold")
        if spec.family != family:
            table.add_section()
            table.add_row(f"[bold]{spec.family}[/bold]")
            family = spec.family
        table.add_row(name, *row.values())
    console.print(table)
    console.print("d weights, J diseases. Non-IID clients: where it ends with a constant step. Objectives:")
    for name in OBJECTIVES.names:
        objective = OBJECTIVES.find(name)
        console.print(f"  {name}: {objective.text} ({objective.kind})", highlight=False)
    console.print("Run the sample study with another one:  chestfed study --set federated.algorithm=scaffold")
    console.print("One algorithm in detail, with its options:  chestfed algorithms scaffold")
    console.print("Your own:  --set federated.algorithm=package.module:Name  (docs/own_algorithm.md)")


def _print_one(console: Console, name: str, spec: AlgorithmSpec) -> None:
    console.print(f"{name}: {spec.title} ({spec.family})\n", style="bold", highlight=False)
    for column, value in row_of(spec).items():
        console.print(f"{column}: {value}", highlight=False, markup=False)
    fields = {key: field for key, field in spec.options.model_fields.items() if key != "name"}
    console.print("\noptions, in `federated.algorithm` beside `name`:" if fields else "\nno options of its own")
    for key, field in fields.items():
        console.print(f"  {key} = {field.default}: {field.description}", highlight=False, markup=False)
    module = sys.modules[getattr(spec.build, "func", spec.build).__module__]
    console.print(f"\n{module.__name__}:\n{inspect.getdoc(module)}", highlight=False, markup=False)

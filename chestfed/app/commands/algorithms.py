"""`chestfed algorithms`."""

from __future__ import annotations

import inspect
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from chestfed.core.console import open_console, say, show_answer, text_table

if TYPE_CHECKING:
    from rich.console import Console

    from chestfed.learning.algorithms import AlgorithmSpec
    from chestfed.learning.algorithms.declaration import Exact

#: Where an algorithm ends with heterogeneous clients and a constant step, in words.
WHERE: dict[Exact, str] = {
    "any window": "the optimum, at any window",
    "window 1": "the optimum only with a window of 1",
    "no": "off the optimum",
}


def known_algorithms() -> list[str]:
    """Names of the algorithms, for tab completion."""
    from chestfed.learning.algorithms import ALGORITHMS

    return list(ALGORITHMS.names)


def algorithms(
    name: Annotated[
        str | None,
        typer.Argument(
            help="Describe this algorithm and its options.", autocompletion=known_algorithms, show_default=False
        ),
    ] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print the list as a Markdown table.")] = False,
) -> None:
    """List the algorithms: paper, equations, what is sent, and which objectives they take.

    Example:

        chestfed algorithms scaffold
    """
    from chestfed.learning.algorithms import ALGORITHMS

    if markdown:
        print(as_markdown())
    elif name is None:
        _print_all(open_console())
    else:
        _print_one(open_console(), name, ALGORITHMS.find(name))


def families() -> dict[str, list[tuple[str, dict[str, str]]]]:
    """The names and rows of all built-in and installed algorithms, by family; the references last."""
    from chestfed.learning.algorithms import ALGORITHMS

    rows: dict[str, list[tuple[str, dict[str, str]]]] = {}
    for name in ALGORITHMS.names:
        spec = ALGORITHMS.find(name)
        rows.setdefault(spec.family, []).append((name, describe_spec(spec)))
    return dict(sorted(rows.items(), key=lambda item: item[0] == "reference"))


def describe_spec(spec: AlgorithmSpec) -> dict[str, str]:
    """Describe an algorithm by column of a table."""
    from chestfed.learning.objectives import OBJECTIVES

    objectives = [name for name, objective in OBJECTIVES.built_in.items() if objective.kind in spec.takes]
    return {
        "paper": spec.paper,
        "variant of": spec.variant,
        "equations, algorithm": spec.where,
        "a client sends per round": f"{spec.sent}: {spec.formula()}" if spec.formula() != "0" else spec.sent,
        "gradients per round": spec.describe_gradients(),
        "objectives": ", ".join(sorted(objectives, key=lambda objective: objective != spec.objective)),
        "non-IID clients": WHERE[spec.exact] + (f"; {spec.note}" if spec.note else ""),
    }


def as_markdown() -> str:
    """One table per family, as the reference in the documentation has them."""
    lines: list[str] = []
    for family, rows in families().items():
        heads = ["algorithm", *rows[0][1]]
        lines += ["", f"**{family}**", "", f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
        lines += [f"| {' | '.join([f'`{name}`', *row.values()])} |" for name, row in rows]
    return "\n".join(lines).strip()


def _print_all(console: Console) -> None:
    from chestfed.learning.algorithms import ALGORITHMS
    from chestfed.learning.objectives import OBJECTIVES

    lines = []
    for family, rows in families().items():
        lines.append((f"{family}:", "", "", "", ""))
        for name, _ in rows:
            spec = ALGORITHMS.find(name)
            lines.append((f"  {name}", spec.paper, spec.formula(), spec.describe_gradients(), spec.exact))
    console.print(text_table("", ("name", "paper"), ("sent", "gradients", "optimum"), lines, light=True))
    console.print(
        "sent: numbers of a client per round; d weights, of them C of the classifier and N of normalization, J "
        "diseases, P numbers that are shared. gradients: per client and round; I local steps, F batches of a pass over "
        "all images. optimum: where it is reached with non-IID clients and a constant step."
    )
    console.print("Objectives:")
    for name in OBJECTIVES.names:
        objective = OBJECTIVES.find(name)
        console.print(f"  {name}: {objective.text} ({objective.kind})")
    names = {family: [name for name, _ in rows] for family, rows in families().items()}
    say(console, "To run the sample study with another one:  chestfed study --methods scaffold")
    say(console, "One algorithm in detail, with its options:  chestfed algorithms scaffold")
    say(console, "Your own:  chestfed study --methods package.module:Name  (docs/own_method.md)")
    every = [name for of_family in names.values() for name in of_family]
    show_answer(
        console, f"{len(every)} algorithms: {', '.join(every)}", algorithms=names, objectives=[*OBJECTIVES.names]
    )


def _print_one(console: Console, name: str, spec: AlgorithmSpec) -> None:
    from chestfed.studies.experiment.ranges import declared_range

    console.print(f"{name}: {spec.title} ({spec.family})\n", style="bold")
    for column, value in describe_spec(spec).items():
        if value:
            console.print(f"{column}: {value}")
    fields = {key: field for key, field in spec.options.model_fields.items() if key != "name"}
    console.print("\noptions, in `algorithm` beside `name`:" if fields else "\nno options of its own")
    for key, field in fields.items():
        searched = (
            "" if (limits := declared_range(field)) is None else f"; tuned from {limits.low:g} to {limits.high:g}"
        )
        console.print(f"  {key} = {field.default}: {field.description}{searched}")
    module = sys.modules[getattr(spec.build, "func", spec.build).__module__]
    parts = (inspect.getdoc(module) or "").split("\n\n")
    text = "\n\n".join(part if part.startswith((" ", "-")) else " ".join(part.split()) for part in parts)
    console.print(f"\n{module.__name__}:\n{text}")
    defaults = {key: field.default for key, field in fields.items()}
    show_answer(console, f"{name}: {spec.title}", family=spec.family, options=defaults, **describe_spec(spec))

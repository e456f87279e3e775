"""The reference of the command line, from the commands themselves."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import TYPE_CHECKING

import typer

from docs.generate.markdown import escaped

if TYPE_CHECKING:
    import click

HEAD = """# Commands

What `chestfed COMMAND --help-all` prints, without the [keys](pipeline_keys.md) that `--set` takes.
Every command also has `--quiet` (the answer and errors), `--json` (one object) and `--help-all` (rare options too).
"""


def page() -> str:
    """The whole page, as Markdown."""
    from chestfed.app.cli import app

    return "\n".join([HEAD, *_sections(typer.main.get_command(app), "chestfed")])


def _sections(command: click.Command, name: str) -> Iterator[str]:
    """The section of a command, then those of its subcommands."""
    context = command.make_context(name, [], resilient_parsing=True)
    subcommands = getattr(command, "commands", {})
    parameters = list(_parameters(command, context))
    if parameters or not subcommands:
        yield f"## {name}\n"
        yield f"```text\n{name} {' '.join(command.collect_usage_pieces(context))}\n```\n"
        yield f"{inspect.cleandoc(command.help or '')}\n"
    yield from parameters
    for key in sorted(subcommands):
        if not subcommands[key].hidden:
            yield from _sections(subcommands[key], f"{name} {key}")


def _parameters(command: click.Command, context: click.Context) -> Iterator[str]:
    """One entry per argument and option, the help option apart."""
    for parameter in command.params:
        record = parameter.get_help_record(context)
        if record is not None and not {"--help", "--help-all", "--quiet", "--json"} & set(parameter.opts):
            names, text = record
            yield f"`{names}`\n: {escaped(text) or 'See above.'}\n"

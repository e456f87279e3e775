"""Where commands print."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from chestfed.core.console import open_console
from chestfed.core.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import Console


def say(console: Console, text: str, style: str | None = None) -> None:
    """Print text whose lines are not broken, so that a path in it can be copied."""
    console.print(text, style=style, emoji=False, markup=False, highlight=False, soft_wrap=True)


def print_error(error: Exception) -> None:
    """Print an error that the user can fix: its message on stderr, without a traceback."""
    from chestfed.engines.declaration import rank

    who = f"rank {rank()}: " if rank() else ""
    say(open_console(stderr=True), f"{who}error: {error}", "red")


@contextmanager
def as_usage_error() -> Iterator[None]:
    """Turn a `ConfigError` into exit code 2, for commands whose exit code 1 means something else."""
    try:
        yield
    except ConfigError as error:
        print_error(error)
        raise typer.Exit(2) from None

"""Where text is printed, and numbers in it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rich.console import Console

_STEERING: Final = re.compile(r"[^\n\t -~\xa0-\ud7ff\ue000-\U0010ffff]")


def open_console(*, stderr: bool = False, quiet: bool = False) -> Console:
    """A rich console that prints text as it is: brackets and colons in names mean nothing (`:100:` is no picture).

    A file or a pipe gets a width that does not cut tables.
    """
    from rich.console import Console

    console = Console(stderr=stderr, quiet=quiet, emoji=False, markup=False, highlight=False)
    if not console.is_terminal:
        console.width = 140
    return console


def say(console: Console, text: str, style: str | None = None) -> None:
    """Print text whose lines are not broken, so that a path in it can be copied.

    It may quote cells and names of files: signs that would steer a terminal are question marks.
    """
    text = _STEERING.sub("?", text)
    console.print(text, style=style, emoji=False, markup=False, highlight=False, soft_wrap=True)


def plural(number: int, noun: str) -> str:
    """`1 term`, `2 terms`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"

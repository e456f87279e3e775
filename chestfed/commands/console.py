"""Where commands print."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console


def open_console(**settings: Any) -> Console:
    """A console of rich; a file or a pipe gets a width that does not cut tables."""
    from rich.console import Console

    console = Console(**settings)
    return console if console.is_terminal else Console(width=140, **settings)

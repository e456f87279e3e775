"""The command line in this process: what a command prints and how it ends, without a new interpreter's imports."""

from __future__ import annotations

import functools
import io
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple
from unittest.mock import patch

import typer

from chestfed.app.cli import app, main
from chestfed.reports.pages.figures import Picture


class Called(NamedTuple):
    """What a command did: its exit code, and what it printed."""

    code: int
    out: str
    err: str


def commands(group: Any = None, *names: str) -> Iterator[tuple[str, ...]]:
    """Every command, as the words that call it."""
    group = group or typer.main.get_command(app)
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, *names, name)
        else:
            yield (*names, name)


def _leave_empty(picture: object, out: io.BytesIO | Path, **about: object) -> None:
    out.write_bytes(b"") if isinstance(out, Path) else out.write(b"<svg/>")


def undrawn() -> AbstractContextManager[object]:
    """Figures are made, with their data and alternative texts, and their files are empty: drawing takes seconds."""
    return patch.object(Picture, "_draw", _leave_empty)


def drawn_once() -> AbstractContextManager[object]:
    """Of each kind of figure (the first word of its name) the first is drawn, the others are as `undrawn`."""
    drawn: dict[str, str] = {}
    original = Picture._draw

    def draw(picture: Picture, out: io.BytesIO | Path, **about: object) -> None:
        if drawn.setdefault(picture.name.partition("-")[0], picture.name) == picture.name:
            original(picture, out, **about)
        else:
            _leave_empty(picture, out)

    return patch.object(Picture, "_draw", draw)


def copied_stores() -> AbstractContextManager[object]:
    """A new MLflow store is a copy of one that MLflow has made: it makes its tables in fifty steps, for a second."""
    from chestfed.reports.tracking import store

    original = store.create_store

    def create_store(file: Path) -> None:
        if not {file.name, f".{file.name}.part"} & {other.name for other in file.parent.iterdir()}:
            file.write_bytes(_empty_store(original))
        original(file)

    return patch.object(store, "create_store", create_store)


@functools.cache
def _empty_store(create_store: Callable[[Path], None]) -> bytes:
    with TemporaryDirectory() as folder:
        create_store(Path(folder) / "mlflow.db")
        return (Path(folder) / "mlflow.db").read_bytes()


def timed_once() -> AbstractContextManager[object]:
    """A dry run measures each kind of step once, and not for a tenth of a second."""
    from chestfed.studies.training import costs

    original = costs._seconds
    return patch.object(costs, "_seconds", lambda action, enough=0.0, **how: original(action, 0.0, **how))


def call(*words: object, folder: Path | None = None, drawn: bool = False) -> Called:
    """Run `chestfed WORDS` in a folder, with a shell's exit codes and messages: `call("site", "check", ...)`.

    A study that MLflow records has a line in place of its page. Figures are drawn only if `drawn`. What a dry run
    measures is `timed_once`.
    """
    out, err = io.StringIO(), io.StringIO()
    with (
        chdir(folder or Path.cwd()),
        patch.object(sys, "argv", ["chestfed", *map(str, words)]),
        redirect_stdout(out),
        redirect_stderr(err),
        ExitStack() as stack,
    ):
        if words[:1] == ("study",) and "--no-tracking" not in words:
            stack.enter_context(copied_stores())
        if "--dry-run" in words:
            stack.enter_context(timed_once())
        if not drawn:
            stack.enter_context(undrawn())
        try:
            main()
        except SystemExit as ended:
            return Called(int(ended.code or 0), out.getvalue(), err.getvalue())
    raise AssertionError("the command line ends with an exit code")

"""The command line in this process: what a command prints and how it ends, without a new interpreter's imports."""

from __future__ import annotations

import io
import sys
from contextlib import AbstractContextManager, ExitStack, chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

from chestfed.cli import main


class Called(NamedTuple):
    """What a command did: its exit code, and what it printed."""

    code: int
    out: str
    err: str


def _line(folder: Path, page: Path) -> None:
    page.write_text(f"report of {folder.name}", encoding="utf-8")


def undrawn() -> AbstractContextManager[object]:
    """Figures are made, with their data and alternative texts, and their files are empty: drawing takes seconds."""

    def draw(picture: object, out: io.BytesIO | Path, **about: object) -> None:
        out.write_bytes(b"") if isinstance(out, Path) else out.write(b"<svg/>")

    return patch("chestfed.report.figures.Picture._draw", draw)


def call(*words: object, folder: Path | None = None, drawn: bool = False) -> Called:
    """Run `chestfed WORDS` in a folder, with a shell's exit codes and messages: `call("site", "check", ...)`.

    A study that MLflow records has a line in place of its page. Figures are drawn only if `drawn`.
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
            stack.enter_context(patch("chestfed.tracking.recording.write_report", _line))
        if not drawn:
            stack.enter_context(undrawn())
        try:
            main()
        except SystemExit as ended:
            return Called(int(ended.code or 0), out.getvalue(), err.getvalue())
    raise AssertionError("the command line ends with an exit code")

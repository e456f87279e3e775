"""The command line in this process: what a command prints and how it ends, without a new interpreter's imports."""

from __future__ import annotations

import io
import sys
from contextlib import ExitStack, chdir, redirect_stderr, redirect_stdout
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


def call(*words: object, folder: Path | None = None) -> Called:
    """Run `chestfed WORDS` in a folder, with a shell's exit codes and messages: `call("site", "check", ...)`.

    A study that MLflow records has a line in place of its page, which takes seconds to draw.
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
        try:
            main()
        except SystemExit as ended:
            return Called(int(ended.code or 0), out.getvalue(), err.getvalue())
    raise AssertionError("the command line ends with an exit code")

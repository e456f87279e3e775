"""The command line in this process: what a command prints and how it ends, without a new interpreter's imports."""

from __future__ import annotations

import io
import sys
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

from chestfed.cli import main


class Called(NamedTuple):
    """What a command did: its exit code, and what it printed."""

    code: int
    out: str
    err: str


def call(*words: object, folder: Path | None = None) -> Called:
    """Run `chestfed WORDS` in a folder, with a shell's exit codes and messages: `call("site", "check", ...)`."""
    out, err = io.StringIO(), io.StringIO()
    with (
        chdir(folder or Path.cwd()),
        patch.object(sys, "argv", ["chestfed", *map(str, words)]),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        try:
            main()
        except SystemExit as ended:
            return Called(int(ended.code or 0), out.getvalue(), err.getvalue())
    raise AssertionError("the command line ends with an exit code")

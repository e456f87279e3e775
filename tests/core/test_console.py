"""What is printed."""

from __future__ import annotations

import io
import shlex
import sys
from pathlib import Path

import pytest

from chestfed.core.console import command, open_console


def test_a_sign_that_the_output_cannot_write_is_a_question_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(out, encoding="ascii"))
    console = open_console()
    console.print("0.812 ±0.010")
    console.file.flush()
    assert out.getvalue() == b"0.812 ?0.010\n"


def test_a_command_to_copy_quotes_what_the_shell_would_split() -> None:
    assert command("report", Path("runs/a")) == "chestfed report runs/a"
    assert shlex.split(command("ui", "--out", Path("my röns"))) == ["chestfed", "ui", "--out", "my röns"]

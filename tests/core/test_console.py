"""What is printed."""

from __future__ import annotations

import io
import shlex
import sys
from pathlib import Path
from typing import get_args

import pytest
from rich.console import Group
from rich.panel import Panel
from rich.text import Text

from chestfed.core.console import command, name_program, open_console, say, show_answer, show_warning, text_table
from chestfed.core.errors import ChestfedWarning
from chestfed.core.output import Mode, begin_output


def test_unwritable_sign_is_a_question_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(out, encoding="ascii"))
    console = open_console()
    console.print("0.812 ±0.010")
    console.file.flush()
    assert out.getvalue() == b"0.812 ?0.010\n"


def test_nothing_printed_steers_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    bad = "a\x1b[2J\x1b]0;x\x07\x9b\x00\r\x08\u202e\u2066b"
    console = open_console()
    say(console, bad)
    console.print(text_table(bad, [bad], [], [[bad]], caption=bad))
    console.print(Group(Panel(Text(bad), title=bad), bad), style="red")
    printed = capsys.readouterr().out
    assert printed.count("a?") >= 7
    assert not set(printed) & set("\x1b\x07\x9b\x00\r\x08\u202e\u2066")


def test_quiet_command_prints_warnings(capsys: pytest.CaptureFixture[str]) -> None:
    """On standard error: standard output is the answer alone."""
    try:
        for mode in get_args(Mode)[:2]:
            begin_output(mode)
            console = open_console()
            show_warning(console, "not recorded")
            show_answer(console, "0.8")
        out, err = capsys.readouterr()
    finally:
        begin_output()
    assert out == "not recorded\n0.8\n0.8\n"
    assert err == "not recorded\n"


def test_quiet_python_warns(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.warns(ChestfedWarning, match="not recorded"):
        show_warning(open_console(quiet=True), "not recorded")
    assert capsys.readouterr() == ("", "")


def test_command_quotes_for_the_shell() -> None:
    assert command("report", Path("runs/a")) == "chestfed report runs/a"
    assert shlex.split(command("ui", "--out", Path("my röns"))) == ["chestfed", "ui", "--out", "my röns"]


def test_program_off_the_path_has_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(tmp_path / ".venv" / "bin"))
    assert name_program() == "chestfed"  # there is none: run as `python -m chestfed`
    script = Path(".venv/bin", "chestfed.exe" if sys.platform == "win32" else "chestfed")
    script.parent.mkdir(parents=True)
    script.touch()
    assert command("runs") == f"{script} runs"

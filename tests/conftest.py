"""What all tests share."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from chestfed.core.pseudonyms import VARIABLE, make_key


@pytest.fixture(autouse=True, scope="session")
def _key_of_the_tests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tests neither use nor make the user's own key."""
    file = tmp_path_factory.mktemp("key") / "key"
    make_key(file)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, str(file))
        yield


@pytest.fixture(scope="session")
def tiny_study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the tiny hospitals and, in `runs`, a finished study of them that MLflow has recorded.

    Tests may add to it, but change nothing.
    """
    from chestfed.samples import write_hospitals
    from tests.training.tiny_studies import command

    folder = tmp_path_factory.mktemp("tiny-study")
    write_hospitals(folder / "synthetic_hospitals", size="tiny", workers=1)
    result = subprocess.run(command("runs"), cwd=folder, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert "MLflow tracking stopped" not in result.stdout
    assert "chestfed report runs/synthetic-source_addition_samples-" in result.stdout
    return folder


class Called(NamedTuple):
    """What a command did: its exit code, and what it printed."""

    code: int
    out: str
    err: str


@pytest.fixture
def chestfed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Called]:
    """The command line in this process, with a shell's exit codes and messages: `chestfed("site", "check", ...)`."""
    from chestfed.cli import main

    def call(*words: object) -> Called:
        monkeypatch.setattr(sys, "argv", ["chestfed", *map(str, words)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capsys.readouterr()
        return Called(int(ended.value.code or 0), captured.out, captured.err)

    return call

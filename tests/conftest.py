"""What all tests share."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
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

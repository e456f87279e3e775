"""A method that was defined in a notebook or a script is another one when anything that it reaches there changes."""

from __future__ import annotations

import importlib
import itertools
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from chestfed.core.errors import ConfigError
from chestfed.core.plugins import Definitions, _digest_of_parts

CELL = """
from functools import cached_property
import numpy as np
import own_helper
from own_helper import Root
RATES, TABLE, WEIGHTS = [1.0, 2.0], {"a": 1}, np.ones(2)
def in_comprehension(u): return u
def inner(u): return u
def outer(u): return inner(u)
small = lambda u: u + 1
def made(by):
    def step(u): return u * by
    return step
closed = made(2)
class Mine(Root):
    @property
    def width(self): return 1
    @staticmethod
    def static(u): return u
    def go(self, updates, share=0.5):
        return [in_comprehension(u) for u in updates], outer(1), small(1), closed(1), RATES, TABLE, WEIGHTS
    def help(self): return own_helper.step(1)
build = lambda options, setting: Mine()
"""
HELPER = "class Root: pass\ndef step(u): return u\n"
_number = itertools.count()


@pytest.fixture
def cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs a cell as the main module does, and returns what is built there."""
    (tmp_path / "own_helper.py").write_text(HELPER)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "own_helper", raising=False)

    def run(text: str) -> Any:
        file = tmp_path / f"cell_{next(_number)}.py"
        file.write_text(text)
        names: dict[str, Any] = {"__name__": "__main__"}
        exec(compile(text, str(file), "exec"), names)
        return names["build"]

    yield run
    sys.modules.pop("own_helper", None)


def test_every_edit_of_what_is_reached_is_seen(cell: Any) -> None:
    first = Definitions([cell(CELL)])
    assert first.texts == Definitions([cell(CELL)]).texts
    assert "own_helper" in first.modules
    for old, new in (
        ("in_comprehension(u): return u", "in_comprehension(u): return -u"),
        ("inner(u): return u", "inner(u): return -u"),
        ("lambda u: u + 1", "lambda u: u + 2"),
        ("made(2)", "made(3)"),
        ("[1.0, 2.0]", "[1.0, 3.0]"),
        ('"a": 1', '"a": 2'),
        ("np.ones(2)", "np.zeros(2)"),
        ("width(self): return 1", "width(self): return 2"),
        ("static(u): return u", "static(u): return -u"),
        ("share=0.5", "share=0.6"),
    ):
        assert old in CELL
        assert Definitions([cell(CELL.replace(old, new))]).texts != first.texts, old


def test_a_module_that_it_reaches_counts_and_must_be_the_one_that_runs(cell: Any, tmp_path: Path) -> None:
    part = SimpleNamespace(build=cell(CELL))
    first = _digest_of_parts("algorithm", "mine", part)
    (tmp_path / "own_helper.py").write_text(HELPER.replace("return u", "return -u  # another size"))
    with pytest.raises(ConfigError, match="'own_helper', or one that it imports, has changed since it was imported"):
        _digest_of_parts("algorithm", "mine", part)
    importlib.reload(sys.modules["own_helper"])
    assert _digest_of_parts("algorithm", "mine", part) != first

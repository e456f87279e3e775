"""docs/examples/whole_study.py: the first page for programmers."""

from __future__ import annotations

import runpy
from pathlib import Path

import pandas as pd
import pytest

FILE = Path(__file__).parents[2] / "docs" / "examples" / "whole_study.py"


@pytest.mark.slow
def test_recipe_gives_a_table_and_repeats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = runpy.run_path(str(FILE))["run"]
    table = run(tmp_path)
    assert table["K"].tolist() == [1, 2, 3]
    assert table["auc"].between(0, 1, inclusive="neither").all()
    assert (table["low"] < table["auc"]).all()
    assert (table["auc"] < table["high"]).all()
    assert table["auc"].nunique() == 3
    monkeypatch.setitem(run.__globals__, "SITES", run.__globals__["SITES"][:1])
    pd.testing.assert_frame_equal(run(tmp_path), table[:1])


def test_recipe_has_at_most_150_lines() -> None:
    assert FILE.read_text(encoding="utf-8").count("\n") <= 150

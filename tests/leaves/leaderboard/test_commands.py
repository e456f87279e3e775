"""The two commands: what they write, and how they end."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.leaves.leaderboard.submissions import submit


def test_datasheet_is_written(chestfed: Callable[..., Any], tmp_path: Path) -> None:
    done = chestfed("leaderboard", "--datasheet", "real-films-v1", "--output", tmp_path / "sheet.json")
    assert done.code == 0, done.err
    assert json.loads((tmp_path / "sheet.json").read_text())["name"] == "real-films-v1"


def test_wrong_arguments_are_refused(chestfed: Callable[..., Any], tmp_path: Path) -> None:
    submit(tmp_path)
    run = tmp_path / "run-1"
    assert chestfed("leaderboard").code == 1
    assert chestfed("leaderboard", tmp_path / "empty").code == 1
    assert chestfed("submit", tmp_path / "empty").code == 1
    assert chestfed("submit", run, "--benchmark", "none-v1").code == 1
    for option, value, rule in (
        ("--url", "javascript:alert(1)", "begins with http://"),
        ("--method", " x", "80 characters"),
        ("--authors", "a" * 301, "300 characters"),
        ("--notes", "a" * 2001, "2,000 characters"),
    ):
        refused = chestfed("submit", run, option, value)
        assert refused.code == 2
        assert f"{option}: give" in " ".join(refused.err.split())
        assert rule in " ".join(refused.err.split())
        assert "String" not in refused.err
    assert (
        chestfed("submit", run, "--benchmark", "samples-v2", "--out", tmp_path / "file.zip").code == 1
    )  # K=5 is missing
    assert not (tmp_path / "file.zip").exists()

"""The commands that measure speed run: what they measure is not looked at."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import __main__ as speed
from benchmarks import gpu
from benchmarks.speed_parts.pairs import paired


def test_the_script_for_a_gpu_runs_on_a_cpu(tmp_path: Path) -> None:
    gpu.main(["--smoke", "--workers", "1", "--save", str(tmp_path / "gpu.json")])
    found = json.loads((tmp_path / "gpu.json").read_text())
    assert [row["precision"] for row in found["rows"]] == list(gpu.PRECISIONS)
    assert "mean nothing" in found["device"]


def test_parts_are_merged_into_one_file_and_ratios_are_to_the_first_case(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases = {"small": lambda: sum(range(20_000)), "large": lambda: sum(range(40_000))}
    monkeypatch.setattr(speed, "PARTS", {name: lambda: paired(cases, repeats=3) for name in ("a", "b")})
    for name in ("a", "b"):
        speed.main([name, "--save", str(tmp_path / "speed.json")])
    found = json.loads((tmp_path / "speed.json").read_text())
    assert found["b"]["command"] == "python -m benchmarks b"
    assert list(found["a"]["ratios"]) == ["large / small"]

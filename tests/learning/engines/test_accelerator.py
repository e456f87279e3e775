"""Training on an accelerator, as far as that can be seen without one: `accelerator.py` pretends to be it."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from chestfed.learning.algorithms import ALGORITHMS

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    file = tmp_path_factory.mktemp("accelerator") / "results.json"
    subprocess.run([sys.executable, "-m", "tests.learning.engines.accelerator", file], check=True, timeout=300)
    return json.loads(file.read_text())


def test_pretended_device_refuses_cpu(results: dict[str, Any]) -> None:
    assert "aten.add.Tensor: a tensor of the CPU (2,)" in results["mixed"]


def test_round_equals_that_on_the_cpu(results: dict[str, Any]) -> None:
    assert set(results["rounds"]) >= set(ALGORITHMS.built_in)
    assert max(outcome["apart"] for outcome in results["rounds"].values()) < 1e-6


def test_no_local_step_waits_for_the_device(results: dict[str, Any]) -> None:
    for name, counts in results["rounds"].items():
        assert counts["two steps"]["read"] == counts["three steps"]["read"], (
            name
        )  # what is read, is read after the steps
        assert set(counts["three steps"]) == {"read", "to the device"}, name
        drawn = name in ("fedxl1", "fedxl2")  # the server's draw of a pool
        assert (counts["three steps"]["to the device"] - drawn) % 3 == 0, name  # images, transforms and labels


def test_statistics_do_not_wait(results: dict[str, Any]) -> None:
    assert results["statistics"] == [{"to the device": 6}, {"to the device": 9}]

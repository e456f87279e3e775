"""Training on an accelerator, as far as that can be seen without one: `tests.engines.accelerator` pretends to be it."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from chestfed.algorithms import ALGORITHMS


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    file = tmp_path_factory.mktemp("accelerator") / "found.json"
    subprocess.run([sys.executable, "-m", "tests.engines.accelerator", file], check=True, timeout=300)
    return json.loads(file.read_text())


def test_pretended_device_refuses_cpu(found: dict[str, Any]) -> None:
    assert "aten.add.Tensor: a tensor of the CPU (2,)" in found["mixed"]


def test_round_equals_that_on_the_cpu(found: dict[str, Any]) -> None:
    assert set(found["rounds"]) >= set(ALGORITHMS.built_in)
    assert max(one["apart"] for one in found["rounds"].values()) < 1e-6


def test_no_local_step_waits_for_the_device(found: dict[str, Any]) -> None:
    for name, one in found["rounds"].items():
        assert one["two steps"]["read"] == one["three steps"]["read"], name  # what is read, is read after the steps
        assert set(one["three steps"]) == {"read", "to the device"}, name
        assert one["three steps"]["to the device"] % 3 == 0, name  # images, transforms and labels of each batch


def test_statistics_do_not_wait(found: dict[str, Any]) -> None:
    assert found["statistics"] == [{"to the device": 6}, {"to the device": 9}]

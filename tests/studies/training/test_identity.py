"""What identifies a run: what can change its numbers, and nothing else."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest

from chestfed.core.bundled import bundled
from chestfed.studies.experiment.loading import load_pipeline
from chestfed.studies.experiment.resolved import identity
from chestfed.studies.training.identity import RESULTS_VERSION, Identity, installed_packages, software_versions
from tests.studies.training.test_resume_algorithms import make_pipeline, train

SAMPLES = bundled("pipelines") / "source_addition_samples.yaml"
EXPECTED = Path(__file__).parent / "expected_numbers.json"

PLUGIN = """
from dataclasses import dataclass
from chestfed.learning.algorithms.declaration import AlgorithmSpec
from chestfed.learning.algorithms.minimization.fedprox import FedProx
MINE = AlgorithmSpec("mine", "Mine", "-", "-", lambda options, setting: FedProx(setting.window, setting.local_lr))
"""


def compute_digest(*overrides: str) -> str:
    return Identity(identity(load_pipeline(SAMPLES, overrides).resolve()), {}, {}).digest


def test_algorithm_option_changes_identity() -> None:
    assert compute_digest() == compute_digest("selected=[codasca]")
    assert compute_digest() != compute_digest("methods.codasca.algorithm.prox=0.5")


def test_compile_changes_identity() -> None:
    assert compute_digest() == compute_digest("runtime.recompute=true") != compute_digest("runtime.compile=true")


def test_plug_in_code_changes_identity(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    plugins = {}
    for text in (PLUGIN, PLUGIN + "# another line\n"):
        name = f"plugin_{len(plugins)}"  # a module is imported once per process
        (tmp_path / f"{name}.py").write_text(text)
        settings = load_pipeline(SAMPLES, [f"selected=[{name}:MINE]"]).resolve()
        plugins[name] = identity(settings)["plugins"]
    assert [list(digests) for digests in plugins.values()] == [["plugin_0:MINE"], ["plugin_1:MINE"]]
    assert identity(load_pipeline(SAMPLES).resolve())["plugins"] == {}


def test_numbers_of_results_version(tmp_path: Path) -> None:
    """If this fails because numbers were meant to change: raise RESULTS_VERSION and write the new numbers down."""
    expected = json.loads(EXPECTED.read_text(encoding="utf-8"))
    assert expected["results_version"] == RESULTS_VERSION
    sums = {}
    for name in expected["points"]:
        trained = train(make_pipeline(name, "augment.enabled=true", "collection.test_fraction=0.1"), tmp_path / name)
        point = trained.point.primal.double()
        sums[name] = [float(point.abs().sum()), float(point.square().sum()), float(trained.outputs.scores.mean())]
    for name, numbers in expected["points"].items():  # processors round differently
        np.testing.assert_allclose(sums[name], numbers, rtol=2e-5, err_msg=f"{name}: {sums[name]}")


def test_commit_and_packages_recorded() -> None:
    root = Path(__file__).parents[3]
    if (root / ".git").exists():
        head = subprocess.run(["git", "-C", root, "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
        assert software_versions()["commit"].removesuffix("-dirty") == head.stdout.strip()
    assert {"torch", "pydantic", "safetensors"} <= set(installed_packages())

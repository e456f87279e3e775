"""The commands that measure speed run: what they measure is not looked at."""

from __future__ import annotations

import argparse
import itertools
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks import __main__ as speed
from benchmarks import gpu, growth, scale, source_addition, step_sizes
from benchmarks.speed_parts import training
from benchmarks.speed_parts.pairs import paired
from chestfed.learning.objectives.auc_margin import AucMargin
from chestfed.results.tables.answer import answer_study
from chestfed.results.tables.collect import collect
from chestfed.results.tables.run_folder import RunFolder
from tests.results.tables.finished_runs import NAMES, write_run


@pytest.mark.slow
def test_gpu_benchmark_runs_on_a_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "SIZE", 64)
    parts = ["ceilings", "steps", "launches", "input", "memory", "streams", "study"]
    gpu.main([*parts, "--smoke", "--here", "--workers", "1", "--save", str(tmp_path / "gpu.json")])
    found = json.loads((tmp_path / "gpu.json").read_text())
    assert "mean nothing" in found["device"]
    row = found["steps"]["bf16, batch 4"]
    assert {"bare", "CODASCA", "one graph", "LibAUC-like", "CODASCA / bare", "one graph / bare"} <= row.keys()
    assert found["launches"]["tf32, CODASCA"]["operators"] > found["launches"]["tf32, CODASCA"]["copy_"] > 0
    assert found["study"]["parts measured"] == {"stage 1": 2, "stage 2": 2}
    assert found["study"]["steps of the whole stage 1"] == 224  # two epochs of a thousandth of CheXpert, two at a time


def test_part_that_dies_is_noted(tmp_path: Path) -> None:
    options = argparse.Namespace(smoke=True, workers=-1)  # no thread can be started with it
    found = gpu._run_apart("input", options, 60.0)
    assert found["error"] == 1
    assert found["end"]


@pytest.mark.slow
def test_page_has_the_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [RunFolder(write_run(tmp_path / f"run-{seed}", seed=seed)) for seed in (1, 2, 3)]
    results = collect(runs, "Study")
    (tmp_path / "docs" / "images").mkdir(parents=True)
    page = tmp_path / "docs" / "measurements.md"
    page.write_text("\n".join(["before", *source_addition._MARKS, "after"]))
    monkeypatch.setattr(source_addition, "_ROOT", tmp_path)
    monkeypatch.setattr(source_addition, "DISEASES", NAMES)
    source_addition._write_page(results)
    verdict = str(answer_study(results))
    assert page.read_text().splitlines()[-3:] == [verdict, source_addition._MARKS[1], "after"]
    stored = source_addition.by_seed(results, (1, 2))
    (mean,) = results.gains("study", disease="mean").to_dict("records")
    assert stored["95% over patients and seeds"] == [round(mean[end], 3) for end in ("low", "high")]


def test_speed_parts_are_merged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cases = {"small": lambda: sum(range(20_000)), "large": lambda: sum(range(40_000))}
    monkeypatch.setattr(speed, "PARTS", {name: lambda: paired(cases, repeats=3) for name in ("a", "b")})
    for name in ("a", "b"):
        speed.main([name, "--save", str(tmp_path / "speed.json")])
    results = json.loads((tmp_path / "speed.json").read_text())
    assert results["b"]["command"] == "python -m benchmarks b"
    assert list(results["a"]["ratios"]) == ["large / small"]


def test_scale_model_counts_the_papers_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    d = 69_581
    costs = scale.Costs(dict.fromkeys(scale.FILMS, 0.1), 0.01, 0.001, 0.0, 0.0, d, 0)
    monkeypatch.setattr(scale, "measure_films", lambda: costs.film)
    monkeypatch.setattr(scale, "measure", lambda pipeline, films: costs)
    scale.main(
        ["--devices", "2", "--cores", "10", "--images-per-second", "200", "--save", str(tmp_path / "scale.json")]
    )
    results = json.loads((tmp_path / "scale.json").read_text())
    table = results["tables"]["4"]
    assert (table["studies"], table["images"]) == (5, 839_187)
    assert table["days to prepare them"] == pytest.approx(839_187 * 0.1 / 10 / 86_400, abs=0.005)
    assert table["days of stage 1"] == pytest.approx(2 * 224_316 / 200 / 86_400, abs=0.005)
    rounds, window = 3 * 32, 32  # three stages of 1000 steps
    turns = 1 + 1 + 2 + 2 + 3  # of K = 1 to 5 on two devices
    scored = 5 * rounds * scale.CHEXPERT_TEST * 0.001 / 2
    assert table["days of stage 2"] == pytest.approx((rounds * window * turns * 32 / 200 + scored) / 86_400, abs=0.005)
    many = results["clients"]["10,000"]
    assert many["GB sent in a round"] == pytest.approx(10_000 * 4 * 4 * d / 1e9, rel=0.01)  # v and c, up and down
    assert results["tables"]["3"]["studies"] == 6  # two algorithms, three windows


@pytest.mark.slow
def test_growth_has_the_power_of_the_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for power in (1, 2):
        assert growth.find_exponent((4, 20, 100), [5 + 0.1 * size**power for size in (4, 20, 100)]) == power
    assert growth.find_exponent((4, 20, 100), [1.0, 1.0, 1.0]) is None
    monkeypatch.setattr(growth, "alone", lambda work, size: work(size))
    for name, sizes in {"images": (10, 20, 40), "seeds": (2, 3, 4), "runs": (1, 2, 3), "copies": (10, 20, 40)}.items():
        monkeypatch.setitem(growth.PARTS, name, replace(growth.PARTS[name], sizes=sizes))
        growth.main([name, "--save", str(tmp_path / "growth.json")])
    found = json.loads((tmp_path / "growth.json").read_text())
    assert found["runs"]["3"]["seconds"] > 0
    assert found["seeds"].keys() == {"machine", "exponent", "2", "3", "4"}


@pytest.mark.parametrize("units", [0, 3])
def test_step_sizes_gradients_are_autograds(units: int) -> None:
    rows, steps, ratio = torch.randn(2, 4, 6, 5), len(step_sizes.STEPS), torch.full((2, 1, 1, 1), 0.2)
    positive = (torch.arange(6) % 3 == 0).float().expand(2, 1, 4, 6)
    layers = [layer.requires_grad_() for layer in step_sizes.draw_weights(5, units, 2)]
    centers = torch.rand(2, steps, 4, 3, requires_grad=True)
    hidden, logits = step_sizes.run(layers, rows)
    loss = AucMargin(torch.tensor([0.2]), normalized=True)
    total = sum(
        loss.loss(logits[place].reshape(6, 1), positive[place[0], 0, 0].reshape(6, 1), own[:2], own[2:])
        for place in itertools.product(range(2), range(steps), range(4))
        for own in [centers[place]]
    )
    expected = torch.autograd.grad(total, [*layers, centers])
    slopes, of_centers = step_sizes.differentiate_auc(logits.sigmoid(), positive, ratio, centers)
    found = step_sizes.propagate(layers, rows, hidden, slopes / 6)
    for own, wanted in zip([*found, torch.stack([*of_centers[:2], -of_centers[2]], -1)], expected, strict=True):
        assert torch.allclose(own, wanted, atol=1e-5)


@pytest.mark.parametrize("share", [0.05, 0.9])
def test_step_sizes_splits_keep_patients_whole(share: float) -> None:
    patients = np.repeat(np.arange(400), 3)
    images = step_sizes.Images({}, np.random.default_rng(1).random(1200) < 0.5, patients)
    split = step_sizes.split_patients(images, share, 1)
    train = np.concatenate(split.clients)
    groups = [set(patients[rows]) for rows in (*split.clients, split.valid, split.test)]
    assert sum(map(len, groups)) == len(set().union(*groups))
    assert images.positive[train].mean() == pytest.approx(share, abs=0.01)
    assert images.positive[split.test].mean() == pytest.approx(0.5, abs=0.1)

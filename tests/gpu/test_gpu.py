"""On a CUDA device: `pytest -m gpu`. Skipped where there is none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from chestfed.core.bundled import bundled
from chestfed.learning.engines.client import NetworkClient
from chestfed.learning.models import FlatModule, build_model, network_options
from tests.command_line import call
from tests.learning.engines.small_teams import batches, build_team, pipelines
from tests.studies.training.tiny_studies import command, run

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device on this machine"),
]
DEVICE = "cuda"
CUDA: dict[str, Any] = {"device": torch.device(DEVICE), "mark": None}


@pytest.fixture(autouse=True)
def _exact() -> Iterator[None]:
    """Products in float32, as on the CPU."""
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    yield
    torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before


@pytest.mark.parametrize("number", range(max(1, torch.cuda.device_count())))
def test_batches_are_those_of_the_cpu(number: int) -> None:
    here, there = batches("a", torch.device("cpu")), batches("a", torch.device(DEVICE, number), None)
    for _ in range(9):
        expected, batch = here.next(), there.next()
        assert batch.images.device.type == batch.labels.device.type == "cuda"
        assert torch.equal(batch.labels.cpu(), expected.labels)
        assert torch.allclose(batch.images.cpu(), expected.images, atol=1e-3)


@pytest.mark.parametrize("name", pipelines(3))
def test_rounds_are_those_of_the_cpu(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ends = []
    gradients = NetworkClient.__call__

    def without_waiting(client: NetworkClient, *point: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        torch.cuda.set_sync_debug_mode("error")
        try:
            return gradients(client, *point)
        finally:
            torch.cuda.set_sync_debug_mode("default")

    for where in ({}, CUDA):
        team = build_team(pipelines(3)[name], **where)
        engine = team.engine
        state, _ = engine.run_round(team.state)
        if where:  # the first round may choose kernels and take memory
            monkeypatch.setattr(NetworkClient, "__call__", without_waiting)
        state, record = engine.run_round(state)
        ends.append(engine.current(state).primal.cpu())
        assert np.isfinite(record.loss)
    change = (ends[0] - team.output.primal.cpu()).norm()
    assert (ends[1] - ends[0]).norm() < 1e-2 * change


def test_graphs_give_the_plain_gradients() -> None:
    """`torch.compile` with CUDA graphs and static parameters, over steps of changing weights."""
    images = torch.randn(4, 3, 64, 64, generator=torch.Generator().manual_seed(3)).to(DEVICE)
    plain, compiled = (
        FlatModule(build_model(network_options("small"), 5, 0), DEVICE, channels_last=True, compiled=yes)
        for yes in (False, True)
    )
    vector = plain.parameters()
    for _ in range(4):
        for network in (plain, compiled):
            network.module.train()
            network.bind(vector)
            network.differentiate(network.trained(images).square().mean())
        assert torch.allclose(plain.grad, compiled.grad, rtol=1e-2, atol=1e-4 * float(plain.grad.abs().max()))
        vector = vector - 0.01 * plain.grad


def test_study_runs_resumes_and_is_evaluated(tiny_hospitals: Path, tmp_path: Path) -> None:
    (tmp_path / "synthetic_hospitals").symlink_to(tiny_hospitals)
    words = command("runs", "--no-tracking", "--device", DEVICE)
    done = run(tmp_path, words)
    assert done.code == 0, done.err
    (folder,) = (tmp_path / "runs").glob("synthetic-source_addition_samples-*")
    for name in ("result.json", "rounds.jsonl"):
        (folder / "k2" / name).unlink()
    again = run(tmp_path, words)
    assert (again.code, again.out.count("from the earlier run")) == (0, 2), again.err  # stage 1, K=1
    site = bundled("site_configs") / "synthetic/chexpert.yaml"
    words = ["evaluate", str(folder / "k1"), "--site", str(site), "--data", "synthetic_hospitals", "--device", DEVICE]
    scored = call(*words, "--resamples", "20", folder=tmp_path)
    assert scored.code == 0, scored.err

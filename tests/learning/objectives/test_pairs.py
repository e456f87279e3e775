"""What SOPA-s remembers across batches, rounds and a resume; its gradients are those of tests/invariants."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from chestfed.core import checkpoint
from chestfed.learning.engines.client import NetworkClient
from tests.studies.training.test_resume_algorithms import Interrupted, make_pipeline, train


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["fedavg", "ditto"])
def test_memory_survives_a_resume(algorithm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "SECONDS_BETWEEN_SAVES", 0.0)
    settings = ("methods.*.objective={name: sopa_s, rate: 0.3}", "federated.batch_size=96")
    pipeline = make_pipeline(algorithm, *settings)
    whole = train(pipeline, tmp_path / "whole")
    for stop_after in (1, 3):
        with pytest.raises(Interrupted):
            train(pipeline, tmp_path / "stopped", stop_after)
    again = train(pipeline, tmp_path / "stopped")
    assert torch.equal(again.point.primal, whole.point.primal)
    assert again.history == whole.history

    def forget(client: NetworkClient, *about: object, **more: object) -> object:
        client.memory = torch.zeros_like(client.memory)
        return call(client, *about, **more)  # type: ignore[arg-type]

    call = NetworkClient.__call__
    monkeypatch.setattr(NetworkClient, "__call__", forget)
    assert not torch.equal(train(pipeline, tmp_path / "forgets").point.primal, whole.point.primal)

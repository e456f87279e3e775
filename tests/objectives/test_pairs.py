"""SOPA-s and SOAP against plain loops over pairs, and what they remember across batches, rounds and a resume."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

from chestfed.core import checkpoint
from chestfed.engines.client import NetworkClient
from chestfed.objectives.pairs import AveragePrecision, Pairs, PartialAuc
from tests.training.test_resume_algorithms import Interrupted, make_pipeline, train

NONE, MARGIN, RATE, SPREAD, J = torch.zeros(0).double(), 0.8, 0.3, 0.5, 2


def draw(seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    labels = (torch.rand(9, J, generator=generator) < 0.4).double()
    labels[::4, 0] = torch.nan
    return torch.randn(9, J, generator=generator).double(), labels


def by_hand(logits: Tensor, labels: Tensor, memory: Tensor, precision: bool) -> tuple[Tensor, Tensor]:
    """The gradient by the logits, pair by pair, and the new moving averages."""
    scores, memory = torch.sigmoid(logits.detach()), memory.clone()
    gradient = torch.zeros_like(scores)
    for j in range(J):
        positives = [i for i in range(9) if labels[i, j] == 1]
        negatives = [i for i in range(9) if labels[i, j] == 0]
        for i in positives if negatives else ():
            others = positives + negatives if precision else negatives
            gap = {k: max(0.0, float(MARGIN - scores[i, j] + scores[k, j])) for k in others}
            if precision:
                means = [sum(gap[k] ** 2 for k in part) / len(others) for part in (positives, others)]
            else:
                means = [sum(math.exp(gap[k] ** 2 / SPREAD) for k in others) / len(others)]
            for place, value in enumerate(means):
                old = memory[i, place * J + j]
                memory[i, place * J + j] = value if old == 0 else (1 - RATE) * old + RATE * value
            u = [float(memory[i, place * J + j]) for place in range(len(means))]
            for k in others:
                if precision:
                    weight = (u[0] - u[1] * (k in positives)) / u[1] ** 2
                else:
                    weight = math.exp(gap[k] ** 2 / SPREAD) / u[0]
                slope = weight * 2 * gap[k] / len(others) / len(positives) / J
                gradient[i, j] -= slope
                gradient[k, j] += slope
    return gradient * scores * (1 - scores), memory


@pytest.mark.parametrize("loss", [PartialAuc(J, MARGIN, RATE, SPREAD), AveragePrecision(J, MARGIN, RATE)])
def test_gradient_and_memory_equal_all_pairs(loss: Pairs) -> None:
    memory = torch.zeros(9, loss.memory_size).double()
    for seed in range(4):
        logits, labels = draw(seed)
        logits.requires_grad_()
        value, after = loss.sampled_loss(logits, labels, NONE, NONE, memory)
        (ours,) = torch.autograd.grad(value, logits)
        theirs, memory = by_hand(logits, labels, memory, isinstance(loss, AveragePrecision))
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)
        torch.testing.assert_close(after, memory, rtol=0, atol=1e-12)


def test_partial_auc_weighs_hard_negatives() -> None:
    logits, labels = torch.tensor([[0.0], [0.5], [-3.0]]).double(), torch.tensor([[1.0], [0.0], [0.0]])
    shares = []
    for spread in (10.0, 0.1):
        leaf = logits.clone().requires_grad_()
        (slope,) = torch.autograd.grad(PartialAuc(1, 1.0, 1.0, spread).loss(leaf, labels, NONE, NONE), leaf)
        pulls = slope[1:, 0] / (torch.sigmoid(logits) * torch.sigmoid(-logits))[1:, 0]
        shares.append(float(pulls[0] / pulls.sum()))
    assert shares[0] < 0.75
    assert shares[1] > 0.99


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

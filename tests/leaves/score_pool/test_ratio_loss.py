"""The Ratio Loss, and the server's view of the classes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from chestfed.learning.engines.server import ClassMonitor
from chestfed.learning.models import FlatModule
from chestfed.learning.objectives.cross_entropy import CrossEntropy
from chestfed.leaves.score_pool.ratio_loss import RatioLoss, class_ratios

NONE = torch.zeros(0)


def draw(n: int = 30) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    labels = (torch.rand(n, 2, generator=generator) < 0.3).double()
    labels[::7, 0] = torch.nan
    return torch.randn(n, 2, generator=generator).double(), labels


def test_loss_is_weighted_cross_entropy() -> None:
    logits, labels = draw()
    ratios = torch.tensor([5.0, 2.0, 0.2, 0.5]).double()
    expected = []
    for j in range(2):
        terms = []
        for z, y in zip(logits[:, j].tolist(), labels[:, j].tolist(), strict=True):
            if np.isnan(y):
                continue
            probability = 1 / (1 + np.exp(-z))
            weight = 0.7 + 0.3 * float(ratios[j] if y == 1 else ratios[2 + j])
            terms.append(-weight * np.log(probability if y == 1 else 1 - probability))
        expected.append(np.mean(terms))
    loss = RatioLoss(2, alpha=0.7, beta=0.3).loss(logits, labels, NONE, NONE, ratios)
    assert float(loss) == pytest.approx(np.mean(expected), rel=1e-12)


def test_zero_beta_is_the_cross_entropy() -> None:
    logits, labels = draw()
    weighted = RatioLoss(2, alpha=1.0, beta=0.0).loss(logits, labels, NONE, NONE, torch.rand(4).double())
    torch.testing.assert_close(weighted, CrossEntropy().loss(logits, labels, NONE, NONE), rtol=1e-12, atol=0)


def test_loss_is_finite_without_positives() -> None:
    labels = torch.tensor([[0.0, torch.nan], [0.0, torch.nan]])
    logits = torch.zeros(2, 2, requires_grad=True)
    loss = RatioLoss(2).loss(logits, labels, NONE, NONE, torch.ones(4))
    loss.backward()
    assert torch.isfinite(loss)
    assert logits.grad is not None
    assert torch.isfinite(logits.grad).all()
    assert (logits.grad[:, 1] == 0).all()


def test_ratios_follow_from_gradients() -> None:
    """Against automatic differentiation: one class at a time, the gradient of the mean cross-entropy at row j."""
    _, labels = draw()
    features = torch.rand(30, 5).double()
    classifier = nn.Linear(5, 2).double()
    result = class_ratios(classifier(features).detach(), features, labels)
    for j in range(2):
        sums = []
        for value in (1, 0):
            rows = labels[:, j] == value
            loss = nn.functional.binary_cross_entropy_with_logits(classifier(features[rows])[:, j], labels[rows, j])
            (gradient,) = torch.autograd.grad(loss, classifier.weight)
            sums.append(gradient[j].sum().abs())
        assert float(result[j]) == pytest.approx(float(sums[0] / sums[1]), rel=1e-12)
        assert float(result[2 + j]) == pytest.approx(float(sums[1] / sums[0]), rel=1e-12)


def test_missed_class_has_a_large_ratio() -> None:
    labels = torch.tensor([[1.0], [1.0], [0.0], [0.0]])
    says_no = torch.full((4, 1), -3.0)
    ratios = class_ratios(says_no, torch.ones(4, 6), labels)
    assert ratios[0] > 10 > 0.1 > ratios[1]
    assert class_ratios(says_no, torch.ones(4, 6), torch.zeros(4, 1)).tolist() == [1, 1]


def test_monitor_changes_nothing() -> None:
    torch.manual_seed(1)
    network = FlatModule(nn.Sequential(nn.Flatten(), nn.BatchNorm1d(12), nn.Linear(12, 4), nn.ReLU(), nn.Linear(4, 1)))
    labels = torch.tensor([[1.0], [0.0], [1.0], [0.0]])
    monitor = ClassMonitor(network, RatioLoss(1), torch.randn(4, 3, 2, 2), labels)
    primal, buffers = network.parameters(), network.buffers()
    biased = primal.clone()
    biased[-1] = -4.0  # the last bias: everything is negative
    assert monitor(biased, buffers)[0] > 3 * monitor(primal, buffers)[0]
    torch.testing.assert_close(network.buffers(), buffers, rtol=0, atol=0)
    assert torch.equal(monitor(primal, buffers), monitor(primal, buffers))

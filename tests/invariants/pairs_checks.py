"""SOPA-s and SOAP against plain loops over the pairs of a batch, in float64, over several batches of the same rows."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import ModuleType

import torch
from torch import Tensor

NONE, MARGIN, RATE, SPREAD, J = torch.zeros(0).double(), 0.8, 0.3, 0.5, 2


def draw(seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    labels = (torch.rand(9, J, generator=generator) < 0.4).double()
    labels[::4, 0] = torch.nan
    return torch.randn(9, J, generator=generator).double(), labels


def by_hand(logits: Tensor, labels: Tensor, memory: Tensor, *, precision: bool) -> tuple[Tensor, Tensor]:
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


def _equals_all_pairs(module: ModuleType, *, precision: bool) -> None:
    kind, more = (module.AveragePrecision, ()) if precision else (module.PartialAuc, (SPREAD,))
    loss = kind(J, MARGIN, RATE, *more)
    memory = torch.zeros(9, loss.memory_size).double()
    for seed in range(4):
        logits, labels = draw(seed)
        if seed == 2:
            labels[labels[:, 1] == 0, 1] = torch.nan  # no pair of the second disease
        logits.requires_grad_()
        value, after = loss.sampled_loss(logits, labels, NONE, NONE, memory)
        (ours,) = torch.autograd.grad(value, logits)
        theirs, memory = by_hand(logits, labels, memory, precision=precision)
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)
        torch.testing.assert_close(after, memory, rtol=0, atol=1e-12)


def check_partial_auc_equals_all_pairs(module: ModuleType) -> None:
    _equals_all_pairs(module, precision=False)


def check_average_precision_equals_all_pairs(module: ModuleType) -> None:
    _equals_all_pairs(module, precision=True)


def check_partial_auc_weighs_hard_negatives(module: ModuleType) -> None:
    logits, labels = torch.tensor([[0.0], [0.5], [-3.0]]).double(), torch.tensor([[1.0], [0.0], [0.0]])
    shares = []
    for spread in (10.0, 0.1):
        leaf = logits.clone().requires_grad_()
        (slope,) = torch.autograd.grad(module.PartialAuc(1, 1.0, 1.0, spread).loss(leaf, labels, NONE, NONE), leaf)
        pulls = slope[1:, 0] / (torch.sigmoid(logits) * torch.sigmoid(-logits))[1:, 0]
        shares.append(float(pulls[0] / pulls.sum()))
    assert shares[0] < 0.75
    assert shares[1] > 0.99


CHECKS: list[Callable[[ModuleType], None]] = [
    check_partial_auc_equals_all_pairs,
    check_average_precision_equals_all_pairs,
    check_partial_auc_weighs_hard_negatives,
]
MUTANTS: dict[str, tuple[str, str]] = {
    "gap has the wrong sign": (
        "self.margin - scores[:, None] + scores[None]",
        "self.margin + scores[:, None] - scores[None]",
    ),
    "hinge is not squared": (".clamp(min=0).square()", ".clamp(min=0)"),
    "rate is that of the old": ("(1 - rate) * old + rate * new", "rate * old + (1 - rate) * new"),
    "averages start at zero": ("torch.where(old == 0, new, ", "torch.where(old < 0, new, "),
    "rows without a pair move": (
        "torch.where(usable[:, None], move_average(old, new, self.rate), old)",
        "move_average(old, new, self.rate)",
    ),
    "averages are not used": ("torch.where(usable[:, None], moved, 1.0).movedim(1, 0)", "means.detach().clone()"),
    "lambda is forgotten outside": ("self.spread * torch.log(means[0])", "torch.log(means[0])"),
    "lambda is forgotten inside": ("torch.exp(hinges / self.spread)", "torch.exp(hinges)"),
    "a missing label is a negative": ("negative = labels == 0", "negative = labels != 1"),
    "precision is inverted": ("-means[0] / means[1]", "-means[1] / means[0]"),
    "both means are over all": ("for part in (positive, known)", "for part in (known, known)"),
    "mean is over the positives": ("count = known.sum(dim=0)", "count = positive.sum(dim=0)"),
}

"""What must hold for the Ratio Loss, against references in NumPy."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import numpy as np
import torch

from tests.invariants.objective_checks import draw, require_mean_of_batches

NONE = torch.zeros(0)


def check_ratio_loss_weighs_each_class(module: ModuleType) -> None:
    logits, labels = draw()
    ratios = np.array([5.0, 2.0, 0.2, 0.5])
    per_disease = []
    for j in range(2):
        known = ~np.isnan(labels[:, j])
        z, y = logits[known, j], labels[known, j]
        weight = 0.7 + 0.3 * np.where(y == 1, ratios[j], ratios[2 + j])
        per_disease.append(np.mean(weight * (np.log1p(np.exp(z)) - y * z)))
    loss = module.RatioLoss(2, 0.7, 0.3).loss(
        torch.from_numpy(logits), torch.from_numpy(labels), NONE, NONE, torch.from_numpy(ratios)
    )
    np.testing.assert_allclose(float(loss), np.mean(per_disease), rtol=1e-12)


def check_ratios_are_those_of_the_gradients(module: ModuleType) -> None:
    logits, labels = draw()
    features = np.random.default_rng(5).random((40, 3))
    slopes = 1 / (1 + np.exp(-logits)) - (labels == 1)
    expected = []
    for value in (1, 0):
        for j in range(2):
            rows, others = labels[:, j] == value, labels[:, j] == 1 - value
            numerator, denominator = (
                np.abs((slopes[r, j][:, None] * features[r]).mean(axis=0).sum()) for r in (rows, others)
            )
            expected.append(numerator / denominator)
    ratios = module.class_ratios(*(torch.from_numpy(part) for part in (logits, features, labels)))
    np.testing.assert_allclose(ratios.numpy(), expected, rtol=1e-12)


def check_all_batches_make_the_ratio_loss_of_the_whole(module: ModuleType) -> None:
    ratios = torch.tensor([5.0, 2.0, 0.2, 0.5]).double()
    require_mean_of_batches(lambda q: module.RatioLoss(2, 0.7, 0.3, labeled=q), ratios[:0], ratios[:0], ratios)


def check_ratios_are_capped_on_both_sides(module: ModuleType) -> None:
    logits, labels = (torch.from_numpy(part) for part in draw())
    given, ratios = torch.tensor([40.0, 2.0, 0.001, 0.5]).double(), torch.tensor([4.0, 2.0, 0.25, 0.5]).double()
    loss = module.RatioLoss(2, 0.7, 0.3, cap=4.0).loss(logits, labels, NONE, NONE, given)
    assert torch.equal(loss, module.RatioLoss(2, 0.7, 0.3).loss(logits, labels, NONE, NONE, ratios))


CHECKS: dict[str, list[Callable[[ModuleType], None]]] = {
    "ratio_loss": [
        check_ratio_loss_weighs_each_class,
        check_ratios_are_those_of_the_gradients,
        check_ratios_are_capped_on_both_sides,
        check_all_batches_make_the_ratio_loss_of_the_whole,
    ],
}
MUTANTS: dict[str, dict[str, tuple[str, str]]] = {
    "ratio_loss": {
        "the ratios are swapped": (
            "torch.where(positive, ratios[: self.diseases], ratios[self.diseases :])",
            "torch.where(~positive, ratios[: self.diseases], ratios[self.diseases :])",
        ),
        "alpha is forgotten": ("weight = self.alpha + self.beta", "weight = self.beta"),
        "missing labels count as negative": ("(weight * terms, labels,", "(weight * terms, labels.nan_to_num(),"),
        "the share of labels is forgotten": ("labels, self.labeled)", "labels)"),
        "ratios are not capped": (".clamp(1 / self.cap, self.cap)", ""),
        "small ratios are not capped": (".clamp(1 / self.cap, self.cap)", ".clamp(max=self.cap)"),
        "R is the inverse": (
            "of_positives / torch.where(usable, of_negatives, 1.0), 1.0)",
            "of_negatives / torch.where(usable, of_positives, 1.0), 1.0)",
        ),
        "gradients are summed over the images": (" / of_class.sum(dim=0).clamp(min=1)[:, None]", ""),
        "features are forgotten": ("@ features", "@ torch.ones_like(features)"),
    },
}

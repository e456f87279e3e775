"""The step size of dual variables, against the curvature of the loss itself, by automatic differentiation."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from chestfed.learning.objectives.auc_margin import AucMargin

P = torch.tensor([0.3, 0.02, 0.6]).double()


def setting(module: ModuleType, **more: Any) -> Any:
    return module.Setting(**{"window": 1, "local_lr": 0.4, "lr_factor": 0.5, "positive_ratio": P, **more})


def measure_curvature(objective: AucMargin) -> Tensor:
    """Half of minus the second derivative of the loss by alpha, `[J]`."""
    labels = (torch.arange(30).reshape(10, 3) % 3 == 0).double()
    dual = torch.zeros(3).double().requires_grad_()
    loss = objective.loss(torch.zeros(10, 3).double(), labels, torch.zeros(6).double(), dual)
    (slope,) = torch.autograd.grad(loss, dual, create_graph=True)
    (second,) = torch.autograd.grad(slope.sum(), dual)
    return -second / 2


def check_a_preconditioned_step_is_divided_by_the_curvature(module: ModuleType) -> None:
    options = module.MinMaxOptions(dual_lr=0.2, dual_step="preconditioned")
    for normalized in (False, True):
        curvature = measure_curvature(AucMargin(P, margin=0.7, normalized=normalized))
        step = options.dual_step_size(setting(module, normalized=normalized))
        torch.testing.assert_close(step * curvature, torch.full_like(P, 0.2 * 0.5), rtol=1e-12, atol=0)


def check_every_site_has_the_step_of_its_own_curvature(module: ModuleType) -> None:
    options = module.MinMaxOptions(dual_lr=0.2, dual_step="preconditioned")
    both = torch.stack([P, P.flip(0)])
    for normalized in (False, True):
        steps = options.dual_step_size(setting(module, positive_ratio=both, normalized=normalized))
        alone = [options.dual_step_size(setting(module, positive_ratio=p, normalized=normalized)) for p in both]
        assert torch.equal(steps, torch.cat(alone))


def check_a_disease_without_pairs_has_a_finite_step(module: ModuleType) -> None:
    options = module.MinMaxOptions(dual_lr=0.2, dual_step="preconditioned")
    p = torch.tensor([0.5, 0.0, 1.0]).double()
    for normalized in (False, True):
        steps = options.dual_step_size(setting(module, positive_ratio=p, normalized=normalized))
        torch.testing.assert_close(steps[1:], torch.full_like(P[:2], 0.1), rtol=1e-12, atol=0)


def check_a_plain_step_is_one_number(module: ModuleType) -> None:
    for normalized in (False, True):
        assert module.MinMaxOptions().dual_step_size(setting(module, normalized=normalized)) == 0.4
        assert module.MinMaxOptions(dual_lr=0.2).dual_step_size(setting(module, normalized=normalized)) == 0.1


CHECKS: list[Callable[[ModuleType], None]] = [
    check_a_preconditioned_step_is_divided_by_the_curvature,
    check_every_site_has_the_step_of_its_own_curvature,
    check_a_disease_without_pairs_has_a_finite_step,
    check_a_plain_step_is_one_number,
]
MUTANTS: dict[str, tuple[str, str]] = {
    "the curvature is that of p": ("curvature = p * (1 - p)", "curvature = p"),
    "diseases are summed": ("curvature / p.shape[-1]", "curvature"),
    "sites count as diseases": ("curvature / p.shape[-1]", "curvature / p.numel()"),
    "a normalized loss keeps its curvature": ("if setting.normalized:", "if False:"),
    "every loss is normalized": ("if setting.normalized:", "if True:"),
    "no pairs, no curvature": ("torch.where(curvature > 0, curvature, 1.0)", "curvature"),
    "the stage's factor is forgotten": ("self.dual_lr * setting.lr_factor", "self.dual_lr"),
    "the stage's factor counts twice": ("setting.local_lr if", "setting.local_lr * setting.lr_factor if"),
}

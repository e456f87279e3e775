"""What must hold for the compositional gradient of a network, as functions of the module that implements it.

Against automatic differentiation through the whole and finite differences, in float64.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from chestfed.learning.models import FlatModule
from chestfed.learning.objectives.auc_margin import AucMargin
from chestfed.leaves.compositional.objective import CompositionalAuc

Batches = list[tuple[Tensor, Tensor]]
RATIOS = torch.tensor([0.3, 0.4]).double()
ALPHA = torch.tensor([0.1, -0.2]).double()


def small_network() -> FlatModule:
    torch.manual_seed(0)
    return FlatModule(nn.Sequential(nn.Flatten(), nn.Linear(12, 6), nn.Tanh(), nn.Linear(6, 2)).double())


def batches(count: int) -> Batches:
    generator = torch.Generator().manual_seed(1)
    made = []
    for _ in range(count):
        labels = (torch.rand(9, 2, generator=generator) < 0.4).double()
        labels[0, 1] = torch.nan
        made.append((torch.randn(9, 3, 2, 2, generator=generator).double(), labels))
    return made


def start(network: FlatModule) -> Tensor:
    return torch.cat([network.parameters(), torch.tensor([0.6, 0.5, 0.3, 0.2]).double()])


def build_oracle(
    module: ModuleType, network: FlatModule, rho: float, hvp: str, data: Batches, noted: Any = None
) -> Any:
    """One whose inner function is on the first batch and whose outer is on the second."""
    objective = CompositionalAuc(AucMargin(RATIOS), rho, hvp)  # type: ignore[arg-type]
    note = (lambda loss, gradient: None) if noted is None else lambda loss, gradient: noted.append((loss, gradient))
    return module.NetworkComposition(network, objective, lambda: data[0], lambda: data[1], note, autocast=False)


def inner_point(network: FlatModule, x: Tensor, rho: float, data: Batches) -> Tensor:
    """g(x), differentiable in x."""
    (images, labels), w = data[0], x[: network.size]
    loss = CompositionalAuc(AucMargin(RATIOS), rho).inner.loss(network.call(w, images), labels, x[:0], x[:0])
    (slope,) = torch.autograd.grad(loss, w, create_graph=True)
    return torch.cat([w - rho * slope, x[network.size :]])


def whole_loss(network: FlatModule, x: Tensor, alpha: Tensor, rho: float, data: Batches) -> Tensor:
    """f(g(x), alpha) written in one piece, with the second batch outside and the first inside."""
    h, (images, labels) = inner_point(network, x, rho, data), data[1]
    return AucMargin(RATIOS).loss(network.call(h[: network.size], images), labels, h[network.size :], alpha)


def check_the_gradient_equals_automatic_differentiation_through_the_whole(module: ModuleType) -> None:
    network, data = small_network(), batches(2)
    for rho in (0.0, 0.1, 1.5):
        oracle = build_oracle(module, network, rho, "exact", data)
        h = oracle.inner(start(network))
        grad_h, grad_alpha = oracle.outer(h, ALPHA)
        ours = oracle.pull_back(grad_h)
        point, dual = start(network).requires_grad_(), ALPHA.clone().requires_grad_()
        torch.testing.assert_close(h, inner_point(network, point, rho, data).detach(), rtol=1e-12, atol=1e-14)
        expected, expected_dual = torch.autograd.grad(whole_loss(network, point, dual, rho, data), (point, dual))
        torch.testing.assert_close(ours, expected, rtol=1e-10, atol=1e-13)
        torch.testing.assert_close(grad_alpha, expected_dual, rtol=1e-10, atol=1e-13)


def check_weight_decay_is_of_the_weights_before_the_inner_step(module: ModuleType) -> None:
    network, data = small_network(), batches(2)
    x, size = start(network), network.size
    for hvp in ("exact", "drop"):
        plain, decayed = (build_oracle(module, network, 0.5, hvp, data) for _ in range(2))
        decayed.weight_decay = 0.3
        gradients = [oracle.pull_back(oracle.outer(oracle.inner(x), ALPHA)[0]) for oracle in (plain, decayed)]
        torch.testing.assert_close(gradients[1][:size], gradients[0][:size] + 0.3 * x[:size], rtol=1e-12, atol=1e-14)
        assert torch.equal(gradients[1][size:], gradients[0][size:])


def check_the_gradient_equals_finite_differences(module: ModuleType) -> None:
    network, data, step = small_network(), batches(2), 1e-5
    x = start(network)
    oracle = build_oracle(module, network, 0.7, "exact", data)
    ours = oracle.pull_back(oracle.outer(oracle.inner(x), ALPHA)[0])
    generator = torch.Generator().manual_seed(2)
    for _ in range(5):
        direction = torch.randn(x.numel(), generator=generator).double()
        ahead, behind = (
            whole_loss(network, (x + sign * step * direction).requires_grad_(), ALPHA, 0.7, data) for sign in (1, -1)
        )
        slope = float((ahead - behind).detach() / (2 * step))
        assert abs(slope - float(ours @ direction)) < 1e-6 * abs(slope) + 1e-9


def check_dropping_the_hessian_leaves_q_as_it_is(module: ModuleType) -> None:
    network, data = small_network(), batches(2)
    q = torch.linspace(-1, 1, network.size + 4).double()
    pulled = {}
    for rho, hvp in ((0.7, "exact"), (0.7, "drop"), (0.0, "exact")):
        oracle = build_oracle(module, network, rho, hvp, data)
        oracle.inner(start(network))
        pulled[rho, hvp] = oracle.pull_back(q)
    assert torch.equal(pulled[0.7, "drop"], q)
    assert torch.equal(pulled[0.0, "exact"], q)
    assert (pulled[0.7, "exact"] - q).norm() > 0.01 * q.norm()


def check_three_gradients_are_counted_and_the_last_is_the_one_that_is_stepped_along(module: ModuleType) -> None:
    network, data = small_network(), batches(2)
    noted: list[tuple[Tensor | None, Tensor | None]] = []
    oracle = build_oracle(module, network, 0.7, "exact", data, noted)
    ours = oracle.pull_back(oracle.outer(oracle.inner(start(network)), ALPHA)[0])
    assert len(noted) == 3
    (loss, _), (_, gradient) = noted[1:]
    assert [pair[0] is None for pair in noted] == [True, False, True]
    assert [pair[1] is None for pair in noted] == [True, True, False]
    expected = whole_loss(network, start(network).requires_grad_(), ALPHA, 0.7, data).detach()
    torch.testing.assert_close(loss, expected, rtol=1e-12, atol=1e-14)
    assert gradient is not None
    assert torch.equal(gradient, ours)


CHECKS: list[Callable[[ModuleType], None]] = [
    check_the_gradient_equals_automatic_differentiation_through_the_whole,
    check_weight_decay_is_of_the_weights_before_the_inner_step,
    check_the_gradient_equals_finite_differences,
    check_dropping_the_hessian_leaves_q_as_it_is,
    check_three_gradients_are_counted_and_the_last_is_the_one_that_is_stepped_along,
]

#: name -> (text in the source, its replacement).
MUTANTS: dict[str, tuple[str, str]] = {
    "weight decay is forgotten": ("if self.weight_decay:", "if False:"),
    "weight decay has the wrong sign": ("q[:size] + self.weight_decay", "q[:size] - self.weight_decay"),
    "weight decay is of the direction": ("self.weight_decay * self.weights.detach()", "self.weight_decay * q[:size]"),
    "g steps up the cross-entropy": ("x[:size] - self.objective.rho * self", "x[:size] + self.objective.rho * self"),
    "g forgets rho": ("x[:size] - self.objective.rho * self", "x[:size] - self"),
    "g does not step": ("x[:size] - self.objective.rho * self.slope.detach()", "x[:size]"),
    "g loses a and b": ("self.slope.detach(), x[size:]])", "self.slope.detach(), 0 * x[size:]])"),
    "g is on the outer batch": ("labels = self.next_inner()", "labels = self.next_outer()"),
    "f is on the inner batch": ("labels = self.next_outer()", "labels = self.next_inner()"),
    "f is of the network at x": (
        "self._logits(point, images)",
        "self._logits(self.weights.detach() + 0 * point[:size], images)",
    ),
    "f's step goes along alpha at its start": ("y.detach().clone()", "torch.zeros_like(y)"),
    "the Hessian has the wrong sign": ("q[:size] - self.objective.rho", "q[:size] + self.objective.rho"),
    "the Hessian forgets rho": ("q[:size] - self.objective.rho * product", "q[:size] - product"),
    "the Jacobian is forgotten": ("q[:size] - self.objective.rho * product", "q[:size]"),
    "the Jacobian is the Hessian": ("q[:size] - self.objective.rho * product", "-self.objective.rho * product"),
    "the Hessian is multiplied by the slope": ("grad_outputs=q[:size]", "grad_outputs=self.slope.detach()"),
    "a and b are not pulled back": (
        "self.objective.rho * product, q[size:]])",
        "self.objective.rho * product, 0 * q[size:]])",
    ),
    "drop is exact": (
        'exact = self.objective.hvp == "exact"\n        size',
        'exact = True\n        object.__setattr__(self.objective, "hvp", "exact")\n        size',
    ),
    "exact drops": ('if self.objective.hvp == "exact":', "if False:"),
    "the gradient of f is counted as the step": (
        "self.note(loss.detach(), None)",
        "self.note(loss.detach(), gradient)",
    ),
    "the Hessian-vector product is not counted": ("self.note(None, q)", "pass"),
}

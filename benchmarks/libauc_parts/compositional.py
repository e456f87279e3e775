"""Part 4: CompositionalAUCLoss and PDSCA beside the exact compositional objective."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from benchmarks.libauc_parts.library import libauc_loss, libauc_optimizer, set_variables
from benchmarks.libauc_parts.problem import Fact, Problem, distance, gradient, problem, start


@dataclass
class Compositional:
    """CompositionalAUCLoss and PDSCA on the small problem, by default without averaging (beta1 = beta2 = 1)."""

    data: Problem
    weights: Tensor
    loss: Any
    optimizer: Any

    def call(self, zero_loss: bool = False) -> str:
        """One batch as LibAUC's examples write it; the branch that the loss took."""
        value = self.loss(self.data.scores(self.weights), self.data.labels, auto=False)
        self.optimizer.zero_grad()
        if zero_loss:
            self.loss.zero_grad()
        (by_alpha,) = torch.autograd.grad(value.sum(), [self.loss.alpha], retain_graph=True, allow_unused=True)
        value.sum().backward()
        self.optimizer.step()
        return "CE" if by_alpha is None else "AUC"

    @property
    def variables(self) -> tuple[Tensor, Tensor, Tensor]:
        """Values of a, b and alpha."""
        return self.loss.a.detach().clone(), self.loss.b.detach().clone(), self.loss.alpha.detach().clone()

    def auc_gradient(self, weights: Tensor) -> Tensor:
        """Of the AUC loss by the weights, at the present a, b and alpha."""
        return gradient(lambda w: self.data.auc(w, *self.variables), weights)

    def exact_gradient(self, weights: Tensor, inner_lr: float) -> Tensor:
        """Of w -> AUC(w - inner_lr grad CE(w)), the Hessian of CE included."""
        outer = weights.detach().clone().requires_grad_()
        (inner,) = torch.autograd.grad(self.data.cross_entropy(outer), outer, create_graph=True)
        return torch.autograd.grad(self.data.auc(outer - inner_lr * inner, *self.variables), outer)[0]


def compositional(k: int = 1, **settings: Any) -> Compositional:
    data = problem()
    w, a, b, alpha = start()
    w.requires_grad_()
    loss = libauc_loss("CompositionalAUCLoss", k=k, imratio=float(data.p))
    set_variables(loss, a, b, alpha)
    plain = {"lr": 0.1, "lr0": 1.0, "beta1": 1.0, "beta2": 1.0}
    return Compositional(data, w, loss, libauc_optimizer("PDSCA", [w], loss, **(plain | settings)))


def compositional_facts() -> Iterator[Fact]:
    yield from first_two_calls()
    yield from later_calls()
    run = compositional(k=2)
    branches = " ".join(run.call() for _ in range(8))
    yield Fact(
        "4",
        "k = 2, losses of eight calls (documented: two CE, then a single AUC)",
        branches,
        branches == "CE CE AUC AUC CE CE AUC AUC",
    )
    yield where_it_ends()


def first_two_calls() -> Iterator[Fact]:
    """The first pair of calls: a CE step, then an AUC step."""
    run = compositional()
    w0 = run.weights.detach().clone()
    run.call()
    w1 = run.weights.detach().clone()
    error = distance(w1, w0 - 1.0 * gradient(run.data.cross_entropy, w0))
    yield Fact("4", "PDSCA, 1st call: distance to w1 = w0 - lr0 grad CE(w0)", f"{error:.0e}", error < 1e-12)

    shortened, exact = run.auc_gradient(w1), run.exact_gradient(w0, 1.0)
    run.call()
    w2 = run.weights.detach().clone()
    error = distance(w2, w1 - 0.1 * shortened)
    yield Fact(
        "4",
        "2nd call: distance to w2 = w1 - lr grad AUC(w1), without Hessian, from w1 and not from w0",
        f"{error:.0e}",
        error < 1e-12,
    )
    relative = float((shortened - exact).norm() / exact.norm())
    yield Fact(
        "4",
        "|grad AUC(w1) - exact grad of AUC(w - lr0 grad CE(w)) at w0| / |exact|, lr0 = 1",
        f"{relative:.2f}",
        relative > 0.01,
    )


def later_calls() -> Iterator[Fact]:
    """The third call, a CE batch again: which branch of PDSCA takes it."""
    for zero_loss in (False, True):
        run = compositional()
        run.call(), run.call()
        before, alpha = run.weights.detach().clone(), run.loss.alpha.item()
        branch = run.call(zero_loss)
        direction = gradient(run.data.cross_entropy, before)
        step = float((before - run.weights.detach()) @ direction / (direction @ direction))
        moved = run.loss.alpha.item() - alpha
        how = "loss.zero_grad() as well" if zero_loss else "optimizer.zero_grad() alone, as in the examples"
        fine = abs(step - (1.0 if zero_loss else 0.1)) < 1e-9 and (moved == 0) == zero_loss
        yield Fact(
            "4",
            f"3rd call, {branch}, lr0 = 1, lr = 0.1, {how}: its step size; alpha moved by",
            f"{step:.3f}; {moved:.3f}",
            fine and branch == "CE",
        )
    run = compositional(beta2=0.5)
    run.call()
    auc = run.auc_gradient(run.weights)
    run.call()
    before = run.weights.detach().clone()
    cross_entropy = gradient(run.data.cross_entropy, before)
    run.call()
    error = distance(before - run.weights, 0.1 * 0.5 * (auc + cross_entropy))
    yield Fact(
        "4",
        "3rd call, beta2 = 0.5: distance to a step along the mean of the AUC and the CE gradient",
        f"{error:.0e}",
        error < 1e-12,
    )


def where_it_ends() -> Fact:
    """The point that many small steps lead to: stationary for what?"""
    run = compositional(lr=0.05, lr0=0.05)
    for _ in range(20_000):
        run.call()
    w = run.weights.detach()
    both = float((gradient(run.data.cross_entropy, w) + run.auc_gradient(w)).norm())
    exact = min(float(run.exact_gradient(w, inner_lr).norm()) for inner_lr in (0.05, 1.0))
    return Fact(
        "4",
        "after 20,000 calls, lr = lr0 = 0.05: |grad (CE + AUC)|; |exact compositional grad|, the smaller "
        "of those with lr0 = 0.05 and 1",
        f"{both:.1e}; {exact:.1e}",
        both < 0.1 * exact,
    )

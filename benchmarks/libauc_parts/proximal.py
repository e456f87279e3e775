"""Part 5: PESG beside the local step of CODA+."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from benchmarks.libauc_parts.library import libauc_loss, libauc_optimizer, set_variables
from benchmarks.libauc_parts.problem import Fact, distance, problem, start
from chestfed.learning.algorithms.coda_plus import CodaPlus
from chestfed.learning.algorithms.variables import Point

STEPS = 50
LR = 0.2


def pesg(
    prox: float, own_alpha: bool = True, noisy_reference: bool = False, steps: int = STEPS, **settings: Any
) -> Tensor:
    """PESG's iterates `[steps, 7]` on the small problem: w, a, b, alpha.

    `own_alpha=False` takes alpha's step from PESG and makes it here, along the gradient of the loss at the same point.
    """
    data = problem()
    w, a, b, alpha = start()
    w.requires_grad_()
    loss = libauc_loss("AUCMLoss", imratio=float(data.p))
    set_variables(loss, a, b, alpha)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)  # PESG draws v_ref from the global generator
        optimizer = libauc_optimizer("PESG", [w], loss, lr=LR, epoch_decay=prox, **settings)
    group = optimizer.param_groups[0]
    if not noisy_reference and prox:
        group["model_ref"][:] = [start()[0], a.clone(), b.clone()]
    if not own_alpha:
        group["alpha"] = None
    points = []
    for _ in range(steps):
        value = loss(data.scores(w), data.labels, auto=False)
        optimizer.zero_grad()
        loss.alpha.grad = None
        value.sum().backward()
        optimizer.step()
        if not own_alpha:
            loss.alpha.data += LR * loss.alpha.grad
        points.append(torch.cat([w, loss.a, loss.b, loss.alpha]).detach().clone())
    return torch.stack(points)


def proximal(prox: float, steps: int = STEPS, preconditioned: bool = False) -> Tensor:
    """CODA+'s local iterates with one client, in LibAUC's variables."""
    data = problem()
    dual_lr = LR / float(data.p * (1 - data.p)) if preconditioned else LR
    w, a, b, alpha = start()
    rule = CodaPlus(window=1, local_lr=LR, dual_lr=dual_lr, prox=prox)
    point = Point(torch.cat([w, a, b]), alpha - 1)
    client = rule.start_client(point)
    points = []
    for _ in range(steps):
        point, client = rule.local_round(point, client, data.gradients)
        points.append(torch.cat([point.primal, point.dual + 1]))
    return torch.stack(points)


def proximal_with_pesg_dual(prox: float) -> Tensor:
    """The same descent with alpha's step as PESG is read to make it: after (a, b), towards 1 + b - a, not below 0."""
    data = problem()
    w, a, b, alpha = start()
    v = reference = torch.cat([w, a, b])
    points = []
    for _ in range(STEPS):
        v = v - LR * (data.gradients(v, alpha - 1)[0] + prox * (v - reference))
        alpha = (alpha + 2 * LR * (1 + v[-1] - v[-2] - alpha)).clamp(min=0)
        points.append(torch.cat([v, alpha]))
    return torch.stack(points)


def proximal_facts() -> Iterator[Fact]:
    yield from aligned_trajectories()
    yield from single_settings()
    yield from reference_facts()
    yield from limits()


def aligned_trajectories() -> Iterator[Fact]:
    ours = proximal(0.1)
    what = f"PESG beside CODA+'s local step, {STEPS} steps of {LR}, prox = epoch_decay = 0.1: largest distance"
    error = distance(pesg(0.1, own_alpha=False), ours)
    yield Fact("5", f"{what}; v_ref = v0, alpha along the loss's gradient", f"{error:.0e}", error < 1e-12)
    theirs = pesg(0.1)
    yield Fact(
        "5",
        f"{what}; v_ref = v0, alpha's step PESG's own",
        f"{distance(theirs, ours):.2f}",
        distance(theirs, ours) > 1e-3,
    )
    nearer = distance(theirs, proximal(0.1, preconditioned=True))
    yield Fact(
        "5",
        "the same PESG beside CODA+'s step with `dual_step: preconditioned`: largest distance",
        f"{nearer:.2f}",
        nearer < distance(theirs, ours),
    )
    error = distance(theirs, proximal_with_pesg_dual(0.1))
    yield Fact(
        "5",
        "the same PESG beside chestfed's gradients with alpha += 2 lr (1 + b - a - alpha), after (a, b), "
        "clamped to >= 0",
        f"{error:.0e}",
        error < 1e-12,
    )


def single_settings() -> Iterator[Fact]:
    """How far one default of PESG at a time moves the aligned trajectory."""
    aligned = pesg(0.1, own_alpha=False)
    for text, settings in (
        ("v_ref as it is initialized, N(0, 0.01²) around 0", {"noisy_reference": True}),
        ("momentum 0.9", {"momentum": 0.9}),
        ("weight_decay 1e-5", {"weight_decay": 1e-5}),
        ("clip_value 0.05 (1.0, the default, never acts here)", {"clip_value": 0.05}),
    ):
        moved = distance(pesg(0.1, own_alpha=False, **settings), aligned)
        yield Fact("5", f"PESG aligned but for {text}: largest distance", f"{moved:.1e}", moved > 0)
    error = distance(pesg(0.1, own_alpha=False, clip_value=1.0), aligned)
    yield Fact("5", "clip_value 1.0: largest distance", f"{error:.0e}", error == 0)
    first, second = one_parameter_momentum()
    yield Fact(
        "5",
        "momentum 0.9, gradients 1 then 0, lr 1: the two steps (a usual momentum of 0.9 gives 1 and 0.9)",
        f"{first:.2f}, {second:.2f}",
        abs(first - 1) < 1e-6 and abs(second - 0.1) < 1e-6,
    )


def one_parameter_momentum() -> tuple[float, float]:
    weight = torch.zeros(1, requires_grad=True)
    optimizer = libauc_optimizer("PESG", [weight], libauc_loss("AUCMLoss"), lr=1.0, momentum=0.9)
    positions = [0.0]
    for slope in (1.0, 0.0):
        weight.grad = torch.full((1,), slope)
        optimizer.step()
        positions.append(float(weight.detach()))
    return positions[0] - positions[1], positions[1] - positions[2]


def reference_facts() -> Iterator[Fact]:
    """What update_regularizer does at the end of an epoch or stage."""
    weight = torch.zeros(1, requires_grad=True)
    loss = libauc_loss("AUCMLoss")
    optimizer = libauc_optimizer("PESG", [weight], loss, lr=1.0, epoch_decay=1e-12)
    for _ in range(4):
        weight.grad = torch.ones(1)
        optimizer.step()
    optimizer.update_regularizer()
    reference = float(optimizer.model_ref[0])
    yield Fact(
        "5",
        "iterates -1, -2, -3, -4, then update_regularizer(): v_ref; w from which it goes on "
        "(CODA+ goes on from the mean)",
        f"{reference:.2f}; {weight.item():.2f}",
        abs(reference + 2.5) < 1e-5 and abs(weight.item() + 4) < 1e-5,
    )


def limits() -> Iterator[Fact]:
    """Where long runs end, without a proximal term; and alpha's clamp."""
    ours, theirs = proximal(0.0, 20_000)[-1], pesg(0.0, steps=20_000)[-1]
    error = distance(ours, theirs)
    yield Fact(
        "5",
        "after 20,000 steps without proximal term: distance of PESG (its own alpha step) and CODA+'s step",
        f"{error:.0e}",
        error < 1e-6,
    )
    data = problem()
    scores = data.scores(ours[:4])
    pair = float(scores[data.labels == 0].mean() - scores[data.labels == 1].mean())
    yield Fact(
        "5",
        "there, LibAUC's alpha - 1; mean score of negatives less positives (chestfed's best alpha)",
        f"{float(theirs[-1]) - 1:.4f}; {pair:.4f}",
        abs(float(theirs[-1]) - 1 - pair) < 1e-6,
    )
    clamped = alpha_step("AUCMLoss", margin=0.5)
    yield Fact(
        "5",
        "margin 0.5, a = 0.9, b = 0.1: alpha after a step of lr 0.5 (unclamped: m + b - a = -0.3)",
        f"{clamped:.1f}",
        clamped == 0,
    )
    with_margin = alpha_step("MultiLabelAUCMLoss", margin=0.9, num_labels=1)
    yield Fact(
        "5",
        "the same for MultiLabelAUCMLoss v1, margin 0.9: alpha (the loss, whose margin is 1, has its maximum at 0.2)",
        f"{with_margin:.1f}",
        abs(with_margin - 0.1) < 1e-6,
    )


def alpha_step(name: str, **settings: Any) -> float:
    """PESG's alpha after a step of 0.5 from 0.2 with a = 0.9, b = 0.1 and a gradient of 0: the gradient is not used."""
    loss = libauc_loss(name, **settings)
    set_variables(loss, torch.tensor([0.9]), torch.tensor([0.1]), torch.tensor([0.2]))
    optimizer = libauc_optimizer("PESG", [torch.zeros(1, requires_grad=True)], loss, lr=0.5)
    loss.alpha.grad = torch.zeros(1)
    optimizer.step()
    return float(loss.alpha.detach())

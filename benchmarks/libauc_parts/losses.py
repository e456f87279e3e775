"""Parts 1 to 3: value and gradients of LibAUC's AUC margin losses beside `AucMargin`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from benchmarks.libauc_parts.library import Loss, as_loss, libauc_loss
from chestfed.learning.objectives.auc_margin import AucMargin

SEEDS = range(5)
POSITIVE_SHARES = (0.5, 0.1, 0.03)
TOLERANCE = {torch.float64: 1e-12, torch.float32: 2e-5}
#: LibAUC counts a batch's positives in float32, so what it derives from the count is no better in float64.
FLOAT32_COUNT = {torch.float64: 2e-6, torch.float32: 2e-4}
ROWS = 60


@dataclass(frozen=True)
class Batch:
    """Scores and labels of one batch, the values of the variables, and a training set's ratio p, `[J]`."""

    scores: Tensor
    labels: Tensor
    a: Tensor
    b: Tensor
    alpha: Tensor
    p: Tensor

    @property
    def share(self) -> Tensor:
        """Positives among the batch's rows, `[J]`."""
        return (self.labels == 1).to(self.scores).mean(dim=0)


@dataclass(frozen=True)
class Comparison:
    """One line of the table of losses.

    `differences` are the largest over all batches, per precision: of the loss, of n times its gradient by the scores,
    of its gradients by (a, b) and by alpha. All are absolute, of quantities of the order of 1.
    """

    part: str
    libauc: str
    chestfed: str
    batches: str
    differences: dict[str, list[float]]
    same: bool
    expected: bool
    why: str


def chestfed_loss(p: Tensor, margin: float = 1.0) -> Loss:
    """`AucMargin` in LibAUC's variables; a margin m is m^2 times the loss of everything divided by m."""

    def loss(scores: Tensor, labels: Tensor, a: Tensor, b: Tensor, alpha: Tensor) -> Tensor:
        extra = torch.cat([a, b]) / margin
        labels = labels.where(labels >= 0, torch.nan)  # chestfed's missing label is NaN alone
        inner = AucMargin(p).loss_of_scores(scores / margin, labels, extra, alpha / margin - 1)
        return margin**2 * (inner + (p * (1 - p)).mean())

    return loss


def libauc_one(margin: float = 1.0, version: str = "v1", **call: Any) -> Callable[[Batch], Loss]:
    """AUCMLoss with imratio = p."""
    return lambda batch: as_loss(
        libauc_loss("AUCMLoss", margin=margin, imratio=float(batch.p), version=version), **call
    )


def libauc_many(margin: float = 1.0, version: str = "v1", **call: Any) -> Callable[[Batch], Loss]:
    """MultiLabelAUCMLoss with imratio = p."""

    def build(batch: Batch) -> Loss:
        ratios = [float(p) for p in batch.p]
        module = libauc_loss(
            "MultiLabelAUCMLoss", margin=margin, imratio=ratios, num_labels=len(ratios), version=version
        )
        return as_loss(module, **call)

    return build


def over_all_rows(batch: Batch) -> Loss:
    """What v1 computes where labels are missing: data terms divided by all rows, the terms of alpha alone whole."""
    labeled = ((batch.labels == 0) | (batch.labels == 1)).to(batch.scores).mean(dim=0)

    def loss(scores: Tensor, labels: Tensor, a: Tensor, b: Tensor, alpha: Tensor) -> Tensor:
        total = torch.zeros(())
        for j, (p, share) in enumerate(zip(batch.p, labeled, strict=True)):
            rest = p * (1 - p) * (2 * alpha[j] - alpha[j] ** 2)
            known = chestfed_loss(p[None])(scores[:, [j]], labels[:, [j]], a[[j]], b[[j]], alpha[[j]])
            total = total + share * (known - rest) + rest
        return total / len(labeled)

    return loss


def prior_free(batch: Batch) -> Loss:
    """`AucMargin` with p of the batch, each disease's loss divided by p(1-p): the documented v2, margin 1."""

    def loss(scores: Tensor, labels: Tensor, a: Tensor, b: Tensor, alpha: Tensor) -> Tensor:
        parts = [
            chestfed_loss(p[None])(scores[:, [j]], labels[:, [j]], a[[j]], b[[j]], alpha[[j]]) / (p * (1 - p))
            for j, p in enumerate(batch.share)
        ]
        return torch.stack(parts).mean()

    return loss


def prior_free_as_bracketed(batch: Batch) -> Loss:
    """The same with 2 alpha (m + sum(h-)/n - mean(h+)): a sum over negatives divided by the batch's length."""

    def loss(scores: Tensor, labels: Tensor, a: Tensor, b: Tensor, alpha: Tensor) -> Tensor:
        mean_negative = scores[labels == 0].mean()
        return prior_free(batch)(scores, labels, a, b, alpha) - (2 * alpha * batch.share * mean_negative).sum()

    return loss


def draw(seed: int, kind: str, share: float, diseases: int, dtype: torch.dtype) -> Batch:
    """A random batch of 60; kinds: usual, no positives (of the first disease), ties, missing (-1 or NaN)."""
    generator = torch.Generator().manual_seed(1000 * seed + round(100 * share))
    scores, uniform = torch.rand(2, ROWS, diseases, generator=generator, dtype=torch.float64)
    a, b, alpha, p = torch.rand(4, diseases, generator=generator, dtype=torch.float64)
    labels = (uniform < share).double()
    labels[0], labels[1] = 1, 0
    if kind == "no positives":
        labels[:, 0] = 0
    if kind == "missing":
        labels[torch.rand(ROWS, diseases, generator=generator) < 0.3] = -1 if seed % 2 else torch.nan
        labels[0], labels[1] = 1, 0
    if kind == "ties":
        scores, a, b = (scores * 10).round() / 10, torch.full_like(a, 0.5), torch.full_like(b, 0.3)
    p = 0.02 + 0.48 * p
    return Batch(*(tensor.to(dtype) for tensor in (scores, labels, a, b, 2 * alpha, p)))


def differentiate(loss: Loss, batch: Batch) -> list[Tensor]:
    """Loss, n times its gradient by the scores, gradients by (a, b) and by alpha."""
    inputs = [tensor.clone().requires_grad_() for tensor in (batch.scores, batch.a, batch.b, batch.alpha)]
    value = loss(inputs[0], batch.labels, *inputs[1:])
    scores, a, b, alpha = torch.autograd.grad(value, inputs, allow_unused=True, materialize_grads=True)
    return [value.detach(), len(batch.scores) * scores, torch.cat([a, b]), alpha]


def compare(
    part: str,
    libauc: tuple[str, Callable[[Batch], Loss]],
    chestfed: tuple[str, Callable[[Batch], Loss]],
    batches: str,
    expected: bool,
    why: str = "",
    diseases: int = 1,
    tolerance: dict[torch.dtype, float] = TOLERANCE,
) -> Comparison:
    """The worst over seeds and shares of positives, in both precisions. NaN counts as a difference."""
    worst, same = {}, True
    for dtype, bound in tolerance.items():
        differences = []
        for seed in SEEDS:
            for share in POSITIVE_SHARES:
                batch = draw(seed, batches, share, diseases, dtype)
                pairs = zip(
                    differentiate(libauc[1](batch), batch), differentiate(chestfed[1](batch), batch), strict=True
                )
                differences.append(torch.stack([(left - right).abs().max() for left, right in pairs]))
        figures = torch.stack(differences).amax(dim=0)
        worst[str(dtype).removeprefix("torch.")] = figures.tolist()
        same = same and bool((figures <= bound).all())
    return Comparison(part, libauc[0], chestfed[0], batches, worst, same, expected, why)


def single_label() -> Iterator[Comparison]:
    """Part 1: AUCMLoss v1."""
    fixed = "AUCMLoss v1, auto=False", libauc_one(auto=False)
    automatic = "AUCMLoss v1, as called by default", libauc_one()
    ours = "AucMargin(p)", lambda batch: chestfed_loss(batch.p)
    for kind in ("usual", "no positives", "ties"):
        yield compare("1", fixed, ours, kind, True, "alpha shifted by 1, constant p(1-p)")
    why = "auto=True, the default of the call, replaces imratio by the batch's share of positives"
    yield compare("1", automatic, ours, "usual", False, why)
    of_batch = "AucMargin(p of the batch)", lambda batch: chestfed_loss(batch.share)
    yield compare("1", automatic, of_batch, "usual", True, "as said; LibAUC's p is float32", tolerance=FLOAT32_COUNT)
    why = "with p = 0 LibAUC's loss and gradients are 0; chestfed's negatives still count"
    yield compare("1", automatic, ours, "no positives", False, why)
    half = "AUCMLoss v1, auto=False, margin 0.5", libauc_one(margin=0.5, auto=False)
    yield compare("1", half, ours, "usual", False, "chestfed's margin is 1")
    scaled = "m² AucMargin(p) of (h, a, b, alpha)/m", lambda batch: chestfed_loss(batch.p, 0.5)
    yield compare("1", half, scaled, "usual", True, "a margin is a change of units")
    why = "labels of -1 or NaN are in no term, but the mean is over all rows, and alpha's own terms stay whole"
    yield compare("1", fixed, ours, "missing", False, why)
    yield compare("1", fixed, ("AucMargin over all rows", over_all_rows), "missing", True, "as said")


def version_two() -> Iterator[Comparison]:
    """Part 2: AUCMLoss v2."""
    theirs = "AUCMLoss v2", libauc_one(version="v2")
    documented = "AucMargin(p of the batch) / p(1-p)", prior_free
    why = "a bracket: the negatives' sum is divided by n, not by their number"
    yield compare("2", theirs, documented, "usual", False, why)
    bracketed = "the same with sum(h-)/n for mean(h-)", prior_free_as_bracketed
    yield compare("2", theirs, bracketed, "usual", True, "as said", tolerance=FLOAT32_COUNT)
    why = "means divide by the number of terms that are not 0: a score equal to 0, a or b is not counted"
    yield compare("2", theirs, bracketed, "ties", False, why)
    yield compare(
        "2", theirs, ("AucMargin(p)", lambda batch: chestfed_loss(batch.p)), "no positives", False, "NaN: 0/0"
    )


def multi_label() -> Iterator[Comparison]:
    """Part 3: MultiLabelAUCMLoss, five diseases."""
    fixed = "MultiLabelAUCMLoss v1, auto=False", libauc_many(auto=False)
    ours = "AucMargin(p), J = 5", lambda batch: chestfed_loss(batch.p)
    for kind in ("usual", "no positives", "ties"):
        yield compare("3", fixed, ours, kind, True, "both the mean over diseases", diseases=5)
    half = "MultiLabelAUCMLoss v1, auto=False, margin 0.5", libauc_many(margin=0.5, auto=False)
    yield compare("3", half, ours, "usual", True, "v1 ignores its margin: it is always 1", diseases=5)
    automatic = "MultiLabelAUCMLoss v1, as called by default", libauc_many()
    yield compare("3", automatic, ours, "usual", False, "auto=True, as in part 1", diseases=5)
    yield compare("3", fixed, ours, "missing", False, "as in part 1", diseases=5)
    all_rows = "AucMargin over all rows", over_all_rows
    yield compare("3", fixed, all_rows, "missing", True, "as said in part 1", diseases=5)
    two = "MultiLabelAUCMLoss v2", libauc_many(version="v2")
    documented = "mean of AucMargin(p of the batch) / p(1-p)", prior_free
    why = "without v2's bracket of part 2: each disease weighs 1/p(1-p) of its batch"
    yield compare("3", two, documented, "usual", True, why, diseases=5, tolerance=FLOAT32_COUNT)
    yield compare("3", two, documented, "ties", False, "terms of 0 are not counted, as in part 2", diseases=5)
    yield compare("3", two, documented, "no positives", False, "NaN: 0/0", diseases=5)

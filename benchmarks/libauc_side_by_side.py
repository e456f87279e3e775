"""LibAUC beside chestfed: where both define the same thing, the same loss, gradient and step; elsewhere what differs.

LibAUC is not a dependency of chestfed. Fetch it into a folder of its own, without what it asks for:

    .venv/bin/python -m pip install --target libauc_pkgs --no-deps libauc==2.0.1
    .venv/bin/python benchmarks/libauc_side_by_side.py --libauc libauc_pkgs --save runs/libauc

`libauc.losses` and `libauc.optimizers` import tqdm, scikit-learn and scipy. The last two come with chestfed; for tqdm,
a progress bar that they never call, an empty module stands in during the import where it is not installed. torchvision,
torch-geometric, ogb and the rest serve LibAUC's data sets, models and samplers, which are not imported.

Everything is written in LibAUC's variables: its alpha is chestfed's plus 1, and its loss is chestfed's plus p(1-p).
Each line states beforehand whether the two should agree; where one does not turn out as stated, the exit status is 1.
`--save PATH` writes PATH.json and PATH.md.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import importlib
import io
import json
import math
import platform
import sys
import time
import types
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from statistics import median
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from chestfed.algorithms.coda_plus import CodaPlus
from chestfed.algorithms.variables import Point
from chestfed.objectives.auc_margin import AucMargin

SEEDS = range(5)
POSITIVE_SHARES = (0.5, 0.1, 0.03)
TOLERANCE = {torch.float64: 1e-12, torch.float32: 2e-5}
#: LibAUC counts a batch's positives in float32, so what it derives from the count is no better in float64.
FLOAT32_COUNT = {torch.float64: 1e-6, torch.float32: 2e-5}
MAXIMUM = 64

#: loss(scores `[n, J]`, labels `[n, J]`, a `[J]`, b `[J]`, LibAUC's alpha `[J]`).
Loss = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]


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
    """One line of the table of losses: the largest absolute differences over all batches.

    The gradient by the scores is multiplied by n, so that all figures are of the order of the loss.
    """

    part: str
    libauc: str
    chestfed: str
    batches: str
    dtype: str
    value: float
    by_scores: float
    by_a_b: float
    by_alpha: float
    same: bool
    expected: bool
    why: str


@dataclass(frozen=True)
class Fact:
    """One line of the table of observations: what was looked at, what came out, and whether it is as described."""

    part: str
    what: str
    observed: str
    as_described: bool


@dataclass(frozen=True)
class Speed:
    """Median milliseconds of forward and backward, and the median of the paired ratios."""

    n: int
    diseases: int
    libauc_ms: float
    chestfed_ms: float
    libauc_over_chestfed: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--libauc", type=Path, help="folder that holds the package `libauc`; default: as installed")
    parser.add_argument("--repeats", type=int, default=300, help="timed pairs per size")
    parser.add_argument("--save", type=Path, help="write PATH.json and PATH.md")
    options = parser.parse_args()

    torch.set_num_threads(1)
    stubs = import_libauc(options.libauc)
    comparisons = [*single_label(), *version_two(), *multi_label()]
    facts = [*state_facts(), *compositional_facts(), *proximal_facts()]
    speeds = [speed(n, diseases, options.repeats) for n in (32, 4096) for diseases in (1, 5)]
    circumstances = {
        "command": " ".join(["python", "benchmarks/libauc_side_by_side.py", *sys.argv[1:]]),
        "versions": {name: metadata.version(name) for name in ("libauc", "chestfed", "torch", "numpy")}
        | {"python": platform.python_version()},
        "cpu": f"{cpu_name()}, one thread",
        "stand_ins": stubs,
    }
    show(comparisons, facts, speeds, circumstances)
    if options.save:
        save(options.save, comparisons, facts, speeds, circumstances)
    surprises = [row for row in comparisons if row.same != row.expected]
    if surprises or not all(fact.as_described for fact in facts):
        sys.exit("Some lines did not turn out as described here: this LibAUC may be another version than 2.0.1.")


# LibAUC, imported or not


def import_libauc(folder: Path | None) -> list[str]:
    """Make `libauc.losses` and `libauc.optimizers` importable; the names of the modules that were stood in for."""
    if folder is not None:
        sys.path.append(str(folder.resolve()))
    stubs = []
    if importlib.util.find_spec("tqdm") is None:
        empty = types.ModuleType("tqdm")
        empty.__dict__.update(tqdm=None, trange=None)
        sys.modules["tqdm"] = empty
        stubs.append("tqdm (an empty module: the losses and optimizers never call it)")
    try:
        for name in ("libauc.losses", "libauc.optimizers"):
            importlib.import_module(name)
    except ImportError as error:
        sys.exit(
            f"LibAUC cannot be imported: {error}.\nFetch it with `python -m pip install --target libauc_pkgs --no-deps "
            "libauc==2.0.1` and pass `--libauc libauc_pkgs`."
        )
    if stubs:
        del sys.modules["tqdm"]
    return stubs


def libauc_loss(name: str, **settings: Any) -> Any:
    """A LibAUC loss on the CPU."""
    return getattr(sys.modules["libauc.losses"], name)(device="cpu", **settings)


def libauc_optimizer(name: str, params: Sequence[Tensor], loss: Any, **settings: Any) -> Any:
    """A LibAUC optimizer without clipping, decay and momentum unless the settings say so."""
    plain = {"clip_value": math.inf, "weight_decay": 0.0, "epoch_decay": 0.0, "verbose": False, "device": "cpu"}
    if name == "PESG":
        plain["momentum"] = 0.0
    return getattr(sys.modules["libauc.optimizers"], name)(params, loss_fn=loss, **(plain | settings))


def set_variables(loss: Any, a: Tensor, b: Tensor, alpha: Tensor) -> None:
    """Give a LibAUC loss these values, in their own precision."""
    for name, value in {"a": a, "b": b, "alpha": alpha}.items():
        setattr(loss, name, torch.nn.Parameter(value.detach().clone()))


def as_loss(module: Any, **call: Any) -> Loss:
    """A LibAUC loss as a function of its variables."""

    def loss(scores: Tensor, labels: Tensor, a: Tensor, b: Tensor, alpha: Tensor) -> Tensor:
        for name in ("a", "b", "alpha"):
            module._parameters.pop(name, None)
        module.a, module.b, module.alpha = a, b, alpha
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "Input data has no positive sample": those batches are meant
            return module(scores, labels, **call).sum()

    return loss


# Losses


def chestfed_loss(p: Tensor, margin: float = 1.0) -> Loss:
    """`AucMargin` in LibAUC's variables; a margin m is m^2 times the loss of everything divided by m."""

    def loss(scores: Tensor, labels: Tensor, a: Tensor, b: Tensor, alpha: Tensor) -> Tensor:
        extra = torch.cat([a, b]) / margin
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
    labelled = ((batch.labels == 0) | (batch.labels == 1)).to(batch.scores).mean(dim=0)

    def loss(scores: Tensor, labels: Tensor, a: Tensor, b: Tensor, alpha: Tensor) -> Tensor:
        total = torch.zeros(())
        for j, (p, share) in enumerate(zip(batch.p, labelled, strict=True)):
            rest = p * (1 - p) * (2 * alpha[j] - alpha[j] ** 2)
            known = chestfed_loss(p[None])(scores[:, [j]], labels[:, [j]], a[[j]], b[[j]], alpha[[j]])
            total = total + share * (known - rest) + rest
        return total / len(labelled)

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
    """A random batch of 64; kinds: usual, no positives (of the first disease), ties, missing."""
    generator = torch.Generator().manual_seed(1000 * seed + round(100 * share))
    scores, uniform = torch.rand(2, MAXIMUM, diseases, generator=generator, dtype=torch.float64)
    a, b, alpha, p = torch.rand(4, diseases, generator=generator, dtype=torch.float64)
    labels = (uniform < share).double()
    labels[0], labels[1] = 1, 0
    if kind == "no positives":
        labels[:, 0] = 0
    if kind == "missing":
        labels[torch.rand(MAXIMUM, diseases, generator=generator) < 0.3] = -1
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
) -> Iterator[Comparison]:
    """One line per precision: the worst over seeds and shares of positives. NaN counts as a difference."""
    for dtype, bound in tolerance.items():
        differences = []
        for seed in SEEDS:
            for share in POSITIVE_SHARES:
                batch = draw(seed, batches, share, diseases, dtype)
                pairs = zip(
                    differentiate(libauc[1](batch), batch), differentiate(chestfed[1](batch), batch), strict=True
                )
                differences.append(torch.stack([(left - right).abs().max() for left, right in pairs]))
        worst = [float(figure) for figure in torch.stack(differences).amax(dim=0)]
        same = all(figure <= bound for figure in worst)
        name = str(dtype).removeprefix("torch.")
        yield Comparison(part, libauc[0], chestfed[0], batches, name, *worst, same, expected, why)


def single_label() -> Iterator[Comparison]:
    """Part 1: AUCMLoss v1."""
    fixed = "AUCMLoss v1, auto=False", libauc_one(auto=False)
    automatic = "AUCMLoss v1, as called by default", libauc_one()
    ours = "AucMargin(p)", lambda batch: chestfed_loss(batch.p)
    for kind in ("usual", "no positives", "ties"):
        yield from compare("1", fixed, ours, kind, True, "alpha shifted by 1, constant p(1-p)")
    why = "auto=True, the default of the call, replaces imratio by the batch's share of positives"
    yield from compare("1", automatic, ours, "usual", False, why)
    of_batch = "AucMargin(p of the batch)", lambda batch: chestfed_loss(batch.share)
    yield from compare("1", automatic, of_batch, "usual", True, "as said; p in float32", tolerance=FLOAT32_COUNT)
    why = "with p = 0 LibAUC's loss and gradients are 0; chestfed's negatives still count"
    yield from compare("1", automatic, ours, "no positives", False, why)
    half = "AUCMLoss v1, auto=False, margin 0.5", libauc_one(margin=0.5, auto=False)
    yield from compare("1", half, ours, "usual", False, "chestfed's margin is 1")
    scaled = "m² AucMargin(p) of (h, a, b, alpha)/m", lambda batch: chestfed_loss(batch.p, 0.5)
    yield from compare("1", half, scaled, "usual", True, "a margin is a change of units")
    why = "labels of -1 are in no term, but the mean is over all rows, and alpha's own terms stay whole"
    yield from compare("1", fixed, ours, "missing", False, why)
    yield from compare("1", fixed, ("AucMargin over all rows", over_all_rows), "missing", True, "as said")


def version_two() -> Iterator[Comparison]:
    """Part 2: AUCMLoss v2."""
    theirs = "AUCMLoss v2", libauc_one(version="v2")
    documented = "AucMargin(p of the batch) / p(1-p)", prior_free
    why = "a bracket: the negatives' sum is divided by n, not by their number"
    yield from compare("2", theirs, documented, "usual", False, why)
    bracketed = "the same with sum(h-)/n for mean(h-)", prior_free_as_bracketed
    yield from compare("2", theirs, bracketed, "usual", True, "as said", tolerance=FLOAT32_COUNT)
    why = "means divide by the number of terms that are not 0: a score equal to 0, a or b is not counted"
    yield from compare("2", theirs, bracketed, "ties", False, why)
    yield from compare(
        "2", theirs, ("AucMargin(p)", lambda batch: chestfed_loss(batch.p)), "no positives", False, "NaN: 0/0"
    )


def multi_label() -> Iterator[Comparison]:
    """Part 3: MultiLabelAUCMLoss, five diseases."""
    fixed = "MultiLabelAUCMLoss v1, auto=False", libauc_many(auto=False)
    ours = "AucMargin(p), J = 5", lambda batch: chestfed_loss(batch.p)
    for kind in ("usual", "no positives", "ties"):
        yield from compare("3", fixed, ours, kind, True, "both the mean over diseases", diseases=5)
    half = "MultiLabelAUCMLoss v1, auto=False, margin 0.5", libauc_many(margin=0.5, auto=False)
    yield from compare("3", half, ours, "usual", True, "v1 ignores its margin: it is always 1", diseases=5)
    automatic = "MultiLabelAUCMLoss v1, as called by default", libauc_many()
    yield from compare("3", automatic, ours, "usual", False, "auto=True, as in part 1", diseases=5)
    yield from compare("3", fixed, ours, "missing", False, "as in part 1", diseases=5)
    all_rows = "AucMargin over all rows", over_all_rows
    yield from compare("3", fixed, all_rows, "missing", True, "as said in part 1", diseases=5)
    two = "MultiLabelAUCMLoss v2", libauc_many(version="v2")
    documented = "mean of AucMargin(p of the batch) / p(1-p)", prior_free
    why = "without v2's bracket of part 2: each disease weighs 1/p(1-p) of its batch"
    yield from compare("3", two, documented, "usual", True, why, diseases=5, tolerance=FLOAT32_COUNT)
    yield from compare("3", two, documented, "ties", False, "terms of 0 are not counted, as in part 2", diseases=5)
    yield from compare("3", two, documented, "no positives", False, "NaN: 0/0", diseases=5)


# What a loss remembers


def state_facts() -> Iterator[Fact]:
    """Parts 1 and 3: what the losses keep between calls and in a checkpoint."""
    scores, labels = torch.rand(8, 2), torch.tensor([[1.0, 0.0], [0.0, 1.0]]).repeat(4, 1)
    labels[1, 1] = 0
    ratios = [0.1, 0.1]
    libauc_loss("MultiLabelAUCMLoss", imratio=ratios, num_labels=2)(scores, labels)
    observed = ", ".join(f"{float(ratio):.3f}" for ratio in ratios)
    yield Fact("3", "MultiLabelAUCMLoss v1 with imratio [0.1, 0.1]: the caller's list after one call", observed,
               float(ratios[0]) == 0.5)  # fmt: skip

    one = libauc_loss("AUCMLoss", imratio=0.1)
    one(scores[:, 0], labels[:, 0])
    yield Fact("1", "AUCMLoss(imratio=0.1).p after one call with auto=True, used by later calls with auto=False",
               f"{float(one.p):.3f}", float(one.p) == 0.5)  # fmt: skip

    for name, settings, kept in (("AUCMLoss", {}, True), ("MultiLabelAUCMLoss", {"num_labels": 2}, False)):
        restored = restored_alpha(name, settings)
        yield Fact("3", f"{name}: parameters; alpha of 0.7 after loading the state of loss and PESG",
                   f"{len(list(libauc_loss(name, **settings).parameters()))}; {restored:.1f}",
                   (abs(restored - 0.7) < 1e-6) == kept)  # fmt: skip


def restored_alpha(name: str, settings: dict[str, Any]) -> float:
    """The alpha of a fresh loss after loading the saved state of a loss and its optimizer; 0.7 when saved."""
    weights = torch.zeros(1, requires_grad=True)
    saved, fresh = (libauc_loss(name, **settings) for _ in range(2))
    saved.alpha.data.fill_(0.7)
    state = copy.deepcopy((saved.state_dict(), libauc_optimizer("PESG", [weights], saved).state_dict()))
    optimizer = libauc_optimizer("PESG", [weights], fresh)
    fresh.load_state_dict(state[0])
    optimizer.load_state_dict(state[1])
    return float(fresh.alpha[0])


# A small problem for the optimizers


@dataclass(frozen=True)
class Problem:
    """A linear model with a sigmoid on 200 rows of 4 columns, float64, a third positive and not separable."""

    rows: Tensor
    labels: Tensor

    @property
    def p(self) -> Tensor:
        return self.labels.mean(dim=0)

    def scores(self, weights: Tensor) -> Tensor:
        return torch.sigmoid(self.rows @ weights)[:, None]

    def auc(self, weights: Tensor, a: Tensor, b: Tensor, alpha: Tensor) -> Tensor:
        """The AUC loss in LibAUC's variables."""
        return chestfed_loss(self.p)(self.scores(weights), self.labels, a, b, alpha)

    def cross_entropy(self, weights: Tensor) -> Tensor:
        return torch.nn.functional.binary_cross_entropy(self.scores(weights), self.labels)

    def gradients(self, primal: Tensor, dual: Tensor) -> tuple[Tensor, Tensor]:
        """Gradients of `AucMargin` by v = (w, a, b) and by chestfed's alpha."""
        v, alpha = primal.clone().requires_grad_(), dual.clone().requires_grad_()
        loss = AucMargin(self.p).loss_of_scores(self.scores(v[:-2]), self.labels, v[-2:], alpha)
        by_v, by_alpha = torch.autograd.grad(loss, [v, alpha])
        return by_v, by_alpha


def problem() -> Problem:
    generator = torch.Generator().manual_seed(1)
    rows = torch.randn(200, 4, generator=generator, dtype=torch.float64)
    noise = torch.randn(200, generator=generator, dtype=torch.float64)
    direction = torch.tensor([1.0, -0.5, 0.5, 0.0], dtype=torch.float64)
    labels = (rows @ direction + noise > 0.6).double()[:, None]
    return Problem(rows, labels)


def start() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """w, a, b and LibAUC's alpha at the start."""
    values = ([0.3, 0.2, -0.1, 0.4], [0.1], [0.2], [0.6])
    w, a, b, alpha = (torch.tensor(value, dtype=torch.float64) for value in values)
    return w, a, b, alpha


def gradient(function: Callable[[Tensor], Tensor], weights: Tensor) -> Tensor:
    weights = weights.detach().clone().requires_grad_()
    return torch.autograd.grad(function(weights), weights)[0]


def distance(left: Tensor, right: Tensor) -> float:
    """The largest absolute difference."""
    return float((left - right).detach().abs().max())


# Part 4: compositional training


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
        before = self.loss.alpha.grad
        self.loss.alpha.grad = None
        value.sum().backward()
        branch = "CE" if self.loss.alpha.grad is None else "AUC"
        if self.loss.alpha.grad is None:
            self.loss.alpha.grad = before
        self.optimizer.step()
        return branch

    @property
    def variables(self) -> tuple[Tensor, Tensor, Tensor]:
        return tuple(getattr(self.loss, name).detach().clone() for name in ("a", "b", "alpha"))

    def auc_gradient(self, weights: Tensor) -> Tensor:
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
    yield Fact("4", "k = 2, losses of eight calls (documented: two CE, then a single AUC)", branches,
               branches == "CE CE AUC AUC CE CE AUC AUC")  # fmt: skip
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
    yield Fact("4", "2nd call: distance to w2 = w1 - lr grad AUC(w1), without Hessian, from w1 and not from w0",
               f"{error:.0e}", error < 1e-12)  # fmt: skip
    relative = float((shortened - exact).norm() / exact.norm())
    yield Fact("4", "|grad AUC(w1) - exact grad of AUC(w - lr0 grad CE(w)) at w0| / |exact|, lr0 = 1",
               f"{relative:.2f}", relative > 0.01)  # fmt: skip


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
        yield Fact("4", f"3rd call, {branch}, lr0 = 1, lr = 0.1, {how}: its step size; alpha moved by",
                   f"{step:.3f}; {moved:.3f}", fine and branch == "CE")  # fmt: skip
    run = compositional(beta2=0.5)
    run.call()
    auc = run.auc_gradient(run.weights)
    run.call()
    before = run.weights.detach().clone()
    cross_entropy = gradient(run.data.cross_entropy, before)
    run.call()
    error = distance(before - run.weights, 0.1 * 0.5 * (auc + cross_entropy))
    yield Fact("4", "3rd call, beta2 = 0.5: distance to a step along the mean of the AUC and the CE gradient",
               f"{error:.0e}", error < 1e-12)  # fmt: skip


def where_it_ends() -> Fact:
    """The point that many small steps lead to: stationary for what?"""
    run = compositional(lr=0.05, lr0=0.05)
    for _ in range(20_000):
        run.call()
    w = run.weights.detach()
    both = float((gradient(run.data.cross_entropy, w) + run.auc_gradient(w)).norm())
    exact = min(float(run.exact_gradient(w, inner_lr).norm()) for inner_lr in (0.05, 1.0))
    return Fact("4", "after 20,000 calls, lr = lr0 = 0.05: |grad (CE + AUC)|; |exact compositional grad|, the smaller "
                "of those with lr0 = 0.05 and 1", f"{both:.1e}; {exact:.1e}", both < 0.1 * exact)  # fmt: skip


# Part 5: PESG beside CODA+'s local step

STEPS = 50
LR = 0.2


@dataclass(frozen=True)
class Trajectory:
    """w, a, b and LibAUC's alpha after each step, `[steps, 7]`."""

    points: Tensor


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
    torch.manual_seed(1)
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


def proximal(prox: float, steps: int = STEPS) -> Tensor:
    """CODA+'s local iterates with one client, in LibAUC's variables."""
    data = problem()
    w, a, b, alpha = start()
    rule = CodaPlus(window=1, local_lr=LR, dual_lr=LR, prox=prox)
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
    yield Fact("5", f"{what}; v_ref = v0, alpha's step PESG's own", f"{distance(theirs, ours):.2f}",
               distance(theirs, ours) > 1e-3)  # fmt: skip
    error = distance(theirs, proximal_with_pesg_dual(0.1))
    yield Fact("5", "the same PESG beside chestfed's gradients with alpha += 2 lr (1 + b - a - alpha), after (a, b), "
               "clamped to >= 0", f"{error:.0e}", error < 1e-12)  # fmt: skip


def single_settings() -> Iterator[Fact]:
    """How far one default of PESG at a time moves the aligned trajectory."""
    aligned = pesg(0.1, own_alpha=False)
    for text, settings in (
        ("v_ref as it is initialised, N(0, 0.01²) around 0", {"noisy_reference": True}),
        ("momentum 0.9", {"momentum": 0.9}),
        ("weight_decay 1e-5", {"weight_decay": 1e-5}),
        ("clip_value 0.05 (1.0, the default, never acts here)", {"clip_value": 0.05}),
    ):
        moved = distance(pesg(0.1, own_alpha=False, **settings), aligned)
        yield Fact("5", f"PESG aligned but for {text}: largest distance", f"{moved:.1e}", moved > 0)
    error = distance(pesg(0.1, own_alpha=False, clip_value=1.0), aligned)
    yield Fact("5", "clip_value 1.0: largest distance", f"{error:.0e}", error == 0)
    first, second = one_parameter_momentum()
    yield Fact("5", "momentum 0.9, gradients 1 then 0, lr 1: the two steps (a usual momentum of 0.9 gives 1 and 0.9)",
               f"{first:.2f}, {second:.2f}", abs(first - 1) < 1e-6 and abs(second - 0.1) < 1e-6)  # fmt: skip


def one_parameter_momentum() -> tuple[float, float]:
    weight = torch.zeros(1, requires_grad=True)
    optimizer = libauc_optimizer("PESG", [weight], libauc_loss("AUCMLoss"), lr=1.0, momentum=0.9)
    positions = [0.0]
    for slope in (1.0, 0.0):
        weight.grad = torch.full((1,), slope)
        optimizer.step()
        positions.append(float(weight))
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
    yield Fact("5", "iterates -1, -2, -3, -4, then update_regularizer(): v_ref; w from which it goes on "
               "(CODA+ goes on from the mean)", f"{reference:.2f}; {float(weight):.2f}",
               abs(reference + 2.5) < 1e-5 and abs(float(weight) + 4) < 1e-5)  # fmt: skip


def limits() -> Iterator[Fact]:
    """Where long runs end, without a proximal term; and alpha's clamp."""
    ours, theirs = proximal(0.0, 20_000)[-1], pesg(0.0, steps=20_000)[-1]
    error = distance(ours, theirs)
    yield Fact("5", "after 20,000 steps without proximal term: distance of PESG (its own alpha step) and CODA+'s step",
               f"{error:.0e}", error < 1e-8)  # fmt: skip
    data = problem()
    scores = data.scores(ours[:4])
    pair = float(scores[data.labels == 0].mean() - scores[data.labels == 1].mean())
    yield Fact("5", "there, LibAUC's alpha - 1; mean score of negatives less positives (chestfed's best alpha)",
               f"{float(theirs[-1]) - 1:.4f}; {pair:.4f}", abs(float(theirs[-1]) - 1 - pair) < 1e-6)  # fmt: skip
    loss = libauc_loss("AUCMLoss", margin=0.5)
    set_variables(loss, torch.tensor([0.9]), torch.tensor([0.1]), torch.tensor([0.2]))
    optimizer = libauc_optimizer("PESG", [torch.zeros(1, requires_grad=True)], loss, lr=0.5)
    loss.alpha.grad = torch.zeros(1)
    optimizer.step()
    yield Fact("5", "margin 0.5, a = 0.9, b = 0.1: alpha after a step of lr 0.5 (unclamped: m + b - a = -0.3)",
               f"{float(loss.alpha):.1f}", float(loss.alpha) == 0)  # fmt: skip


# Part 6: speed


def speed(n: int, diseases: int, repeats: int) -> Speed:
    """Forward and backward of both, float32, one after the other with the first one alternating."""
    batch = draw(0, "usual", 0.5, diseases, torch.float32)
    rows = torch.arange(n) % MAXIMUM
    scores, labels = batch.scores[rows].clone(), batch.labels[rows].clone()
    ratios = [float(p) for p in batch.p]
    if diseases == 1:
        theirs = libauc_loss("AUCMLoss", imratio=ratios[0])
    else:
        theirs = libauc_loss("MultiLabelAUCMLoss", imratio=ratios, num_labels=diseases)
    ours = AucMargin(batch.p)
    inputs = scores.clone().requires_grad_()
    extra, dual = torch.cat([batch.a, batch.b]).requires_grad_(), batch.alpha.clone().requires_grad_()

    actions = (
        lambda: theirs(inputs, labels, auto=False).sum().backward(),
        lambda: ours.loss_of_scores(inputs, labels, extra, dual).backward(),
    )
    times: tuple[list[float], list[float]] = ([], [])
    for turn in range(-20, repeats):
        for which in (0, 1) if turn % 2 else (1, 0):
            begin = time.perf_counter()
            actions[which]()
            if turn >= 0:
                times[which].append(1000 * (time.perf_counter() - begin))
    ratio = median(left / right for left, right in zip(*times, strict=True))
    return Speed(n, diseases, median(times[0]), median(times[1]), ratio)


def cpu_name() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


# Tables

Tabular = tuple[str, list[str], list[list[str]]]


def tables(comparisons: Sequence[Comparison], facts: Sequence[Fact], speeds: Sequence[Speed]) -> list[Tabular]:
    """Title, heads and cells of the three tables."""
    losses = [
        [row.part, row.libauc, row.chestfed, row.batches, row.dtype]
        + [f"{figure:.0e}" for figure in (row.value, row.by_scores, row.by_a_b, row.by_alpha)]
        + [("same" if row.same else "differs") + ("" if row.same == row.expected else " (UNEXPECTED)"), row.why]
        for row in comparisons
    ]
    heads = ["part", "LibAUC", "chestfed", "batches", "dtype", "loss", "by scores", "by a, b", "by alpha", "", "why"]
    observed = [[fact.part, fact.what, fact.observed, "yes" if fact.as_described else "NO"] for fact in facts]
    timed = [
        [
            str(row.n),
            str(row.diseases),
            f"{row.libauc_ms:.3f}",
            f"{row.chestfed_ms:.3f}",
            f"{row.libauc_over_chestfed:.2f}",
        ]
        for row in speeds
    ]
    return [
        ("Losses: largest absolute differences of value and gradients", heads, losses),
        ("Optimizers and state", ["part", "what", "observed", "as described"], observed),
        ("Forward and backward, median ms", ["n", "J", "LibAUC", "chestfed", "ratio of pairs"], timed),
    ]


def show(
    comparisons: Sequence[Comparison], facts: Sequence[Fact], speeds: Sequence[Speed], circumstances: dict[str, Any]
) -> None:
    console = Console(width=None if sys.stdout.isatty() else 200)
    for title, heads, rows in tables(comparisons, facts, speeds):
        table = Table(*heads, title=title, title_justify="left")
        for row in rows:
            table.add_row(*row)
        console.print(table)
    for key, value in circumstances.items():
        console.print(f"{key}: {value}", markup=False)


def save(
    path: Path,
    comparisons: Sequence[Comparison],
    facts: Sequence[Fact],
    speeds: Sequence[Speed],
    circumstances: dict[str, Any],
) -> None:
    """PATH.json with every figure and PATH.md with the tables."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figures = {
        "losses": [asdict(row) for row in comparisons],
        "facts": [asdict(row) for row in facts],
        "speeds": [asdict(row) for row in speeds],
    }
    text = json.dumps(without_nan(circumstances | figures), indent=2, ensure_ascii=False, allow_nan=False)
    path.with_suffix(".json").write_text(text + "\n", encoding="utf-8")

    page = io.StringIO()
    versions = ", ".join(f"{name} {version}" for name, version in circumstances["versions"].items())
    print(
        f"# LibAUC beside chestfed\n\n`{circumstances['command']}`\n\n{versions}. {circumstances['cpu']}.\n", file=page
    )
    print(f"Stood in for: {', '.join(circumstances['stand_ins']) or 'nothing'}.\n", file=page)
    for title, heads, rows in tables(comparisons, facts, speeds):
        print(f"## {title}\n", file=page)
        for cells in (heads, ["---"] * len(heads), *rows):
            print("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |", file=page)
        print(file=page)
    path.with_suffix(".md").write_text(page.getvalue().rstrip() + "\n", encoding="utf-8")


def without_nan(value: Any) -> Any:
    """The same with null for NaN, which JSON does not have."""
    if isinstance(value, dict):
        return {key: without_nan(item) for key, item in value.items()}
    if isinstance(value, list):
        return [without_nan(item) for item in value]
    return None if isinstance(value, float) and math.isnan(value) else value


if __name__ == "__main__":
    main()

"""FeDXL against a plain loop over pairs in float64, and its paper's claim: active and passive parts are a gradient.

Three clients with logits X w, two diseases, labels of which some are missing. A check takes the modules of the rule
and of the losses, one of which may be a mutant.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import wraps
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from chestfed.leaves.score_pool import fedxl, pairs
from chestfed.plugins import Point, Setting, Stateless

J, D, B, WINDOW, ROUNDS, LR, WEIGHTS = 2, 3, 6, 3, 4, 0.4, (0.5, 0.3, 0.2)
MARGIN, SPREAD, RATE, BETA, P = 0.9, 0.7, 0.4, 0.3, (0.4, 0.25)
CAPACITY = 3 * WINDOW * B  #: so that no score is left out
_draw = torch.Generator().manual_seed(3)
IMAGES = [torch.randn(12 + 6 * k, D, J, generator=_draw, dtype=torch.float64) for k in range(3)]
LABELS = [(torch.rand(len(x), J, generator=_draw) < 0.4).double() for x in IMAGES]
for _labels in LABELS:
    _labels[::5, 0] = torch.nan
    _labels[:2, 1] = torch.tensor([0.0, 1.0])
START = torch.linspace(-0.5, 0.5, D, dtype=torch.float64)


class Oracle:
    """`Gradients` of a loss on one client's batches, row by row in order."""

    def __init__(self, client: int, loss: Any) -> None:
        self.client, self.loss_of, self.batch = client, loss, 0
        self.shared = torch.zeros(loss.shared_shape, dtype=torch.float64)
        self.memory = torch.zeros(len(IMAGES[client]), getattr(loss, "memory_size", 0), dtype=torch.float64)

    def __call__(self, primal: Tensor, dual: Tensor) -> tuple[Tensor, Tensor]:
        rows, self.batch = rows_of(self.client, self.batch), self.batch + 1
        w, none = primal.detach().clone().requires_grad_(), primal[:0]
        logits = torch.einsum("ndj,d->nj", IMAGES[self.client][rows], w)
        self.logits, self.labels = logits.detach(), LABELS[self.client][rows]
        if self.memory.numel():
            loss, self.memory[rows] = self.loss_of.sampled_loss(
                logits, self.labels, none, dual, self.memory[rows], self.shared
            )
        else:
            loss = self.loss_of.loss(logits, self.labels, none, dual, self.shared)
        self.remembered = self.memory[rows]
        (gradient,) = torch.autograd.grad(loss, w)
        return gradient, torch.zeros_like(dual)


def rows_of(client: int, batch: int) -> Tensor:
    return (torch.arange(B) + batch * B) % len(IMAGES[client])


def run(modules: Any, partial: bool) -> tuple[Any, list[Any]]:
    """The server after some rounds, and the clients' oracles."""
    p = torch.tensor(P, dtype=torch.float64)
    kind = modules.losses.PoolPartialAuc if partial else modules.losses.PoolAuc
    loss = kind(p, CAPACITY, MARGIN, None, **({"spread": SPREAD, "rate": RATE} if partial else {}))
    setting = Setting(WINDOW, LR, clients=3, shared=loss.shared_shape, seed=5)
    options = modules.rules.Options(momentum_rate=BETA)
    rule = modules.rules.build(options, setting) if partial else modules.rules.build_linear(options, setting)
    server = rule.start_stage(Point(START, START[:0]))
    oracles: list[Any] = [Oracle(k, loss) for k in range(3)]
    for _ in range(ROUNDS):
        message = rule.message(server)
        updates = [rule.local_round(message, Stateless(), oracle)[0] for oracle in oracles]
        for oracle in oracles:
            oracle.shared = rule.share(server, updates, WEIGHTS)
        server = rule.server_round(server, updates, WEIGHTS)
    return server, oracles


def take_steps(partial: bool) -> tuple[Tensor, list[dict[tuple[int, int], float]]]:
    """The same rounds pair by pair: the weights, and each client's u by row and disease."""
    w, m = START, torch.zeros(D, dtype=torch.float64)
    u: list[dict[tuple[int, int], float]] = [{} for _ in range(3)]
    pool: dict[tuple[int, int], list[tuple[float, float]]] = {(c, j): [] for c in (0, 1) for j in range(J)}
    for number in range(ROUNDS):
        sent: dict[tuple[int, int], list[tuple[float, float]]] = {key: [] for key in pool}
        ends, momenta = [], []
        for k in range(3):
            v, mk = w, m
            for step in range(WINDOW):
                rows = rows_of(k, number * WINDOW + step).tolist()
                gradient = torch.zeros(D, dtype=torch.float64)
                for i in rows:
                    for j in range(J):
                        x, y = IMAGES[k][i, :, j], float(LABELS[k][i, j])
                        known = sum(not math.isnan(float(LABELS[k][r, j])) for r in rows)
                        h = 1 / (1 + math.exp(-float(x @ v)))
                        slope = 0.0
                        if y == 1:
                            slope = as_positive(h, pool[0, j], partial, u[k], (i, j)) / P[j]
                            sent[1, j].append((h, u[k].get((i, j), 0.0)))
                        elif y == 0:
                            slope = as_negative(h, pool[1, j], partial) / (1 - P[j])
                            sent[0, j].append((h, 0.0))
                        gradient = gradient + slope * h * (1 - h) * x / known / J
                mk = (1 - BETA) * mk + BETA * gradient if partial else gradient
                v = v - LR * mk
            ends.append(v)
            momenta.append(mk)
        w = sum((a * b for a, b in zip(WEIGHTS, ends, strict=True)), torch.zeros_like(w))
        m = sum((a * b for a, b in zip(WEIGHTS, momenta, strict=True)), torch.zeros_like(w))
        pool = sent
    return w, u


def as_positive(h: float, pool: Any, partial: bool, u: dict[tuple[int, int], float], row: tuple[int, int]) -> float:
    """The slope of a positive's term by its score; its u moves."""
    gaps = [max(0.0, MARGIN - (h - other)) for other, _ in pool]
    if not pool:
        return 0.0
    if not partial:
        return sum(-2 * gap for gap in gaps) / len(pool)
    inner = sum(math.exp(gap**2 / SPREAD) for gap in gaps) / len(pool)
    u[row] = (1 - RATE) * u[row] + RATE * inner if row in u else inner
    slope = sum(math.exp(gap**2 / SPREAD) * -2 * gap / SPREAD for gap in gaps) / len(pool)
    return SPREAD / u[row] * slope


def as_negative(h: float, pool: Any, partial: bool) -> float:
    """The slope of a negative's term by its score."""
    usable = [(other, u) for other, u in pool if u > 0 or not partial]
    total = 0.0
    for other, u in usable:
        gap = max(0.0, MARGIN - (other - h))
        total += math.exp(gap**2 / SPREAD) / u * 2 * gap if partial else 2 * gap
    return total / len(usable) if usable else 0.0


def check_rounds_equal_a_loop_over_pairs(modules: Any) -> None:
    for partial in (False, True):
        server, oracles = run(modules, partial)
        w, u = take_steps(partial)
        torch.testing.assert_close(server.primal, w, rtol=0, atol=1e-12)
        assert (w - START).abs().max() > 0.05
        for oracle, averages in zip(oracles, u, strict=True):
            assert partial == bool(averages)
            for (i, j), value in averages.items():
                assert abs(float(oracle.memory[i, j]) - value) < 1e-12


def check_the_parts_are_the_gradient_of_all_pairs(modules: Any) -> None:
    """Section 3: with scores of the present model the clients' active parts add up to the gradient over all pairs.

    Clients weigh as they have images, all labeled, and p is their common share.
    """
    labels = [torch.nan_to_num(part) for part in LABELS]
    sizes = [len(part) for part in labels]
    p = torch.cat(labels).mean(dim=0)
    scores = [torch.sigmoid(torch.einsum("ndj,d->nj", x, START)) for x in IMAGES]
    loss = modules.losses.PoolAuc(p, sum(sizes), MARGIN)
    everything, truth = torch.cat(scores), torch.cat(labels)
    pool = torch.stack([torch.where(truth == c, everything, 0.0)[None] for c in (1, 0)])
    total = torch.zeros(D, dtype=torch.float64)
    for x, y, size in zip(IMAGES, labels, sizes, strict=True):
        w = START.clone().requires_grad_()
        value = loss.loss(torch.einsum("ndj,d->nj", x, w), y, w[:0], w[:0], pool.flatten())
        total += torch.autograd.grad(value, w)[0] * size / sum(sizes)
    w = START.clone().requires_grad_()
    h = torch.sigmoid(torch.einsum("ndj,d->nj", torch.cat(IMAGES), w))
    pairs = [(MARGIN - (h[truth[:, j] == 1, j, None] - h[truth[:, j] == 0, j])).clamp(min=0) ** 2 for j in range(J)]
    (whole,) = torch.autograd.grad(torch.stack([part.mean() for part in pairs]).mean(), w)
    torch.testing.assert_close(total, whole, rtol=0, atol=1e-12)


def check_the_pool_is_drawn_from_all_clients(modules: Any) -> None:
    """In proportion to weights and images, without repetition, in another order every round."""
    size, shares, orders = 50, torch.zeros(3, dtype=torch.float64), []
    clients = [torch.full((2, 2, size, 1), 0.2 * (k + 1)) + torch.arange(size)[:, None] * 1e-4 for k in range(3)]
    seen = [torch.full((2, 1), 100.0 * (k + 1)) for k in range(3)]
    for number in range(200):
        pool = modules.rules.merge_scores(clients, seen, [0.6, 0.3, 0.1], torch.Generator().manual_seed(number))
        assert pool.shape == clients[0].shape
        assert torch.equal(pool[:, 0], pool[:, 1])  # what belongs to an image stays together
        assert len(pool[0, 0].unique()) == size
        shares += torch.tensor([((pool[0, 0] / 0.2).floor() == k + 1).double().mean() for k in range(3)]) / 200
        orders.append(pool[0, 0, :, 0])
    assert not any(torch.equal(orders[0].sort().values, other.sort().values) for other in orders[1:])
    assert (orders[0].diff() < 0).any()
    expected = torch.tensor([0.6, 0.6, 0.3]) / 1.5
    assert (shares - expected.double()).abs().max() < 0.04  # a draw without replacement evens them out a little


def check_the_newest_scores_are_sent(modules: Any) -> None:
    p = torch.tensor(P, dtype=torch.float64)
    loss = modules.losses.PoolAuc(p, 2, MARGIN)
    rule = modules.rules.build_linear(None, Setting(WINDOW, LR, shared=loss.shared_shape))
    oracle: Any = Oracle(2, loss)
    start = rule.start_stage(Point(START, START[:0]))
    update = rule.local_round(start, Stateless(), oracle)[0]
    rows = torch.cat([rows_of(2, batch) for batch in range(WINDOW)])
    scores = torch.sigmoid(torch.einsum("ndj,d->nj", IMAGES[2], START))
    for place, value in enumerate((1, 0)):
        for j in range(J):
            mine = [float(scores[i, j]) for i in rows.tolist() if LABELS[2][i, j] == value]
            last = [float(scores[i, j]) for i in rows_of(2, WINDOW - 1).tolist() if LABELS[2][i, j] == value]
            assert float(update.seen[place, j]) == len(mine)
            newest = [number for number in update.scores[place, 0, :, j].tolist() if number]
            assert len(newest) == min(2, len(mine))
            assert all(any(abs(number - h) < 1e-12 for h in last) for number in newest[: len(last)])


_CHECKS: Sequence[Callable[[Any], None]] = (
    check_rounds_equal_a_loop_over_pairs,
    check_the_parts_are_the_gradient_of_all_pairs,
    check_the_pool_is_drawn_from_all_clients,
    check_the_newest_scores_are_sent,
)


def _of_rules(check: Callable[[Any], None]) -> Callable[[ModuleType], None]:
    return wraps(check)(lambda module: check(SimpleNamespace(rules=module, losses=pairs)))


def _of_losses(check: Callable[[Any], None]) -> Callable[[ModuleType], None]:
    return wraps(check)(lambda module: check(SimpleNamespace(rules=fedxl, losses=module)))


CHECKS: dict[str, list[Callable[[ModuleType], None]]] = {
    "fedxl": [_of_rules(check) for check in _CHECKS],
    "pairs": [_of_losses(check) for check in _CHECKS[:2]],
}
MUTANTS: dict[str, dict[str, tuple[str, str]]] = {
    "fedxl": {
        "gradient average is not used": ("                gradient = momentum\n", ""),
        "gradient average is undamped": (
            "momentum.lerp_(gradient, self.rate)",
            "momentum.add_(gradient, alpha=self.rate)",
        ),
        "classes are swapped": (
            "gradients.labels == 1, gradients.labels == 0",
            "gradients.labels == 0, gradients.labels == 1",
        ),
        "a missing label is a negative": ("gradients.labels == 0])", "gradients.labels != 1])"),
        "oldest scores are sent": ("*scores[::-1]", "*scores"),
        "the first client's pool is kept": ("[u.scores for u in updates]", "[updates[0].scores for u in updates]"),
        "weights are ignored": ("(weight * count", "(count"),
        "images are not counted": ("weight * count /", "weight /"),
        "the pool is not shuffled": (".exponential_(generator=generator)", ".fill_(1.0)"),
        "gradient averages start anew": (
            "weighted_mean([update.momentum for update in updates], weights)",
            "torch.zeros_like(server.momentum)",
        ),
    },
    "pairs": {
        "positives meet positives": (
            "scores[:, None] - negatives[0]), negatives[0])",
            "scores[:, None] - positives[0]), positives[0])",
        ),
        "passive gap is reversed": (
            "self._cost(positives[0] - scores[:, None]), positives",
            "self._cost(scores[:, None] - positives[0]), positives",
        ),
        "empty entries count": ("present.sum(dim=0).clamp(min=1)", "len(pool)"),
        "p is forgotten": ("of_positive / torch.where(p > 0, p, 1.0)", "of_positive"),
        "1 - p is p": ("of_negative / (1 - p)", "of_negative / p"),
        "u is not moved": ("move_average(memory, inner.detach(), self.rate)", "memory"),
        "u of the pool is forgotten": ("* (self.spread / u)", "* self.spread"),
        "own u is forgotten": ("self.spread * inner / torch.where(usable, u, 1.0)", "self.spread * inner"),
        "hinge is not squared": (".clamp(min=0).square()", ".clamp(min=0)"),
    },
}

"""FeDXL: pairs across clients, with the scores that all clients sent the round before.

Guo, Jin, Luo, Yang: "FeDXL: Provable Federated Learning for Deep X-Risk Optimization", ICML 2023: FeDXL1 (Algorithm 1,
linear f) and FeDXL2 (Algorithm 2, nonlinear f; its steps go along a moving average of gradients, which the server
averages with the model). The objective has the pairs and f; a rule carries the pool: a client steps against the pool
of the last round, sends the scores of its own batches, and the server merges and shuffles them.

Written from the paper's abstract and figure and compared with the authors' code
(github.com/Optimization-AI/ICML2023_FeDXL); the paper's text was not at hand. Departures from that code:

- Their step draws as many old scores from the pool as its batch has images; here a step uses the whole pool, which has
  the same mean and less noise.
- Their pool has all scores of one round (or of `tau` rounds), equally from every client. Here a client sends at most as
  many per class and disease as the pool holds, the newest, and the pool is drawn from those of all clients without
  replacement. A client's share in it is its weight times its images of the class, as in the pooled data.
- Their first pool has the scores of one batch per client; here those of the first round, whose steps change nothing
  else: without a pool all pairs cost nothing.
- Their u begins at 1, here at a row's first mean. Their loop averages the moving average of the last parameter alone;
  here the whole of it is averaged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from pydantic import Field
from torch import Tensor

from chestfed import plugins
from chestfed.plugins import (
    ANY_ROUND,
    Algorithm,
    AlgorithmSpec,
    Can,
    Gradients,
    Point,
    Setting,
    Stateless,
    stream_seed,
    weighted_mean,
)


@dataclass(frozen=True)
class Message:
    """w, no dual variables, and the moving average of gradients, empty in FeDXL1."""

    primal: Tensor
    dual: Tensor
    momentum: Tensor


@dataclass(frozen=True)
class Server(Message):
    """And the finished rounds, int64 `[]`."""

    rounds: Tensor


@dataclass(frozen=True)
class Update:
    """w, the moving average, scores `[2, 1 + m, P, J]`, and the images seen of each class `[2, J]`."""

    primal: Tensor
    momentum: Tensor
    scores: Tensor
    seen: Tensor


@dataclass(frozen=True)
class FedXL(Algorithm[Server, Update, Stateless]):
    """`window` steps of size `local_lr`; `pool` is the shape of the pool, `rate` 1: no moving average."""

    window: int
    local_lr: float
    pool: tuple[int, ...]
    rate: float = 1.0
    seed: int = 0

    def start_stage(self, point: Point) -> Server:
        """Start without a moving average."""
        momentum = torch.zeros_like(point.primal if self.rate < 1 else point.primal[:0])
        return Server(point.primal, point.dual, momentum, torch.zeros((), dtype=torch.int64))

    def message(self, server: Server) -> Message:  # type: ignore[override]  # what goes down is not what comes up
        """All but the number of rounds."""
        return Message(server.primal, server.dual, server.momentum)

    def local_round(self, message: Message, client: Stateless, gradients: Gradients) -> tuple[Update, Stateless]:  # type: ignore[override]
        """Steps against the pool; scores of the batches go up."""
        w, momentum, scores = message.primal.clone(), message.momentum.clone(), list[Tensor]()
        for _ in range(self.window):
            gradient, _ = gradients(w, message.dual)
            scores.append(self.sort_scores(gradients))
            if self.rate < 1:
                momentum.lerp_(gradient, self.rate)
                gradient = momentum
            w -= self.local_lr * gradient
        batches = torch.cat([*scores[::-1], w.new_zeros(self.pool)], dim=2)
        present = batches[:, 0] != 0
        newest = present.byte().argsort(dim=1, descending=True, stable=True)[:, : self.pool[2]]
        return Update(w, momentum, take_rows(batches, newest), present.sum(dim=1).to(w)), client

    def sort_scores(self, gradients: Gradients) -> Tensor:
        """The last batch as entries of a pool, `[2, 1 + m, n, J]`: 0 in the class that an image is not of."""
        scores = torch.sigmoid(gradients.logits)[:, None].clamp(min=torch.finfo(gradients.logits.dtype).tiny)
        remembered = gradients.remembered.view(len(scores), self.pool[1] - 1, self.pool[3])
        classes = torch.stack([gradients.labels == 1, gradients.labels == 0])
        return torch.where(classes[:, None], torch.cat([scores, remembered], dim=1).movedim(1, 0), 0.0)

    def server_round(self, server: Server, updates: Sequence[Update], weights: Sequence[float]) -> Server:
        """Average w and the moving averages."""
        return Server(
            weighted_mean([update.primal for update in updates], weights),
            server.dual,
            weighted_mean([update.momentum for update in updates], weights),
            server.rounds + 1,
        )

    def share(self, server: Server, updates: Sequence[Update], weights: Sequence[float]) -> Tensor:
        """The pool: the scores of all, merged and shuffled."""
        generator = torch.Generator().manual_seed(stream_seed(self.seed, "score pool", int(server.rounds)))
        return merge_scores([u.scores for u in updates], [u.seen for u in updates], weights, generator).flatten()


def merge_scores(
    scores: Sequence[Tensor], seen: Sequence[Tensor], weights: Sequence[float], generator: torch.Generator
) -> Tensor:
    """A pool `[2, 1 + m, P, J]` from those of the clients, whose order does not matter.

    A weighted draw without replacement (Efraimidis, Spirakis, 2006): an exponential number of each score over its
    weight, the smallest first. All scores of a client have equal weights, in the sum its weight times `seen`.
    """
    merged, size = torch.cat(list(scores), dim=2), scores[0].shape[2]
    shares = []
    for part, count, weight in zip(scores, seen, weights, strict=True):
        present = part[:, 0] != 0
        shares.append(present * (weight * count / present.sum(dim=1).clamp(min=1))[:, None])
    by_size = merged[:, 0].argsort(dim=1, stable=True)
    share = torch.cat(shares, dim=1).gather(1, by_size)
    drawn = torch.empty(share.shape, dtype=torch.float64).exponential_(generator=generator).to(share.device) / share
    return take_rows(merged, by_size.gather(1, drawn.argsort(dim=1, stable=True)[:, :size]))


def take_rows(pool: Tensor, rows: Tensor) -> Tensor:
    """The entries `rows` `[2, n, J]` of a pool `[2, 1 + m, P, J]`: `[2, 1 + m, n, J]`."""
    return pool.gather(2, rows[:, None].expand(-1, pool.shape[1], -1, -1))


class Options(plugins.Options):
    """Options of FeDXL2."""

    momentum_rate: float = Field(
        0.1,
        gt=0,
        lt=1,
        description="rate of the moving average of gradients [beta]",
        json_schema_extra={"search": [0.03, 0.9, "log"]},
    )


def build_linear(options: plugins.Options, setting: Setting) -> FedXL:
    """FeDXL1."""
    return FedXL(setting.window, setting.local_lr, setting.shared, seed=setting.seed)


def build(options: Options, setting: Setting) -> FedXL:
    """FeDXL2."""
    return FedXL(setting.window, setting.local_lr, setting.shared, options.momentum_rate, setting.seed)


FEDXL1 = AlgorithmSpec(
    name="fedxl1",
    title="FeDXL1",
    family="score pool",
    paper="Guo et al., ICML 2023",
    where="Algorithm 1",
    takes=("score pool",),
    objective="pool_auc",
    sends="d + P + 2J",
    sent="w, scores of images, and how many of each class",
    build=build_linear,
    rule=FedXL,
    can=ANY_ROUND | {Can.SCORES},
)

FEDXL2 = replace(
    FEDXL1,
    name="fedxl2",
    title="FeDXL2",
    where="Algorithm 2",
    objective="pool_partial_auc",
    sends="2d + P + 2J",
    sent="w, the gradient average, scores and u of images, and how many of each class",
    options=Options,
    build=build,
    rule=None,
)

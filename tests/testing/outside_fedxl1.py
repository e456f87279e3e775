"""FeDXL1 (Guo et al., ICML 2023, Algorithm 1) as a plug-in: objective with a pool of scores, and rule, in one file."""

from dataclasses import dataclass

import torch
from pydantic import Field
from torch import Tensor

from chestfed.plugins import Algorithm, AlgorithmSpec, Can, ObjectiveSpec, Options, weighted_mean


@dataclass(frozen=True)
class Pairs:
    """Each image against the pool `[2, 1, slots, J]` of the other class; 0: an empty slot."""

    diseases: int
    slots: int
    margin: float
    extra_size: int = 0
    dual_size: int = 0

    @property
    def shared_shape(self):
        return (2, 1, self.slots, self.diseases)

    def loss(self, logits, labels, extra, dual, shared):
        scores, pool = torch.sigmoid(logits), shared.view(2, self.slots, -1)
        total = 0.0
        for value, sign in ((1, 1.0), (0, -1.0)):
            mine, other = labels == value, pool[value]  # pool: positives, then negatives
            gaps = self.margin - sign * (scores[:, None] - other[None])
            pairs = gaps.clamp(min=0).square() * mine[:, None] * (other != 0)[None]
            total = total + (pairs.sum((0, 1)) / (mine.sum(0) * (other != 0).sum(0)).clamp(min=1)).mean()
        return total


@dataclass(frozen=True)
class Update:
    primal: Tensor
    scores: Tensor


@dataclass(frozen=True)
class FedXL1(Algorithm):
    window: int
    local_lr: float
    pool: tuple

    def local_round(self, message, client, gradients):
        w, seen = message.primal.clone(), []
        for _ in range(self.window):
            gradient, _ = gradients(w, message.dual)
            w -= self.local_lr * gradient
            classes = torch.stack([gradients.labels == 1, gradients.labels == 0])
            seen.append(torch.where(classes, torch.sigmoid(gradients.logits), 0.0))
        seen.append(w.new_zeros(2, *self.pool[2:]))
        return Update(w, self.fill(torch.cat(seen, dim=1))), client

    def fill(self, scores):
        """The first scores of each class and disease, `[2, slots, J]`."""
        order = (scores == 0).byte().argsort(dim=1, stable=True)[:, : self.pool[2]]
        return scores.gather(1, order)

    def server_round(self, server, updates, weights):
        return type(server)(weighted_mean([u.primal for u in updates], weights), server.dual)

    def share(self, server, updates, weights):
        merged = torch.cat([u.scores for u in updates], dim=1).sort(dim=1, descending=True).values
        spread = merged.shape[1] // self.pool[2]  # every K-th of the sorted scores, if they do not fit
        full = (merged != 0).sum(dim=1, keepdim=True) > self.pool[2]
        return torch.where(full, merged[:, ::spread], merged[:, : self.pool[2]]).flatten()


class PairOptions(Options):
    margin: float = Field(1.0, gt=0)
    slots: int = Field(128, ge=1)


PAIRS = ObjectiveSpec(
    name="out_pairs",
    text="pairs with a pool of scores",
    paper="Guo et al., ICML 2023",
    kind="score pool",
    options=PairOptions,
    rule=Pairs,
    build=lambda options, population: Pairs(population.diseases, options.slots, options.margin),
)
FEDXL1 = AlgorithmSpec(
    name="out_fedxl1",
    title="FeDXL1",
    family="score pool",
    paper="Guo et al., ICML 2023",
    where="Algorithm 1",
    takes=("score pool",),
    objective="tests.testing.outside_fedxl1:PAIRS",
    sends="d + P",
    sent="w, scores",
    exact="no",
    can=frozenset({Can.SCORES}),
    build=lambda options, setting: FedXL1(setting.window, setting.local_lr, setting.shared),
    rule=FedXL1,
)

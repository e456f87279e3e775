"""MOON: features near the server's model, far from the client's previous one. Li, He, Song, CVPR 2021, eq. 3 and 4."""

from dataclasses import dataclass
from typing import Any

import torch
from pydantic import Field
from torch.nn import functional

from chestfed.plugins import CrossEntropy, ObjectiveSpec, Options


class MoonOptions(Options):
    mu: float = Field(1.0, ge=0, description="weight of the contrastive loss [mu]; 0 is cross-entropy")
    temperature: float = Field(0.5, gt=0, description="[tau]")


@dataclass(frozen=True)
class Moon:
    plain: Any
    mu: float
    temperature: float
    extra_size: int = 0
    dual_size: int = 0
    models: tuple = ("start", "previous")

    def loss(self, logits, labels, extra, dual):
        return self.plain.loss(logits, labels, extra, dual)

    def seen_loss(self, logits, labels, extra, dual, seen):
        likeness = [
            functional.cosine_similarity(seen.features, seen.others[name].features) / self.temperature
            for name in self.models
        ]
        contrast = -torch.log_softmax(torch.stack(likeness), dim=0)[0].mean()
        return self.loss(logits, labels, extra, dual) + self.mu * contrast


MOON = ObjectiveSpec(
    name="moon",
    text="cross-entropy with a model-contrastive loss",
    paper="Li et al., CVPR 2021",
    kind="minimization",
    options=MoonOptions,
    build=lambda options, population: Moon(CrossEntropy(population.own_labeled), options.mu, options.temperature),
    rule=Moon,
    draws=False,
)

"""Focal loss. Lin et al., "Focal Loss for Dense Object Detection", ICCV 2017, eq. 4."""

from dataclasses import dataclass

import torch
from pydantic import Field
from torch.nn import functional

from chestfed.plugins import ObjectiveSpec, Options


class FocalOptions(Options):
    gamma: float = Field(2.0, ge=0, description="0 is cross-entropy")


@dataclass(frozen=True)
class Focal:
    gamma: float
    extra_size: int = 0  # no variables beside the weights
    dual_size: int = 0

    def loss(self, logits, labels, extra, dual):
        known = ~torch.isnan(labels)  # NaN: missing
        target = torch.where(known, labels, 0.0)
        plain = functional.binary_cross_entropy_with_logits(logits, target, reduction="none")
        terms = (1 - torch.exp(-plain)) ** self.gamma * plain
        per_disease = torch.where(known, terms, 0.0).sum(dim=0) / known.sum(dim=0).clamp(min=1)
        return per_disease.mean()


FOCAL = ObjectiveSpec(
    name="focal",
    text="focal loss",
    paper="Lin et al., ICCV 2017",
    kind="minimization",
    options=FocalOptions,
    build=lambda options, population: Focal(options.gamma),
    rule=Focal,
)

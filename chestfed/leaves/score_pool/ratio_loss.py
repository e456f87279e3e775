"""Ratio Loss: cross-entropy whose classes are weighted by what the server sees of their scarcity.

Wang, Xu, Wang, Zhu: "Addressing Class Imbalance in Federated Learning", AAAI 2021. The weight of class c is
`alpha + beta R_c`. R_c comes from the server, once per round, from a few auxiliary images of each class: the gradient
that the images of class c cause at the weights of the classifier's neuron c, over the gradient that the other classes'
images cause there. A class that the network has seen little of is predicted badly, and its ratio is large.

Here a disease is one logit, which is a pair of softmax neurons with opposite weights: the two classes of a disease
cause gradients of opposite signs at the same weights, and R+ = 1 / R-. The paper takes the mean over the weights of the
elementwise ratio, which a weight with hardly any gradient blows up; here it is the ratio of the sums.

Departures: the ratio of a class that is predicted well is near 0, the other's as large, and over the rounds they swing
(0.5, 47, 1.7, 19 on the digits), so they are kept within 1/`cap` and `cap`. The paper's server has a balanced set of
images of its own; here they are taken from the training images of all clients, the same number at each. `beta: 0` is
the cross-entropy, as an ablation.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional

from chestfed import plugins
from chestfed.plugins import LOCAL_SGDM, Can, Objective, ObjectiveSpec, Population, labeled_mean


@dataclass(frozen=True)
class RatioLoss(Objective):
    """Weighted binary cross-entropy of J diseases.

    The ratios `[2J]` (R of the positives, then of the negatives) are shared: the server sends them with the model, and
    no client changes them. `labeled` as in `labeled_mean`.
    """

    diseases: int
    alpha: float = 1.0
    beta: float = 0.1
    cap: float = float("inf")
    labeled: Tensor | None = None

    @property
    def shared_shape(self) -> tuple[int]:
        """The ratios: 2J."""
        return (2 * self.diseases,)

    def loss(  # type: ignore[override]  # of an objective with a `shared_shape`
        self, logits: Tensor, labels: Tensor, extra: Tensor, dual: Tensor, shared: Tensor
    ) -> Tensor:
        """Loss of `logits` `[n, J]` against `labels` `[n, J]` in {0, 1, NaN}; `shared` holds the ratios.

        The mean over the labeled images of a disease, and then over the diseases; without a labeled image 0.
        """
        ratios = shared.clamp(1 / self.cap, self.cap)
        positive = labels == 1
        weight = self.alpha + self.beta * torch.where(positive, ratios[: self.diseases], ratios[self.diseases :])
        terms = functional.binary_cross_entropy_with_logits(logits, positive.to(logits), reduction="none")
        return labeled_mean(weight * terms, labels, self.labeled).mean()

    def estimate_shared(self, logits: Tensor, features: Tensor, labels: Tensor) -> Tensor:
        """The ratios of the server's auxiliary images, see `class_ratios`."""
        return class_ratios(logits, features, labels)


def class_ratios(logits: Tensor, features: Tensor, labels: Tensor) -> Tensor:
    """R of every disease's positives and negatives, `[2J]`, from auxiliary images.

    `logits` `[n, J]`; `features` `[n, f]`, what goes into the classifier; `labels` `[n, J]` in {0, 1, NaN}.
    A disease that lacks images of one class, or of which the network causes no gradient, has the ratio 1.
    """
    slopes = torch.sigmoid(logits) - (labels == 1).to(logits)  # of the cross-entropy by the logit
    sizes = []
    for value in (1, 0):
        of_class = (labels == value).to(logits)
        gradient = (slopes * of_class).T @ features / of_class.sum(dim=0).clamp(min=1)[:, None]  # [J, f]
        sizes.append(gradient.sum(dim=1).abs())
    of_positives, of_negatives = sizes
    usable = (of_positives > 0) & (of_negatives > 0)
    return torch.cat(
        [
            torch.where(usable, of_positives / torch.where(usable, of_negatives, 1.0), 1.0),
            torch.where(usable, of_negatives / torch.where(usable, of_positives, 1.0), 1.0),
        ]
    )


class Options(plugins.Options):
    """Options of the Ratio Loss; the weight of a class is alpha + beta R."""

    alpha: float = Field(1.0, ge=0, description="weight of a class without its ratio")
    beta: float = Field(
        0.1,
        ge=0,
        description="weight of the ratio; 0: the cross-entropy, as an ablation",
        json_schema_extra={"search": [0.01, 1.0, "log"]},
    )
    cap: float = Field(10.0, ge=1, description="the largest ratio; the smallest is 1/cap")
    monitor_images: int = Field(
        16,
        ge=1,
        description="training images per disease and class that the server uses once per round; every client "
        "gives the same number, at least one",
    )


def build(options: Options, population: Population) -> RatioLoss:
    return RatioLoss(population.diseases, options.alpha, options.beta, options.cap, population.own_labeled)


RATIO_LOSS = ObjectiveSpec(
    name="ratio_loss",
    text="cross-entropy weighted by the classes' scarcity",
    paper="Wang et al., AAAI 2021",
    kind="server-weighted",
    options=Options,
    build=build,
    rule=RatioLoss,
    draws=False,
    lacks=frozenset({Can.OWN_DUALS}),
)

LOCAL_SGDM_RATIO = replace(
    LOCAL_SGDM,
    name="local_sgdm_ratio",
    title="LocalSGDM with the Ratio Loss",
    variant="local_sgdm, another objective",
    paper="Wang et al., AAAI 2021; Zhang et al., NeurIPS 2023",
    where="weights alpha + beta R",
    takes=("server-weighted",),
    objective="ratio_loss",
    sent="w and the momentum; down also 2J ratios",
    rule=None,
)

"""CODA: CODA+ whose dual variable is estimated anew at the start of every stage but the first.

Guo, Liu, Yuan, Shen, Liu, Yang: "Communication-Efficient Distributed Stochastic AUC Maximization with Deep Neural
Networks", ICML 2020; as a baseline in Yuan et al., ICML 2021. The local steps and the averaging are CODA+'s. Between
two stages every client draws a large batch, takes the alpha that is best for it at the new v, and the server
averages: J numbers up, besides the v that goes down for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from pydantic import Field
from torch import Tensor

from chestfed.learning.abilities import ANY_ROUND
from chestfed.learning.algorithms import coda_plus
from chestfed.learning.algorithms.coda_plus import CodaPlus
from chestfed.learning.algorithms.declaration import ProximalOptions, Setting
from chestfed.learning.algorithms.variables import Point, weighted_mean


@dataclass(frozen=True)
class Coda(CodaPlus):
    """Hyper-parameters as in `CodaPlus`; `dual_batches` are those from which alpha is estimated."""

    dual_batches: int = 8

    def restart(self, point: Point, duals: Sequence[Tensor], weights: Sequence[float]) -> Point:
        """The next stage's start: the stage's v, and the mean of the clients' best alphas `[J]` at it.

        The losses have the same curvature along alpha at all clients (one common p), so the mean of their maximizers
        is the maximizer of the mean loss; where all clients have the ratio p it is the papers' mean(h-) - mean(h+).
        A client without images of both classes of a disease sends NaN and is excluded from that alpha's mean: its loss
        does not depend on it. If all clients send NaN, alpha stays.
        """
        defined = [(~dual.isnan()).to(dual.dtype) for dual in duals]
        weight = weighted_mean(defined, weights)
        known = weighted_mean([dual.nan_to_num() for dual in duals], weights)
        return Point(point.primal, torch.where(weight > 0, known / weight, point.dual))


class Options(ProximalOptions):
    """Options of CODA+, and the batches of the estimate."""

    dual_batches: int = Field(8, ge=1, description="number of batches to estimate alpha from between two stages")


def build(options: Options, setting: Setting) -> Coda:
    """The rule of one stage."""
    plus = coda_plus.build(options, setting)
    return Coda(**vars(plus), dual_batches=options.dual_batches)


CODA = replace(
    coda_plus.CODA_PLUS,
    name="coda",
    title="CODA",
    paper="Guo et al., ICML 2020",
    sent="v and alpha; the best alpha between two stages: J",
    where="Algorithms 1, 2",
    options=Options,
    build=build,
    rule=Coda,
    can=ANY_ROUND,  # the best alpha between two stages is a mean over the clients that know it
)

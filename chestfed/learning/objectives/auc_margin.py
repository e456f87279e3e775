"""The min-max form of the AUC square loss, for several diseases at once.

For one disease with positive ratio p, score h, label y and margin m (CODASCA paper, eq. 2, where m = 1):

    F = (1-p) (h-a)^2 [y=1] + p (h-b)^2 [y=0]
        + 2 (m+alpha) (p h [y=0] - (1-p) h [y=1]) - p (1-p) alpha^2

averaged over the batch. Minimized over the weights, a and b, maximized over alpha, its value is p(1-p) times
the pairwise square loss E(m - h+ + h-)^2, less the constant m^2 p(1-p): at the saddle point a is the mean score of
the positives, b that of the negatives, alpha = b - a. For E(m - h+ + h-)^2 - m^2 is 2m (E h- - E h+) + (E h- - E h+)^2
and the variances of h+ and h-; a and b make the variances of the squares, alpha the square of the difference, so that
the margin stands beside alpha alone. (LibAUC's AUCM loss is the same problem with alpha shifted by the margin and no
constant.)

The multi-label loss is the mean of the diseases' losses, so the gradients of a_j, b_j and alpha_j carry 1/J.

`normalize` divides F by p(1-p), disease by disease: the saddle value is then the pairwise loss itself, whose gradients
are of one size whatever p is, and alpha's curvature is 1 in place of p(1-p). With one disease the saddle point is the
same, also with weights of clients; several diseases count alike, where they would in proportion to p(1-p). So do sites
of unlike prevalence with `pairs: within_site`.

Which pairs. With one p, a, b and alpha for all sites (`pairs: pooled`) the weighted sum of the sites' losses ranks
every positive against every negative, also one of another hospital: where hospitals differ in prevalence, a network
lowers it by telling them apart. With p_k, a_k, b_k and alpha_k of each site k (`pairs: within_site`) the sum, with
weights w_k,

    min over w, all a_k and b_k, max over all alpha_k  of  sum_k w_k F(w, a_k, b_k, alpha_k; p_k),

is at its saddle point sum_k w_k p_k (1 - p_k) (E_k(1 - h+ + h-)^2 - 1): only pairs of one site. The variables of all
sites lie in the one vector that algorithms work on, and a site's loss depends on its own alone, so that every
algorithm takes it as it is; a message grows by the 3J (K - 1) variables of the other sites.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor

from chestfed.core import plugins
from chestfed.core.config import AddedLater
from chestfed.learning.objectives.declaration import Objective, ObjectiveSpec, Population, labeled_mean


@dataclass(frozen=True)
class AucMargin(Objective):
    """AUC square loss with primal variables `extra` = (a_1..a_J, b_1..b_J) and dual variables alpha_1..alpha_J."""

    #: p, float `[J]`: the same at every client. With one common p the weighted sum of the clients' losses is the loss
    #: of the pooled data; a p of the client's own, or of the batch, would be another problem. A disease with p = 0 or 1
    #: has no pairs: its loss is 0. With pairs within sites `[S, J]`, a row per site; `extra` is then all sites' a, then
    #: all their b, and the dual variables are all sites' alpha.
    positive_ratio: Tensor
    site: int = 0  #: the row of this client
    labeled: Tensor | None = None  #: as in `labeled_mean`
    margin: float = 1.0  #: difference of scores that costs nothing
    normalized: bool = False  #: whether each disease's loss is divided by p(1-p)

    @property
    def extra_size(self) -> int:
        """A and b: 2J, for each site."""
        return 2 * self.dual_size

    @property
    def dual_size(self) -> int:
        """alpha: J, for each site."""
        return self.positive_ratio.numel()

    @property
    def gradient_scale(self) -> float:
        """p(1-p), the mean over the diseases: the factor of F before the loss of a pair; 1 of a normalized one."""
        p = self.positive_ratio.double()
        return 1.0 if self.normalized else float((p * (1 - p)).mean()) or 1.0

    def _select_site(self, variables: Tensor) -> Tensor:
        """The part of this site in variables `[..., S J]`: `[..., J]`."""
        sites = torch.atleast_2d(self.positive_ratio).shape
        return variables.unflatten(-1, sites)[..., self.site, :]

    def loss(self, logits: Tensor, labels: Tensor, extra: Tensor, dual: Tensor) -> Tensor:
        """Loss of sigmoid(logits) `[n, J]` against `labels` `[n, J]` in {0, 1, NaN}."""
        return self.loss_of_scores(torch.sigmoid(logits), labels, extra, dual)

    def loss_of_scores(self, scores: Tensor, labels: Tensor, extra: Tensor, dual: Tensor) -> Tensor:
        """Loss of scores h `[n, J]`, F averaged over the labeled images and then over the diseases.

        A batch without positives (or negatives) of a disease is legal; one without any labeled image of a
        disease contributes 0 for it, the alpha term included.
        """
        p, dual = self._select_site(self.positive_ratio.flatten()).to(scores), self._select_site(dual)
        a, b = self._select_site(extra.view(2, -1))

        on_positives = (1 - p) * ((scores - a) ** 2 - 2 * (self.margin + dual) * scores)
        on_negatives = p * ((scores - b) ** 2 + 2 * (self.margin + dual) * scores)
        terms = torch.where(labels == 1, on_positives, on_negatives) - p * (1 - p) * dual**2
        if self.normalized:
            terms = terms / torch.where((p > 0) & (p < 1), p * (1 - p), 1.0)
        return labeled_mean(terms, labels, self.labeled).mean()

    def best_dual(self, scores: Tensor, labels: Tensor, dual: Tensor) -> Tensor:
        """The alpha that maximizes the loss of these scores, shaped like `dual`; NaN where they do not tell.

        That is where nothing is labeled, or p is 0 or 1, and at other sites.

        The derivative of F by alpha is zero at mean(p h [y=0] - (1-p) h [y=1]) / (p(1-p)), whatever the margin: with a
        share p of positives among the labels, the mean score of the negatives less that of the positives.
        """
        p = self._select_site(self.positive_ratio.flatten()).to(scores)
        positive, negative = labels == 1, labels == 0
        count = (positive | negative).sum(dim=0)
        terms = torch.where(negative, p * scores, torch.where(positive, (p - 1) * scores, 0.0))
        known = (count > 0) & (p > 0) & (p < 1)
        best = terms.sum(dim=0) / (count.clamp(min=1) * torch.where(known, p * (1 - p), 1.0))
        dual_estimate = torch.full_like(dual, torch.nan)
        self._select_site(dual_estimate).copy_(torch.where(known, best, torch.nan))
        return dual_estimate


class AucOptions(plugins.Options):
    """Options of the AUC loss."""

    pairs: Literal["pooled", "within_site"] = Field(
        "pooled",
        description="pooled: every positive is ranked against the negatives of all sites; within_site: against "
        "those of its own site, with separate p, a, b and alpha per site",
    )
    positive_ratio: Literal["common", "client"] = Field(
        "common",
        description="p of pooled pairs. common: one for all clients, so that the weighted sum of the clients' "
        "losses is the loss of the pooled data; client: each client's own, which is another problem, "
        "as an ablation",
    )

    margin: Annotated[float, AddedLater()] = Field(
        1.0,
        gt=0,
        le=2,
        description="difference of the sigmoid scores of a positive and a negative that costs nothing; more costs too",
    )
    normalize: Annotated[bool, AddedLater()] = Field(
        False,
        description="divide each disease's loss by p(1-p), so that one range of step sizes serves rare and common "
        "diseases; several diseases then count alike",
    )

    @model_validator(mode="after")
    def _one_way(self) -> AucOptions:
        if self.pairs == "within_site" and "positive_ratio" in self.model_fields_set:
            raise ValueError("positive_ratio is an option of pooled pairs: within_site has a ratio for each site")
        return self


def build(options: AucOptions, population: Population) -> AucMargin:
    if options.pairs == "within_site":
        more = (options.margin, options.normalize)
        return AucMargin(population.site_ratios, population.site, population.own_labeled, *more)
    p = population.positive_ratio if options.positive_ratio == "common" else population.own_ratio
    return AucMargin(p, labeled=population.own_labeled, margin=options.margin, normalized=options.normalize)


AUC = ObjectiveSpec(
    name="auc",
    text="min-max AUC square loss",
    paper="Yuan et al., ICML 2021, eq. 2",
    kind="min-max",
    options=AucOptions,
    build=build,
    rule=AucMargin,
    draws=False,
    by_class=True,
)

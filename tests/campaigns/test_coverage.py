"""How often does each named 95% interval of an AUC contain the truth, and how wide is it? Eight hard cases, simulated.

Scores are N(mu, 1) for a positive image and N(0, 1) for a negative one, AUC = Phi(mu / sqrt 2), unless a case says
otherwise. The resamples of one test set are the same for all methods.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest

from chestfed.core.randomness import numpy_stream
from chestfed.results.evaluation.estimates import compute_auc
from chestfed.results.evaluation.intervals.methods import METHODS, Contrast, Intervals
from chestfed.results.evaluation.labeled import Scored

NORMAL = NormalDist()


@dataclass(frozen=True)
class Case:
    """A test set: so many patients, a share of them (or of their images) positive, scores of this AUC."""

    title: str
    patients: int = 200
    positive: float = 0.1
    auc: float = 0.85
    clustered: bool = False  #: 1 to 20 images per patient, mostly few; 80% of a score's variance is the patient's
    labels_change: bool = False  #: an image of a sick patient is positive with probability one half
    rounded: bool = False  #: scores are whole numbers
    invisible: float = 0.0  #: share of positive images that look like negative ones

    @property
    def shift(self) -> float:
        """Mu."""
        return 2**0.5 * NORMAL.inv_cdf(self.auc)

    @property
    def truth(self) -> float:
        """The AUC with endlessly many patients."""
        if not self.rounded:
            return (1 - self.invisible) * self.auc + self.invisible / 2
        ends = np.arange(-12, 16) - 0.5
        positive, negative = (np.diff([NORMAL.cdf(end - mean) for end in ends]) for mean in (self.shift, 0))
        return float(positive @ (np.cumsum(negative) - negative / 2))

    def draw(self, rng: np.random.Generator) -> Scored:
        """One test set; the number of positive patients is fixed."""
        sizes = np.ones(self.patients, int)
        if self.clustered:
            sizes = np.minimum(rng.geometric(0.2, self.patients), 20)
        patient = np.repeat(np.arange(self.patients), sizes)
        label = (np.arange(self.patients) < round(self.positive * self.patients))[patient]
        if self.labels_change:
            label &= rng.random(len(label)) < 0.5
        share = 0.8 if self.clustered else 0.0
        score = np.sqrt(share) * rng.normal(size=self.patients)[patient]
        score += np.sqrt(1 - share) * rng.normal(size=len(patient))
        score += self.shift * (label & (rng.random(len(label)) >= self.invisible))
        score = np.round(score) if self.rounded else score
        return Scored(score[:, None], label[:, None].astype(float), patient, ["disease"])


CASES = (
    Case("200 patients, 10% positive, AUC 0.85"),
    Case("40 patients, 5 positive", patients=40, positive=0.125),
    Case("1 to 20 images per patient, correlation 0.8", patients=60, positive=0.3, clustered=True),
    Case("the same, labels change within patients", patients=60, positive=0.5, clustered=True, labels_change=True),
    Case("20% of the positives look negative", invisible=0.2),
    Case("ties: scores are whole numbers", rounded=True),
    Case("AUC 0.98", auc=0.98),
    Case("90% positive", positive=0.9),
)


SETS, RESAMPLES = 400, 400


@pytest.mark.campaign
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.title)
def test_intervals_contain_the_truth(case: Case, save_figures: Callable[[str, Any], None]) -> None:
    """An interval that does not exist counts as not containing it."""
    ends = find_intervals(case)
    coverage = {
        name: float(((each[:, 0] <= case.truth) & (case.truth <= each[:, 1])).mean()) for name, each in ends.items()
    }
    width = {name: round(float(np.nanmean(each[:, 1] - each[:, 0])), 3) for name, each in ends.items()}
    save_figures(f"coverage, {case.title}", {"coverage": coverage, "mean width": width})
    assert coverage["obuchowski"] >= 0.92


def find_intervals(case: Case) -> dict[str, np.ndarray]:
    """Every method's intervals `[sets, 2]`, NaN where there is none."""
    ends: dict[str, list] = {name: [] for name in METHODS}
    for number in range(SETS):
        drawn = case.draw(numpy_stream(0, "interval coverage", case.title, number))
        auc = compute_auc(drawn.columns()[0])
        first = Contrast(drawn.scores[None], drawn.labels, drawn.patients, Intervals("bca", RESAMPLES, number))
        for name in METHODS:
            contrast = replace(first, how=replace(first.how, method=name))
            vars(contrast)["draws"] = first.draws  # cached
            ends[name].append(contrast.bounds([auc, auc])[0].interval or (np.nan, np.nan))
    return {name: np.array(pairs) for name, pairs in ends.items()}

"""Distance between sites: in gray levels, and in how frequent the diseases are.

Both parts are Wasserstein-1 distances in [0, 1], and the score is their sum, in [0, 2]:

* gray levels: sum over the bins of |F(bin) - G(bin)| / bins, with F and G the cumulative histograms;
* prevalence: mean over the diseases that both sites label of |p - q|, which is the distance of two Bernoulli
  distributions.

It describes the data and predicts nothing: it does not see shape, position or meaning.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Drift:
    """Distance of two sites; `prevalence` is None if they label no disease in common, and counts as 0."""

    gray_levels: float
    prevalence: float | None

    @property
    def score(self) -> float:
        """Sum of the parts."""
        return self.gray_levels + (self.prevalence or 0.0)


def drift(
    a: Sequence[int], b: Sequence[int], of_a: Mapping[str, float | None], of_b: Mapping[str, float | None]
) -> Drift:
    """Distance of two sites with gray-level histograms a and b, and prevalences by disease, None without labels."""
    pairs = [(p, of_b.get(disease)) for disease, p in of_a.items()]
    distances = [abs(p - q) for p, q in pairs if p is not None and q is not None]
    return Drift(histogram_distance(a, b), float(np.mean(distances)) if distances else None)


def histogram_distance(a: Sequence[int], b: Sequence[int]) -> float:
    """Wasserstein-1 distance of two histograms over the same equal bins, the whole range being 1."""
    first, second = (np.cumsum(counts) / max(1, np.sum(counts)) for counts in (a, b))
    return float(np.abs(first - second).mean())

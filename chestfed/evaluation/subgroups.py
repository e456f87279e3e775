"""AUC within subgroups of the test images: by sex, age band, view.

A subgroup's AUC compares its positives with its own negatives only. So a difference between subgroups can come from
how hard their negatives are as much as from the model, and a score that is shifted as a whole in one subgroup is not
seen at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from chestfed.evaluation.auc import DiseaseAuc, auc_per_disease, mean_auc
from chestfed.evaluation.intervals.auc_intervals import AucIntervals, Method, auc_intervals
from chestfed.evaluation.intervals.bootstrap import enough_resamples

if TYPE_CHECKING:
    import pandas as pd

#: What images without a value are called.
MISSING = "missing"


@dataclass(frozen=True)
class Subgroup:
    """AUCs of the images with one value of a column.

    Attributes
    ----------
    value
        The value, as text.
    images
        n, labeled or not; n+ and n- stand with each disease.
    intervals
        Of each disease, and of the mean.
    """

    value: str
    images: int
    diseases: tuple[DiseaseAuc, ...]
    intervals: AucIntervals

    @property
    def mean(self) -> float | None:
        """Mean AUC over the diseases that have one here; over different diseases it does not compare."""
        return mean_auc(self.diseases)


def auc_per_subgroup(
    scores: np.ndarray,
    labels: np.ndarray,
    diseases: Sequence[str],
    values: Sequence[object] | np.ndarray | pd.Series,
    patients: np.ndarray,
    *,
    method: Method = "bootstrap",
    resamples: int = 2000,
    seed: int = 0,
) -> list[Subgroup]:
    """AUC of each disease within each value of a column `[n]`, with 95% intervals.

    Parameters
    ----------
    scores, labels
        `[n, J]`; labels in {0, 1, NaN}.
    values
        A categorical column keeps the order of its categories; other values are sorted. Images without a value (None,
        NaN, pandas' NA) come last, as a subgroup of their own.
    patients
        `[n]`, any values that identify a patient.
    method, resamples, seed
        As `auc_intervals`; a large subgroup gets fewer resamples (`enough_resamples`).
    """
    import pandas as pd

    if len(values) != len(scores):
        raise ValueError(f"{len(values)} values do not fit {len(scores)} images")
    column = pd.Categorical(pd.Series(values))
    masks = [(str(value), column.codes == code) for code, value in enumerate(column.categories)]
    masks.append((MISSING, column.codes == -1))
    found = []
    for value, rows in masks:
        if not rows.any():
            continue
        images = int(rows.sum())
        parts = (scores[rows], labels[rows])
        aucs = auc_per_disease(*parts, diseases)
        intervals = auc_intervals(aucs, *parts, patients[rows], method, enough_resamples(resamples, images), seed)
        found.append(Subgroup(value, images, tuple(aucs), intervals))
    return found


def age_bands(ages: np.ndarray, edges: Sequence[int] = (40, 60, 80)) -> pd.Categorical:
    """Band that each age `[n]` in years falls into: `<40`, `40-59`, `60-79`, `>=80`, in this order; NaN stays missing.

    Parameters
    ----------
    edges
        Rising whole years at which a new band begins.
    """
    import pandas as pd

    if not len(edges) or any(later <= earlier for earlier, later in pairwise(edges)):
        raise ValueError(f"the edges of age bands must rise: {list(edges)}")
    names = [f"<{edges[0]}", *(f"{low}-{high - 1}" for low, high in pairwise(edges)), f">={edges[-1]}"]
    ages = np.asarray(ages, float)
    bands = [None if np.isnan(age) else names[int(np.searchsorted(edges, age, side="right"))] for age in ages]
    return pd.Categorical(bands, categories=names, ordered=True)

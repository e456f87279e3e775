"""A gate for joining: which model a hospital uses, chosen on patients of its own that trained nothing.

A hospital has the model of its own data, and is offered others: the common model, the common model fine-tuned, and
mixtures of its own with each. The one with the highest mean AUC on its validation patients is compared with its own,
and is taken if the difference exceeds `caution` standard errors of that difference (DeLong's, summed within patients).
The others are not tested, so a next best of a smaller error is not taken. A disease counts if ten validation patients
have it and ten do not, as in every mean.
Without such a model, or without patients to choose by, it keeps its own. The price is a gain that is there and not
seen: `caution` 0 takes whatever looks best, a large one never joins.

A mixture is the mean of two models' scores, each replaced by its place among the scores of the validation images: the
share below it, a tie counting one half. So it does not depend on the models' scales, and is defined for one new image.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from chestfed.results.evaluation.intervals.delong import auc_covariance
from chestfed.results.evaluation.labeled import NO_DISEASE_COUNTS, find_counted

#: Standard errors by which another model must be better on the validation patients.
CAUTION = 1.0


@dataclass(frozen=True)
class OfferedModel:
    """Comparison of a model that is offered with the hospital's own on the validation patients."""

    name: str
    mixed: bool  #: a mixture with the own model
    auc: float  #: mean over the diseases that count
    difference: float  #: of `auc`, minus that of the own model
    error: float  #: standard error of the difference over patients


@dataclass(frozen=True)
class Choice:
    """Model that a hospital uses."""

    name: str  #: the own model's or that of a model offered
    mixed: bool  #: its scores are mixed with those of the own model
    candidates: tuple[OfferedModel, ...]  #: all that were offered, best first
    reason: str = ""  #: why nothing could be compared; empty if something was


def choose(
    own_model: str,
    scores: Mapping[str, np.ndarray],
    labels: np.ndarray,
    patients: np.ndarray,
    caution: float = CAUTION,
) -> Choice:
    """The model that the hospital uses, by its validation images.

    `scores` `[n, J]` by model, `own_model` among them; labels `[n, J]` in {0, 1, NaN}; patients `[n]`. The best is
    the one with the largest difference; of equal ones the first, and a model before its mixture.

    Raises `ValueError` if `own_model` has no scores, or `caution` is negative.
    """
    if own_model not in scores or not caution >= 0:
        raise ValueError(f"a gate needs scores of {own_model!r} and a caution of 0 or more, not {caution}")
    offered = [(name, False, values) for name, values in scores.items() if name != own_model]
    offered += [(name, True, mix(scores[own_model], values, scores[own_model], values)) for name, _, values in offered]
    runs = [scores[own_model], *(values for _, _, values in offered)]
    contrasts = np.eye(len(runs))
    contrasts[0, 1:] = -1  # the first column is the own AUC, every other a difference from it
    counted = np.where(find_counted(labels, patients), labels, np.nan)
    estimate = auc_covariance(runs, counted, contrasts, patients)
    if estimate is None:
        return Choice(own_model, False, (), f"of the validation patients {NO_DISEASE_COUNTS}")
    values, errors = estimate[0], np.sqrt(np.maximum(np.diag(estimate[1]), 0))
    candidates = tuple(
        OfferedModel(name, mixed, float(values[0] + difference), float(difference), float(error))
        for (name, mixed, _), difference, error in zip(offered, values[1:], errors[1:], strict=True)
    )
    ranked = tuple(sorted(candidates, key=lambda candidate: -candidate.difference))
    if ranked and ranked[0].difference > max(caution * ranked[0].error, 0):
        return Choice(ranked[0].name, ranked[0].mixed, ranked)
    return Choice(own_model, False, ranked)


def apply(
    choice: Choice, own_model: str, scores: Mapping[str, np.ndarray], validation: Mapping[str, np.ndarray]
) -> np.ndarray:
    """Scores `[n, J]` of other images by the chosen model; `validation` has the scores of the validation images."""
    if not choice.mixed:
        return scores[choice.name]
    return mix(scores[own_model], scores[choice.name], validation[own_model], validation[choice.name])


def mix(a: np.ndarray, b: np.ndarray, reference_a: np.ndarray, reference_b: np.ndarray) -> np.ndarray:
    """Mean of two models' scores `[n, J]`, each as its place in [0, 1] among reference scores `[m, J]`."""
    return (_place(a, reference_a) + _place(b, reference_b)) / 2


def _place(scores: np.ndarray, reference: np.ndarray) -> np.ndarray:
    columns = []
    for values, others in zip(scores.T, reference.T, strict=True):
        ordered = np.sort(others)
        below, most = (np.searchsorted(ordered, values, side) for side in ("left", "right"))
        columns.append((below + most) / (2 * len(ordered)))
    return np.stack(columns, axis=1)

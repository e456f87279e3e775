"""Effect of joining on probabilities: Brier score and calibration error of two models on the same images.

Each is the mean over the diseases that count and over the training seeds. The interval of the difference is by the
standard deviation of a bootstrap over patients, with the bins of each model as they are on the whole test set.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

import numpy as np

from chestfed.core.randomness import numpy_stream
from chestfed.results.evaluation.calibration import assign_bins
from chestfed.results.evaluation.intervals.bootstrap import draw_patients
from chestfed.results.evaluation.labeled import Column

#: Weights worked on at a time, 16 MB.
_BLOCK_WEIGHTS = 2**21
_NAMES = ("Brier score", "calibration error")


class CalibrationChange(TypedDict):
    """A measure of the reference and of the model; `low`, `high`: 95% interval of the difference, if resampled."""

    name: str
    reference: float
    model: float
    low: float | None
    high: float | None


def compare_calibration(
    reference: Sequence[Sequence[Column]], model: Sequence[Sequence[Column]], resamples: int = 500
) -> list[CalibrationChange]:
    """Compare two models, each given as the columns of its training seeds.

    All columns of a disease have the same images in the same order. Empty if no disease counts in a mean, or scores are
    no probabilities.
    """
    use = [j for j, column in enumerate(reference[0]) if column.in_mean]
    every = [columns[j].score for runs in (reference, model) for columns in runs for j in use]
    if not use or any(((score < 0) | (score > 1)).any() for score in every):
        return []
    patients = np.unique(np.concatenate([reference[0][j].patient for j in use]))
    ones = np.ones((1, len(patients)))
    values = [_measure(runs, use, patients, ones)[:, 0] for runs in (reference, model)]
    ends: list[tuple[float | None, float | None]] = [(None, None)] * len(_NAMES)
    if resamples > 1:
        rng, drawn = numpy_stream(0, "calibration compared"), []
        step = max(1, _BLOCK_WEIGHTS // max(len(reference[0][j].score) for j in use))
        for start in range(0, resamples, step):
            counts = draw_patients(rng, len(patients), min(step, resamples - start)).astype(float)
            drawn.append(_measure(model, use, patients, counts) - _measure(reference, use, patients, counts))
        half = 1.96 * np.nanstd(np.concatenate(drawn, axis=1), axis=1, ddof=1)
        change = values[1] - values[0]
        ends = [(float(low), float(high)) for low, high in zip(change - half, change + half, strict=True)]
    return [
        CalibrationChange(name=name, reference=float(first), model=float(last), low=low, high=high)
        for name, first, last, (low, high) in zip(_NAMES, *values, ends, strict=True)
    ]


def _measure(
    runs: Sequence[Sequence[Column]], use: Sequence[int], patients: np.ndarray, counts: np.ndarray
) -> np.ndarray:
    """Brier score and calibration error `[2, r]` for counts `[r, patients]` of the patients."""
    total = np.zeros((len(_NAMES), len(counts)))
    for columns in runs:
        for column in (columns[j] for j in use):
            weight = np.take(counts, np.searchsorted(patients, column.patient), axis=1)
            error = column.score - column.positive
            bins = np.eye(int((of_bin := assign_bins(column.score)).max()) + 1)[of_bin]
            sums = np.stack([weight @ error**2, np.abs(weight @ (bins * error[:, None])).sum(axis=1)])
            with np.errstate(invalid="ignore"):
                total += sums / weight.sum(axis=1)
    return total / (len(runs) * len(use))

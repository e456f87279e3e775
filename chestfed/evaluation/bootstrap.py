"""Patient-clustered, stratified bootstrap of the AUC, vectorised over resamples.

Images of one patient are not independent, so patients are drawn, not images. Patients are drawn within two
strata (with and without a positive image of the disease), so that every resample has both classes. The draws
depend on the seed, the labels and the patients only: two score vectors get the same resamples, which is what a
paired comparison needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from chestfed.randomness import numpy_stream

_CHUNK = 4_000_000  # weights held at a time (float64), about 32 MB each


@dataclass(frozen=True)
class Interval:
    """A percentile interval."""

    low: float
    high: float


def resampled_aucs(
    scores: np.ndarray, labels: np.ndarray, patients: np.ndarray, resamples: int, seed: int
) -> np.ndarray:
    """AUC of every disease in every resample: float64 `[resamples, J]`, NaN for a disease with one class only.

    Parameters
    ----------
    scores, labels
        `[n, J]`; labels in {0, 1, NaN}.
    patients
        `[n]`, any values that identify a patient.
    """
    _, patient_index = np.unique(patients, return_inverse=True)
    result = np.full((resamples, scores.shape[1]), np.nan)
    for j in range(scores.shape[1]):
        known = ~np.isnan(labels[:, j])
        positive = labels[known, j] == 1
        if positive.all() or not positive.any():
            continue
        # The stream is named by the column, not by the disease: the same labels give the same draws.
        rng = numpy_stream(seed, "bootstrap", j)
        result[:, j] = _column(scores[known, j], positive, patient_index[known], resamples, rng)
    return result


def _column(
    score: np.ndarray, positive: np.ndarray, patient: np.ndarray, resamples: int, rng: np.random.Generator
) -> np.ndarray:
    order = np.argsort(score, kind="stable")
    score, positive, patient = score[order], positive[order], patient[order]
    names, patient = np.unique(patient, return_inverse=True)
    has_positive = np.zeros(len(names), bool)
    np.logical_or.at(has_positive, patient, positive)
    strata = [np.flatnonzero(has_positive), np.flatnonzero(~has_positive)]
    # Ends of the runs of equal scores: negatives before a run count 1, within it one half.
    last_of_run = np.append(np.flatnonzero(np.diff(score)), len(score) - 1)
    run = np.searchsorted(last_of_run, np.arange(len(score)))

    aucs = np.empty(resamples)
    step = max(1, _CHUNK // len(score))
    for start in range(0, resamples, step):
        size = min(step, resamples - start)
        counts = np.zeros((size, len(names)))
        for stratum in strata:
            if len(stratum):
                share = np.full(len(stratum), 1 / len(stratum))
                counts[:, stratum] = rng.multinomial(len(stratum), share, size=size)
        weight = counts[:, patient]
        negative_total = np.cumsum(np.where(positive, 0, weight), axis=1)[:, last_of_run]
        below = np.concatenate([np.zeros((size, 1)), negative_total[:, :-1]], axis=1)
        rank = (below + (negative_total - below) / 2)[:, run]
        positive_weight = np.where(positive, weight, 0)
        pairs = positive_weight.sum(axis=1) * negative_total[:, -1]
        with np.errstate(invalid="ignore", divide="ignore"):
            aucs[start : start + size] = (positive_weight * rank).sum(axis=1) / pairs
    return aucs


def interval(values: np.ndarray, level: float = 0.95) -> Interval | None:
    """Percentile interval of resampled values; None if fewer than two are defined."""
    values = values[~np.isnan(values)]
    if len(values) < 2:
        return None
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(low), float(high))


def mean_over_diseases(aucs: np.ndarray) -> np.ndarray:
    """Mean AUC per resample, over the diseases that are defined in all of them: `[resamples]`."""
    defined = ~np.isnan(aucs).all(axis=0)
    return aucs[:, defined].mean(axis=1) if defined.any() else np.full(len(aucs), np.nan)


def paired_difference(
    runs_a: Sequence[np.ndarray],
    runs_b: Sequence[np.ndarray],
    labels: np.ndarray,
    patients: np.ndarray,
    resamples: int = 2000,
    seed: int = 0,
) -> tuple[np.ndarray, list[Interval | None], float, Interval | None]:
    """AUC of b minus AUC of a on the same images, averaged over paired runs (seeds).

    Parameters
    ----------
    runs_a, runs_b
        Score arrays `[n, J]`, one per seed.

    Returns
    -------
    Difference per disease `[J]` and its intervals, difference of the means and its interval. The interval is
    about the choice of test patients, for these trained models; the seeds' spread is another thing.
    """
    point, draws = [], []
    for a, b in zip(runs_a, runs_b, strict=True):
        exact = [_exact(scores, labels) for scores in (a, b)]
        point.append(exact[1] - exact[0])
        draw = [resampled_aucs(scores, labels, patients, resamples, seed) for scores in (a, b)]
        draws.append(draw[1] - draw[0])
    difference, resampled = np.mean(point, axis=0), np.mean(draws, axis=0)
    mean = float(np.nanmean(difference))
    intervals = [interval(resampled[:, j]) for j in range(resampled.shape[1])]
    return difference, intervals, mean, interval(mean_over_diseases(resampled))


def _exact(scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
    from chestfed.evaluation.auc import auc_per_disease

    results = auc_per_disease(scores, labels, [str(j) for j in range(scores.shape[1])])
    return np.array([np.nan if result.auc is None else result.auc for result in results])

"""The numbers beside the AUC, in every resample of the bootstrap, and their intervals.

The draws are those of `resampled_aucs`: patients, within those with and without a positive image. So the shares of
positives stay those of the test set, on which AUPRC and Brier score depend. A threshold at a fixed specificity or
sensitivity is chosen anew in each resample: that it is uncertain is part of the interval.

ECE has no interval: it is a mean of absolute differences, which only grow by chance, so both the figure and its
resampled values lie above the truth.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from chestfed.evaluation.intervals import bootstrap
from chestfed.evaluation.intervals.interval import Interval, all_of, around_logit, student_width

#: Weights worked on at a time; they fit the processor's cache. Changes no result.
_HELD = 2**16
#: A standard deviation below this is rounding.
_NO_SPREAD = 1e-12
#: As near to 0 or 1 as sums of precisions come where the ranking is perfect.
_ROUNDING = 1e-12


@dataclass(frozen=True)
class ResampledMetrics:
    """Each float64 `[resamples, J]`, NaN for a disease of one class; what they are: `chestfed.evaluation.metrics`."""

    auprc: np.ndarray
    partial_auc: np.ndarray
    sensitivity: np.ndarray
    specificity: np.ndarray
    brier: np.ndarray


def resampled_metrics(
    scores: np.ndarray,
    labels: np.ndarray,
    patients: np.ndarray,
    resamples: int,
    seed: int,
    *,
    share: float,
    max_fpr: float,
) -> ResampledMetrics:
    """Metrics of scores `[n, J]` and labels `[n, J]` in {0, 1, NaN} in every resample.

    Parameters
    ----------
    share
        The specificity at which the sensitivity is taken, and the reverse.
    max_fpr
        End of the partial AUC.
    """
    result = np.full((5, resamples, labels.shape[1]), np.nan)
    for j in range(labels.shape[1]):
        known = ~np.isnan(labels[:, j])
        positive, score = labels[known, j] == 1, scores[known, j].astype(np.float64)
        if positive.all() or not positive.any():
            continue
        place, draws = bootstrap.stratified_draws(positive, patients[known], resamples, seed, j)
        order = np.argsort(-score, kind="stable")
        ranked = _Ranked(score[order], positive[order], place[order])
        step = max(1, _HELD // len(score))
        for rows, counts in draws:
            for start in range(0, len(counts), step):
                block = slice(rows.start + start, min(rows.start + start + step, rows.stop))
                result[:, block, j] = _metrics(ranked, counts[start : start + step], share, max_fpr)
    return ResampledMetrics(*result)


def share_interval(value: float, values: np.ndarray, units: float, level: float = 0.95) -> Interval | None:
    """Interval of a number between 0 and 1 from its resampled values `[resamples]`, as `auc_interval` without freedom.

    Where the number is 0 or 1, the logit ends and the resamples mostly agree: it is then the exact binomial interval of
    none, or all, of m `units`.

    None if fewer than two values are defined, m is below 2, or all resamples have the same value.
    """
    values = values[~np.isnan(values)]
    if len(values) < 2 or units < 2:
        return None
    if value >= 1 - _ROUNDING:
        return Interval(all_of(units, level), 1.0)
    if value <= _ROUNDING:
        return Interval(0.0, 1 - all_of(units, level))
    spread = float(values.std(ddof=1))
    return None if spread < _NO_SPREAD else around_logit(value, student_width(spread, units, level))


@dataclass(frozen=True)
class _Ranked:
    """One disease's images by falling score: score, class, and column of the patient in the counts, each `[m]`."""

    score: np.ndarray
    positive: np.ndarray
    place: np.ndarray


def _metrics(ranked: _Ranked, counts: np.ndarray, share: float, max_fpr: float) -> np.ndarray:
    """The five numbers `[5, r]` for counts `[r, patients]`."""
    weight = np.take(counts, ranked.place, axis=1)
    last_of_run = np.append(np.flatnonzero(np.diff(ranked.score)), len(ranked.score) - 1)
    called = np.cumsum(weight, axis=1)[:, last_of_run]
    true = np.cumsum(weight * ranked.positive, axis=1)[:, last_of_run]
    none = np.zeros((len(weight), 1), np.int64)
    true, false = np.hstack([none, true]), np.hstack([none, called - true])
    positives, negatives = true[:, -1], false[:, -1]
    brier = weight @ (ranked.score - ranked.positive) ** 2 / called[:, -1]
    # As in `metrics`: counts are whole, and 1e-9 forgives 0.9 * 10 = 9.000000000000002.
    specific = (negatives[:, None] - false) >= (share * negatives - 1e-9)[:, None]
    sensitive = true >= (share * positives - 1e-9)[:, None]
    with np.errstate(invalid="ignore", divide="ignore"):
        sensitivity = np.where(specific, true, 0).max(axis=1) / positives
        specificity = np.where(sensitive, negatives[:, None] - false, 0).max(axis=1) / negatives
        gain = np.diff(true, axis=1)
        precision = np.where(gain > 0, true[:, 1:] / (true + false)[:, 1:], 0)
        auprc = (gain * precision).sum(axis=1) / positives
        partial = _partial_auc(true / positives[:, None], false / negatives[:, None], max_fpr)
    found = np.stack([auprc, partial, sensitivity, specificity, brier])
    found[:, (positives == 0) | (negatives == 0)] = np.nan
    return found


def _partial_auc(tpr: np.ndarray, fpr: np.ndarray, max_fpr: float) -> np.ndarray:
    """McClish's standardized area `[r]` under curves `[r, points]` from (0, 0) to (1, 1), up to `max_fpr`."""
    width = np.diff(fpr, axis=1)
    kept = np.clip(max_fpr - fpr[:, :-1], 0, width)
    rise = np.where(width > 0, np.diff(tpr, axis=1) * kept / np.where(width > 0, width, 1), 0)
    area = (kept * (tpr[:, :-1] + rise / 2)).sum(axis=1)
    least = max_fpr**2 / 2
    return (1 + (area - least) / (max_fpr - least)) / 2

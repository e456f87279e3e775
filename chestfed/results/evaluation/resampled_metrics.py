"""The numbers beside the AUC, in every resample of the bootstrap.

The draws are those of `resampled_aucs`: patients, within those with and without a positive image. So the shares of
positives stay those of the test set, on which AUPRC and Brier score depend. A threshold at a fixed specificity or
sensitivity is chosen anew in each resample: that it is uncertain is part of the interval.

ECE has no interval: it is a mean of absolute differences, which only grow by chance, so both the figure and its
resampled values lie above the truth.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from chestfed.results.evaluation.intervals.bootstrap import stratified_draws
from chestfed.results.evaluation.labeled import Column
from chestfed.results.evaluation.metrics import MAX_FPR, SHARE

#: Weights worked on at a time; they fit the processor's cache. Changes no result.
_BLOCK_WEIGHTS = 2**16
#: Resampled numbers, in this order.
RESAMPLED: Final = ("auprc", "partial_auc", "sensitivity", "specificity", "brier")


def resampled_metrics(
    column: Column, number: int, resamples: int, seed: int, share: float = SHARE, max_fpr: float = MAX_FPR
) -> np.ndarray:
    """The numbers of `RESAMPLED` for one disease in every resample: float64 `[5, resamples]`, NaN if of one class.

    `number` is that of the disease among the columns, which names the random stream; `share` the specificity at which
    the sensitivity is taken, and the reverse; `max_fpr` the end of the partial AUC.
    """
    metrics = np.full((len(RESAMPLED), resamples), np.nan)
    if column.reason:
        return metrics
    place, draws = stratified_draws(column.positive, column.patient, resamples, seed, number)
    order = np.argsort(-column.score, kind="stable")
    ranked = (column.score[order], column.positive[order], place[order])
    step = max(1, _BLOCK_WEIGHTS // len(order))
    for rows, counts in draws:
        for start in range(0, len(counts), step):
            block = slice(rows.start + start, min(rows.start + start + step, rows.stop))
            metrics[:, block] = _metrics(*ranked, counts[start : start + step], share, max_fpr)
    return metrics


def _metrics(
    score: np.ndarray, positive: np.ndarray, place: np.ndarray, counts: np.ndarray, share: float, max_fpr: float
) -> np.ndarray:
    """The five numbers `[5, r]` of images by falling score `[m]`, for counts `[r, patients]` of their patients."""
    weight = np.take(counts, place, axis=1)
    last_of_run = np.append(np.flatnonzero(np.diff(score)), len(score) - 1)
    called = np.cumsum(weight, axis=1)[:, last_of_run]
    true = np.cumsum(weight * positive, axis=1)[:, last_of_run]
    none = np.zeros((len(weight), 1), np.int64)
    true, false = np.hstack([none, true]), np.hstack([none, called - true])
    positives, negatives = true[:, -1], false[:, -1]
    brier = weight @ (score - positive) ** 2 / called[:, -1]
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
    metrics = np.stack([auprc, partial, sensitivity, specificity, brier])
    metrics[:, (positives == 0) | (negatives == 0)] = np.nan
    return metrics


def _partial_auc(tpr: np.ndarray, fpr: np.ndarray, max_fpr: float) -> np.ndarray:
    """McClish's standardized area `[r]` under curves `[r, points]` from (0, 0) to (1, 1), up to `max_fpr`."""
    width = np.diff(fpr, axis=1)
    clipped_width = np.clip(max_fpr - fpr[:, :-1], 0, width)
    rise = np.where(width > 0, np.diff(tpr, axis=1) * clipped_width / np.where(width > 0, width, 1), 0)
    area = (clipped_width * (tpr[:, :-1] + rise / 2)).sum(axis=1)
    least = max_fpr**2 / 2
    return (1 + (area - least) / (max_fpr - least)) / 2

"""Patient-clustered bootstrap of the AUC, vectorised over resamples.

Images of one patient are not independent, so patients are drawn, not images. The draws depend on the seed, the
labels and the patients only: two score arrays get the same resamples, which is what a paired comparison needs.

There are two ways to draw. For the AUC of one disease, patients are drawn within two strata (with and without a
positive image of the disease), so that every resample has both classes (`resampled_aucs`). The strata differ between
diseases, and so do the draws; the diseases share images, and their AUCs are correlated, so the mean over diseases
needs the same patients for all of them (`jointly_resampled_aucs`). With separate draws its interval would be too
narrow.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from chestfed.core.randomness import numpy_stream
from chestfed.results.evaluation.intervals.delong import placements
from chestfed.results.evaluation.labeled import Cell, list_cells, list_strata

#: Weights drawn by one call of the generator. Part of the random stream: another value gives other resamples, as soon
#: as there are more weights than this (images times resamples).
_DRAWS_PER_CALL = 4_000_000
#: Weights of images worked on at a time; they fit the processor's cache. Changes no result.
_BLOCK_WEIGHTS = 2**18


def resampled_aucs(
    scores: np.ndarray,
    labels: np.ndarray,
    patients: np.ndarray,
    resamples: int,
    seed: int,
    hospitals: np.ndarray | None = None,
) -> np.ndarray:
    """AUC of every disease in every resample: float64 `[resamples, J]`, NaN for a disease with one class only.

    Raises `ValueError` if a score of a labeled image is NaN.

    Scores are `[n, J]`, or `[runs, n, J]` for several models at once: the result is then `[runs, resamples, J]`. Labels
    are `[n, J]` in {0, 1, NaN}; patients `[n]` any values that identify one. With hospitals `[n]` patients are drawn
    within each hospital, and a disease's AUC is the mean of the hospitals'.
    """
    _, patient_index = np.unique(patients, return_inverse=True)
    cells = list_cells(labels, patients, hospitals)
    runs, result = _runs(scores, labels, resamples, cells)
    for cell in cells:
        place, draws = stratified_draws(cell.positive, patient_index[cell.rows], resamples, seed, *cell.stream)
        pairs = [_pairs(run[cell.rows, cell.column], cell.positive, place) for run in runs]
        for rows, counts in draws:
            for run, of_run in enumerate(pairs):
                result[run, rows, cell.column] += cell.weight * _weighted_aucs(of_run, counts)
    return result.reshape(*scores.shape[:-2], *result.shape[1:])


def jointly_resampled_aucs(
    scores: np.ndarray,
    labels: np.ndarray,
    patients: np.ndarray,
    resamples: int,
    seed: int,
    hospitals: np.ndarray | None = None,
) -> np.ndarray:
    """As `resampled_aucs`, with one draw of patients for all diseases, as the mean over diseases needs.

    The draw has no strata but the hospitals. A resample that lacks one class of a disease, at a hospital that has both,
    has NaN there.
    """
    _, patient = np.unique(patients, return_inverse=True)
    cells, strata = list_cells(labels, patients, hospitals), list_strata(patients, hospitals)
    runs, result = _runs(scores, labels, resamples, cells)
    pairs = []
    for cell in cells:
        given = cell.positive, patient[cell.rows]
        pairs += [(run, cell, _pairs(of_run[cell.rows, cell.column], *given)) for run, of_run in enumerate(runs)]
    names = [("joint",)] if hospitals is None else [("joint", number) for number in range(len(strata))]
    streams = [numpy_stream(seed, "bootstrap", *name) for name in names]
    step = max(1, _DRAWS_PER_CALL // len(patient))
    for start in range(0, resamples, step):
        size = min(step, resamples - start)
        counts = np.empty((size, sum(map(len, strata))), np.int64)
        for rng, stratum in zip(streams, strata, strict=True):
            counts[:, stratum] = draw_patients(rng, len(stratum), size)
        for run, cell, of_run in pairs:
            result[run, start : start + size, cell.column] += cell.weight * _weighted_aucs(of_run, counts)
    return result.reshape(*scores.shape[:-2], *result.shape[1:])


def jackknifed_aucs(
    scores: np.ndarray, labels: np.ndarray, patients: np.ndarray, hospitals: np.ndarray | None = None
) -> np.ndarray:
    """AUC of every disease without each patient, float64 `[runs, patients, J]`; the patients sorted, scores as above.

    All pairs, less those with an image of the patient; NaN without a class.
    """
    names, patient = np.unique(patients, return_inverse=True)
    cells = list_cells(labels, patients, hospitals)
    runs, values = _runs(scores, labels, len(names), cells)
    for cell in cells:
        positive, owner = cell.positive, patient[cell.rows]
        m, n = (np.bincount(owner[rows], minlength=len(names)) for rows in (positive, ~positive))
        for run, score in enumerate(runs[:, cell.rows, cell.column]):
            v10, v01 = (part[:, 0] for part in placements(score[:, None], positive))
            lost = np.bincount(owner[positive], v10 * n.sum(), len(names))
            lost += np.bincount(owner[~positive], v01 * m.sum(), len(names))
            ranks = pd.Series(score).groupby(owner).rank().to_numpy()
            within = np.bincount(owner[positive], ranks[positive], len(names)) - m * (m + 1) / 2  # counted twice above
            with np.errstate(invalid="ignore"):
                aucs = (v10.sum() * n.sum() - lost + within) / ((m.sum() - m) * (n.sum() - n))
            values[run, :, cell.column] += cell.weight * aucs
    return values


def stratified_draws(
    positive: np.ndarray, patients: np.ndarray, resamples: int, seed: int, *stream: int
) -> tuple[np.ndarray, Iterator[tuple[slice, np.ndarray]]]:
    """Draws of patients within those with a positive image of a disease and those without, some resamples at a time.

    `positive` (bool) and `patients`, both `[m]`, are of the images that are labeled for the disease, which has both
    classes; `stream` names the random stream, by the number of the disease's column: the same labels give the same
    draws.

    Returns the column of each image's patient in the counts, int `[m]`; and the numbers of some resamples with how
    often each patient is drawn in them, int64 `[r, patients]`.
    """
    names, patient = np.unique(patients, return_inverse=True)
    has_positive = np.zeros(len(names), bool)
    has_positive[patient[positive]] = True
    strata = [np.flatnonzero(stratum) for stratum in (has_positive, ~has_positive) if stratum.any()]

    def draws() -> Iterator[tuple[slice, np.ndarray]]:
        rng = numpy_stream(seed, "bootstrap", *stream)
        step = max(1, _DRAWS_PER_CALL // len(positive))
        for start in range(0, resamples, step):
            size = min(step, resamples - start)
            drawn = [draw_patients(rng, len(stratum), size) for stratum in strata]
            yield slice(start, start + size), np.concatenate(drawn, axis=1)

    # The strata's counts stand side by side, so a patient's place is that in the strata one after the other.
    return np.argsort(np.concatenate(strata))[patient], draws()


def enough_resamples(resamples: int, images: int) -> int:
    """As many, but on many images no more than two million weights need, and at least 200.

    For numbers whose interval is made of the standard deviation of the resamples alone: 200 give it to 5%.
    """
    return min(resamples, max(200, 2_000_000 // max(images, 1)))


def mean_over_diseases(aucs: np.ndarray) -> np.ndarray:
    """Mean AUC per resample over the diseases with an AUC in some resample: `[resamples]`.

    NaN in a resample that lacks one of them.
    """
    defined = ~np.isnan(aucs).all(axis=0)
    return aucs[:, defined].mean(axis=1) if defined.any() else np.full(len(aucs), np.nan)


@dataclass(frozen=True)
class _Pairs:
    """One disease's images in the order of their scores."""

    #: negative_patient, positive_patient: `[n-]` and `[n+]`: column of the image's patient in the counts.
    negative_patient: np.ndarray
    positive_patient: np.ndarray
    #: below, upto: `[n+]`: negatives with a lower score than the positive image, and with a lower or the same one.
    below: np.ndarray
    upto: np.ndarray


def _runs(
    scores: np.ndarray, labels: np.ndarray, resamples: int, cells: Sequence[Cell]
) -> tuple[np.ndarray, np.ndarray]:
    """Scores as `[runs, n, J]`, and for their AUCs `[runs, resamples, J]`: 0, to add to, or NaN without a cell."""
    if scores.ndim not in (2, 3) or scores.shape[-2:] != labels.shape:
        raise ValueError(f"scores {scores.shape} do not fit labels {labels.shape}")
    runs = scores.reshape(-1, *labels.shape)
    if np.isnan(runs[:, ~np.isnan(labels)]).any():
        raise ValueError("a score of a labeled image is NaN")
    result = np.full((len(runs), resamples, labels.shape[1]), np.nan)
    result[..., [cell.column for cell in cells]] = 0
    return runs, result


def _pairs(score: np.ndarray, positive: np.ndarray, patient: np.ndarray) -> _Pairs:
    order = np.argsort(score, kind="stable")
    score, positive, patient = score[order], positive[order], patient[order]
    below = np.searchsorted(score[~positive], score[positive], side="left")
    upto = np.searchsorted(score[~positive], score[positive], side="right")
    return _Pairs(patient[~positive], patient[positive], below, upto)


def draw_patients(rng: np.random.Generator, patients: int, size: int) -> np.ndarray:
    """Draw how often each patient counts: int64 `[size, patients]`."""
    return rng.multinomial(patients, np.full(patients, 1 / patients), size=size)


def _weighted_aucs(pairs: _Pairs, counts: np.ndarray) -> np.ndarray:
    """AUC with every image counted as often as its patient: float64 `[r]` for counts int64 `[r, patients]`.

    In integers: a positive image wins 2 against a drawn negative below it, and 1 against one of the same score.
    """
    aucs = np.empty(len(counts))
    step = max(1, _BLOCK_WEIGHTS // (len(pairs.negative_patient) + len(pairs.positive_patient)))
    for start in range(0, len(counts), step):
        drawn = counts[start : start + step]
        negatives = np.zeros((len(drawn), len(pairs.negative_patient) + 1), np.int64)
        np.cumsum(np.take(drawn, pairs.negative_patient, axis=1), axis=1, out=negatives[:, 1:])
        positives = np.take(drawn, pairs.positive_patient, axis=1)
        wins = np.take(negatives, pairs.below, axis=1) + np.take(negatives, pairs.upto, axis=1)
        with np.errstate(invalid="ignore"):
            both = 2 * positives.sum(axis=1) * negatives[:, -1]
            aucs[start : start + step] = (positives * wins).sum(axis=1) / both
    return aucs

"""Price of a gate at a hospital with its validation patients, and the gains that it takes, by simulation.

The validation patients are drawn again and again from a binormal model: there are as many as the hospital has, with the
labels that they have, and the scores of a disease are normal with a higher mean for patients with it, such that each
model has its true AUC. The own model's AUC, and the correlation of two models' scores, are those of the hospital. The
common and the fine-tuned model are truly better or worse by the same amount, and the gate chooses by its rule (`gate`).

Its price is the mean over the worst 5% of the draws of the true AUC of what it chose minus that of own data, for the
least favorable of some amounts (`HARMS`). What it lets pass is a gain of `GAIN` that it does not see. That fine-tuning
is chosen on these patients too is not in it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import scipy

from chestfed.core.randomness import numpy_stream
from chestfed.results.evaluation.intervals.delong import auc_covariance
from chestfed.results.evaluation.labeled import find_counted

#: True differences of the others' AUC that are tried, of which the worst counts; and one that should be seen.
HARMS: Final = (-0.01, -0.02, -0.03, -0.05, -0.08)
GAIN: Final = 0.03
#: Standard errors that are tried for a bound, rising.
CAUTIONS: Final = (0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0)
#: Validation sets that are drawn for each true difference.
DRAWS: Final = 400
_WORST: Final = 0.05


@dataclass(frozen=True)
class GatePrice:
    """Expected losses and taken gains of a gate at hospitals with such validation patients."""

    caution: float
    #: Mean over the worst 5% of the true AUC of what is chosen minus that of own data: 0 or less.
    worst: float
    seen: float  #: the share that changes where the others are better by `GAIN`
    positives: int  #: patients with the rarest disease that counts
    negatives: int  #: patients without it


def price_gate(
    own_model: str,
    scores: Mapping[str, np.ndarray],
    labels: np.ndarray,
    patients: np.ndarray,
    cautions: Sequence[float] = CAUTIONS,
) -> list[GatePrice]:
    """The price of each caution; the arguments are those of `gate.choose`.

    Empty if no disease counts, so that a gate keeps own data, or nothing is offered.
    """
    counted, others = find_counted(labels, patients), [name for name in scores if name != own_model]
    if not counted.any() or not others:
        return []
    names, rows = np.unique(patients, return_inverse=True)
    known = np.full((len(names), int(counted.sum())), np.nan)
    np.fmax.at(known, rows, labels[:, counted])
    runs = [scores[name][:, counted] for name in (own_model, *others)]
    auc, correlation = _measure(runs, labels[:, counted], patients)
    draw = functools.partial(_draw_choices, known.tobytes(), known.shape, auc, correlation)
    harms, gain = [draw(harm) for harm in HARMS], draw(GAIN)
    rarest = int((known == 1).sum(axis=0).argmin())
    positives, negatives = (int((known[:, rarest] == value).sum()) for value in (1, 0))
    prices = []
    for caution in cautions:
        worst = min(_average_worst(np.where(excess > caution, gains, 0.0)) for excess, gains in harms)
        seen = float((gain[0] > caution).mean())
        prices.append(GatePrice(caution, min(worst, 0.0), seen, positives, negatives))
    return prices


def find_caution(prices: Sequence[GatePrice], worst: float) -> GatePrice | None:
    """The price of the smallest caution whose worst 5% lose at most `worst`, else of the largest; None without any."""
    return next((price for price in prices if price.worst >= -worst), prices[-1] if prices else None)


def _measure(runs: Sequence[np.ndarray], labels: np.ndarray, patients: np.ndarray) -> tuple[float, float]:
    """The own model's AUC, to .05, and its correlation with the others given the label, to .1, of ranks."""
    estimate = auc_covariance(runs[:1], labels, np.ones((1, 1)), patients)
    assert estimate is not None
    correlations = []
    for j, column in enumerate(labels.T):
        for value in (0, 1):
            ranks = scipy.stats.rankdata(np.stack([run[column == value, j] for run in runs]), axis=1)
            if (ranks.std(axis=1) > 0).all():
                correlations.append(np.atleast_2d(np.corrcoef(ranks))[0, 1:].mean())
    correlation = float(np.mean(correlations)) if correlations else 0.0
    return min(max(round(estimate[0][0] / 0.05) * 0.05, 0.55), 0.95), min(max(round(correlation, 1), 0.0), 0.9)


def _average_worst(gains: np.ndarray) -> float:
    return float(np.sort(gains)[: max(1, round(_WORST * len(gains)))].mean())


@functools.lru_cache(maxsize=256)
def _draw_choices(
    labels: bytes, shape: tuple[int, int], auc: float, correlation: float, difference: float
) -> tuple[np.ndarray, np.ndarray]:
    """Of each draw the standard errors by which the best model is better, and its true gain over own data.

    A gate with some caution chooses that model, or own data.
    """
    known, others = np.frombuffer(labels).reshape(shape), min(auc + difference, 0.995)
    rng = numpy_stream(0, "gate price", *(round(1000 * value) for value in (auc, correlation, difference)))
    shifts = np.array([math.sqrt(2) * scipy.special.ndtri(value) for value in (auc, others, others)])
    scores = math.sqrt(correlation) * rng.standard_normal((DRAWS, *shape, 1))
    scores = scores + math.sqrt(1 - correlation) * rng.standard_normal((DRAWS, *shape, 3))
    ranks = scipy.stats.rankdata(scores + shifts * np.nan_to_num(known)[..., None], axis=1)
    mixed = (ranks[..., :1] + ranks[..., 1:]) / 2
    excess, best = _find_best(np.concatenate([ranks, mixed], axis=-1), known)
    of_mixture = (shifts[0] + shifts[1]) / 2 / math.sqrt((1 + correlation) / 2)
    gains = np.array([others - auc] * 2 + [float(scipy.special.ndtr(of_mixture / math.sqrt(2))) - auc] * 2)
    return excess, gains[best]


def _find_best(scores: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Standard errors by which the best model is better than the first, and its place among the others: `gate.choose`.

    Scores are `[draws, n, J, models]`, labels `[n, J]`, of one image per patient.
    """
    draws, patients, diseases, models = scores.shape
    difference, effects = np.zeros((draws, models - 1)), np.zeros((draws, patients, models - 1))
    for j, column in enumerate(labels.T):
        rows = {value: np.flatnonzero(column == value) for value in (1, 0)}
        every = np.sort(np.concatenate([*rows.values()]))
        among_all = np.zeros((*scores.shape[:2], models))
        among_all[:, every] = scipy.stats.rankdata(scores[:, every, j], axis=1)
        for value, sign in ((1, 1), (0, -1)):
            own, others = rows[value], len(rows[1 - value])
            placed = sign * (among_all[:, own] - scipy.stats.rankdata(scores[:, own, j], axis=1)) / others
            change = placed[..., 1:] - placed[..., :1]
            if value:
                difference += change.mean(axis=1) / diseases
            small = math.sqrt(len(own) / (len(own) - 1))
            effects[:, own] += small * (change - change.mean(axis=1, keepdims=True)) / len(own) / diseases
    errors = np.sqrt((effects**2).sum(axis=1))
    best = difference.argmax(axis=1)
    chosen = np.arange(draws), best
    with np.errstate(divide="ignore", invalid="ignore"):
        excess = np.where(difference[chosen] > 0, difference[chosen] / errors[chosen], -np.inf)
    return excess, best

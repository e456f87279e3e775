"""Value of a model's threshold and probabilities at another hospital, and number of local images that repair them.

An AUC needs neither. A hospital that uses a model needs both: a threshold chosen where the model was made gives other
false alarms where the images or the share of sick patients differ. Here the threshold and the probabilities of a source
hospital are judged at a target hospital as they are, and after a recalibration on some of the target's labeled images:

- threshold: the one with the wanted specificity on those images (`metrics.sensitivity_at_specificity`);
- probabilities: logistic regression on the score's logit. J. C. Platt: Probabilistic outputs for support vector
  machines and comparisons to regularized likelihood methods. Advances in Large Margin Classifiers (1999) 61-74.

The images for recalibration are those of whole patients, drawn at random several times; the rest is judged.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pandas as pd
from scipy.special import logit

from chestfed.core.randomness import numpy_stream
from chestfed.results.evaluation.calibration import calibration
from chestfed.results.evaluation.labeled import Column
from chestfed.results.evaluation.metrics import SHARE, sensitivity_at_specificity

#: Local images for a recalibration.
SIZES: Final = (50, 100, 200)
#: Scores are probabilities; a logit beyond this is the same to the regression.
_LIMIT: Final = 1e-6
#: Columns of the table, one row per way and number of images.
COLUMNS: Final = ("way", "images", "draws", "sensitivity", "specificity", "brier", "ece", "sd_specificity", "sd_brier")


def judge_transfer(
    source: Column,
    target: Column,
    sizes: Sequence[int] = SIZES,
    specificity: float = SHARE,
    draws: int = 50,
    seed: int = 0,
) -> pd.DataFrame:
    """Sensitivity, specificity, Brier score and calibration error of one disease at the target, one row per way.

    Rows: `transferred`, with the source's threshold and scores as they are; and `recalibrated` with each size, the mean
    over `draws` random choices of the target's patients, with standard deviations over the choices. A choice without
    both classes on either side does not count; `draws` says how many did. Of a size that leaves none there is no row.

    Raises `ValueError` if a score is not a probability, or a hospital has images of one class only.
    """
    for column in (source, target):
        if column.reason:
            raise ValueError(f"{column.disease}: {column.reason}")
        if ((column.score < 0) | (column.score > 1)).any():
            raise ValueError(f"scores of {column.disease} are not probabilities")
    rows = [("transferred", 0, 1, *_judge(source, target, specificity), np.nan, np.nan)]
    for size in sizes:
        values = np.array(
            [_judge(local, rest, specificity, True) for local, rest in _draw(target, size, draws, seed)]
        ).reshape(-1, 4)
        if len(values):
            spread = values.std(axis=0, ddof=1) if len(values) > 1 else np.full(4, np.nan)
            rows.append(("recalibrated", size, len(values), *values.mean(axis=0), spread[1], spread[2]))
    return pd.DataFrame(rows, columns=list(COLUMNS))


def recalibrate(reference: Column, scores: np.ndarray) -> np.ndarray:
    """Probabilities `[n]` in place of scores `[n]`, by Platt's regression on the reference's scores and labels.

    The slope has scikit-learn's default penalty on standardized logits, so that few separable images have an answer.
    """
    from sklearn.linear_model import LogisticRegression

    logits = _logits(reference.score)
    center, scale = logits.mean(), logits.std() or 1.0
    model = LogisticRegression().fit((logits[:, None] - center) / scale, reference.positive)
    return model.predict_proba((_logits(scores)[:, None] - center) / scale)[:, 1]


def _judge(
    reference: Column, judged: Column, specificity: float, again: bool = False
) -> tuple[float, float, float, float]:
    """Sensitivity, specificity, Brier score and calibration error of the reference's threshold, and probabilities."""
    point = sensitivity_at_specificity(reference, specificity)
    assert point is not None
    called = judged.score >= point.threshold
    probability = recalibrate(reference, judged.score) if again else judged.score
    quality = calibration(Column(judged.disease, probability, judged.positive, judged.patient, 0))
    assert quality is not None
    sensitivity, right = called[judged.positive].mean(), 1 - called[~judged.positive].mean()
    return float(sensitivity), float(right), quality.brier, quality.ece


def _draw(column: Column, size: int, draws: int, seed: int) -> Iterator[tuple[Column, Column]]:
    """Images of patients drawn until there are `size`, and the images of all others; both with both classes."""
    names, patient = np.unique(column.patient, return_inverse=True)
    for number in range(draws):
        order = numpy_stream(seed, "recalibration", number).permutation(len(names))
        images = np.bincount(patient, minlength=len(names))[order].cumsum()
        local = np.isin(patient, order[: int(np.searchsorted(images, size)) + 1])
        parts = [
            Column(column.disease, column.score[rows], column.positive[rows], column.patient[rows], 0)
            for rows in (local, ~local)
        ]
        if not any(part.reason for part in parts):
            yield parts[0], parts[1]


def _logits(scores: np.ndarray) -> np.ndarray:
    return logit(np.clip(scores, _LIMIT, 1 - _LIMIT))

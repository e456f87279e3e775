"""How many patients an interval rests on, and the degrees of freedom of its Student's t.

The variance of an AUC is estimated from few values: the patients of its rarer class, mostly those with a positive
image. Student's t with one degree less than there are patients is right for values that are about normal. The values
here are the shares of negatives that a patient's images beat, and near an AUC of 1 nearly all are 1 and a few are not:
their variance is then known much worse. `freedom_per_disease` takes that from their kurtosis.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from chestfed.evaluation.intervals.delong import placements
from chestfed.evaluation.labeled import Cell, list_cells

#: A sum of squared components below this is rounding.
_NO_SPREAD = 1e-24


def units_per_disease(labels: np.ndarray, patients: np.ndarray, hospitals: np.ndarray | None = None) -> np.ndarray:
    """Patients with a positive image, or those with a negative one, whichever are fewer: `[J]`.

    They carry most of the AUC's variance, so they are what an interval's degrees of freedom count. With hospitals `[n]`
    a disease's AUC is a mean, and the units are those of `units_of_mean`.
    """
    if hospitals is not None:
        return np.array([units_of_mean(labels[:, [j]], patients, hospitals) for j in range(labels.shape[1])], float)
    return np.array([min(len(np.unique(patients[column == value])) for value in (0, 1)) for column in labels.T], int)


def units_of_mean(labels: np.ndarray, patients: np.ndarray, hospitals: np.ndarray | None = None) -> float:
    """Units of an interval of the mean over diseases.

    At most the patients with a positive image of any disease, or those with a negative one, whichever are fewer. But a
    disease with few positive patients can carry most of the mean's variance, which then is known no better than that
    disease's. With m_j the `units_per_disease` and v_j = 1 / m_j + 1 / (patients of its other class), to which the
    variance of disease j's AUC is about proportional, there are sum(v_j)^2 / sum(v_j^2 / (m_j - 1)) degrees of freedom,
    one less than the units: F. E. Satterthwaite: An approximate distribution of estimates of variance components.
    Biometrics Bulletin 2 (1946). They depend on the labels alone, so they cannot be large because a variance came out
    small by chance.

    Diseases of one class only do not count; 0 if there is no other. If a disease has one unit, so has the mean: nothing
    in the data shows how far the AUC of that disease varies. With hospitals `[n]` the sums are over every disease at
    every hospital, with v_j times the square of the weight in the disease's mean over hospitals.
    """
    cells = list_cells(labels, hospitals)
    if not cells:
        return 0
    each = _patients_per_class(cells, patients)
    if each.min() < 2:
        return 1
    rows = ([cell.rows[cell.positive == positive] for cell in cells] for positive in (False, True))
    most = min(len(np.unique(patients[np.concatenate(of_class)])) for of_class in rows)
    return min(float(most), 1 + _pooled(cells, each, each.min(axis=1) - 1))


def freedom_per_disease(
    scores: np.ndarray, labels: np.ndarray, patients: np.ndarray, hospitals: np.ndarray | None = None
) -> np.ndarray:
    """Degrees of freedom of the variance of each disease's AUC: float `[J]`, at most m - 1; 0 where m is below 2.

    The sample variance of m values of excess kurtosis k has a variance of sigma^4 (2 / (m - 1) + k / m), which is that
    of a chi-squared one with 2 / (2 / (m - 1) + k / m) degrees of freedom: B. O'Neill: Some useful moment results in
    sampling problems. The American Statistician 68 (2014). The values are the m patients of the rarer class
    (`units_per_disease`), each the sum over the patient's images of that class of DeLong's component less its mean. A
    negative k, which would give more than m - 1, counts as 0. With hospitals `[n]` it is that of the mean over them.
    """
    diseases = range(labels.shape[1])
    if hospitals is not None:
        return np.array([freedom_of_mean(scores[:, [j]], labels[:, [j]], patients, hospitals) for j in diseases])
    freedom = np.zeros(labels.shape[1])
    for cell in list_cells(labels):
        freedom[cell.column] = _freedom(scores, cell, patients)
    return freedom


def freedom_of_mean(
    scores: np.ndarray, labels: np.ndarray, patients: np.ndarray, hospitals: np.ndarray | None = None
) -> float:
    """Degrees of freedom of an interval of the mean: as `units_of_mean`, with `freedom_per_disease` for m_j - 1."""
    units = units_of_mean(labels, patients, hospitals)
    if units < 2:
        return 0.0
    cells = list_cells(labels, hospitals)
    each = np.array([_freedom(scores, cell, patients) for cell in cells])
    return min(units - 1, _pooled(cells, _patients_per_class(cells, patients), each))


def _freedom(scores: np.ndarray, cell: Cell, patients: np.ndarray) -> float:
    """Degrees of freedom of the variance of one AUC, see `freedom_per_disease`; 0 with one patient of a class."""
    ((negatives, positives),) = _patients_per_class([cell], patients)
    m = int(min(negatives, positives))
    if m < 2:
        return 0.0
    v10, v01 = placements(scores[cell.rows, cell.column, None], cell.positive)
    rarer, component = (cell.positive, v10[:, 0]) if positives <= negatives else (~cell.positive, v01[:, 0])
    _, patient = np.unique(patients[cell.rows][rarer], return_inverse=True)
    value = np.bincount(patient, component - component.mean())
    square = float((value**2).sum())
    excess = m * float((value**4).sum()) / square**2 - 3 if square > _NO_SPREAD else 0.0
    return 2 / (2 / (m - 1) + max(0.0, excess) / m)


def _pooled(cells: Sequence[Cell], patients_per_class: np.ndarray, freedom: np.ndarray) -> float:
    """Satterthwaite's degrees of freedom of a mean, from those of its AUCs."""
    variances = np.array([cell.weight for cell in cells]) ** 2 * (1 / patients_per_class).sum(axis=1)
    return float(variances.sum() ** 2 / (variances**2 / freedom).sum())


def _patients_per_class(cells: Sequence[Cell], patients: np.ndarray) -> np.ndarray:
    """Patients with a negative and with a positive image of each: int `[cells, 2]`."""
    return np.array(
        [[len(np.unique(patients[cell.rows[cell.positive == value]])) for value in (False, True)] for cell in cells]
    )

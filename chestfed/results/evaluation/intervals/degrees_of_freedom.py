"""Number of patients that an interval rests on, and the degrees of freedom of its Student's t.

The variance of an AUC is estimated from few values: the patients of its rarer class, mostly those with a positive
image. Student's t with one degree less than there are patients is right for values that are about normal. The values
here are the shares of negatives that a patient's images beat, and near an AUC of 1 nearly all are 1 and a few are not:
their variance is then known much worse. `count_freedom` takes that from their kurtosis.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from chestfed.results.evaluation.intervals.delong import Components
from chestfed.results.evaluation.labeled import Cell, list_cells

#: A sum of squared components below this is rounding.
_NO_SPREAD = 1e-24


def count_effective_patients(labels: np.ndarray, patients: np.ndarray, hospitals: np.ndarray | None = None) -> float:
    """Patients that an interval of the mean AUC over the columns of labels `[n, J]` rests on.

    Of one disease the patients with a positive image, or those with a negative one, whichever are fewer: they carry
    most of the AUC's variance. Of several at most these of any disease; but a disease with few positive patients can
    carry most of the mean's variance, which then is known no better than that disease's. With m_j the patients of
    disease j and v_j = 1 / m_j + 1 / (patients of its other class), to which the variance of its AUC is about
    proportional, there are sum(v_j)^2 / sum(v_j^2 / (m_j - 1)) degrees of freedom, one less than effective patients:
    F. E. Satterthwaite: An approximate distribution of estimates of variance components. Biometrics Bulletin 2 (1946).
    They depend on the labels alone, so they cannot be large because a variance came out small by chance.

    Diseases of one class only do not count; 0 if there is no other. If a disease has one patient of a class, it is 1:
    nothing in the data shows how far the AUC of that disease varies. With hospitals `[n]` the sums are over every
    disease at every hospital, with v_j times the square of the weight in the disease's mean over hospitals.
    """
    cells = list_cells(labels, patients, hospitals)
    if not cells:
        return 0
    each = _patients_per_class(cells)
    if each.min() < 2:
        return 1
    rows = ([cell.rows[cell.positive == positive] for cell in cells] for positive in (False, True))
    most = min(len(pd.unique(patients[np.concatenate(of_class)])) for of_class in rows)
    return min(float(most), 1 + _pooled(cells, each, each.min(axis=1) - 1))


def count_freedom(parts: Sequence[tuple[Cell, Components]], patients: np.ndarray, units: float) -> float:
    """Degrees of freedom of the variance of the mean AUC, at most `units` - 1; 0 where that is 0.

    The sample variance of m values of excess kurtosis k has a variance of sigma^4 (2 / (m - 1) + k / m), which is that
    of a chi-squared one with 2 / (2 / (m - 1) + k / m) degrees of freedom: B. O'Neill: Some useful moment results in
    sampling problems. The American Statistician 68 (2014). The values are the m patients of a disease's rarer class,
    each the sum over the patient's images of that class of DeLong's component less its mean, with strata times the
    image's share of the pairs. A negative k, which would give more than m - 1, counts as 0. Diseases are pooled by
    Satterthwaite's formula.

    `parts` are those of one run (`list_parts`), `units` the `count_effective_patients` of their diseases.
    """
    if units < 2:
        return 0.0
    cells = [cell for cell, _ in parts]
    counts = _patients_per_class(cells)
    freedom = [_freedom(*part, each, patients) for part, each in zip(parts, counts, strict=True)]
    return min(units - 1, _pooled(cells, counts, np.array(freedom)))


def _freedom(cell: Cell, components: Components, of_class: np.ndarray, patients: np.ndarray) -> float:
    """Degrees of freedom of the variance of one AUC, see `count_freedom`; two patients of each class."""
    negatives, positives = of_class
    m = int(min(negatives, positives))
    rarer = cell.positive if positives <= negatives else ~cell.positive
    component, share = components[0 if positives <= negatives else 1]
    _, patient = np.unique(patients[cell.rows][rarer], return_inverse=True)
    value = np.bincount(patient, (share * (component - (share * component).mean()))[:, 0])
    square = float((value**2).sum())
    excess = m * float((value**4).sum()) / square**2 - 3 if square > _NO_SPREAD else 0.0
    return 2 / (2 / (m - 1) + max(0.0, excess) / m)


def _pooled(cells: Sequence[Cell], patients_per_class: np.ndarray, freedom: np.ndarray) -> float:
    """Satterthwaite's degrees of freedom of a mean, from those of its AUCs."""
    variances = np.array([cell.weight for cell in cells]) ** 2 * (1 / patients_per_class).sum(axis=1)
    return float(variances.sum() ** 2 / (variances**2 / freedom).sum())


def _patients_per_class(cells: Sequence[Cell]) -> np.ndarray:
    """Patients with a negative and with a positive image of each: int `[cells, 2]`."""
    return np.array([cell.patients[::-1] for cell in cells])

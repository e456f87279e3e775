"""How many patients an interval rests on, and the degrees of freedom of its Student's t.

The variance of an AUC is estimated from few values: the patients of its rarer class, mostly those with a positive
image. Student's t with one degree less than there are patients is right for values that are about normal. The values
here are the shares of negatives that a patient's images beat, and near an AUC of 1 nearly all are 1 and a few are not:
their variance is then known much worse. `freedom_per_disease` takes that from their kurtosis.
"""

from __future__ import annotations

import numpy as np

from chestfed.evaluation.intervals.delong import placements

#: A sum of squared components below this is rounding.
_NO_SPREAD = 1e-24


def units_per_disease(labels: np.ndarray, patients: np.ndarray) -> np.ndarray:
    """Patients with a positive image, or those with a negative one, whichever are fewer: int `[J]`.

    They carry most of the AUC's variance, so they are what an interval's degrees of freedom count.
    """
    return _patients_per_class(labels, patients).min(axis=1)


def units_of_mean(labels: np.ndarray, patients: np.ndarray) -> float:
    """Units of an interval of the mean over diseases.

    At most the patients with a positive image of any disease, or those with a negative one, whichever are fewer. But a
    disease with few positive patients can carry most of the mean's variance, which then is known no better than that
    disease's. With m_j the `units_per_disease` and v_j = 1 / m_j + 1 / (patients of its other class), to which the
    variance of disease j's AUC is about proportional, there are sum(v_j)^2 / sum(v_j^2 / (m_j - 1)) degrees of freedom,
    one less than the units: F. E. Satterthwaite: An approximate distribution of estimates of variance components.
    Biometrics Bulletin 2 (1946). They depend on the labels alone, so they cannot be large because a variance came out
    small by chance.

    Diseases of one class only do not count; 0 if there is no other. If a disease has one unit, so has the mean: nothing
    in the data shows how far the AUC of that disease varies.
    """
    labels = labels[:, (labels == 0).any(axis=0) & (labels == 1).any(axis=0)]
    if not labels.shape[1]:
        return 0
    each = _patients_per_class(labels, patients)
    if each.min() < 2:
        return 1
    most = min(len(np.unique(patients[(labels == value).any(axis=1)])) for value in (0, 1))
    return min(float(most), 1 + _pooled(each, each.min(axis=1) - 1))


def freedom_per_disease(scores: np.ndarray, labels: np.ndarray, patients: np.ndarray) -> np.ndarray:
    """Degrees of freedom of the variance of each disease's AUC: float `[J]`, at most m - 1; 0 where m is below 2.

    The sample variance of m values of excess kurtosis k has a variance of sigma^4 (2 / (m - 1) + k / m), which is that
    of a chi-squared one with 2 / (2 / (m - 1) + k / m) degrees of freedom: B. O'Neill: Some useful moment results in
    sampling problems. The American Statistician 68 (2014). The values are the m patients of the rarer class
    (`units_per_disease`), each the sum over the patient's images of that class of DeLong's component less its mean. A
    negative k, which would give more than m - 1, counts as 0.
    """
    freedom = np.zeros(labels.shape[1])
    for j, (column, each) in enumerate(zip(labels.T, _patients_per_class(labels, patients), strict=True)):
        m = int(each.min())
        if m < 2:
            continue
        known = ~np.isnan(column)
        positive = column[known] == 1
        v10, v01 = placements(scores[known, j, None], positive)
        rarer, component = (positive, v10[:, 0]) if each[1] <= each[0] else (~positive, v01[:, 0])
        _, patient = np.unique(patients[known][rarer], return_inverse=True)
        value = np.bincount(patient, component - component.mean())
        square = float((value**2).sum())
        excess = m * float((value**4).sum()) / square**2 - 3 if square > _NO_SPREAD else 0.0
        freedom[j] = 2 / (2 / (m - 1) + max(0.0, excess) / m)
    return freedom


def freedom_of_mean(scores: np.ndarray, labels: np.ndarray, patients: np.ndarray) -> float:
    """Degrees of freedom of an interval of the mean: as `units_of_mean`, with `freedom_per_disease` for m_j - 1."""
    both = (labels == 0).any(axis=0) & (labels == 1).any(axis=0)
    units = units_of_mean(labels, patients)
    if units < 2:
        return 0.0
    each = freedom_per_disease(scores[:, both], labels[:, both], patients)
    return min(units - 1, _pooled(_patients_per_class(labels[:, both], patients), each))


def _pooled(patients_per_class: np.ndarray, freedom: np.ndarray) -> float:
    """Satterthwaite's degrees of freedom of a mean, from those of the diseases `[J]`."""
    variances = (1 / patients_per_class).sum(axis=1)
    return float(variances.sum() ** 2 / (variances**2 / freedom).sum())


def _patients_per_class(labels: np.ndarray, patients: np.ndarray) -> np.ndarray:
    """Patients with a negative and with a positive image of each disease: int `[J, 2]`."""
    counts = [[len(np.unique(patients[column == value])) for value in (0, 1)] for column in labels.T]
    return np.array(counts, int).reshape(-1, 2)

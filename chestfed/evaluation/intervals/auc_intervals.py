"""The intervals of the AUCs of one model on one test set, of their mean, and of the further numbers of each disease."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from chestfed.evaluation.auc import DiseaseAuc, mean_auc
from chestfed.evaluation.intervals import bootstrap
from chestfed.evaluation.intervals.degrees_of_freedom import (
    freedom_of_mean,
    freedom_per_disease,
    units_of_mean,
    units_per_disease,
)
from chestfed.evaluation.intervals.delong import delong_per_disease
from chestfed.evaluation.intervals.delong_mean import delong_mean_interval
from chestfed.evaluation.intervals.interval import Bounds

Method = Literal["bootstrap", "delong"]

#: Why there is none.
ONE_PATIENT = "one patient with an image of a class: no interval"
NO_VARIANCE = "no variance in these data: no interval"


@dataclass(frozen=True)
class AucIntervals:
    """Of each disease, and of the mean over those that have an AUC."""

    diseases: tuple[Bounds, ...]
    mean: Bounds


def auc_intervals(
    aucs: Sequence[DiseaseAuc],
    scores: np.ndarray,
    labels: np.ndarray,
    patients: np.ndarray,
    method: Method = "bootstrap",
    resamples: int = 2000,
    seed: int = 0,
) -> AucIntervals:
    """95% intervals of the AUCs of scores `[n, J]` and labels `[n, J]`, and of their mean.

    `bootstrap` is `auc_interval`, of a disease on separate draws and of the mean on joint ones; `delong` takes images
    for independent, but has none either where a class is of one patient.
    """
    mean = mean_auc(aucs)
    if mean is None:
        return AucIntervals((Bounds(None),) * len(aucs), Bounds(None))
    if method == "delong":
        found = delong_per_disease(scores, labels, [auc.disease for auc in aucs])
        known = units_per_disease(labels, patients) != 1  # several images of one patient tell nothing of others
        each = (
            Bounds(one.logit, "" if one.auc is None else one.reason) if enough else Bounds(None, ONE_PATIENT)
            for one, enough in zip(found, known, strict=True)
        )
        one_patient = units_of_mean(labels, patients) < 2
        of_mean = Bounds(None, ONE_PATIENT) if one_patient else delong_mean_interval(scores, labels)
        return AucIntervals(tuple(each), of_mean)
    draws = bootstrap.resampled_aucs(scores, labels, patients, resamples, seed)
    joint = bootstrap.mean_over_diseases(bootstrap.jointly_resampled_aucs(scores, labels, patients, resamples, seed))
    units, freedom = units_per_disease(labels, patients), freedom_per_disease(scores, labels, patients)
    each = (_bounds(one.auc, draws[:, j], float(units[j]), float(freedom[j])) for j, one in enumerate(aucs))
    of_mean = _bounds(mean, joint, units_of_mean(labels, patients), freedom_of_mean(scores, labels, patients))
    return AucIntervals(tuple(each), of_mean)


def _bounds(auc: float | None, values: np.ndarray, units: float, freedom: float) -> Bounds:
    if auc is None:
        return Bounds(None)
    found = bootstrap.auc_interval(auc, values, units, freedom=freedom)
    if found is not None or len(values) < 2:
        return Bounds(found)
    return Bounds(None, ONE_PATIENT if units < 2 else NO_VARIANCE)

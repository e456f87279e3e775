"""The intervals of the AUCs of one test set, each way to make them under its name in `METHODS`.

A new one is a function and an entry there: commands, files and tables take the name, and what it is, from it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from chestfed.evaluation.intervals import bootstrap
from chestfed.evaluation.intervals.degrees_of_freedom import (
    freedom_of_mean,
    freedom_per_disease,
    units_of_mean,
    units_per_disease,
)
from chestfed.evaluation.intervals.delong import delong_interval
from chestfed.evaluation.intervals.interval import Bounds, logit_interval
from chestfed.evaluation.labeled import Scored

MethodName = Literal["bootstrap", "delong"]

#: Why there is none.
ONE_PATIENT = "one patient with an image of a class: no interval"
NO_VARIANCE = "no variance in these data: no interval"


@dataclass(frozen=True)
class Intervals:
    """How intervals at 95% are made: by which method, and for a bootstrap the number of resamples and the seed."""

    method: MethodName = "bootstrap"
    resamples: int = 2000
    seed: int = 0


@dataclass(frozen=True)
class Method:
    """What tables say of it; and its function, from AUCs `[J + 1]`, the last their mean, to as many bounds."""

    about: str
    bounds: Callable[[Scored, Sequence[float | None], Intervals], list[Bounds]]


def missing_because(resampled: np.ndarray, units: float) -> str:
    """Why a number that is defined has no interval; empty if nothing was resampled, so that none was wanted."""
    if len(resampled) < 2:
        return ""
    return ONE_PATIENT if units < 2 else NO_VARIANCE


def _bootstrap(found: Scored, aucs: Sequence[float | None], how: Intervals) -> list[Bounds]:
    """A disease on separate draws of patients, the mean on joint ones."""
    if aucs[-1] is None:
        return [Bounds()] * len(aucs)
    arrays = (found.scores, found.labels, found.patients)
    draws = bootstrap.resampled_aucs(*arrays, how.resamples, how.seed)
    joint = bootstrap.mean_over_diseases(bootstrap.jointly_resampled_aucs(*arrays, how.resamples, how.seed))
    units = [*units_per_disease(found.labels, found.patients), units_of_mean(found.labels, found.patients)]
    freedom = [*freedom_per_disease(*arrays), freedom_of_mean(*arrays)]
    bounds = []
    for auc, values, m, degrees in zip(aucs, [*draws.T, joint], units, freedom, strict=True):
        interval = None if auc is None else logit_interval(auc, values, float(m), freedom=float(degrees))
        missing = auc is not None and interval is None
        bounds.append(Bounds(interval, missing_because(values, m) if missing else ""))
    return bounds


def _delong(found: Scored, aucs: Sequence[float | None], how: Intervals) -> list[Bounds]:
    """Images are taken for independent; there is none either where a class is of one patient."""
    columns = [found.labels[:, [j]] for j in range(len(found.diseases))]
    each = [(found.scores[:, [j]], labels) for j, labels in enumerate(columns)]
    units = [*units_per_disease(found.labels, found.patients), units_of_mean(found.labels, found.patients)]
    return [
        Bounds() if auc is None else Bounds(reason=ONE_PATIENT) if m < 2 else delong_interval(*arrays)
        for auc, m, arrays in zip(aucs, units, [*each, (found.scores, found.labels)], strict=True)
    ]


METHODS: Final[dict[MethodName, Method]] = {
    "bootstrap": Method("95%, patient-clustered bootstrap, Student's t on the logit scale", _bootstrap),
    "delong": Method("95%, DeLong's variance on the logit scale, units taken for independent", _delong),
}

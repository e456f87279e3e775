"""Intervals of the AUCs of one test set, and of their differences, each way to make them under its name in `METHODS`.

A new one is a function here, its name in `MethodName`, and what tables and papers say of it in `methods.yaml`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from importlib import resources
from typing import Final

import numpy as np
import scipy
import yaml

from chestfed.results.evaluation.intervals import DEFAULT, bootstrap
from chestfed.results.evaluation.intervals import MethodName as MethodName
from chestfed.results.evaluation.intervals.degrees_of_freedom import count_effective_patients, count_freedom
from chestfed.results.evaluation.intervals.delong import Components, combine_parts, list_parts
from chestfed.results.evaluation.intervals.interval import (
    ROUNDING,
    Bounds,
    Interval,
    around_logit,
    bca_interval,
    clopper_lower,
    quantile_interval,
    student_quantile,
)
from chestfed.results.evaluation.labeled import NO_ROTATION, Cell, Rotation, list_cells, list_strata

#: A variance of AUCs below this is rounding.
_NO_VARIANCE = 1e-24
#: Why there is none.
ONE_PATIENT = "one patient with an image of a class: no interval"
IN_A_DISEASE = "one patient with an image of a class, in a disease: no interval"
AT_A_HOSPITAL = "one patient with an image of a class, at a hospital: no interval"
NO_VARIANCE = "no variance in these data: no interval"


@dataclass(frozen=True)
class Intervals:
    """Method of intervals at 95%, and for a bootstrap the number of resamples and the seed."""

    method: MethodName = DEFAULT
    resamples: int = 2000
    seed: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.method, str) or self.method not in _BOUNDS:
            raise ValueError(f"interval {self.method!r}: choose one of {', '.join(_BOUNDS)}")


@dataclass(frozen=True)
class Contrast:
    """The AUCs of one model, or the differences of two, each the mean over its seeds, on the same images."""

    runs: np.ndarray  #: scores `[runs, n, J]`: of the reference's seeds, then of the model's
    #: labels, patients: `[n, J]` in {0, 1, NaN}, and `[n]`.
    labels: np.ndarray
    patients: np.ndarray
    how: Intervals
    seeds_a: int = 0  #: seeds of the reference; 0: there is none, and one run
    hospitals: np.ndarray | None = None  #: `[n]`, as in `Scored`
    counted: np.ndarray | None = None  #: the diseases of the mean, bool `[J]`; None: all
    splits: int = 1  #: splits of the patients, whose columns lie side by side (`put_beside`): `[n, splits * J]`
    rotation: Rotation = NO_ROTATION  #: of several splits
    strata: np.ndarray | None = None  #: `[n]`, as in `Scored`, for Obuchowski's method

    @property
    def diseases(self) -> int:
        """Number of the diseases, J."""
        return self.labels.shape[1] // self.splits

    def columns(self, place: int) -> np.ndarray:
        """The columns that a number is over, int: of one disease, or for the mean of those that count."""
        every = np.arange(self.diseases)
        if place < len(every):
            return self.expand(every[place : place + 1])
        return self.expand(every if self.counted is None else every[self.counted])

    def expand(self, diseases: Sequence[int] | np.ndarray) -> np.ndarray:
        """The columns of diseases in every split, int."""
        return (np.arange(self.splits)[:, None] * self.diseases + np.asarray(diseases, int)).ravel()

    @cached_property
    def units(self) -> list[float]:
        """Effective patients of each disease and of the mean."""
        places = range(self.diseases + 1)
        columns = (self.labels[:, self.columns(place)] for place in places)
        return [count_effective_patients(labels, self.patients, self.hospitals) for labels in columns]

    @cached_property
    def _parts(self) -> list[tuple[Cell, Components]]:
        return list_parts(self.runs, self.labels, self.patients, self.hospitals, self.strata)

    def select_parts(self, place: int) -> list[tuple[Cell, Components]]:
        """Structural components of the diseases that a number is over, where they have both classes."""
        columns = set(self.columns(place).tolist())
        return [part for part in self._parts if part[0].column in columns]

    def too_few(self, place: int) -> str:
        """Why a number with fewer than two units has no interval."""
        if place == self.diseases:
            return IN_A_DISEASE
        return ONE_PATIENT if self.hospitals is None else AT_A_HOSPITAL

    @cached_property
    def draws(self) -> list[np.ndarray]:
        """Resampled values `[resamples]`: a disease's on separate draws of patients, the mean's on joint ones."""
        given = (self.runs, self.labels, self.patients, self.how.resamples, self.how.seed, self.hospitals)
        aucs = self._contrast(bootstrap.jointly_resampled_aucs(*given))
        joint = bootstrap.mean_over_diseases(aucs[:, self.columns(self.labels.shape[1])])
        return [*self._contrast(bootstrap.resampled_aucs(*given)).T, joint]

    @cached_property
    def left_out(self) -> list[list[np.ndarray]]:
        """Values without each patient, per stratum of `draws`."""
        each = self._contrast(bootstrap.jackknifed_aucs(self.runs, self.labels, self.patients, self.hospitals))
        _, patient = np.unique(self.patients, return_inverse=True)
        strata: list[list[np.ndarray]] = [[] for _ in each.T]
        for cell in list_cells(self.labels, self.patients, self.hospitals):
            positive = np.unique(patient[cell.rows[cell.positive]])
            others = np.setdiff1d(patient[cell.rows[~cell.positive]], positive)
            strata[cell.column] += [each[stratum, cell.column] for stratum in (positive, others) if len(stratum)]
        mean = bootstrap.mean_over_diseases(each[:, self.columns(self.labels.shape[1])])
        return [*strata, [mean[stratum] for stratum in list_strata(self.patients, self.hospitals)]]

    def bounds(self, values: Sequence[float | None]) -> list[Bounds]:
        """Intervals of the values of each disease, and at last of their mean. An AUC of 0 or 1 has the exact one."""
        method = METHODS[self.how.method]
        if (method.resampled and self.how.resamples < 2) or all(value is None for value in values):
            return [Bounds()] * len(values)
        results = []
        for place, (value, units) in enumerate(zip(values, self.units, strict=True)):
            if value is None:
                results.append(Bounds())
            elif units < 2:
                results.append(Bounds(reason=self.too_few(place)))
            elif not self.seeds_a and not ROUNDING < value < 1 - ROUNDING:
                least = clopper_lower(units, 0.95)
                results.append(Bounds(Interval(least, 1.0) if value > 0.5 else Interval(0.0, 1 - least)))
            else:
                results.append(method.bounds(self, place, value))
        return results

    def estimate_error(self, place: int) -> tuple[float, float]:
        """Obuchowski's standard error over test patients, whatever the method; and degrees of freedom of a difference.

        Of models with several seeds it is that of their mean. Two patients of each class.
        """
        b = len(self.runs) - self.seeds_a
        weights = np.repeat([-1 / max(self.seeds_a, 1), 1 / b], [self.seeds_a, b])[:, None]
        covariance = combine_parts(self.select_parts(place), weights, self.patients)
        variance = 0.0 if covariance is None else float(covariance[1][0, 0])
        return math.sqrt(variance) if variance >= _NO_VARIANCE else 0.0, self.units[place] - 1

    def bound_part(self, columns: Sequence[int], value: float) -> Interval | None:
        """Obuchowski's interval of `value`, the mean over some diseases alone, each with both classes."""
        place = self.expand(columns)
        part = replace(self, runs=self.runs[..., place], labels=self.labels[:, place], counted=None, splits=1)
        return _obuchowski(part, len(place), value).interval if part.units[-1] >= 2 else None

    def _contrast(self, aucs: np.ndarray) -> np.ndarray:
        """Mean over the model's seeds less that over the reference's: `[..., J]` from `[runs, ..., J]`."""
        mean = aucs[self.seeds_a :].mean(axis=0)
        return mean - aucs[: self.seeds_a].mean(axis=0) if self.seeds_a else mean


@dataclass(frozen=True)
class Method:
    """A way to make intervals."""

    #: about, of_difference: what tables say of an AUC's interval; and of a difference's, and its p value.
    about: str
    of_difference: str
    references: list[str]  #: of the method, for a paper
    #: From the number of a disease (J: the mean) and its value, which varies, with two patients of each class.
    bounds: Callable[[Contrast, int, float], Bounds]
    resampled: bool  #: whether it draws patients


def _bounds(interval: tuple[Interval, float] | None, draws: np.ndarray) -> Bounds:
    if interval is not None:
        return Bounds(interval[0], p=interval[1])
    enough = np.isfinite(draws).sum() >= 2
    return Bounds(reason=NO_VARIANCE if enough else "hardly a resample with both classes: no interval")


def _obuchowski(contrast: Contrast, place: int, value: float) -> Bounds:
    error, freedom = contrast.estimate_error(place)
    if not error:
        same = contrast.seeds_a and abs(value) < ROUNDING
        return Bounds(Interval(0.0, 0.0), p=1.0) if same else Bounds(reason=NO_VARIANCE)
    if not contrast.seeds_a:
        freedom = count_freedom(contrast.select_parts(place), contrast.patients, contrast.units[place])
        return Bounds(around_logit(value, student_quantile(freedom) * error))
    width = student_quantile(freedom) * error
    p = 2 * float(scipy.special.stdtr(freedom, -abs(value) / error))
    return Bounds(Interval(value - width, value + width), p=p)


def _quantiles(contrast: Contrast, place: int, value: float, *, corrected: bool) -> Bounds:
    draws = contrast.draws[place]
    interval = bca_interval(value, draws, contrast.left_out[place]) if corrected else quantile_interval(draws)
    return _bounds(interval, draws)


_BOUNDS: Final[dict[MethodName, Callable[[Contrast, int, float], Bounds]]] = {
    "obuchowski": _obuchowski,
    "bca": partial(_quantiles, corrected=True),
    "percentile": partial(_quantiles, corrected=False),
}
*_, _TEXTS = yaml.safe_load(resources.files(__package__).joinpath("methods.yaml").read_text(encoding="utf-8"))
METHODS: Final[dict[MethodName, Method]] = {
    name: Method(bounds=bounds, **_TEXTS[name]) for name, bounds in _BOUNDS.items()
}

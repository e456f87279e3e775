"""The statistics of the suite for scores from anywhere: AUCs with intervals, paired tests, contributions, power.

    import chestfed

    table = chestfed.statistics.auc(scores, labels, patients=patients)
    table = chestfed.statistics.compare([scores_1, scores_2], [other_1, other_2], labels, patients=patients)

Scores and labels are arrays `[n]` of one finding or `[n, J]` of several; labels are in {0, 1, NaN}, NaN for unknown.
`patients` `[n]` says which images are of one patient; without it each image is one. With `hospitals` `[n]` an AUC is
the mean of the hospitals' own. A model trained with several seeds is a list of arrays, one per seed. Every function
returns a pandas frame.

Raises `ValueError` for arrays that do not fit each other, with their shapes, and for arguments of another type.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import ParamSpec, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from pydantic import ConfigDict, ValidationError, validate_call

from chestfed.results.evaluation import comparison
from chestfed.results.evaluation.comparison import compare as compare_scored
from chestfed.results.evaluation.estimates import auc_estimates
from chestfed.results.evaluation.intervals import DEFAULT, MethodName
from chestfed.results.evaluation.intervals.methods import Intervals
from chestfed.results.evaluation.joining import contributions as joining
from chestfed.results.evaluation.joining import planning
from chestfed.results.evaluation.joining.contributions import Contribution, Subset
from chestfed.results.evaluation.labeled import Scored
from chestfed.results.evaluation.training_seeds import SeedsTest

__all__ = ["assume", "auc", "compare", "contributions", "holm", "learn", "list_subsets", "power"]

P = ParamSpec("P")
T = TypeVar("T")


def _checked(function: Callable[P, T]) -> Callable[P, T]:
    """The function, with a `ValueError` that names the argument where one has another type than declared."""
    validated = validate_call(config=ConfigDict(arbitrary_types_allowed=True))(function)

    @functools.wraps(function)
    def call(*args: P.args, **named: P.kwargs) -> T:
        given = inspect.signature(function).bind(*args, **named).arguments
        plain = {key: value.tolist() if isinstance(value, np.ndarray) else value for key, value in given.items()}
        try:
            return validated(**plain)  # type: ignore[call-arg]
        except ValidationError as error:
            details = (f"{'.'.join(map(str, part['loc']))}: {part['msg']}" for part in error.errors())
            raise ValueError(f"{function.__name__}: {'; '.join(details)}") from None

    return call


assume, learn, power = _checked(planning.assume), _checked(planning.learn), _checked(planning.tabulate)
holm, list_subsets = _checked(comparison.holm), _checked(joining.list_subsets)


def auc(
    scores: ArrayLike,
    labels: ArrayLike,
    *,
    patients: ArrayLike | None = None,
    hospitals: ArrayLike | None = None,
    findings: Sequence[str] | None = None,
    interval: MethodName = DEFAULT,
) -> pd.DataFrame:
    """AUC of each finding and their mean, with 95% intervals over patients.

    Columns: finding, auc, low, high, positives, negatives, missing, reason (why a value is not defined), and in_mean:
    the mean is over findings with at least `LEAST_PATIENTS` patients of each class.
    """
    scored = _take(scores, labels, patients, hospitals, findings)
    rows = []
    for estimate in auc_estimates(scored, Intervals(interval)):
        low, high = estimate.interval or (np.nan, np.nan)
        numbers = (estimate.value, low, high, *estimate.counts.values())
        rows.append((estimate.disease, *numbers, estimate.reason, estimate.in_mean))
    names = ["finding", "auc", "low", "high", "positives", "negatives", "missing", "reason", "in_mean"]
    return pd.DataFrame(rows, columns=names).astype(dict.fromkeys(names[4:7], "Int64"))


def compare(
    reference: ArrayLike | Sequence[ArrayLike],
    model: ArrayLike | Sequence[ArrayLike],
    labels: ArrayLike,
    *,
    patients: ArrayLike | None = None,
    hospitals: ArrayLike | None = None,
    findings: Sequence[str] | None = None,
    interval: MethodName = DEFAULT,
) -> pd.DataFrame:
    """AUCs of a model minus those of a reference on the same images, paired.

    With lists of the same two or more training seeds, intervals and p values are over patients and seeds; with one
    array each, over patients, of these two models. `p_holm` is corrected over the findings, without the mean.

    Columns: finding, auc_reference, auc_model, difference, low, high, p, p_holm, reason, in_mean (as of `auc`).
    """
    runs_reference, runs_model = (
        [_take(scores, labels, patients, hospitals, findings) for scores in _list_seeds(given)]
        for given in (reference, model)
    )
    differences = compare_scored(runs_reference, runs_model, interval=interval)
    corrected = [*holm([d.p for d in differences[:-1]]), None]
    rows = []
    for d, p_holm in zip(differences, corrected, strict=True):
        low, high = d.interval or (np.nan, np.nan)
        values = (d.auc_reference, d.auc_model, d.difference, low, high, d.p, p_holm)
        rows.append((d.disease, *values, d.reason, d.in_mean))
    names = ["finding", "auc_reference", "auc_model", "difference", "low", "high", "p", "p_holm", "reason", "in_mean"]
    return pd.DataFrame(rows, columns=names).astype(dict.fromkeys(names[1:-2], float))


def contributions(
    scores: Mapping[Subset, Sequence[ArrayLike]],
    partners: Sequence[str],
    labels: ArrayLike,
    *,
    patients: ArrayLike | None = None,
    hospitals: ArrayLike | None = None,
    orders: Sequence[Sequence[str]] | None = None,
) -> pd.DataFrame:
    """Estimate each partner's contribution to the mean AUC at a target: Shapley value, added first, removed last.

    `scores` hold those of the target's images after training with each set of partners, a list with one array per seed;
    `list_subsets` says which sets. Columns: partner (`total` for the total gain), measure, value, low, high, p,
    and p_holm, corrected by Holm's method over all rows.
    """
    list_subsets(partners, orders)  # refuses others than names
    if not isinstance(scores, Mapping) or not all(isinstance(seeds, list | tuple) for seeds in scores.values()):
        raise ValueError("scores: give a mapping of each set of partners to a list of arrays, one per seed")
    runs = {
        subset: [_take(run, labels, patients, hospitals, None) for run in seeds] for subset, seeds in scores.items()
    }
    first = next((seeds[0] for seeds in runs.values() if seeds), None)
    if first is None:
        raise ValueError("there are no scores")
    arrays = {subset: [run.scores for run in seeds] for subset, seeds in runs.items()}
    given = (first.labels, first.patients, first.hospitals)
    each, total = joining.estimate_contributions(arrays, partners, *given, orders)
    rows = [row for contribution in each for row in _list_measures(contribution)]
    rows.append(("total", "all partners", *_read_test(total)))
    frame = pd.DataFrame(rows, columns=["partner", "measure", "value", "low", "high", "p"])
    return frame.assign(p_holm=np.array(comparison.holm(frame["p"].tolist()), float))


def _list_measures(contribution: Contribution) -> list[tuple[object, ...]]:
    measures = {
        "shapley": contribution.shapley,
        "added first": contribution.added_first,
        "removed last": contribution.removed_last,
    }
    return [(contribution.partner, name, *_read_test(test)) for name, test in measures.items()]


def _read_test(test: SeedsTest) -> tuple[float, float, float, float]:
    low, high = test.interval or (np.nan, np.nan)
    return test.difference, low, high, np.nan if test.p is None else test.p


def _list_seeds(given: ArrayLike | Sequence[ArrayLike]) -> list[ArrayLike]:
    """One array per seed: a list or tuple of arrays, or an array alone."""
    if isinstance(given, list | tuple) and given and np.ndim(given[0]) > 0:
        return list(given)
    return [given]  # type: ignore[list-item]


def _as_numbers(array: ArrayLike, name: str) -> np.ndarray:
    try:
        return np.asarray(array, np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{name}: {type(array).__name__} is not an array of numbers") from None


def _take(
    scores: ArrayLike,
    labels: ArrayLike,
    patients: ArrayLike | None,
    hospitals: ArrayLike | None,
    findings: Sequence[str] | None,
) -> Scored:
    """Arrays as the suite has them; raises `ValueError` with the shapes if they do not fit."""
    values, truth = (_as_numbers(array, name) for array, name in ((scores, "scores"), (labels, "labels")))
    if values.shape != truth.shape or values.ndim not in (1, 2) or not len(values):
        raise ValueError(f"scores {list(values.shape)} and labels {list(truth.shape)} must both be [n] or [n, J]")
    values, truth = (array.reshape(len(array), -1) for array in (values, truth))
    if findings is not None and (isinstance(findings, str) or not isinstance(findings, Sequence | np.ndarray)):
        raise ValueError(f"findings={findings!r}: give a list of names")
    names = [f"finding {j + 1}" for j in range(values.shape[1])] if findings is None else list(map(str, findings))
    if len(names) != values.shape[1]:
        raise ValueError(f"{len(names)} findings do not fit scores {list(values.shape)}")
    people = np.arange(len(values)) if patients is None else np.asarray(patients)
    places = None if hospitals is None else np.asarray(hospitals)
    for name, array in (("patients", people), ("hospitals", places)):
        if array is not None and array.shape != (len(values),):
            raise ValueError(f"{name} {list(array.shape)} do not fit scores {list(values.shape)}")
    scored = Scored(values, truth, people, names, places)
    scored.columns()  # refuses other labels, and NaN among scores
    return scored

"""`chestfed.statistics`: arrays in, frames out, the numbers of the evaluation."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

import chestfed
from chestfed import statistics
from chestfed.results.evaluation.training_seeds import seeds_test

RNG = np.random.default_rng(0)
LABELS = (RNG.random((150, 2)) < 0.3).astype(float)
PATIENTS = np.repeat(np.arange(75), 2)
COMMON = RNG.standard_normal((150, 2))
WORSE, BETTER = ([q * LABELS + COMMON + 0.5 * RNG.standard_normal((150, 2)) for _ in range(3)] for q in (0.7, 1.4))


def test_aucs_are_those_of_scikit_learn() -> None:
    table = chestfed.statistics.auc(WORSE[0], LABELS, patients=PATIENTS, findings=["edema", "pneumonia"])
    expected = [roc_auc_score(LABELS[:, j], WORSE[0][:, j]) for j in (0, 1)]
    assert table["finding"].tolist() == ["edema", "pneumonia", "mean"]
    assert table["auc"].tolist() == pytest.approx([*expected, np.mean(expected)])
    assert (table["low"] < table["auc"]).all()
    result = statistics.auc(WORSE[0][:, 0].tolist(), LABELS[:, 0].tolist())
    assert result["auc"].tolist() == pytest.approx([expected[0]] * 2)


def test_comparison_has_patients_and_seeds() -> None:
    table = statistics.compare(WORSE, BETTER, LABELS, patients=PATIENTS)
    test = seeds_test(WORSE, BETTER, LABELS, PATIENTS)
    mean = table.set_index("finding").loc["mean"]
    assert test.interval is not None
    assert mean[["difference", "low", "high", "p"]].tolist() == pytest.approx([test.difference, *test.interval, test.p])
    assert (table["p_holm"][:2] >= table["p"][:2]).all()
    single = statistics.compare(WORSE[0], BETTER[0], LABELS, patients=PATIENTS)
    assert single["difference"].iloc[2] == pytest.approx(test.of_seeds[0])


def test_contributions_sum_to_the_total() -> None:
    scores = {subset: BETTER if subset else WORSE for subset in statistics.list_subsets(("a", "b"))}
    table = statistics.contributions(scores, ("a", "b"), LABELS, patients=PATIENTS).set_index(["partner", "measure"])
    values = table["value"]
    assert values["a", "shapley"] + values["b", "shapley"] == pytest.approx(values["total", "all partners"])
    assert values["a", "removed last"] == pytest.approx(0)


def test_power_is_a_table_of_sizes_and_seeds() -> None:
    table = statistics.power(statistics.assume([(60, 140)]), difference=0.05, seeds=[3, 5])
    assert {"times", "seeds", "power", "detectable"} <= set(table.columns)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"scores": WORSE[0][:10]}, "[10, 2]"),
        ({"labels": LABELS[:, 0]}, "[150]"),
        ({"patients": PATIENTS[:5]}, "patients [5]"),
        ({"findings": ["edema"]}, "1 findings"),
        ({"labels": LABELS + 1}, "contain 2.0"),
        ({"scores": np.where(LABELS > 0, np.nan, 0)}, "NaN"),
        ({"scores": {}}, "scores: dict"),
        ({"labels": "x"}, "labels: str"),
        ({"findings": 3}, "findings"),
        ({"interval": "none"}, "obuchowski"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(change: dict[str, Any], text: str) -> None:
    given = {"scores": WORSE[0], "labels": LABELS, "patients": PATIENTS, **change}
    with pytest.raises(ValueError, match=re.escape(text)):
        statistics.auc(given.pop("scores"), given.pop("labels"), **given)


@pytest.mark.parametrize(
    ("call", "argument"),
    [
        (lambda: statistics.holm(None), "p_values"),  # type: ignore[arg-type]
        (lambda: statistics.assume([3]), "counts"),  # type: ignore[list-item]
        (lambda: statistics.learn({}, [(3, 4)]), "pilot"),  # type: ignore[arg-type]
        (lambda: statistics.power(None, 0.1, [3]), "assumptions"),  # type: ignore[arg-type]
        (lambda: statistics.power(statistics.assume([(60, 140)]), 0.1, 3), "seeds"),  # type: ignore[arg-type]
        (lambda: statistics.list_subsets(3), "partners"),  # type: ignore[arg-type]
        (lambda: statistics.list_subsets("ab", [("a",)]), "partners"),
        (lambda: statistics.list_subsets(["a", "b"], [("a",)]), "order"),
        (lambda: statistics.contributions([3], ("a", "b"), LABELS), "scores"),  # type: ignore[arg-type]
    ],
)
def test_other_types_are_refused_by_name(call: Callable[[], object], argument: str) -> None:
    with pytest.raises(ValueError, match=argument):
        call()


def test_arrays_are_lists_too() -> None:
    assert statistics.holm(np.array([0.01, 0.04])) == [0.02, 0.04]  # type: ignore[arg-type]

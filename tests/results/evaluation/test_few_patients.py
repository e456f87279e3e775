"""A disease with fewer than ten patients of a class stays out of means, verdicts and what rests on them."""

from __future__ import annotations

import numpy as np
import pytest

from chestfed import statistics
from chestfed.results.evaluation.comparison import compare
from chestfed.results.evaluation.estimates import auc_estimates
from chestfed.results.evaluation.intervals import MethodName
from chestfed.results.evaluation.intervals.methods import Intervals
from chestfed.results.evaluation.joining.groups import find_gap
from chestfed.results.evaluation.joining.planning import assume
from chestfed.results.evaluation.labeled import LEAST_PATIENTS, NO_DISEASE_COUNTS, Scored, find_counted
from chestfed.results.evaluation.summary import FEW, summarize

NAMES = ("edema", "effusion")


def make_models(few: int, *, gain: float = 2.0) -> tuple[Scored, Scored]:
    """256 images of as many patients; `few` have an edema, at which the second model is far better than the first."""
    rng = np.random.default_rng(3)
    labels = np.zeros((256, 2))
    labels[:few, 0], labels[::2, 1] = 1, 1
    noise = rng.normal(size=labels.shape)
    first = Scored(noise, labels, np.arange(256), NAMES)
    other = np.stack([noise[:, 0] + gain * labels[:, 0], rng.normal(size=256)], axis=1)
    return first, Scored(other, labels, np.arange(256), NAMES)


@pytest.mark.parametrize("method", ["obuchowski", "percentile", "bca"])
def test_rare_disease_stays_out_of_the_mean(method: MethodName) -> None:
    first, second = make_models(4)
    edema, effusion, mean = auc_estimates(second, Intervals(method, 200))
    assert edema.value is not None
    assert edema.interval is not None
    assert (edema.in_mean, edema.positive_patients, edema.negative_patients) == (False, 4, 252)
    assert mean.value == effusion.value
    of_edema, of_effusion, of_mean = compare([first], [second], 200, interval=method)
    assert not of_edema.in_mean
    assert of_mean.difference == of_effusion.difference
    if method == "obuchowski":
        assert (mean.interval, of_mean.interval) == (effusion.interval, of_effusion.interval)


def test_frames_say_what_is_in_the_mean() -> None:
    first, second = make_models(4)
    for frame in (
        statistics.auc(second.scores, second.labels),
        statistics.compare(first.scores, second.scores, first.labels),
    ):
        assert frame["in_mean"].tolist() == [False, True, True]


def test_patients_count_and_not_images() -> None:
    labels = np.zeros((60, 1))
    labels[:30] = 1
    assert find_counted(labels, np.arange(60)).tolist() == [True]
    assert find_counted(labels, np.arange(60) // 4).tolist() == [False]  # eight patients have it
    assert find_counted(labels, np.arange(60) // 3).tolist() == [True]


def test_no_disease_counts_no_mean() -> None:
    labels = np.zeros((40, 1))
    labels[: LEAST_PATIENTS - 1] = 1
    edema, mean = auc_estimates(
        Scored(np.random.default_rng(0).random((40, 1)), labels, np.arange(40), ["edema"]), Intervals()
    )
    assert edema.value is not None
    assert (mean.value, mean.reason) == (None, NO_DISEASE_COUNTS)


def test_a_verdict_that_one_disease_turns() -> None:
    first, second = make_models(40)
    *_, mean = compare([first], [second])
    assert mean.interval is not None
    assert mean.interval.low > 0
    assert mean.turns_without == ("edema",)
    noise = np.random.default_rng(1).normal(size=(3, *first.scores.shape)) / 20
    seeds_a = [Scored(first.scores + part, first.labels, first.patients, NAMES) for part in noise]
    seeds_b = [Scored(run.scores + 3 * run.labels, run.labels, run.patients, NAMES) for run in seeds_a]
    assert compare(seeds_a, seeds_b)[-1].turns_without == ()


def test_evaluate_has_the_same_mean() -> None:
    _, second = make_models(4)
    sex = np.where(np.arange(256) % 3 == 0, "F", "M")
    summary = summarize(second, "frontal-image", Intervals(resamples=50), {"sex": sex}, probabilities=False)
    assert summary.row("mean")["value"] == summary.row("effusion")["value"]
    assert summary.row("mean")["over_diseases"] == 1
    assert not summary.row("edema")["in_mean"]
    means = summary.subgroups[summary.subgroups["disease"] == "mean"]
    effusions = summary.subgroups[summary.subgroups["disease"] == "effusion"]
    assert means["auc"].tolist() == effusions["auc"].tolist()
    assert means["over_diseases"].tolist() == [1, 1, 1]  # within the groups too


def test_groups_have_means_over_common_diseases() -> None:
    """Edema is frequent among women alone: a mean over it there, and not among men, would be no comparison."""
    rng = np.random.default_rng(0)
    labels = (rng.random((400, 2)) < 0.5).astype(float)
    women = np.arange(400) < 200
    labels[~women, 0] = 0
    scored = Scored(rng.random((400, 2)) + labels * [1, 0.1], labels, np.arange(400), NAMES)
    groups = {"sex": np.where(women, "F", "M")}
    frame = summarize(scored, "frontal-image", Intervals(resamples=50), groups, probabilities=False).subgroups
    aucs = frame.set_index(["group", "disease"])["auc"]
    for group in ("F", "M"):
        assert aucs[group, "mean"] == aucs[group, "effusion"]
    assert find_gap(scored.columns()[0], {"F": women, "M": ~women}) is None


def test_a_group_without_a_mean_takes_none_from_the_others() -> None:
    rng = np.random.default_rng(0)
    labels = (rng.random((400, 2)) < 0.5).astype(float)
    scored = Scored(rng.random((400, 2)), labels, np.arange(400), NAMES)
    groups = {"sex": np.where(np.arange(400) < 12, "F", "M")}
    frame = summarize(scored, "frontal-image", Intervals(resamples=50), groups, probabilities=False).subgroups
    over = frame[(frame["disease"] == "mean") & frame["group"].isin(["F", "M"])].set_index("group")["over_diseases"]
    assert over.to_dict() == {"F": 0, "M": 2}
    assert "another one of its column that has a mean" in FEW


def test_power_leaves_rare_diseases_out() -> None:
    assert assume([(100, 100), (4, 200)]).counts == ((100, 100),)
    with pytest.raises(ValueError, match="no disease has 10 patients"):
        assume([(4, 200)])

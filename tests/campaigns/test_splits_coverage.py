"""How often does the interval over splits of the patients contain the truth? Simulated studies with a real learner.

A logistic regression, trained by gradient descent from random weights, ranks synthetic patients of one hospital; each
study tests some of them in turn and trains on the others, as `--splits` does. The truth is what the difference of two
such models is in the mean over hospitals of new patients, each model trained with as many patients as a split trains
on: it is exactly 0 where both see equally good halves of the features.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest
from scipy.stats import rankdata

from chestfed.core.randomness import numpy_stream
from chestfed.data.collections.partition import hold_out
from chestfed.data.sites.partition import count_folds
from chestfed.results.evaluation.labeled import Rotation, Scored, group_splits, put_beside
from chestfed.results.evaluation.splits import ONE_SPLIT, Splits
from chestfed.results.evaluation.training_seeds import SeedsTest, estimate_contrast

FEATURES = 10


@dataclass(frozen=True)
class Case:
    """A hospital of so many patients, and what the second model has that the first one lacks."""

    title: str
    patients: int = 200
    positive: float = 0.3
    kind: str = "null"  #: null: the other half of the features; more: five further ones; joined: a partner's patients
    splits: int = 5
    seeds: int = 2
    test: float = 0.2  #: share of the patients that a split tests
    weights: float = 0.3  #: deviation of the first weights
    fixed: int = 0  #: patients of a published test set; splits leave out others of the training patients

    def draw(self, rng: np.random.Generator, patients: int) -> tuple[np.ndarray, np.ndarray]:
        """Features and labels of new patients."""
        labels = np.arange(patients) < round(self.positive * patients)
        return rng.normal(size=(patients, 2 * FEATURES)) + labels[:, None] * 1.2 / FEATURES**0.5, labels

    def train(
        self, features: np.ndarray, labels: np.ndarray, rng: np.random.Generator
    ) -> tuple[Callable[[np.ndarray], np.ndarray], Callable[[np.ndarray], np.ndarray]]:
        """Scores of new patients by both models."""
        first = second = slice(0, FEATURES)
        more = features, labels
        if self.kind == "null":
            second = slice(FEATURES, 2 * FEATURES)
        elif self.kind == "more":
            second = slice(0, FEATURES + FEATURES // 2)
        else:
            partner = self.draw(numpy_stream(0, "partner"), 200)
            more = np.concatenate([features, partner[0]]), np.concatenate([labels, partner[1]])
        return (
            fit(features, labels, first, self.weights, rng),
            fit(*more, second, self.weights, rng),
        )

    def study(self, number: int) -> tuple[list[Scored], list[Scored]]:
        """The scores of both models in every split and seed."""
        rng = numpy_stream(0, "splits", self.title, number)
        features, labels = self.draw(rng, self.patients)
        published = self.draw(rng, self.fixed) if self.fixed else None
        runs: tuple[list[Scored], list[Scored]] = [], []
        for split, held in enumerate(deal(labels, self.test, self.splits, number)):
            for _ in range(self.seeds):
                models = self.train(features[~held], labels[~held], rng)
                tested, truth = (features[held], labels[held]) if published is None else published
                patients = np.flatnonzero(held) if published is None else np.arange(self.fixed)
                ratio = self.test / (1 - self.test)
                rotation = Rotation(0.0, 1 / ratio) if self.fixed else Rotation(ratio)
                for run, score in zip(runs, models, strict=True):
                    scores = score(tested)[:, None]
                    run.append(Scored(scores, truth[:, None] * 1.0, patients, ["disease"], None, split, rotation))
        return runs

    @cache  # noqa: B019
    def truth(self) -> float:
        """The mean difference with endlessly many studies, from 3,000 with 4,000 test patients."""
        if self.kind == "null":
            return 0.0
        rng = numpy_stream(0, "truth", self.title)
        features, labels = self.draw(rng, 4000)
        differences = []
        for _ in range(3000):
            first, second = self.train(*self.draw(rng, round(self.patients * (1 - self.test))), rng)
            differences.append(compute_area(second(features), labels) - compute_area(first(features), labels))
        return float(np.mean(differences))


def deal(labels: np.ndarray, share: float, splits: int, number: int) -> Iterator[np.ndarray]:
    """Which patients each split tests: folds of a draw, as many as have none in common, then those of the next."""
    folds = count_folds(share)
    for split in range(splits):
        draw, fold = divmod(split, folds)
        left, held = np.arange(len(labels)), np.zeros(len(labels), bool)
        for place in range(fold + 1):
            held[:] = False
            part = hold_out(labels[left].astype(int), share / (1 - place * share), 1000 * number + draw)
            held[left[part]] = True
            left = left[~part]
        yield held


def fit(
    features: np.ndarray, labels: np.ndarray, columns: slice, weights: float, rng: np.random.Generator
) -> Callable[[np.ndarray], np.ndarray]:
    """Logistic regression on some columns, by 80 steps from random weights; returns its score."""
    chosen = features[:, columns]
    mean, deviation = chosen.mean(axis=0), chosen.std(axis=0)
    inputs = np.column_stack([(chosen - mean) / deviation, np.ones(len(chosen))])
    vector = rng.normal(0, weights, inputs.shape[1])
    for _ in range(80):
        error = 1 / (1 + np.exp(-inputs @ vector)) - labels
        vector = vector - 0.5 * (inputs.T @ error / len(labels) + 1e-3 * vector)
    return lambda given: (given[:, columns] - mean) / deviation @ vector[:-1]


def compute_area(scores: np.ndarray, labels: np.ndarray) -> float:
    positives = int(labels.sum())
    above = rankdata(scores)[labels].sum() - positives * (positives + 1) / 2
    return float(above / positives / (len(labels) - positives))


CASES = (
    Case("no difference, 200 patients"),
    Case("no difference, 100 patients", patients=100),
    Case("no difference, 600 patients, 10% positive", patients=600, positive=0.1),
    Case("no difference, one seed", seeds=1),
    Case("no difference, three of five folds", splits=3),
    Case("no difference, 40% tested, five splits", test=0.4),
    Case("no difference, seeds differ much", weights=1.5),
    Case("no difference, published test set", fixed=100),
    Case("no difference, 100 patients, published test set of 1,000, 15% left out", patients=100, test=0.15, fixed=1000),
    Case("five more features", kind="more"),
    Case("a partner's 200 patients joined to 100", kind="joined", patients=100),
)
STUDIES = 400


@pytest.mark.campaign
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.title)
def test_splits_contain_the_truth(case: Case, save_figures: Callable[[str, Any], None]) -> None:
    """Beside the interval of the first split alone, which is about its patients and seeds."""
    truth, ends, one, p = case.truth(), [], [], []
    for number in range(STUDIES):
        a, b = case.study(number)
        test = contrast(a, b, Splits(case.splits, a[0].rotation))
        ends.append(test.interval or (np.nan, np.nan))
        p.append(test.p)
        one.append(contrast(a[: case.seeds], b[: case.seeds], ONE_SPLIT).interval or (np.nan, np.nan))
    figures = {"truth": round(truth, 4), "p below 0.05": float(np.mean(np.array(p, float) < 0.05))}
    for name, intervals in (("splits", np.array(ends)), ("one split", np.array(one))):
        covered = float(((intervals[:, 0] <= truth) & (truth <= intervals[:, 1])).mean())
        figures[name] = {"coverage": covered, "mean width": round(float((intervals[:, 1] - intervals[:, 0]).mean()), 3)}
    save_figures(f"splits, {case.title}", figures)
    assert figures["splits"]["coverage"] >= 0.93


def contrast(a: list[Scored], b: list[Scored], splits: Splits) -> SeedsTest:
    """Model b minus model a."""
    sides = [[put_beside(parts) for parts in zip(*group_splits(runs).values(), strict=True)] for runs in (a, b)]
    first = sides[0][0]
    scores = [[run.scores for run in side] for side in sides]
    return estimate_contrast(scores, (-1.0, 1.0), first.labels, first.patients, splits=splits)

"""The price of a gate by simulation: its rule is the gate's, and more caution or more patients make it smaller."""

from __future__ import annotations

import numpy as np
import pytest

from chestfed.results.evaluation.joining import gate_price
from chestfed.results.evaluation.joining.gate import choose
from chestfed.results.evaluation.joining.gate_price import CAUTIONS, GatePrice, find_caution, price_gate


def make_scores(patients: int, positives: int, diseases: int = 1) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Scores of three models that agree by half, and labels."""
    rng = np.random.default_rng(patients)
    labels = np.stack([rng.permutation(np.arange(patients) < positives) for _ in range(diseases)], axis=1) * 1.0
    common = rng.normal(size=labels.shape)
    scores = {name: labels + common + rng.normal(size=labels.shape) for name in ("own_data", "common", "fine_tuned")}
    return scores, labels


def find_price(patients: int, positives: int) -> dict[float, GatePrice]:
    scores, labels = make_scores(patients, positives)
    return {price.caution: price for price in price_gate("own_data", scores, labels, np.arange(patients))}


def test_simulated_rule_is_that_of_the_gate() -> None:
    """Of 64 patients, whose places among them are exact numbers, so that mixtures tie as their ranks do."""
    rng, draws, n = np.random.default_rng(5), 12, 64
    labels = (rng.random((n, 3)) < 0.4) * 1.0
    labels[rng.random((n, 3)) < 0.15] = np.nan
    scores = rng.normal(size=(draws, n, 3, 3)) + np.nan_to_num(labels)[..., None]
    ranks = scores.argsort(axis=1).argsort(axis=1) + 1.0
    excess, best = gate_price._find_best(
        np.concatenate([ranks, (ranks[..., :1] + ranks[..., 1:]) / 2], axis=-1), labels
    )
    for draw in range(draws):
        of_models = dict(zip(("own_data", "a", "b"), np.moveaxis(scores[draw], -1, 0), strict=True))
        first = choose("own_data", of_models, labels, np.arange(n), 0.0).candidates[0]
        assert (("a", False), ("b", False), ("a", True), ("b", True))[best[draw]] == (first.name, first.mixed)
        if first.difference > 0:
            assert excess[draw] == pytest.approx(first.difference / first.error, rel=1e-9)
        else:
            assert excess[draw] == -np.inf


def test_caution_and_patients_make_it_cheaper() -> None:
    few, many = find_price(40, 12), find_price(400, 120)
    for prices in (few, many):
        worst = [prices[caution].worst for caution in CAUTIONS]
        assert worst == sorted(worst)
        assert [prices[caution].seen for caution in CAUTIONS] == sorted((p.seen for p in prices.values()), reverse=True)
    assert few[1.0].worst < -0.02 < many[1.0].worst <= 0
    assert few[1.0].seen < many[1.0].seen
    assert (few[1.0].positives, few[1.0].negatives) == (12, 28)


def test_caution_of_a_bound() -> None:
    prices = [*find_price(40, 12).values()]
    chosen = find_caution(prices, 0.02)
    assert chosen is not None
    assert chosen.worst >= -0.02
    assert all(price.worst < -0.02 for price in prices if price.caution < chosen.caution)
    assert find_caution(prices, 1e-9) in (prices[-1], *(price for price in prices if price.worst == 0))
    assert find_caution([], 0.02) is None


def test_images_of_a_patient_are_one() -> None:
    scores, labels = make_scores(60, 20)
    once = price_gate("own_data", scores, labels, np.arange(60), (1.0,))
    double = {name: np.concatenate([values, values]) for name, values in scores.items()}
    assert price_gate("own_data", double, np.concatenate([labels] * 2), np.tile(np.arange(60), 2), (1.0,)) == once


def test_too_few_patients_have_no_price(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chestfed.results.evaluation.labeled.LEAST_PATIENTS", 10)
    scores, labels = make_scores(30, 6)
    assert price_gate("own_data", scores, labels, np.arange(30)) == []

"""The gate: it keeps the own model unless validation patients show a better one."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from chestfed.results.evaluation.joining.gate import apply, choose, mix


def make_scores(qualities: dict[str, float], n: int = 400, seed: int = 0) -> tuple[dict[str, np.ndarray], np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = (rng.random((n, 2)) < 0.3).astype(float)
    return {name: quality * labels + rng.standard_normal((n, 2)) for name, quality in qualities.items()}, labels


def mean_auc(scores: np.ndarray, labels: np.ndarray) -> float:
    return float(np.mean([roc_auc_score(labels[:, j], scores[:, j]) for j in range(labels.shape[1])]))


def test_a_clearly_better_model_is_taken() -> None:
    scores, labels = make_scores({"own": 0.3, "common": 2.0})
    choice = choose("own", scores, labels, np.arange(400))
    assert (choice.name, choice.mixed) == ("common", False)
    best = choice.candidates[0]
    assert best.auc == pytest.approx(mean_auc(scores["common"], labels), abs=1e-12)
    assert best.difference == pytest.approx(best.auc - mean_auc(scores["own"], labels), abs=1e-12)


def test_a_worse_model_is_not_taken() -> None:
    scores, labels = make_scores({"own": 3.0, "common": 0.0})
    choice = choose("own", scores, labels, np.arange(400))
    assert (choice.name, choice.mixed) == ("own", False)


def test_complementary_models_are_mixed() -> None:
    scores, labels = make_scores({"own": 1.2, "common": 1.2}, n=1000)
    choice = choose("own", scores, labels, np.arange(1000))
    assert (choice.name, choice.mixed) == ("common", True)
    mixture = mix(scores["own"], scores["common"], scores["own"], scores["common"])
    assert choice.candidates[0].auc == pytest.approx(mean_auc(mixture, labels), abs=1e-12)


def test_caution_decides_how_sure_it_must_be() -> None:
    scores, labels = make_scores({"own": 1.0, "common": 1.3}, n=200)
    (best, *_) = choose("own", scores, labels, np.arange(200), caution=0).candidates
    assert best.difference > 0
    ratio = best.difference / best.error
    assert choose("own", scores, labels, np.arange(200), caution=0.99 * ratio).name == best.name
    assert choose("own", scores, labels, np.arange(200), caution=1.01 * ratio).name == "own"


def test_clustered_images_widen_the_interval() -> None:
    scores, labels = make_scores({"own": 1.0, "common": 1.3}, n=200)
    every = {name: np.repeat(values, 2, axis=0) for name, values in scores.items()}
    alone = choose("own", scores, labels, np.arange(200))
    twice = choose("own", every, np.repeat(labels, 2, axis=0), np.repeat(np.arange(200), 2))
    assert [c.error for c in twice.candidates] == pytest.approx([c.error for c in alone.candidates], rel=1e-9)


def test_one_class_keeps_the_local_model() -> None:
    scores, labels = make_scores({"own": 0.0, "common": 3.0}, n=20)
    choice = choose("own", scores, np.zeros_like(labels), np.arange(20))
    assert choice.name == "own"
    assert choice.reason
    assert not choice.candidates


@pytest.mark.parametrize("value", [0, 1])
def test_rare_disease_does_not_stop_the_gate(value: int) -> None:
    """Nine patients of a class: the disease has an AUC with a variance, and does not count."""
    scores, labels = make_scores({"own": 0.3, "common": 2.0})
    rare = np.full((400, 1), 1.0 - value)
    rare[5:14] = value
    wide = {name: np.hstack([values, values[:, :1]]) for name, values in scores.items()}
    choice = choose("own", wide, np.hstack([labels, rare]), np.arange(400))
    assert choice == choose("own", scores, labels, np.arange(400))
    assert choice.name == "common"


def test_nine_patients_of_a_class_no_choice() -> None:
    scores, labels = make_scores({"own": 0.0, "common": 3.0}, n=40)
    labels[:], labels[3:13] = 0, 1
    assert choose("own", scores, labels, np.array([0, 1, 2, 3, 3, *range(5, 40)])).reason
    assert not choose("own", scores, labels, np.arange(40)).reason


def test_the_choice_is_applied_to_new_images() -> None:
    scores, labels = make_scores({"own": 1.2, "common": 1.2}, n=1000)
    choice = choose("own", scores, labels, np.arange(1000))
    new, _ = make_scores({"own": 1.2, "common": 1.2}, n=7, seed=1)
    values = apply(choice, "own", new, scores)
    place = [np.mean(scores[name][:, 0] < new[name][3, 0]) for name in ("own", "common")]
    assert values[3, 0] == pytest.approx(np.mean(place), abs=1e-12)
    row = apply(choice, "own", {name: rows[3:4] for name, rows in new.items()}, scores)
    assert row[0].tolist() == values[3].tolist()


def test_places_do_not_depend_on_the_scale() -> None:
    scores, _ = make_scores({"own": 1.0, "common": 1.0})
    same = mix(*(np.exp(5 * scores[name]) for name in ("own", "common", "own", "common")))
    assert same.tolist() == mix(*(scores[name] for name in ("own", "common", "own", "common"))).tolist()


def test_gate_needs_the_local_model() -> None:
    scores, labels = make_scores({"common": 1.0})
    with pytest.raises(ValueError, match="own"):
        choose("own", scores, labels, np.arange(400))
    scores["own"] = scores["common"]
    with pytest.raises(ValueError, match="-1"):
        choose("own", scores, labels, np.arange(400), caution=-1)

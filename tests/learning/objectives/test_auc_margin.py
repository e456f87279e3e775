"""The AUC margin loss against an independent float64 reference, finite differences and its own theory."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.autograd.functional import hessian, jacobian

from chestfed.learning.objectives.auc_margin import AucMargin
from chestfed.learning.objectives.cross_entropy import CrossEntropy

P = np.array([0.3, 0.05, 0.6])


def draw(n: int = 40, seed: int = 0, missing: float = 0.2) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = (rng.random((n, 3)) < P).astype(float)
    labels[rng.random((n, 3)) < missing] = np.nan
    return {
        "logits": rng.normal(size=(n, 3)),
        "labels": labels,
        "a": rng.random(3),
        "b": rng.random(3),
        "alpha": rng.normal(size=3),
    }


def reference(scores: np.ndarray, labels: np.ndarray, a: np.ndarray, b: np.ndarray, al: np.ndarray) -> float:
    """Equation 2, image by image and disease by disease."""
    diseases = []
    for j in range(labels.shape[1]):
        terms = []
        for h, y in zip(scores[:, j], labels[:, j], strict=True):
            if np.isnan(y):
                continue
            p = P[j]
            pos, neg = float(y == 1), float(y == 0)
            terms.append(
                (1 - p) * (h - a[j]) ** 2 * pos
                + p * (h - b[j]) ** 2 * neg
                + 2 * (1 + al[j]) * (p * h * neg - (1 - p) * h * pos)
                - p * (1 - p) * al[j] ** 2
            )
        diseases.append(np.mean(terms) if terms else 0.0)
    return float(np.mean(diseases))


def evaluate(data: dict[str, np.ndarray], p: np.ndarray = P) -> tuple[float, dict[str, np.ndarray]]:
    logits, extra, alpha = (
        torch.tensor(value, dtype=torch.float64, requires_grad=True)
        for value in (data["logits"], np.concatenate([data["a"], data["b"]]), data["alpha"])
    )
    loss = AucMargin(torch.tensor(p)).loss(logits, torch.tensor(data["labels"]), extra, alpha)
    loss.backward()
    grads = {"logits": logits.grad, "a": extra.grad[:3], "b": extra.grad[3:], "alpha": alpha.grad}  # type: ignore[index]
    return loss.item(), {name: grad.numpy() for name, grad in grads.items()}  # type: ignore[union-attr]


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def test_value_is_masked_equation_2() -> None:
    for seed in range(5):
        data = draw(seed=seed)
        expected = reference(sigmoid(data["logits"]), data["labels"], data["a"], data["b"], data["alpha"])
        assert evaluate(data)[0] == pytest.approx(expected, abs=1e-14)


@pytest.mark.parametrize("name", ["logits", "a", "b", "alpha"])
def test_gradients_equal_finite_differences(name: str) -> None:
    data = draw()
    _, grads = evaluate(data)
    flat = data[name].reshape(-1)
    for index in range(0, flat.size, max(1, flat.size // 12)):
        values = []
        for step in (1e-6, -1e-6):
            moved = flat.copy()
            moved[index] += step
            values.append(evaluate({**data, name: moved.reshape(data[name].shape)})[0])
        assert grads[name].reshape(-1)[index] == pytest.approx((values[0] - values[1]) / 2e-6, abs=1e-8)


def test_gradients_equal_closed_forms() -> None:
    data = draw(missing=0.0)
    h, y = sigmoid(data["logits"]), data["labels"]
    _, grads = evaluate(data)
    pos, neg = y == 1, y == 0
    np.testing.assert_allclose(grads["a"], -2 * (1 - P) * ((h - data["a"]) * pos).mean(0) / 3, atol=1e-15)
    np.testing.assert_allclose(grads["b"], -2 * P * ((h - data["b"]) * neg).mean(0) / 3, atol=1e-15)
    by_alpha = 2 * (P * h * neg - (1 - P) * h * pos).mean(0) - 2 * P * (1 - P) * data["alpha"]
    np.testing.assert_allclose(grads["alpha"], by_alpha / 3, atol=1e-15)


def test_saddle_value_is_the_pairwise_loss() -> None:
    data = draw(n=300, missing=0.0)
    h, y = sigmoid(data["logits"]), data["labels"]
    p = y.mean(axis=0)
    mean_pos = (h * (y == 1)).sum(0) / (y == 1).sum(0)
    mean_neg = (h * (y == 0)).sum(0) / (y == 0).sum(0)
    value, grads = evaluate({**data, "a": mean_pos, "b": mean_neg, "alpha": mean_neg - mean_pos}, p)
    for name in ("a", "b", "alpha"):
        np.testing.assert_allclose(grads[name], 0, atol=1e-15)
    pairwise = []
    for j in range(3):
        hp, hn = h[y[:, j] == 1, j], h[y[:, j] == 0, j]
        pairwise.append(p[j] * (1 - p[j]) * (((1 - hp[:, None] + hn[None, :]) ** 2).mean() - 1))
    assert value == pytest.approx(np.mean(pairwise), abs=1e-14)


def test_value_is_the_shifted_aucm_loss() -> None:
    data = draw(missing=0.0)
    h, y, a, b, al = sigmoid(data["logits"]), data["labels"], data["a"], data["b"], data["alpha"]
    pos, neg = y == 1, y == 0
    aucm = (
        ((1 - P) * (h - a) ** 2 * pos + P * (h - b) ** 2 * neg).mean(0)
        + 2 * al * (P * (1 - P) + (P * h * neg - (1 - P) * h * pos).mean(0))
        - P * (1 - P) * al**2
    )
    value, _ = evaluate({**data, "alpha": al - 1})
    assert value == pytest.approx((aucm - P * (1 - P)).mean(), abs=1e-14)


def test_losses_add_up_with_one_common_p() -> None:
    parts = [draw(n, seed=n, missing=0.0) for n in (20, 50, 30)]
    shared = {name: parts[0][name] for name in ("a", "b", "alpha")}
    pooled = {name: np.concatenate([part[name] for part in parts]) for name in ("logits", "labels")} | shared
    whole = evaluate(pooled)[0]
    common = sum(len(part["labels"]) / 100 * evaluate({**part, **shared})[0] for part in parts)
    site_sum = sum(
        len(part["labels"]) / 100 * evaluate({**part, **shared}, part["labels"].mean(axis=0))[0] for part in parts
    )
    assert common == pytest.approx(whole, abs=1e-14)
    assert abs(site_sum - whole) > 1e-4


@pytest.mark.parametrize("fill", [0.0, 1.0, np.nan])
def test_one_class_has_finite_gradients(fill: float) -> None:
    data = draw()
    data["labels"][:, 1] = fill
    value, grads = evaluate(data)
    assert np.isfinite(value)
    assert all(np.isfinite(grad).all() for grad in grads.values())
    if np.isnan(fill):
        assert all(grad[..., 1].sum() == 0 for grad in grads.values())


def test_absent_disease_contributes_nothing() -> None:
    data = draw(missing=0.0)
    data["labels"][:, 1] = 0
    _, grads = evaluate(data, np.array([0.3, 0.0, 0.6]))
    assert all(not grad[..., 1].any() for grad in grads.values())


def test_cross_entropy_is_a_mean_of_means() -> None:
    data = draw()
    h, y = sigmoid(data["logits"]), data["labels"]
    expected = -np.nanmean(np.where(np.isnan(y), np.nan, y * np.log(h) + (1 - y) * np.log(1 - h)), axis=0).mean()
    empty = torch.zeros(0)
    logits = torch.tensor(data["logits"], requires_grad=True)
    loss = CrossEntropy().loss(logits, torch.tensor(y), empty, empty)
    assert loss.item() == pytest.approx(expected, abs=1e-14)
    all_missing = CrossEntropy().loss(logits, torch.full((40, 3), torch.nan), empty, empty)
    all_missing.backward()
    assert all_missing.item() == 0
    assert torch.isfinite(logits.grad).all()  # type: ignore[arg-type]


def test_best_dual_has_a_zero_derivative() -> None:
    rng = np.random.default_rng(5)
    labels = rng.integers(0, 2, size=(40, 4)).astype(float)
    labels[rng.random(labels.shape) < 0.2] = np.nan
    labels[:, 2] = np.nan
    scores = torch.from_numpy(rng.random((40, 4)))
    objective = AucMargin(torch.tensor([0.3, 0.02, 0.4, 0.0], dtype=torch.float64))
    before = torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64)
    optimum = objective.best_dual(scores, torch.from_numpy(labels), before)
    assert optimum.isnan().tolist() == [False, False, True, True]
    best = optimum.nan_to_num().requires_grad_()
    extra = torch.zeros(8, dtype=torch.float64)
    objective.loss_of_scores(scores, torch.from_numpy(labels), extra, best).backward()
    assert best.grad is not None
    assert best.grad[:2].abs().max() < 1e-15
    # A share of positives equal to p: the papers' difference of the class means.
    even = torch.tensor([1.0] * 3 + [0.0] * 7, dtype=torch.float64)[:, None]
    values = torch.from_numpy(rng.random((10, 1)))
    (alpha,) = AucMargin(torch.tensor([0.3])).best_dual(values, even, torch.zeros(1))
    assert float(alpha) == pytest.approx(float(values[3:].mean() - values[:3].mean()), abs=1e-6)


def two_sites(seed: int = 2) -> tuple[list[torch.Tensor], list[torch.Tensor], torch.Tensor]:
    """Scores and labels of two sites of unlike prevalence, and their ratios `[2, J]`, exactly those of the labels."""
    rng = np.random.default_rng(seed)
    scores = [torch.from_numpy(rng.random((n, 3))) for n in (50, 80)]
    labels = [
        torch.from_numpy((rng.random((n, 3)) < p).astype(float)) for n, p in ((50, [0.5, 0.2, 0.4]), (80, [0.1] * 3))
    ]
    return scores, labels, torch.stack([part.mean(0) for part in labels])


def test_saddle_value_is_that_per_site() -> None:
    scores, labels, ratios = two_sites()
    a, b, weights = torch.empty(2, 3).double(), torch.empty(2, 3).double(), (0.3, 0.7)
    expected = 0.0
    for k, (h, y) in enumerate(zip(scores, labels, strict=True)):
        for j in range(3):
            up, down = h[y[:, j] == 1, j], h[y[:, j] == 0, j]
            a[k, j], b[k, j] = up.mean(), down.mean()
            pairs = ((1 - up[:, None] + down[None]) ** 2).mean() - 1
            expected += weights[k] * float(ratios[k, j] * (1 - ratios[k, j]) * pairs) / 3
    extra = torch.cat([a.flatten(), b.flatten()]).requires_grad_()
    dual = (b - a).flatten().requires_grad_()
    total = sum(weights[k] * AucMargin(ratios, k).loss_of_scores(scores[k], labels[k], extra, dual) for k in range(2))
    assert isinstance(total, torch.Tensor)
    total.backward()
    assert total.item() == pytest.approx(expected, abs=1e-14)
    assert extra.grad is not None
    assert dual.grad is not None
    assert max(extra.grad.abs().max(), dual.grad.abs().max()) < 1e-15  # a saddle point


def test_site_loss_uses_its_own_variables() -> None:
    scores, labels, ratios = two_sites()
    rng = torch.Generator().manual_seed(4)
    extra, dual = torch.randn(12, generator=rng).double(), torch.randn(6, generator=rng).double()
    variables = torch.cat([extra[3:6], extra[9:12]])
    objective = AucMargin(ratios, 1)
    assert (objective.extra_size, objective.dual_size) == (12, 6)
    alone = AucMargin(ratios[1])
    both = scores[1], labels[1]
    assert objective.loss_of_scores(*both, extra, dual) == alone.loss_of_scores(*both, variables, dual[3:])
    best = objective.best_dual(*both, dual)
    assert torch.equal(best[3:], alone.best_dual(*both, dual[3:]))
    assert best[:3].isnan().all()


def find_saddle(p: float, **options: object) -> torch.Tensor:
    """(w, a, b, alpha) at which all slopes of the clients' mean loss of linear scores are 0, by one linear solve."""
    rng = np.random.default_rng(7)
    parts = []
    for weight, n, share in ((0.5, 60, p / 2), (0.2, 40, 2 * p), (0.3, 50, p)):
        labels = (np.arange(n) < max(1, round(share * n))).astype(float)[:, None]
        inputs = rng.normal(size=(n, 4)) + 0.5 * labels * np.arange(4)
        parts.append((weight, torch.from_numpy(inputs), torch.from_numpy(labels)))
    ratio = torch.tensor([sum(weight * float(labels.mean()) for weight, _, labels in parts)], dtype=torch.float64)
    objective = AucMargin(ratio, **options)  # type: ignore[arg-type]

    def loss(point: torch.Tensor) -> torch.Tensor:
        terms = [
            weight * objective.loss_of_scores(inputs @ point[:4, None], labels, point[4:6], point[6:])
            for weight, inputs, labels in parts
        ]
        return torch.stack(terms).sum()

    origin = torch.zeros(7, dtype=torch.float64)
    slopes, curvature = (make(loss, origin) for make in (jacobian, hessian))
    return torch.linalg.solve(curvature, -slopes)


@given(st.floats(0.01, 0.45))
def test_normalized_minimizer_is_the_same(p: float) -> None:
    plain, normalized = find_saddle(p), find_saddle(p, normalized=True)
    assert plain[:4].abs().max() > 1e-3
    assert AucMargin(torch.tensor([p]), normalized=True).gradient_scale == 1
    torch.testing.assert_close(normalized, plain, rtol=1e-8, atol=1e-10)


@given(st.floats(0.02, 0.45), st.floats(0.1, 2.0))
def test_margin_scales_linear_scores(p: float, margin: float) -> None:
    torch.testing.assert_close(find_saddle(p, margin=margin), margin * find_saddle(p), rtol=1e-8, atol=1e-10)

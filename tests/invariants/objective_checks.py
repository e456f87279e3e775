"""What must hold for the objectives, as functions of the modules that implement them, against references in NumPy."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import torch

from chestfed.learning.objectives.declaration import Population

P = np.array([0.3, 0.05])


def draw() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(4)
    labels = (rng.random((40, 2)) < 0.3).astype(float)
    labels[rng.random((40, 2)) < 0.2] = np.nan
    return rng.normal(size=(40, 2)), labels


def equation_2(
    logits: np.ndarray, labels: np.ndarray, a: np.ndarray, b: np.ndarray, alpha: np.ndarray, margin: float = 1.0
) -> list[float]:
    """The loss of each disease, image by image; 0 where nothing is labeled."""
    per_disease = []
    for j, p in enumerate(P):
        known = ~np.isnan(labels[:, j])
        h, y = 1 / (1 + np.exp(-logits[known, j])), labels[known, j]
        pos, neg = y == 1, y == 0
        terms = (
            (1 - p) * (h - a[j]) ** 2 * pos
            + p * (h - b[j]) ** 2 * neg
            + 2 * (margin + alpha[j]) * (p * h * neg - (1 - p) * h * pos)
            - p * (1 - p) * alpha[j] ** 2
        )
        per_disease.append(float(terms.mean()) if known.any() else 0.0)
    return per_disease


def _equals_equation_2(module: ModuleType, logits: np.ndarray, labels: np.ndarray) -> None:
    a, b, alpha = np.array([0.7, 0.6]), np.array([0.3, 0.2]), np.array([0.4, -0.3])
    loss = module.AucMargin(torch.from_numpy(P)).loss(
        torch.from_numpy(logits),
        torch.from_numpy(labels),
        torch.from_numpy(np.concatenate([a, b])),
        torch.from_numpy(alpha),
    )
    np.testing.assert_allclose(float(loss), np.mean(equation_2(logits, labels, a, b, alpha)), rtol=1e-12)


def check_options_of_the_auc_loss_are_their_formulas(module: ModuleType) -> None:
    """A margin, and a loss that is divided by p(1-p), alone and together, also with pairs within sites."""
    logits, labels = draw()
    a, b, alpha = np.array([0.7, 0.6]), np.array([0.3, 0.2]), np.array([0.4, -0.3])
    p = torch.from_numpy(P)
    for margin, normalize, pairs in itertools.product((0.3, 1.0, 1.7), (False, True), ("pooled", "within_site")):
        options = module.AucOptions(margin=margin, normalize=normalize, pairs=pairs)
        losses = np.array(equation_2(logits, labels, a, b, alpha, margin))
        expected = np.mean(losses / (P * (1 - P) if normalize else 1))
        objective = module.build(options, Population(p, p[None]))
        extra, dual = torch.from_numpy(np.concatenate([a, b])), torch.from_numpy(alpha)
        loss = objective.loss(torch.from_numpy(logits), torch.from_numpy(labels), extra, dual)
        np.testing.assert_allclose(float(loss), expected, rtol=1e-12)


def check_a_saddle_has_the_pairwise_loss_of_its_margin(module: ModuleType) -> None:
    """The loss over all pairs, one by one; normalized it is that loss itself."""
    logits, labels = draw()
    labels = np.nan_to_num(labels)
    h, p = 1 / (1 + np.exp(-logits)), labels.mean(axis=0)
    for margin, normalized in itertools.product((0.3, 1.0, 1.7), (False, True)):
        objective = module.AucMargin(torch.from_numpy(p), margin=margin, normalized=normalized)
        expected, means = [], []
        for j in range(2):
            positives, negatives = h[labels[:, j] == 1, j], h[labels[:, j] == 0, j]
            pairs = np.mean([(margin - up + down) ** 2 for up in positives for down in negatives])
            expected.append((pairs - margin**2) * (1 if normalized else p[j] * (1 - p[j])))
            means.append((positives.mean(), negatives.mean()))
        extra = torch.from_numpy(np.array(means).T.flatten()).requires_grad_()
        dual = (extra[2:] - extra[:2]).detach().requires_grad_()
        loss = objective.loss(torch.from_numpy(logits), torch.from_numpy(labels), extra, dual)
        np.testing.assert_allclose(float(loss.detach()), np.mean(expected), rtol=1e-12)
        for slope in torch.autograd.grad(loss, [extra, dual]):
            np.testing.assert_allclose(slope.numpy(), 0, atol=1e-13)
        best = objective.best_dual(torch.sigmoid(torch.from_numpy(logits)), torch.from_numpy(labels), dual.detach())
        np.testing.assert_allclose(best.numpy(), dual.detach().numpy(), atol=1e-13)


def check_a_normalized_disease_without_pairs_is_finite(module: ModuleType) -> None:
    logits, labels = (torch.from_numpy(part) for part in draw())
    for p, value in ((0.0, 0.0), (1.0, 1.0)):
        truth = torch.where(labels.isnan(), labels, torch.full_like(labels, value))
        parts = [logits.clone(), torch.ones(4).double(), torch.ones(2).double()]
        parts = [part.requires_grad_() for part in parts]
        loss = module.AucMargin(torch.full((2,), p).double(), normalized=True).loss(parts[0], truth, *parts[1:])
        assert loss == 0
        assert all((slope == 0).all() for slope in torch.autograd.grad(loss, parts))


def check_auc_margin_is_equation_2_image_by_image(module: ModuleType) -> None:
    _equals_equation_2(module, *draw())


def check_a_disease_without_labels_counts_in_the_mean_over_diseases(module: ModuleType) -> None:
    """The scale of the other diseases' gradients must not depend on who labels what."""
    logits, labels = draw()
    labels[:, 1] = np.nan
    _equals_equation_2(module, logits, labels)


def check_a_batch_of_one_class_or_without_labels_is_finite(module: ModuleType) -> None:
    labels = torch.tensor([[0.0, torch.nan], [0.0, torch.nan]]).double()
    logits = torch.zeros(2, 2, dtype=torch.float64, requires_grad=True)
    alpha = torch.ones(2, dtype=torch.float64, requires_grad=True)
    loss = module.AucMargin(torch.from_numpy(P)).loss(logits, labels, torch.ones(4).double(), alpha)
    loss.backward()
    assert alpha.grad is not None
    assert alpha.grad[1] == 0
    assert torch.isfinite(loss)
    assert logits.grad is not None
    assert torch.isfinite(logits.grad).all()


def check_the_best_alpha_is_where_the_gradient_is_zero(module: ModuleType) -> None:
    logits, labels = (torch.from_numpy(part) for part in draw())
    objective = module.AucMargin(torch.from_numpy(P))
    best = objective.best_dual(torch.sigmoid(logits), labels, torch.zeros(2).double()).requires_grad_()
    objective.loss(logits, labels, torch.ones(4).double(), best).backward()
    np.testing.assert_allclose(best.grad.numpy(), 0, atol=1e-12)


def check_the_best_alpha_of_a_disease_without_pairs_is_unknown(module: ModuleType) -> None:
    logits, labels = (torch.from_numpy(part) for part in draw())
    dual, scores = torch.tensor([0.4, -0.3]).double(), torch.sigmoid(logits)
    usual = module.AucMargin(torch.from_numpy(P)).best_dual(scores, labels, dual)
    for p in (0.0, 1.0):
        best = module.AucMargin(torch.tensor([P[0], p]).double()).best_dual(scores, labels, dual)
        assert best[1].isnan()
        assert best[0] == usual[0]
    labels[:, 1] = torch.nan
    assert module.AucMargin(torch.from_numpy(P)).best_dual(scores, labels, dual)[1].isnan()


def check_cross_entropy_masks_what_is_missing(module: ModuleType) -> None:
    logits, labels = draw()
    per_disease = []
    for j in range(2):
        known = ~np.isnan(labels[:, j])
        z, y = logits[known, j], labels[known, j]
        per_disease.append(np.mean(np.log1p(np.exp(z)) - y * z))
    none = torch.zeros(0)
    loss = module.CrossEntropy().loss(torch.from_numpy(logits), torch.from_numpy(labels), none, none)
    np.testing.assert_allclose(float(loss), np.mean(per_disease), rtol=1e-12)


def check_remedies_for_rare_diseases_are_their_formulas(module: ModuleType) -> None:
    """Weights, focal factor and adjusted logits, alone and together, label by label; p = 0 and 1 have neither."""
    logits, labels = draw()
    p = torch.tensor([*P, 0.0, 1.0]).double()
    logits, labels = np.hstack([logits, logits]), np.hstack([labels, labels])
    population = Population(p, p[None])
    none = torch.zeros(0)
    for weights, gamma, tau in itertools.product(("equal", "balanced"), (0.0, 0.5, 2.0), (0.0, 1.0)):
        options = module.CrossEntropyOptions(weights=weights, gamma=gamma, logit_adjustment=tau)
        per_disease = []
        for j, share in enumerate(p.tolist()):
            share = share if 0 < share < 1 else 0.5
            known = ~np.isnan(labels[:, j])
            y = labels[known, j]
            odds = np.exp(logits[known, j]) * (share / (1 - share)) ** tau
            q = np.where(y == 1, odds / (1 + odds), 1 / (1 + odds))
            w = np.where(y == 1, 1 / (2 * share), 1 / (2 * (1 - share))) if weights == "balanced" else 1.0
            per_disease.append(np.mean(w * (1 - q) ** gamma * -np.log(q)))
        objective = module.build(options, population)
        loss = objective.loss(torch.from_numpy(logits), torch.from_numpy(labels), none, none)
        np.testing.assert_allclose(float(loss), np.mean(per_disease), rtol=1e-12)


def check_a_focal_loss_is_finite_where_nothing_is_left(module: ModuleType) -> None:
    logits = torch.tensor([[300.0, -300.0], [-300.0, 300.0]]).requires_grad_()
    loss = module.CrossEntropy(gamma=0.5).loss(logits, torch.tensor([[1.0, 0.0], [1.0, 0.0]]), *[torch.zeros(0)] * 2)
    loss.backward()
    np.testing.assert_allclose(float(loss.detach()), 150, rtol=1e-6)
    np.testing.assert_allclose(logits.grad.numpy(), [[0, 0], [-0.25, 0.25]], atol=1e-6)


def check_balanced_weights_have_a_mean_of_one(module: ModuleType) -> None:
    p = torch.from_numpy(P)
    weights = module.build(module.CrossEntropyOptions(weights="balanced"), Population(p, p[None])).class_weights
    np.testing.assert_allclose(((1 - p) * weights[0]).numpy(), 0.5, rtol=1e-12)
    np.testing.assert_allclose((p * weights[1]).numpy(), 0.5, rtol=1e-12)


def require_mean_of_batches(
    make: Callable[[torch.Tensor | None], Any], extra: torch.Tensor, dual: torch.Tensor, *shared: torch.Tensor
) -> None:
    """Loss and gradients, over all batches of 3 out of 9 images, of which few are labeled."""
    logits, labels = (part[:9] for part in draw())
    labels[2:, 1] = np.nan  # two labels: most batches have none
    share = torch.from_numpy((~np.isnan(labels)).mean(axis=0))
    assert 0 < share[1] < 0.3

    def slopes(rows: list[int], q: torch.Tensor | None) -> list[np.ndarray]:
        parts = [part.clone().requires_grad_() for part in (torch.from_numpy(logits), extra, dual)]
        loss = make(q).loss(parts[0][rows], torch.from_numpy(labels[rows]), *parts[1:], *shared)
        gradients = torch.autograd.grad(loss, parts, allow_unused=True, materialize_grads=True)
        return [loss.detach().numpy(), *(part.numpy() for part in gradients)]

    batches = [slopes(list(rows), share) for rows in itertools.combinations(range(9), 3)]
    for number, expected in enumerate(slopes(list(range(9)), None)):
        np.testing.assert_allclose(np.mean([batch[number] for batch in batches], axis=0), expected, rtol=0, atol=1e-14)


def check_all_batches_make_the_auc_loss_of_the_whole(module: ModuleType) -> None:
    extra, dual = torch.tensor([0.7, 0.6, 0.3, 0.2]).double(), torch.tensor([0.4, -0.3]).double()
    require_mean_of_batches(lambda q: module.AucMargin(torch.from_numpy(P), labeled=q), extra, dual)


def check_all_batches_make_the_cross_entropy_of_the_whole(module: ModuleType) -> None:
    none = torch.zeros(0).double()
    require_mean_of_batches(lambda q: module.CrossEntropy(q), none, none)


def check_a_labeled_mean_is_that_of_the_labeled(module: ModuleType) -> None:
    logits, labels = draw()
    labels[3:, 1] = np.nan
    terms, truth, share = torch.from_numpy(logits), torch.from_numpy(labels), torch.tensor([0.8, 0.1]).double()
    sums = np.where(np.isnan(labels), 0.0, logits).sum(axis=0)
    count = (~np.isnan(labels)).sum(axis=0)
    np.testing.assert_allclose(module.labeled_mean(terms, truth).numpy(), sums / count, rtol=1e-12)
    means = module.labeled_mean(terms, truth, share).numpy()
    np.testing.assert_allclose(means, sums / (len(labels) * share.numpy()), rtol=1e-12)
    nothing = module.labeled_mean(terms, torch.full_like(truth, torch.nan), torch.zeros(2))
    assert nothing.tolist() == [0, 0]


CHECKS: dict[str, list[Callable[[ModuleType], None]]] = {
    "auc_margin": [
        check_auc_margin_is_equation_2_image_by_image,
        check_a_batch_of_one_class_or_without_labels_is_finite,
        check_the_best_alpha_is_where_the_gradient_is_zero,
        check_a_disease_without_labels_counts_in_the_mean_over_diseases,
        check_the_best_alpha_of_a_disease_without_pairs_is_unknown,
        check_all_batches_make_the_auc_loss_of_the_whole,
        check_options_of_the_auc_loss_are_their_formulas,
        check_a_saddle_has_the_pairwise_loss_of_its_margin,
        check_a_normalized_disease_without_pairs_is_finite,
    ],
    "cross_entropy": [
        check_cross_entropy_masks_what_is_missing,
        check_all_batches_make_the_cross_entropy_of_the_whole,
        check_remedies_for_rare_diseases_are_their_formulas,
        check_a_focal_loss_is_finite_where_nothing_is_left,
        check_balanced_weights_have_a_mean_of_one,
    ],
    "declaration": [check_a_labeled_mean_is_that_of_the_labeled],
}
MUTANTS: dict[str, dict[str, tuple[str, str]]] = {
    "auc_margin": {
        "p and 1-p are swapped at the positives": ("on_positives = (1 - p) *", "on_positives = p *"),
        "a and b are swapped": ("a, b = self", "b, a = self"),
        "alpha has the wrong sign": (
            "(scores - a) ** 2 - 2 * (self.margin + dual)",
            "(scores - a) ** 2 - 2 * (self.margin - dual)",
        ),
        "the margin is forgotten": ("(scores - b) ** 2 + 2 * (self.margin + dual)", "(scores - b) ** 2 + 2 * dual"),
        "positives have a margin of one": ("- 2 * (self.margin + dual)", "- 2 * (1 + dual)"),
        "negatives have a margin of one": ("+ 2 * (self.margin + dual)", "+ 2 * (1 + dual)"),
        "the margin scales alpha": ("+ 2 * (self.margin + dual)", "+ 2 * self.margin * (1 + dual)"),
        "the margin is squared": ("- 2 * (self.margin + dual)", "- 2 * (self.margin**2 + dual)"),
        "nothing is normalized": ("if self.normalized:", "if False:"),
        "all losses are normalized": ("if self.normalized:", "if True:"),
        "normalized by p": ("(p < 1), p * (1 - p), 1.0)", "(p < 1), p, 1.0)"),
        "normalized without alpha's term": (
            "terms = terms / torch.where((p > 0) & (p < 1), p * (1 - p), 1.0)",
            "terms = (terms + p * (1 - p) * dual**2) / torch.where((p > 0) & (p < 1), p * (1 - p), 1.0) - dual**2 / 2",
        ),
        "normalized at p = 0": ("terms / torch.where((p > 0) & (p < 1)", "terms / torch.where((p < 1)"),
        "normalized at p = 1": ("terms / torch.where((p > 0) & (p < 1)", "terms / torch.where((p > 0)"),
        "sites have no margin of their own": ("more = (options.margin,", "more = (1.0,"),
        "sites are not normalized": ("more = (options.margin, options.normalize)", "more = (options.margin, False)"),
        "pooled pairs have no margin of their own": ("margin=options.margin, ", ""),
        "pooled pairs are not normalized": (", normalized=options.normalize)", ")"),
        "alpha's curvature is forgotten": ("- p * (1 - p) * dual**2", "+ 0 * dual"),
        "alpha's curvature is doubled": ("- p * (1 - p) * dual**2", "- 2 * p * (1 - p) * dual**2"),
        "missing labels stay in the divisor": (
            "labeled_mean(terms, labels, self.labeled)",
            "labeled_mean(terms, labels, torch.ones(2))",
        ),
        "the share of labels is forgotten": ("labels, self.labeled)", "labels)"),
        "an empty disease keeps its alpha term": (
            "labeled_mean(terms, labels, self.labeled)",
            "(labeled_mean(terms + p * (1 - p) * dual**2, labels, self.labeled) - p * (1 - p) * dual**2)",
        ),
        "diseases are summed": ("self.labeled).mean()", "self.labeled).sum()"),
        "the best alpha has the wrong sign": ("torch.where(negative, p * scores", "torch.where(positive, p * scores"),
        "the mean is over the labeled diseases": (
            "self.labeled).mean()",
            "self.labeled).sum() / (~labels.isnan()).any(dim=0).sum().clamp(min=1)",
        ),
        "the best alpha does not look for p = 1": ("(count > 0) & (p > 0) & (p < 1)", "(count > 0) & (p > 0)"),
        "the best alpha does not look for p = 0": ("(count > 0) & (p > 0) & (p < 1)", "(count > 0) & (p < 1)"),
        "the best alpha does not look for labels": ("(count > 0) & (p > 0) & (p < 1)", "(p > 0) & (p < 1)"),
        "the best alpha takes all images": (
            "best = terms.sum(dim=0) / (count.clamp(min=1)",
            "best = terms.sum(dim=0) / (len(labels)",
        ),
    },
    "cross_entropy": {
        "weights of the classes are swapped": ("negative, positive = self", "positive, negative = self"),
        "weights have a mean of two": ("weights = 0.5 /", "weights = 1.0 /"),
        "weights are those of the squares": ("halves, halves])", "halves, halves]) ** 2"),
        "the adjustment has the wrong sign": ("logits = logits + self", "logits = logits - self"),
        "the adjustment is that of p itself": ("* torch.logit(halves)", "* torch.log(halves)"),
        "the focal factor looks at the right label": ("-logits, logits)", "logits, -logits)"),
        "the focal factor forgets the exponent": ("torch.exp(self.gamma * ", "torch.exp("),
        "the focal factor is doubled": ("(others)) * terms", "(others)) * 2 * terms"),
        "p = 0 is looked up": ("(p > 0) & (p < 1)", "p < 1"),
        "p = 1 is looked up": ("(p > 0) & (p < 1)", "p > 0"),
        "missing labels count as negative": ("(terms, labels, self", "(terms, target, self"),
        "the share of labels is forgotten": ("labels, self.labeled)", "labels)"),
        "diseases are summed": ("self.labeled).mean()", "self.labeled).sum()"),
    },
    "declaration": {
        "missing labels count": ("torch.where(known, terms, 0.0)", "terms"),
        "the batch's own number divides": ("known.sum(dim=0) if share is None else", "known.sum(dim=0) if True else"),
        "the share is squared": ("len(labels) * share.to(terms)", "len(labels) * share.to(terms) ** 2"),
        "the share divides images of its batch with a label": ("len(labels) * share", "known.any(dim=1).sum() * share"),
    },
}

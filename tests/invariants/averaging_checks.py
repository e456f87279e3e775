"""What must hold for CODA+, CODA and CODASCA with half the messages, as functions of their modules."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import numpy as np
import torch

from chestfed.learning.algorithms import codasca
from chestfed.learning.algorithms.variables import Point
from tests.invariants import quadratic_saddle as saddle

WEIGHTS = [0.1, 0.2, 0.3, 0.4]
WINDOW, LR, DUAL_LR, PROX, ROUNDS = 5, 0.03, 0.02, 0.3, 4


def start() -> Point:
    return Point(torch.tensor([0.5, -1.0, 2.0, 0.3]).double(), torch.tensor([0.2, -0.4]).double())


def reference() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """CODA+ in NumPy: the last v and alpha, and the weighted averages over all iterates."""
    v, alpha = start().primal.numpy(), start().dual.numpy()
    first, sum_v, sum_alpha = v.copy(), np.zeros_like(v), np.zeros_like(alpha)
    for _ in range(ROUNDS):
        ends = []
        for weight, client in zip(WEIGHTS, saddle.heterogeneous(4), strict=True):
            x, y = v.copy(), alpha.copy()
            for _ in range(WINDOW):
                grad_x, grad_y = client.gradients(x, y)
                x, y = x - LR * (grad_x + PROX * (x - first)), y + DUAL_LR * grad_y
                sum_v, sum_alpha = sum_v + weight * x, sum_alpha + weight * y
            ends.append((x, y))
        v, alpha = (np.average([end[i] for end in ends], axis=0, weights=WEIGHTS) for i in (0, 1))
    return v, alpha, sum_v / (ROUNDS * WINDOW), sum_alpha / (ROUNDS * WINDOW)


def check_coda_plus_equals_the_numpy_reference(module: ModuleType) -> None:
    v, alpha, mean_v, mean_alpha = reference()
    for output, expected in (("last", (v, alpha)), ("average", (mean_v, mean_alpha))):
        method = module.CodaPlus(WINDOW, LR, DUAL_LR, PROX, output)
        server, clients = saddle.run(method, saddle.heterogeneous(4), ROUNDS, weights=WEIGHTS, start=start())
        finals = [method.final_message(client) for client in clients]
        point = method.stage_output(server, finals, WEIGHTS)
        np.testing.assert_allclose(point.primal.numpy(), expected[0], rtol=0, atol=1e-12)
        np.testing.assert_allclose(point.dual.numpy(), expected[1], rtol=0, atol=1e-12)


def check_coda_leaves_out_who_cannot_tell_an_alpha(module: ModuleType) -> None:
    """The third client does not label the second disease, and nobody the third one."""
    nan = torch.nan
    duals = [torch.tensor(row).double() for row in ([1.0, 2.0, nan], [2.0, -1.0, nan], [4.0, nan, nan])]
    before = Point(torch.zeros(2).double(), torch.tensor([7.0, 5.0, 3.0]).double())
    dual = module.Coda(WINDOW, LR, DUAL_LR).restart(before, duals, (0.2, 0.3, 0.5)).dual
    expected = [0.2 * 1 + 0.3 * 2 + 0.5 * 4, (0.2 * 2 - 0.3 * 1) / 0.5, 3.0]
    np.testing.assert_allclose(dual.numpy(), expected, rtol=0, atol=1e-12)


def check_coda_starts_a_stage_at_the_mean_of_the_best_alphas(module: ModuleType) -> None:
    """With one curvature along alpha at all clients it is the best alpha for the mean problem."""
    clients = [saddle.Saddle(client.a, client.b, client.m, client.d, np.eye(2)) for client in saddle.heterogeneous(4)]
    best = [torch.from_numpy(client.m @ start().primal.numpy() - client.d) for client in clients]
    point = module.Coda(WINDOW, LR, DUAL_LR).restart(start(), best, WEIGHTS)
    assert torch.equal(point.primal, start().primal)
    slope = sum(
        weight * client.gradients(point.primal.numpy(), point.dual.numpy())[1]
        for weight, client in zip(WEIGHTS, clients, strict=True)
    )
    np.testing.assert_allclose(slope, 0, atol=1e-12)


def check_the_minimal_messages_give_the_published_iterates(module: ModuleType) -> None:
    for server_lr in (1.0, 1.3):
        for dual_lr in (0.02, torch.tensor([0.02, 0.05]).double()):
            rule = codasca.Codasca(WINDOW, LR, dual_lr, server_lr=server_lr, prox=PROX)
            problems = saddle.heterogeneous(4)
            published, _ = saddle.run(rule, problems, 12, weights=WEIGHTS, start=start())
            minimal, _ = saddle.run(module.CodascaMinimal(rule), problems, 12, weights=WEIGHTS, start=start())
            np.testing.assert_allclose(minimal.primal.numpy(), published.primal.numpy(), rtol=0, atol=1e-12)
            np.testing.assert_allclose(minimal.dual.numpy(), published.dual.numpy(), rtol=0, atol=1e-12)


#: module name -> its checks, and its mutants: name -> (text in the source, its replacement).
CHECKS: dict[str, list[Callable[[ModuleType], None]]] = {
    "coda_plus": [check_coda_plus_equals_the_numpy_reference],
    "coda": [check_coda_starts_a_stage_at_the_mean_of_the_best_alphas, check_coda_leaves_out_who_cannot_tell_an_alpha],
    "codasca_minimal": [check_the_minimal_messages_give_the_published_iterates],
}
MUTANTS: dict[str, dict[str, tuple[str, str]]] = {
    "coda_plus": {
        "dual descends": ("alpha += self.dual_lr * grad_alpha", "alpha -= self.dual_lr * grad_alpha"),
        "proximal term is forgotten": ("prox=self.prox", "prox=0.0"),
        "proximal term has the wrong sign": ("prox=self.prox", "prox=-self.prox"),
        "reference point is the round's start": ("reference=client.reference)", "reference=message.primal)"),
        "reference point is noise": (
            "return Client(point.primal,",
            "return Client(0.1 * torch.randn_like(point.primal),",
        ),
        "gradients are clipped": ("grad_v, prox=", "grad_v.clamp(-1, 1), prox="),
        "the average forgets the earlier rounds": ("client.primal_sum.clone()", "torch.zeros_like(client.primal_sum)"),
        "the average is divided by the rounds": ("client.steps + self.window", "client.steps + 1"),
        "the average of alpha is its last": ("dual_sum += alpha", "dual_sum = alpha * (client.steps + self.window)"),
        "weights are ignored": (
            "mean_of(updates, weights)",
            "mean_of(updates, [1 / len(weights)] * len(weights))",
        ),
        "one local step too many": ("range(self.window)", "range(self.window + 1)"),
    },
    "coda": {
        "the first client decides": (
            "weighted_mean([dual.nan_to_num() for dual in duals], weights)",
            "duals[0] * weight",
        ),
        "weights are ignored": (
            "[dual.nan_to_num() for dual in duals], weights)",
            "[dual.nan_to_num() for dual in duals], [1 / len(duals)] * len(duals))",
        ),
        "alpha is kept": ("known / weight", "point.dual"),
        "alpha has the wrong sign": ("known / weight", "-known / weight"),
        "who cannot tell counts": ("known / weight", "known"),
        "an alpha that nobody tells is forgotten": (", point.dual)", ", 0 * point.dual)"),
    },
    "codasca_minimal": {
        "c is derived with the wrong sign": (
            "(client.last_primal - message.primal) /",
            "(message.primal - client.last_primal) /",
        ),
        "c of alpha is derived with the wrong sign": (
            "(message.dual - client.last_dual) /",
            "(client.last_dual - message.dual) /",
        ),
        "c forgets the server's step": ("* rule.local_lr * rule.server_lr)", "* rule.local_lr)"),
        "c of alpha forgets the server's step": ("* rule.dual_lr * rule.server_lr)", "* rule.dual_lr)"),
        "c is derived one round late": ("if client.rounds > 0:", "if client.rounds > 1:"),
        "the last broadcast is not kept": (
            "client.reference, message.primal, message.dual, client.rounds + 1)",
            "client.reference, client.last_primal, client.last_dual, client.rounds + 1)",
        ),
        "the reference point starts at zero": ("zero_dual, point.primal, point", "zero_dual, 0 * point.primal, point"),
        "c^k is not kept": ("Client(new.c_primal, new.c_dual,", "Client(client.c_primal, client.c_dual,"),
    },
}

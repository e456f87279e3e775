"""What must hold for LocalSGDAM and LocalSCGDAM, as functions of the modules that implement them.

Run on the modules themselves and on mutants of their source, in float64.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import numpy as np
import torch

from chestfed.learning.algorithms.variables import Point
from tests.invariants import quadratic_saddle as saddle
from tests.leaves.compositional import quadratic_composition as composition

WEIGHTS = [0.1, 0.2, 0.3, 0.4]
LR, DUAL_LR, RATE, DUAL_RATE, INNER_RATE, WINDOW, ROUNDS = 0.03, 0.02, 0.3, 0.4, 0.6, 5, 4


def start() -> Point:
    return Point(torch.tensor([0.5, -1.0, 2.0, 0.3]).double(), torch.tensor([0.2, -0.4]).double())


def average(parts: list[np.ndarray]) -> np.ndarray:
    return np.average(parts, axis=0, weights=WEIGHTS)


def check_local_sgdam_equals_the_numpy_reference(module: ModuleType) -> None:
    clients = saddle.heterogeneous(4)
    ours, _ = saddle.run(
        module.LocalSgdam(WINDOW, LR, DUAL_LR, RATE, DUAL_RATE), clients, ROUNDS, weights=WEIGHTS, start=start()
    )
    states = []
    for client in clients:
        x, y = start().primal.numpy(), start().dual.numpy()
        states.append([x, y, *client.gradients(x, y)])
    for _ in range(ROUNDS):
        for k, client in enumerate(clients):
            x, y, u, v = states[k]
            for _ in range(WINDOW):
                x, y = x - LR * u, y + DUAL_LR * v
                grad_x, grad_y = client.gradients(x, y)
                u, v = (1 - RATE) * u + RATE * grad_x, (1 - DUAL_RATE) * v + DUAL_RATE * grad_y
            states[k] = [x, y, u, v]
        mean = [average([state[i] for state in states]) for i in range(4)]
        states = [list(mean) for _ in clients]
    result = (ours.primal, ours.dual, ours.primal_momentum, ours.dual_momentum)
    for value, expected in zip(result, mean, strict=True):
        np.testing.assert_allclose(value.numpy(), expected, rtol=0, atol=1e-12)


def check_local_sgdam_reaches_the_optimum_with_a_window_of_one(module: ModuleType) -> None:
    problems = saddle.heterogeneous(8)
    server, _ = saddle.run(module.LocalSgdam(1, 0.05, 0.05, 0.5, 0.5), problems, 1500)
    assert saddle.distance(Point(server.primal, server.dual), problems) < 1e-9


def check_local_scgdam_equals_the_numpy_reference(module: ModuleType) -> None:
    clients = composition.heterogeneous(4, curl=0.4)
    algorithm = module.LocalScgdam(WINDOW, LR, DUAL_LR, INNER_RATE, RATE, DUAL_RATE)
    ours = composition.run(algorithm, clients, ROUNDS, weights=WEIGHTS, start=start())
    states = []
    for client in clients:
        x, y = start().primal.numpy(), start().dual.numpy()
        h = client.inner(x)
        grad_h, grad_y = client.outer.gradients(h, y)
        states.append([x, y, h, client.pull_back(x, grad_h), grad_y])
    for _ in range(ROUNDS):
        for k, client in enumerate(clients):
            x, y, h, u, v = states[k]
            for _ in range(WINDOW):
                x, y = x - LR * u, y + DUAL_LR * v
                h = (1 - INNER_RATE) * h + INNER_RATE * client.inner(x)
                grad_h, grad_y = client.outer.gradients(h, y)
                u = (1 - RATE) * u + RATE * client.pull_back(x, grad_h)
                v = (1 - DUAL_RATE) * v + DUAL_RATE * grad_y
            states[k] = [x, y, h, u, v]
        mean = [average([state[i] for state in states]) for i in range(5)]
        states = [list(mean) for _ in clients]
    result = (ours.primal, ours.dual, ours.inner, ours.primal_momentum, ours.dual_momentum)
    for value, expected in zip(result, mean, strict=True):
        np.testing.assert_allclose(value.numpy(), expected, rtol=0, atol=1e-12)


def check_local_scgdam_reaches_the_optimum_with_a_window_of_one(module: ModuleType) -> None:
    problems = composition.heterogeneous(4, spread=0.0)
    server = composition.run(module.LocalScgdam(1, 0.03, 0.03, 0.7, 0.5, 0.5), problems, 2000)
    error = composition.distance(Point(server.primal, server.dual), problems)
    assert error < 1e-6, f"error {error:.1e}"


#: module name -> its checks, and its mutants: name -> (text in the source, its replacement).
CHECKS: dict[str, list[Callable[[ModuleType], None]]] = {
    "local_sgdam": [
        check_local_sgdam_equals_the_numpy_reference,
        check_local_sgdam_reaches_the_optimum_with_a_window_of_one,
    ],
    "local_scgdam": [
        check_local_scgdam_equals_the_numpy_reference,
        check_local_scgdam_reaches_the_optimum_with_a_window_of_one,
    ],
}
_BOTH = {
    "x ascends": ("x -= self.local_lr * u", "x += self.local_lr * u"),
    "y descends": ("y += self.dual_lr * v", "y -= self.dual_lr * v"),
    "y takes x's step size": ("y += self.dual_lr * v", "y += self.local_lr * v"),
    "averages start anew every round": ("if client.rounds == 0:", "if client.rounds >= 0:"),
    "averages never start": ("if client.rounds == 0:", "if client.rounds < 0:"),
    **{
        f"{name} is not averaged": (
            "mean_of(updates, weights)",
            f'State(**{{**vars(mean_of(updates, weights)), "{field}": updates[0].{field}}})',
        )
        for name, field in (("u", "primal_momentum"), ("v", "dual_momentum"), ("y", "dual"), ("x", "primal"))
    },
    "weights are ignored": ("mean_of(updates, weights)", "mean_of(updates, [1 / len(weights)] * len(weights))"),
}
MUTANTS: dict[str, dict[str, tuple[str, str]]] = {
    "local_sgdam": {
        **_BOTH,
        "gradients are taken at the old y": (
            "grad_x, grad_y = gradients(x, y)",
            "grad_x, grad_y = gradients(x, y - self.dual_lr * v)",
        ),
        "the steps take the raw gradient": (
            "u.mul_(1 - self.primal_rate).add_(self.primal_rate * grad_x)",
            "u.copy_(grad_x)",
        ),
        "v takes u's rate": (
            "v.mul_(1 - self.dual_rate).add_(self.dual_rate",
            "v.mul_(1 - self.primal_rate).add_(self.primal_rate",
        ),
        "u is heavy-ball momentum": ("u.mul_(1 - self.primal_rate).", "u."),
    },
    "local_scgdam": {
        **_BOTH,
        "one local step too many": ("range(self.window)", "range(self.window + 1)"),
        "v takes u's rate": (
            "(1 - self.dual_rate) * v + self.dual_rate",
            "(1 - self.primal_rate) * v + self.primal_rate",
        ),
        "u is heavy-ball momentum": ("u = (1 - self.primal_rate) * u", "u = u"),
        "h does not move": ("(1 - self.inner_rate) * h + self.inner_rate * oracle.inner(x)", "0 * oracle.inner(x) + h"),
        "h has no memory": ("(1 - self.inner_rate) * h + self.inner_rate * oracle.inner(x)", "oracle.inner(x)"),
        "h's rates are swapped": (
            "(1 - self.inner_rate) * h + self.inner_rate * oracle.inner(x)",
            "self.inner_rate * h + (1 - self.inner_rate) * oracle.inner(x)",
        ),
        "f is taken at x": (
            "grad_h, grad_y = oracle.outer(h, y)\n            u = (",
            "grad_h, grad_y = oracle.outer(x, y)\n            u = (",
        ),
        "the Jacobian is forgotten": ("self.primal_rate * oracle.pull_back(grad_h)", "self.primal_rate * grad_h"),
        "h is not averaged": (
            "mean_of(updates, weights)",
            'State(**{**vars(mean_of(updates, weights)), "inner": updates[0].inner})',
        ),
        "h starts at x": ("h = oracle.inner(x).clone()", "oracle.inner(x)"),
    },
}

"""What must hold for SCAFFOLD, FedProx, FedAvg, LocalSGDM and their base, as functions of the modules with them.

Run on the modules themselves and on mutants of their source, in float64, on quadratics with a closed-form optimum.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType, SimpleNamespace

import numpy as np
import torch

from chestfed.learning.algorithms.minimization.local_sgdm import LocalSgdm
from chestfed.learning.algorithms.variables import Point
from tests.invariants import quadratic_saddle as saddle

WEIGHTS = [0.1, 0.2, 0.3, 0.4]
NONE = np.zeros(0)


def problems(count: int = 4) -> list[saddle.Saddle]:
    return saddle.heterogeneous(count, duals=0)


def start() -> Point:
    return Point(torch.tensor([0.5, -1.0, 2.0, 0.3], dtype=torch.float64), torch.zeros(0, dtype=torch.float64))


def check_scaffold_equals_the_numpy_reference(module: ModuleType) -> None:
    clients, lr, lr_g, window = problems(), 0.03, 1.2, 5
    ours, states = saddle.run(module.Scaffold(window, lr, lr_g), clients, 4, weights=WEIGHTS, start=start())
    x = start().primal.numpy()
    c, controls = np.zeros(4), [np.zeros(4) for _ in clients]
    for _ in range(4):
        moves, changes = [], []
        for k, client in enumerate(clients):
            y = x.copy()
            for _ in range(window):
                y = y - lr * (client.gradients(y, NONE)[0] - controls[k] + c)
            new = controls[k] - c + (x - y) / (window * lr)
            moves.append(y - x)
            changes.append(new - controls[k])
            controls[k] = new
        x = x + lr_g * np.average(moves, axis=0, weights=WEIGHTS)
        c = c + np.average(changes, axis=0, weights=WEIGHTS)
    np.testing.assert_allclose(ours.primal.numpy(), x, rtol=0, atol=1e-12)
    np.testing.assert_allclose(ours.control.numpy(), c, rtol=0, atol=1e-12)
    for state, control in zip(states, controls, strict=True):
        np.testing.assert_allclose(state.control.numpy(), control, rtol=0, atol=1e-12)


def check_scaffold_reaches_the_optimum_at_every_window(module: ModuleType) -> None:
    for window, lr, rounds in ((1, 0.1, 500), (8, 0.05, 150), (32, 0.02, 120)):
        server, _ = saddle.run(module.Scaffold(window, lr), problems(8), rounds)
        error = saddle.distance(Point(server.primal, server.dual), problems(8))
        assert error < 1e-9, f"window {window}: error {error:.1e}"


def check_fedprox_equals_the_numpy_reference(module: ModuleType) -> None:
    clients, lr, window = problems(), 0.03, 5
    for mu in (0.0, 0.7):
        ours, _ = saddle.run(module.FedProx(window, lr, mu), clients, 4, weights=WEIGHTS, start=start())
        x = start().primal.numpy()
        for _ in range(4):
            ends = []
            for client in clients:
                y = x.copy()
                for _ in range(window):
                    y = y - lr * (client.gradients(y, NONE)[0] + mu * (y - x))
                ends.append(y)
            x = np.average(ends, axis=0, weights=WEIGHTS)
        np.testing.assert_allclose(ours.primal.numpy(), x, rtol=0, atol=1e-12)


def check_local_sgdm_equals_the_numpy_reference(module: ModuleType | SimpleNamespace) -> None:
    clients, lr, window, beta = problems(), 0.02, 5, 0.8
    ours, _ = saddle.run(module.LocalSgdm(window, lr, beta), clients, 4, weights=WEIGHTS, start=start())
    x, m = start().primal.numpy(), np.zeros(4)
    for _ in range(4):
        ends, moments = [], []
        for client in clients:
            y, u = x.copy(), m.copy()
            for _ in range(window):
                u = beta * u + client.gradients(y, NONE)[0]
                y = y - lr * u
            ends.append(y)
            moments.append(u)
        x, m = np.average(ends, axis=0, weights=WEIGHTS), np.average(moments, axis=0, weights=WEIGHTS)
    np.testing.assert_allclose(ours.primal.numpy(), x, rtol=0, atol=1e-12)
    np.testing.assert_allclose(ours.momentum.numpy(), m, rtol=0, atol=1e-12)


def check_local_sgdm_on_its_base(module: ModuleType) -> None:
    body = {name: part for name, part in vars(LocalSgdm).items() if name not in ("__dict__", "__weakref__")}
    rebased = type("LocalSgdm", (module.LocalStepAlgorithm,), body)
    check_local_sgdm_equals_the_numpy_reference(SimpleNamespace(LocalSgdm=rebased))


#: module name -> its checks, and its mutants: name -> (text in the source, its replacement).
CHECKS: dict[str, list[Callable[[ModuleType], None]]] = {
    "minimization.scaffold": [
        check_scaffold_equals_the_numpy_reference,
        check_scaffold_reaches_the_optimum_at_every_window,
    ],
    "minimization.fedprox": [check_fedprox_equals_the_numpy_reference],
    "minimization.local_sgdm": [check_local_sgdm_equals_the_numpy_reference],
    "variables": [check_local_sgdm_on_its_base],
}
MUTANTS: dict[str, dict[str, tuple[str, str]]] = {
    "minimization.scaffold": {
        "correction has the wrong sign": ("gradient - client.control + message", "gradient + client.control - message"),
        "c is forgotten in the step": ("- client.control + message.control)", "- client.control)"),
        "the new c_i adds c": ("client.control - message.control + (m", "client.control + message.control + (m"),
        "divisor is off by one": ("self.window * self.local_lr", "(self.window + 1) * self.local_lr"),
        "c_i is sent instead of its change": ("control - client.control, message.dual", "control, message.dual"),
        "the server's step is ignored": ("self.server_lr * mean", "1.0 * mean"),
        "the server steps back": ("server.primal + self", "server.primal - self"),
        "c is replaced by the mean change": ("server.control + share * mean.control", "share * mean.control"),
        "gradients are clipped": ("y -= self.local_lr * (gradient", "y -= self.local_lr * (gradient.clamp(-1, 1)"),
    },
    "minimization.fedprox": {
        "the proximal term has the wrong sign": ("prox=self.mu", "prox=-self.mu"),
        "the proximal term is doubled": ("prox=self.mu", "prox=2 * self.mu"),
        "gradient ascends": ("self.local_lr, gradient", "self.local_lr, -gradient"),
        "the reference moves along": ("reference=message.primal", "reference=w"),
    },
    "minimization.local_sgdm": {
        "momentum starts anew every step": ("u.mul_(self.beta)", "u.mul_(0.0)"),
        "momentum is damped": (
            "gradients(w, message.dual)[0]",
            "(1 - self.beta) * gradients(w, message.dual)[0]",
        ),
        "the step takes the gradient": ("self.local_lr, u)", "self.local_lr, u - self.beta * u)"),
    },
    "variables": {
        "one local step too many": ("range(self.window)", "range(self.window + 1)"),
        "weights are ignored": ("mean_of(updates, weights)", "mean_of(updates, [0.25] * 4)"),
        "momentum is not averaged": (
            "replace(mean_of(updates, weights), dual",
            "replace(mean_of(updates, weights), momentum=updates[0].momentum, dual",
        ),
        "momentum starts anew every round": ("part.clone()", 'part * (name != "momentum")'),
        "steps change what the server sent": ("part.clone()", "part"),
    },
}

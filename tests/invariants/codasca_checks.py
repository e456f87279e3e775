"""What must hold for CODASCA, as functions of the module that implements it.

The same checks are run on the module itself (they must pass) and on mutants of its source (each must fail at
least one). Everything is float64 and deterministic.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import torch

from chestfed.learning.algorithms.coda_plus import CodaPlus
from chestfed.learning.algorithms.variables import Point
from tests.invariants import quadratic_saddle as saddle


def algorithm(module: ModuleType, **settings: Any) -> Any:
    defaults: dict[str, Any] = {"window": 5, "local_lr": 0.03, "dual_lr": 0.02, "server_lr": 1.0, "prox": 0.0}
    return module.Codasca(**{**defaults, **settings})


def start_away_from_zero(problems: list[saddle.Saddle]) -> Point:
    rng = np.random.default_rng(7)
    sizes = problems[0].b.size, problems[0].d.size
    return Point(*(torch.from_numpy(rng.normal(size=size)) for size in sizes))


def reference_run(
    problems: list[saddle.Saddle],
    start: Point,
    rounds: int,
    eta: float,
    eta_dual: float,
    eta_g: float,
    prox: float,
    i: int,
) -> dict[str, np.ndarray]:
    """Algorithm 4 in NumPy, written from equations 6 and 7's definitions with explicit lists, no shared code."""
    count = len(problems)
    v, al = start.primal.numpy().copy(), start.dual.numpy().copy()
    v_ref = v.copy()
    c_v, c_al = np.zeros_like(v), np.zeros_like(al)
    ck_v, ck_al = [np.zeros_like(v) for _ in problems], [np.zeros_like(al) for _ in problems]
    for _ in range(rounds):
        ends_v, ends_al, new_v, new_al = [], [], [], []
        for k, problem in enumerate(problems):
            x, y = v.copy(), al.copy()
            sum_v, sum_al = np.zeros_like(v), np.zeros_like(al)
            for _ in range(i):
                g_x, g_y = problem.gradients(x, y)
                g_x = g_x + prox * (x - v_ref)
                sum_v, sum_al = sum_v + g_x, sum_al + g_y
                x, y = x - eta * (g_x - ck_v[k] + c_v), y + eta_dual * (g_y - ck_al[k] + c_al)
            ends_v.append(x)
            ends_al.append(y)
            new_v.append(sum_v / i)  # equation 7; the implementation uses equation 6
            new_al.append(sum_al / i)
        ck_v, ck_al = new_v, new_al
        c_v, c_al = sum(ck_v) / count, sum(ck_al) / count
        v, al = v + eta_g * (sum(ends_v) / count - v), al + eta_g * (sum(ends_al) / count - al)
    return {"primal": v, "dual": al, "c_primal": c_v, "c_dual": c_al}


def check_every_state_equals_the_numpy_reference(module: ModuleType) -> None:
    problems = saddle.heterogeneous(6)
    start = start_away_from_zero(problems)
    for rounds in (1, 2, 7):
        for prox, server_lr in ((0.0, 1.0), (0.4, 1.0), (0.4, 1.1), (0.1, 0.7)):
            ours, _ = saddle.run(algorithm(module, prox=prox, server_lr=server_lr), problems, rounds, start=start)
            expected = reference_run(problems, start, rounds, 0.03, 0.02, server_lr, prox, 5)
            for name, value in expected.items():
                np.testing.assert_allclose(getattr(ours, name).numpy(), value, rtol=0, atol=1e-12, err_msg=name)


def check_a_lone_client_is_proximal_descent_ascent_bit_by_bit(module: ModuleType) -> None:
    problem = saddle.heterogeneous(1)
    start = start_away_from_zero(problem)
    server, _ = saddle.run(algorithm(module, prox=0.3), problem, 6, start=start)
    v, alpha = start.primal.clone(), start.dual.clone()
    gradients = problem[0].torch_gradients()
    for _ in range(6 * 5):
        grad_v, grad_alpha = gradients(v, alpha)
        pulled = v.lerp(start.primal, 0.03 * 0.3)  # the operations of a step, which round as they do
        v, alpha = pulled.sub(grad_v, alpha=0.03), alpha + 0.02 * grad_alpha
    assert torch.equal(server.primal, v)
    assert torch.equal(server.dual, alpha)


def check_with_window_1_any_consistent_control_variates_give_plain_parallel_steps(module: ModuleType) -> None:
    problems = saddle.heterogeneous(5)
    start = start_away_from_zero(problems)
    rng = np.random.default_rng(3)
    draws = [
        [torch.from_numpy(rng.normal(size=s)) for s in (start.primal.numel(), start.dual.numel())] for _ in problems
    ]
    method = algorithm(module, window=1)
    clients = [module.Client(c_v, c_al, start.primal) for c_v, c_al in draws]
    mean_c = [torch.stack([draw[i] for draw in draws]).mean(dim=0) for i in (0, 1)]
    server = module.State(start.primal, start.dual, *mean_c)
    updates = [
        method.local_round(method.message(server), client, problem.torch_gradients())[0]
        for client, problem in zip(clients, problems, strict=True)
    ]
    server = method.server_round(server, updates, [0.2] * 5)
    mean_v = torch.stack([p.torch_gradients()(start.primal, start.dual)[0] for p in problems]).mean(dim=0)
    mean_al = torch.stack([p.torch_gradients()(start.primal, start.dual)[1] for p in problems]).mean(dim=0)
    torch.testing.assert_close(server.primal, start.primal - 0.03 * mean_v, rtol=0, atol=1e-13)
    torch.testing.assert_close(server.dual, start.dual + 0.02 * mean_al, rtol=0, atol=1e-13)


def check_server_control_variates_are_the_mean_and_follow_from_consecutive_points(module: ModuleType) -> None:
    problems = saddle.heterogeneous(4)
    weights = [0.1, 0.2, 0.3, 0.4]
    method = algorithm(module, prox=0.2, server_lr=1.1)
    previous = [saddle.origin(problems)]

    def look(server: Any, clients: list[Any], updates: list[Any]) -> None:
        mean_v = sum(w * client.c_primal for w, client in zip(weights, clients, strict=True))
        mean_al = sum(w * client.c_dual for w, client in zip(weights, clients, strict=True))
        torch.testing.assert_close(server.c_primal, mean_v, rtol=0, atol=1e-14)
        torch.testing.assert_close(server.c_dual, mean_al, rtol=0, atol=1e-14)
        # Full participation and equal windows: a client could derive c itself and halve the traffic.
        derived_v = (previous[0].primal - server.primal) / (1.1 * 0.03 * 5)
        derived_al = (server.dual - previous[0].dual) / (1.1 * 0.02 * 5)
        torch.testing.assert_close(server.c_primal, derived_v, rtol=0, atol=1e-11)
        torch.testing.assert_close(server.c_dual, derived_al, rtol=0, atol=1e-11)
        previous[0] = Point(server.primal, server.dual)

    saddle.run(method, problems, 5, weights=weights, each_round=look)


def check_client_control_variates_are_the_mean_local_gradients(module: ModuleType) -> None:
    """Equation 6 equals equation 7, with the gradients recorded as they are handed out."""
    problems = saddle.heterogeneous(3)
    start = start_away_from_zero(problems)
    method = algorithm(module, prox=0.25)
    server = method.start_stage(start)
    clients = [method.start_client(start) for _ in problems]
    for _ in range(4):
        updates = []
        for k, problem in enumerate(problems):
            seen: list[tuple[Any, Any]] = []
            exact = problem.torch_gradients()

            def recording(v: Any, al: Any, exact: Any = exact, seen: Any = seen) -> tuple[Any, Any]:
                grad_v, grad_al = exact(v, al)
                seen.append((grad_v + 0.25 * (v - start.primal), grad_al.clone()))
                return grad_v, grad_al

            update, clients[k] = method.local_round(method.message(server), clients[k], recording)
            updates.append(update)
            mean_v = torch.stack([pair[0] for pair in seen]).mean(dim=0)
            mean_al = torch.stack([pair[1] for pair in seen]).mean(dim=0)
            torch.testing.assert_close(clients[k].c_primal, mean_v, rtol=0, atol=1e-12)
            torch.testing.assert_close(clients[k].c_dual, mean_al, rtol=0, atol=1e-12)
        server = method.server_round(server, updates, [1 / 3] * 3)


def check_the_global_optimum_is_reached_at_every_window(module: ModuleType) -> None:
    problems = saddle.heterogeneous(4)
    for window, lr, rounds in ((1, 0.1, 700), (8, 0.05, 240), (32, 0.02, 130)):
        server, _ = saddle.run(algorithm(module, window=window, local_lr=lr, dual_lr=lr), problems, rounds)
        error = saddle.distance(Point(server.primal, server.dual), problems)
        assert error < 1e-10, f"window {window}: error {error:.1e}"


def check_unequal_weights_reach_the_weighted_optimum(module: ModuleType) -> None:
    problems = saddle.heterogeneous(4)
    weights = [0.1, 0.2, 0.3, 0.4]
    server, _ = saddle.run(algorithm(module, window=8, local_lr=0.05, dual_lr=0.05), problems, 250, weights=weights)
    assert saddle.distance(Point(server.primal, server.dual), problems, weights) < 1e-9


def check_identical_clients_make_it_coda_plus(module: ModuleType) -> None:
    problems = saddle.heterogeneous(1) * 4
    ours, _ = saddle.run(algorithm(module, window=16, prox=0.2), problems, 8)
    theirs, _ = saddle.run(CodaPlus(16, 0.03, 0.02, prox=0.2), problems, 8)
    torch.testing.assert_close(ours.primal, theirs.primal, rtol=0, atol=1e-13)
    torch.testing.assert_close(ours.dual, theirs.dual, rtol=0, atol=1e-13)


def check_the_order_of_clients_changes_nothing(module: ModuleType) -> None:
    problems = saddle.heterogeneous(5)
    weights = [0.1, 0.15, 0.2, 0.25, 0.3]
    forward, _ = saddle.run(algorithm(module, prox=0.1), problems, 5, weights=weights)
    backward, _ = saddle.run(algorithm(module, prox=0.1), problems[::-1], 5, weights=weights[::-1])
    torch.testing.assert_close(forward.primal, backward.primal, rtol=0, atol=1e-13)
    torch.testing.assert_close(forward.dual, backward.dual, rtol=0, atol=1e-13)


def check_a_dual_step_per_disease_is_used_in_step_and_control_variate(module: ModuleType) -> None:
    problems = saddle.heterogeneous(4)
    steps = torch.tensor([0.02, 0.05], dtype=torch.float64)
    server, _ = saddle.run(algorithm(module, window=8, local_lr=0.04, dual_lr=steps), problems, 300)
    assert saddle.distance(Point(server.primal, server.dual), problems) < 1e-9


CHECKS: list[Callable[[ModuleType], None]] = [
    check_every_state_equals_the_numpy_reference,
    check_a_lone_client_is_proximal_descent_ascent_bit_by_bit,
    check_with_window_1_any_consistent_control_variates_give_plain_parallel_steps,
    check_server_control_variates_are_the_mean_and_follow_from_consecutive_points,
    check_client_control_variates_are_the_mean_local_gradients,
    check_identical_clients_make_it_coda_plus,
    check_the_order_of_clients_changes_nothing,
    check_a_dual_step_per_disease_is_used_in_step_and_control_variate,
    check_unequal_weights_reach_the_weighted_optimum,
    check_the_global_optimum_is_reached_at_every_window,
]

"""CODA+ against its paper."""

from __future__ import annotations

import torch

from chestfed.learning.algorithms.coda_plus import CodaPlus
from chestfed.learning.algorithms.variables import Point
from tests.invariants import quadratic_saddle as saddle


def test_window_1_is_pooled_descent_ascent() -> None:
    problems = saddle.heterogeneous(6)
    server, _ = saddle.run(CodaPlus(1, 0.05, 0.04, prox=0.2), problems, 30)
    v, alpha = saddle.origin(problems).primal, saddle.origin(problems).dual
    for _ in range(30):
        grads = [problem.torch_gradients()(v, alpha) for problem in problems]
        mean_v = torch.stack([g[0] for g in grads]).mean(dim=0)
        mean_al = torch.stack([g[1] for g in grads]).mean(dim=0)
        v, alpha = v - 0.05 * (mean_v + 0.2 * v), alpha + 0.04 * mean_al
    torch.testing.assert_close(server.primal, v, rtol=0, atol=1e-12)
    torch.testing.assert_close(server.dual, alpha, rtol=0, atol=1e-12)


def test_stage_returns_the_mean_of_iterates() -> None:
    problems = saddle.heterogeneous(3)
    method = CodaPlus(4, 0.03, 0.02)
    iterates: list[Point] = []

    def recording(problem: saddle.Saddle) -> object:
        exact = problem.torch_gradients()

        def gradients(v: torch.Tensor, alpha: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            iterates.append(Point(v.clone(), alpha.clone()))
            return exact(v, alpha)

        return gradients

    start = saddle.origin(problems)
    server, clients = start, [method.start_client(start) for _ in problems]
    ends = []
    for _ in range(5):
        results = [
            method.local_round(method.message(server), client, recording(problem))  # type: ignore[arg-type]
            for client, problem in zip(clients, problems, strict=True)
        ]
        clients = [client for _, client in results]
        ends += [update for update, _ in results]
        server = method.server_round(server, [update for update, _ in results], [1 / 3] * 3)

    output = method.stage_output(server, [method.final_message(client) for client in clients], [1 / 3] * 3)
    # Each window shows its start points to `gradients`; the iterates are all points but the starts, plus the ends.
    starts = [point for index, point in enumerate(iterates) if index % 4 == 0]
    total = sum(p.primal for p in iterates) - sum(p.primal for p in starts) + sum(p.primal for p in ends)
    torch.testing.assert_close(output.primal, total / (3 * 5 * 4), rtol=0, atol=1e-13)


def test_last_iterate_needs_no_message() -> None:
    problems = saddle.heterogeneous(2)
    method = CodaPlus(2, 0.03, 0.02, output="last")
    server, clients = saddle.run(method, problems, 3)
    finals = [method.final_message(client) for client in clients]
    assert finals == [None, None]
    assert method.stage_output(server, finals, [0.5, 0.5]) is server

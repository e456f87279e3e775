"""What must hold for the engine with a server, as functions of the module that implements it: means and accounting."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import numpy as np
import torch

from chestfed.algorithms.coda import Coda
from chestfed.algorithms.coda_plus import CodaPlus
from chestfed.algorithms.codasca import Codasca
from chestfed.algorithms.codasca_minimal import CodascaMinimal
from tests.engines.quadratic_client import QuadraticClient
from tests.invariants import quadratic_saddle as saddle

ZEROS = torch.zeros(2, dtype=torch.float64)


def check_bytes_are_those_of_the_messages_buffers_included(module: ModuleType) -> None:
    problems = saddle.heterogeneous(3, dimension=10, duals=2)
    clients = [QuadraticClient(f"c{i}", p) for i, p in enumerate(problems)]
    d, j, number = 10, 2, 8  # float64
    for method, per_message in (
        (Codasca(2, 0.01, 0.01), 2 * (d + j)),
        (CodascaMinimal(Codasca(2, 0.01, 0.01)), d + j),
        (CodaPlus(2, 0.01, 0.01), d + j),
    ):
        engine = module.InProcessEngine(method, clients, [1 / 3] * 3)
        federation, record = engine.run_round(engine.start_stage(saddle.origin(problems), ZEROS))
        assert record.bytes_up == record.bytes_down == 3 * number * (per_message + 2)
        assert (record.gradients, record.images) == (6, 6 * 7)
        end = engine.finish_stage(federation)
        assert end.bytes_up == (3 * number * (d + j) if isinstance(method, CodaPlus) else 0)
        assert end.bytes_down == 0
        alone = module.InProcessEngine(method, clients, [1 / 3] * 3, sends=False)
        federation, record = alone.run_round(alone.start_stage(saddle.origin(problems), ZEROS))
        assert record.bytes_up == record.bytes_down == alone.finish_stage(federation).bytes_up == 0


def check_buffers_loss_and_drift_are_means_over_clients(module: ModuleType) -> None:
    problems = saddle.heterogeneous(2)
    clients = [QuadraticClient("a", problems[0]), QuadraticClient("bbb", problems[1])]
    engine = module.InProcessEngine(CodaPlus(5, 0.02, 0.02), clients, [0.25, 0.75])
    federation, record = engine.run_round(engine.start_stage(saddle.origin(problems), ZEROS))
    mean = 0.25 * 5 + 0.75 * 15
    assert federation.buffers.tolist() == [mean] * 2
    assert engine.run_round(federation)[0].buffers.tolist() == [2 * mean] * 2  # each client goes on from the mean
    assert record.loss == 0.25 * 1 + 0.75 * 3
    ends, slopes = [], []
    for problem in problems:
        v, alpha = np.zeros(4), np.zeros(2)
        slopes.append(np.zeros(4))
        for _ in range(5):
            grad_v, grad_alpha = problem.gradients(v, alpha)
            slopes[-1] += grad_v / 5
            v, alpha = v - 0.02 * grad_v, alpha + 0.02 * grad_alpha
        ends.append(v)
    for drift, vectors in ((record.drift, ends), (record.gradient_drift, slopes)):
        middle = (vectors[0] + vectors[1]) / 2
        expected = np.mean([((vector - middle) ** 2).sum() for vector in vectors])
        np.testing.assert_allclose(drift, expected, rtol=1e-12)


def check_what_the_next_stage_starts_from_is_charged_once(module: ModuleType) -> None:
    problems = saddle.heterogeneous(3)
    clients = [QuadraticClient(f"c{i}", p) for i, p in enumerate(problems)]
    engine = module.InProcessEngine(Coda(4, 0.02, 0.02), clients, [0.2, 0.3, 0.5])
    federation, _ = engine.run_round(engine.start_stage(saddle.origin(problems), ZEROS))
    end = engine.finish_stage(federation)
    begun = engine.restart(end.point, federation.buffers)
    number, d, j = 8, 4, 2
    assert (begun.bytes_up, begun.bytes_down) == (3 * number * j, 3 * number * (d + j + 2))
    assert (begun.images, end.images) == (3 * 50, 0)
    best = [client.best_dual(end.point.primal, end.point.dual, 8) for client in clients]
    expected = sum(weight * part for weight, part in zip([0.2, 0.3, 0.5], best, strict=True))
    torch.testing.assert_close(begun.point.dual, expected, rtol=0, atol=1e-14)


CHECKS: list[Callable[[ModuleType], None]] = [
    check_bytes_are_those_of_the_messages_buffers_included,
    check_buffers_loss_and_drift_are_means_over_clients,
    check_what_the_next_stage_starts_from_is_charged_once,
]

#: name -> (text in the source, its replacement).
MUTANTS: dict[str, tuple[str, str]] = {
    "buffers are averaged without weights": (
        "weighted_mean(work.buffers, self.weights)",
        "weighted_mean(work.buffers, [1 / len(work.buffers)] * len(work.buffers))",
    ),
    "the first client's buffers are kept": ("weighted_mean(work.buffers, self.weights)", "work.buffers[0]"),
    "averaged buffers are not sent on": (
        "states, mean_buffers), record",
        "states, state.buffers), record",
    ),
    "bytes up forget the buffers": ("sum(byte_count(update) + buffer_bytes for", "sum(byte_count(update) for"),
    "bytes down count one client": ("down = len(self.clients) * (byte_count(message)", "down = (byte_count(message)"),
    "bytes are counted where nothing is sent": ("bytes_up=up if self._sends else 0", "bytes_up=up"),
    "the loss is averaged without weights": (
        "sum(weight * loss for weight",
        "sum(loss / len(updates) for weight",
    ),
    "drift is that of the first client": (
        "spread([update.primal for update in updates])",
        "spread([updates[0].primal])",
    ),
    "alpha is estimated without weights": (
        "self.algorithm.restart(point, duals, self.weights)",
        "self.algorithm.restart(point, duals, [1 / len(duals)] * len(duals))",
    ),
    "large batches are not counted": (
        "images = self._counted()[1] - images_before",
        "images = 0",
    ),
}

"""What must hold for the engine with a server, as functions of the module that implements it: means and accounting."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import torch

from chestfed.learning.algorithms.coda import Coda
from chestfed.learning.algorithms.coda_plus import CodaPlus
from chestfed.learning.algorithms.codasca import Codasca
from chestfed.learning.algorithms.codasca_minimal import CodascaMinimal
from chestfed.learning.algorithms.minimization.scaffold import Scaffold
from chestfed.learning.engines.fleet import LocalFleet
from tests.invariants import quadratic_saddle as saddle
from tests.learning.engines.quadratic_client import QuadraticClient

ZEROS = torch.zeros(2, dtype=torch.float64)


def _engine(module: ModuleType, method: Any, clients: list[QuadraticClient], weights: list[float], **more: Any) -> Any:
    return module.ServerEngine(method, LocalFleet.of(clients, method), weights, **more)


def check_bytes_are_those_of_the_messages_buffers_included(module: ModuleType) -> None:
    problems = saddle.heterogeneous(3, dimension=10, duals=2)
    clients = [QuadraticClient(f"c{i}", p) for i, p in enumerate(problems)]
    d, j, number = 10, 2, 8  # float64
    for method, per_message in (
        (Codasca(2, 0.01, 0.01), 2 * (d + j)),
        (CodascaMinimal(Codasca(2, 0.01, 0.01)), d + j),
        (CodaPlus(2, 0.01, 0.01), d + j),
    ):
        engine = _engine(module, method, clients, [1 / 3] * 3)
        federation, record = engine.run_round(engine.start_stage(saddle.origin(problems), ZEROS))
        assert record.bytes_up == record.bytes_down == 3 * number * (per_message + 2)
        assert (record.gradients, record.images) == (6, 6 * 7)
        end = engine.finish_stage(federation)
        averages = isinstance(method, CodaPlus)  # the averages go up, v goes down for statistics, which go up
        assert end.bytes_up == (3 * number * (d + j + 2) if averages else 0)
        assert end.bytes_down == (3 * number * d if averages else 0)
        assert end.images == (3 * module.STATISTICS_BATCHES if averages else 0)
        alone = _engine(module, method, clients, [1 / 3] * 3, sends=False)
        federation, record = alone.run_round(alone.start_stage(saddle.origin(problems), ZEROS))
        end = alone.finish_stage(federation)
        assert record.bytes_up == record.bytes_down == end.bytes_up == end.bytes_down == 0


def check_buffers_loss_and_drift_are_means_over_clients(module: ModuleType) -> None:
    problems = saddle.heterogeneous(2)
    clients = [QuadraticClient("a", problems[0]), QuadraticClient("bbb", problems[1])]
    engine = _engine(module, CodaPlus(5, 0.02, 0.02), clients, [0.25, 0.75])
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
    engine = _engine(module, Coda(4, 0.02, 0.02), clients, [0.2, 0.3, 0.5])
    federation, _ = engine.run_round(engine.start_stage(saddle.origin(problems), ZEROS))
    end = engine.finish_stage(federation)
    begun = engine.restart(end)
    number, d, j = 8, 4, 2
    assert begun.buffers is end.buffers
    assert (begun.bytes_up, begun.bytes_down) == (3 * number * j, 3 * number * (d + j + 2))
    assert begun.images == 3 * 50
    best = [client.best_dual(end.point.primal, end.point.dual, 8) for client in clients]
    expected = sum(weight * part for weight, part in zip([0.2, 0.3, 0.5], best, strict=True))
    torch.testing.assert_close(begun.point.dual, expected, rtol=0, atol=1e-14)


def check_averaged_weights_have_statistics_of_their_own(module: ModuleType) -> None:
    problems = saddle.heterogeneous(2)
    clients = [QuadraticClient("a", problems[0]), QuadraticClient("bbb", problems[1])]
    engine = _engine(module, CodaPlus(5, 0.02, 0.02), clients, [0.25, 0.75])
    state, _ = engine.run_round(engine.start_stage(saddle.origin(problems), ZEROS))
    end = engine.finish_stage(state)
    expected = float(end.point.primal.sum()) * (0.25 * 1 + 0.75 * 3)  # each client's is a multiple of what it was given
    np.testing.assert_allclose(end.buffers.numpy(), expected, rtol=1e-12)
    last = _engine(module, CodaPlus(5, 0.02, 0.02, output="last"), clients, [0.25, 0.75])
    state, _ = last.run_round(last.start_stage(saddle.origin(problems), ZEROS))
    end = last.finish_stage(state)
    assert end.buffers is state.buffers  # the last round's weights have theirs
    assert (end.bytes_up, end.bytes_down, end.images) == (0, 0, 0)


def check_a_round_of_some_clients_is_theirs_alone(module: ModuleType) -> None:
    """SCAFFOLD with two of four clients a round, against NumPy; the others keep their control variates."""
    problems, lr, window = saddle.heterogeneous(4, duals=0), 0.03, 5
    turns = [[0, 2], [1, 2], [0, 3], [2, 3]]
    clients = [QuadraticClient(f"c{'x' * i}", p) for i, p in enumerate(problems)]
    method = Scaffold(window, lr, 1.2)
    engine = _engine(module, method, clients, [0.25] * 4, participants=lambda number: turns[number])
    state = engine.start_stage(saddle.origin(problems), ZEROS)
    x, c, controls = np.zeros(4), np.zeros(4), [np.zeros(4) for _ in clients]
    for chosen in turns:
        state, record = engine.run_round(state)
        moves, changes = [], []
        for k in chosen:
            y = x.copy()
            for _ in range(window):
                y = y - lr * (problems[k].gradients(y, np.zeros(0))[0] - controls[k] + c)
            new = controls[k] - c + (x - y) / (window * lr)
            moves, changes, controls[k] = [*moves, y - x], [*changes, new - controls[k]], new
        x, c = x + 1.2 * np.mean(moves, axis=0), c + np.sum(changes, axis=0) / 4
        np.testing.assert_allclose(c, np.mean(controls, axis=0), atol=1e-12)  # c stays the mean of all clients' own
        assert record.bytes_up == record.bytes_down == 2 * 8 * (2 * 4 + 2)
        assert (record.images, record.loss) == (2 * window * 7, np.mean([len(clients[k].name) for k in chosen]))
    np.testing.assert_allclose(state.server.primal.numpy(), x, rtol=0, atol=1e-12)
    np.testing.assert_allclose(state.server.control.numpy(), c, rtol=0, atol=1e-12)


CHECKS: list[Callable[[ModuleType], None]] = [
    check_bytes_are_those_of_the_messages_buffers_included,
    check_buffers_loss_and_drift_are_means_over_clients,
    check_what_the_next_stage_starts_from_is_charged_once,
    check_averaged_weights_have_statistics_of_their_own,
    check_a_round_of_some_clients_is_theirs_alone,
]

#: name -> (text in the source, its replacement).
MUTANTS: dict[str, tuple[str, str]] = {
    "buffers are averaged without weights": (
        "weighted_mean([part.buffers for part in arrived.parts], arrived.weights),\n            loss",
        "weighted_mean([part.buffers for part in arrived.parts], [1 / len(done)] * len(done)),\n            loss",
    ),
    "the first client's buffers are kept": (
        "weighted_mean([part.buffers for part in arrived.parts], arrived.weights),\n            loss",
        "done[0].buffers,\n            loss",
    ),
    "averaged buffers are not sent on": (
        "Federation(server, result.buffers,",
        "Federation(server, state.buffers,",
    ),
    "bytes up forget the buffers": ("result.bytes_up + sent * buffer_bytes", "result.bytes_up"),
    "bytes down count one client": ("bytes_down=sent * (byte_count(message)", "bytes_down=(byte_count(message)"),
    "bytes down count clients that do not take part": (
        "sent = len(result.sizes) if",
        "sent = len(self.weights) if",
    ),
    "weights of some clients are not scaled": ("weights[number] / share for number", "weights[number] for number"),
    "all clients take part": (
        "number in chosen if number in self.fleet.present]",
        "number in range(4)]",
    ),
    "the same clients take part in every round": ("self._participants(int(state.rounds))", "self._participants(0)"),
    "a client's new state is lost": ("turns[list(result.sizes)] += 1", "pass"),
    "averaged weights keep the last round's statistics": (
        "if not state.buffers.numel() or torch.equal(",
        "if True or torch.equal(",
    ),
    "the last round's weights get new statistics": (
        "if not state.buffers.numel() or torch.equal(point.primal, self.current(state).primal):",
        "if not state.buffers.numel():",
    ),
    "statistics are those of the last round's weights": (
        "Statistics(int(state.turns[number]), point.primal,",
        "Statistics(int(state.turns[number]), state.server.primal,",
    ),
    "statistics are averaged without weights": (
        "for part in statistics], weights,",
        "for part in statistics], [1 / len(weights)] * len(weights),",
    ),
    "statistics are not charged": ("*((up, down) if self._sends else (0, 0))", "0, 0"),
    "statistics are charged where nothing is sent": ("*((up, down) if self._sends else (0, 0))", "up, down"),
    "bytes are counted where nothing is sent": (
        "sent = len(result.sizes) if self._sends else 0",
        "sent = len(result.sizes)",
    ),
    "the loss is averaged without weights": (
        "sum(weight * work.loss for weight",
        "sum(work.loss / len(done) for weight",
    ),
    "alpha is estimated without weights": (
        "self.algorithm.restart(point, duals, list(self._scale_weights(answers).values()))",
        "self.algorithm.restart(point, duals, [1 / len(duals)] * len(duals))",
    ),
    "large batches are not counted": (
        "end.buffers, up, down, images, turns, end.shared)",
        "end.buffers, up, down, 0, turns, end.shared)",
    ),
    "batches for statistics are not counted": (
        "else (0, 0)), images, state.turns, state.shared)",
        "else (0, 0)), 0, state.turns, state.shared)",
    ),
}

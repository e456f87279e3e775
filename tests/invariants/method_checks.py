"""Minimizers, personal algorithms and steps of an exchange against plain loops in float64, on noisy unequal clients.

A check takes the module, or a mutant of it. `MUTANTS` are slips that at least one check must notice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from chestfed.learning.algorithms.minimization.fedprox import FedProx
from chestfed.learning.algorithms.variables import Personal, Point, Preparing, Stateless
from chestfed.learning.exchange.exchange import Exchange
from chestfed.learning.exchange.step import Arrived, Package
from chestfed.testing.quadratics import ExactGradients, problems

WEIGHTS, LR, ROUNDS, D = (0.1, 0.2, 0.3, 0.4), 0.05, 4, 5
STEPS = (2, 5, 3, 4)  #: of the clients, where they may differ
PARTS = problems(D, 0)
NONE = torch.zeros(0, dtype=torch.float64)
START = torch.linspace(-1, 1, D, dtype=torch.float64)
ZERO = torch.zeros_like(START)


def noise(client: int, batch: int) -> Tensor:
    return torch.from_numpy(np.random.default_rng([client, batch]).normal(size=D))


def exact(k: int, w: Tensor) -> Tensor:
    return PARTS[k].gradients(w, NONE)[0]


class Loop:
    """The batches of a client in a reference."""

    def __init__(self, k: int) -> None:
        self.k, self.batch = k, 0

    def next(self, w: Tensor) -> Tensor:
        self.batch += 1
        return self.again(w)

    def again(self, w: Tensor) -> Tensor:
        return exact(self.k, w) + noise(self.k, self.batch)


def run(
    make: Callable[[int], Any], rounds: int = ROUNDS, start: Tensor = START, step: Any = None
) -> tuple[Any, list[Any], Any]:
    """The server's state, the clients' and the rule at the server; `make(client)` builds a rule, -1 the server's."""
    rule, rules, exchange = make(-1), [make(k) for k in range(4)], Exchange(() if step is None else (step,))
    oracles = [
        ExactGradients(PARTS[k].gradients, lambda batch, k=k: noise(k, batch), PARTS[k].loss)  # type: ignore[misc]
        for k in range(4)
    ]
    server = rule.start_stage(Point(start, NONE))
    clients: list[Any] = [exchange.start_client(client_rule, Point(start, NONE)) for client_rule in rules]
    kept = exchange.start_server(Point(start, NONE))
    for _ in range(rounds):
        if isinstance(rule, Preparing):
            point = rule.current(server)
            server = rule.prepared(server, [rule.prepare(point, oracle) for oracle in oracles], WEIGHTS)
        message = rule.message(server)
        ends = [
            exchange.local_round(client_rule, message, c, o)
            for client_rule, c, o in zip(rules, clients, oracles, strict=True)
        ]
        updates, clients = [end[0] for end in ends], [end[1] for end in ends]
        packages = [Package(update, NONE) for update in updates]
        arrived = exchange.at_server(Arrived(packages, WEIGHTS, Package(message, NONE)))
        after = rule.server_round(server, [part.update for part in arrived.parts], arrived.weights)
        server, kept = exchange.move(server, after, kept)
    return server, clients, rule


def mean(vectors: Sequence[Tensor], weights: Sequence[float] = WEIGHTS) -> Tensor:
    return sum((weight * vector for weight, vector in zip(weights, vectors, strict=True)), torch.zeros_like(vectors[0]))


def fedavg(w: Tensor, loop: Loop, steps: int) -> Tensor:
    for _ in range(steps):
        w = w - LR * loop.next(w)
    return w


def equal(ours: Tensor, theirs: Tensor) -> None:
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)


def check_fednova(module: ModuleType) -> None:
    server, _, _ = run(lambda k: module.FedNova(STEPS[k] if k >= 0 else 7, LR))
    x, loops = START, [Loop(k) for k in range(4)]
    for _ in range(ROUNDS):
        moves = [(x - fedavg(x, loop, steps)) / steps for loop, steps in zip(loops, STEPS, strict=True)]
        x = x - sum(w * s for w, s in zip(WEIGHTS, STEPS, strict=True)) * mean(moves)
    equal(server.primal, x)


def check_fednova_is_fedavg_with_equal_steps(module: ModuleType) -> None:
    equal(run(lambda k: module.FedNova(3, LR))[0].primal, run(lambda k: FedProx(3, LR))[0].primal)


def check_feddyn(module: ModuleType) -> None:
    alpha = 0.3
    server, _, _ = run(lambda k: module.FedDyn(3, LR, alpha))
    x, h, g, loops = START, ZERO, [ZERO] * 4, [Loop(k) for k in range(4)]
    for _ in range(ROUNDS):
        ends = []
        for k, loop in enumerate(loops):
            w = x
            for _ in range(3):
                w = w - LR * (loop.next(w) - g[k] + alpha * (w - x))
            g[k] = g[k] - alpha * (w - x)
            ends.append(w)
        h = h - alpha * (mean(ends) - x)
        x = mean(ends) - h / alpha
    equal(server.primal, x)
    equal(server.h, mean(g))
    half = module.FedDyn(3, LR, alpha)
    some = half.partial_round(half.start_stage(Point(START, NONE)), [Point(2 * START, NONE)], [1.0], 0.5)
    equal(some.h, -alpha / 2 * START)


def check_fedsam(module: ModuleType) -> None:
    server, _, _ = run(lambda k: module.FedSam(3, LR, 0.2))
    x, loops = START, [Loop(k) for k in range(4)]
    for _ in range(ROUNDS):
        ends = []
        for loop in loops:
            w = x
            for _ in range(3):
                g = loop.next(w)
                w = w - LR * loop.again(w + 0.2 * g / g.norm())
            ends.append(w)
        x = mean(ends)
    equal(server.primal, x)


def check_mime(module: ModuleType) -> None:
    for lite in (False, True):
        server, _, _ = run(lambda k, lite=lite: module.Mime(3, LR, 0.8, lite))  # type: ignore[misc]
        x, m, loops = START, ZERO, [Loop(k) for k in range(4)]
        for _ in range(ROUNDS):
            c, ends = mean([exact(k, x) for k in range(4)]), []
            for loop in loops:
                y = x
                for _ in range(3):
                    g = loop.next(y)
                    g = g if lite else g - loop.again(x) + c
                    y = y - LR * (0.2 * g + 0.8 * m)
                ends.append(y)
            x, m = mean(ends), 0.2 * c + 0.8 * m
        equal(server.primal, x)
        equal(server.momentum, m)


def check_q_fedavg(module: ModuleType) -> None:
    for q in (0.0, 2.0):
        server, _, _ = run(lambda k, q=q: module.QFedAvg(3, LR, q))  # type: ignore[misc]
        x, loops = START, [Loop(k) for k in range(4)]
        for _ in range(ROUNDS):
            changes, scales = [], []
            for k, loop in enumerate(loops):
                delta, loss = (x - fedavg(x, loop, 3)) / LR, PARTS[k].loss(x)
                changes.append(loss**q * delta)
                scales.append(q * loss ** (q - 1) * delta @ delta + loss**q / LR)
            x = x - mean(changes) / mean(scales)
        equal(server.primal, x)


def check_local_parts(module: ModuleType) -> None:
    personal, shared = [1, 3, 4], [0, 2]
    cuts = (slice(1, 2), slice(3, 5))
    for head in (0, 2):
        server, clients, rule = run(lambda k, head=head: module.LocalParts(3, LR, cuts, head))  # type: ignore[misc]
        x, heads, loops = START, [START[personal] for _ in range(4)], [Loop(k) for k in range(4)]
        for _ in range(ROUNDS):
            ends = []
            for k, loop in enumerate(loops):
                w = x.clone()
                w[personal] = heads[k]
                for step in range(head + 3):
                    moved = personal if step < head else shared if head else personal + shared
                    w[moved] -= LR * loop.next(w)[moved]
                ends.append(w)
                heads[k] = w[personal]
            x = x.clone()
            x[shared] = mean(ends)[shared]
        assert isinstance(rule, Personal)
        assert rule.message(server).primal.numel() == len(shared)
        for client, part in zip(clients, heads, strict=True):
            point = rule.local_point(rule.current(server), client).primal
            equal(point[shared], x[shared])
            equal(point[personal], part)


def check_ditto(module: ModuleType) -> None:
    server, clients, rule = run(lambda k: module.Ditto(3, LR, 0.4))
    x, v, loops = START, [START] * 4, [Loop(k) for k in range(4)]
    for _ in range(ROUNDS):
        ends = []
        for k, loop in enumerate(loops):
            w = x
            for _ in range(3):
                w = w - LR * loop.next(w)
                v[k] = v[k] - LR * (loop.again(v[k]) + 0.4 * (v[k] - x))
            ends.append(w)
        x = mean(ends)
    assert torch.equal(server.primal, run(lambda k: FedProx(3, LR))[0].primal)
    for client, model in zip(clients, v, strict=True):
        equal(rule.local_point(rule.current(server), client).primal, model)


def check_server_optimizers(module: ModuleType) -> None:
    for kind in ("momentum", "adagrad", "adam", "yogi"):
        options = module.ServerOptimizer(kind=kind, lr=0.3, momentum=0.8, second=0.95, tau=1e-2)
        server, _, _ = run(lambda k: FedProx(3, LR), step=module.build({"server_optimizer": options}))
        x, m, v, loops = START, ZERO, torch.full_like(ZERO, 1e-4), [Loop(k) for k in range(4)]
        for _ in range(ROUNDS):
            delta = mean([fedavg(x, loop, 3) for loop in loops]) - x
            if kind == "momentum":
                m = 0.8 * m + delta
                x = x + 0.3 * m
                continue
            m = 0.8 * m + 0.2 * delta
            v = {
                "adagrad": v + delta**2,
                "adam": 0.95 * v + 0.05 * delta**2,
                "yogi": v - 0.05 * delta**2 * torch.sign(v - delta**2),
            }[kind]
            x = x + 0.3 * m / (v.sqrt() + 1e-2)
        equal(server.primal, x)


def check_top_k(module: ModuleType) -> None:
    options = module.Compression(kind="top_k", share=0.3)  # two of five numbers
    server, clients, _ = run(lambda k: FedProx(3, LR), step=module.build({"compression": options}))
    x, errors, loops = START, [ZERO] * 4, [Loop(k) for k in range(4)]
    for _ in range(ROUNDS):
        sent = []
        for k, loop in enumerate(loops):
            change = fedavg(x, loop, 3) - x + errors[k]
            largest = change.abs().argsort(descending=True)[:2]
            sparse = ZERO.clone()
            sparse[largest] = change[largest]
            errors[k] = change - sparse
            sent.append(sparse)
        x = x + mean(sent)
    equal(server.primal, x)
    for client, error in zip(clients, errors, strict=True):
        equal(client.steps[0].primal, error)


def check_8_bits(module: ModuleType) -> None:
    rule, step = FedProx(1, 1.0), module.build({"compression": module.Compression(kind="8_bits")})
    change = torch.tensor([1.27, -0.005, 0.0, 0.634, -1.0], dtype=torch.float64)
    message, means = Point(START, NONE), ZERO.clone()
    for number in range(400):
        oracle = ExactGradients(lambda w, dual: (-change, dual))
        oracle.batches = number  # the rounding is another
        update, _ = Exchange((step,)).local_round(rule, message, rule.start_client(message), oracle)
        assert update.values.primal.dtype == torch.int8
        decoded = step.decode(message, update).primal - START
        assert (decoded - change).abs().max() <= 0.01 + 1e-9  # a level is 1.27 / 127
        means += decoded / 400
    assert (means - change).abs().max() < 1.5e-3  # it is right on average
    equal(update.primal.abs().amax(), change.abs().amax())


def check_statistics(module: ModuleType) -> None:
    ends = [Point(START + k, NONE) for k in range(3)]
    arrived = Arrived([Package(end, NONE) for end in ends], [1 / 3] * 3, Package(Point(START, NONE), NONE))
    measured = module.Statistics().at_server(arrived)
    np.testing.assert_allclose(measured.sizes, [np.linalg.norm(end.primal) for end in ends])
    np.testing.assert_allclose(measured.drift, D * 2 / 3)  # -1, 0 and 1 in every number
    final = module.Statistics().at_server(
        Arrived([Package(Stateless(), NONE)] * 2, [0.5] * 2, Package(Stateless(), NONE))
    )
    assert (final.sizes, np.isnan(final.drift)) == ((), True)


Mutants = dict[str, tuple[str, str]]
#: module -> its checks, and its mutants: name -> (text in the source, its replacement).
TABLE: dict[str, tuple[list[Callable[[ModuleType], None]], Mutants]] = {
    "minimization.fednova": (
        [check_fednova, check_fednova_is_fedavg_with_equal_steps],
        {
            "changes are not normalized": ("- local.primal) / self.window", "- local.primal) / 1"),
            "the server's window is taken": ("mean.steps * mean.primal", "self.window * mean.primal"),
            "the server ascends": ("server.primal - mean", "server.primal + mean"),
        },
    ),
    "minimization.feddyn": (
        [check_feddyn],
        {
            "linear term has the wrong sign": ("shift=-client", "shift=client"),
            "g_k has the wrong sign": ("client.gradient - self.alpha", "client.gradient + self.alpha"),
            "share is forgotten": ("self.alpha * share *", "self.alpha *"),
            "h is not taken away": ("mean - h / self.alpha", "mean"),
        },
    ),
    "minimization.fedsam": (
        [check_fedsam],
        {
            "next batch": ("gradients.again(", "gradients("),
            "gradient is not normalized": ("self.rho / norm", "self.rho"),
            "best point nearby": ("w + self.rho", "w - self.rho"),
        },
    ),
    "minimization.mime": (
        [check_mime],
        {
            "next batch": ("gradients.again(", "gradients("),
            "correction has the wrong sign": ("message.control - gradients", "gradients"),
            "momentum is the server's gradient": ("self.beta * message.momentum)", "self.beta * message.control)"),
            "momentum is undamped": ("(1 - self.beta) * server.control", "server.control"),
        },
    ),
    "minimization.q_fedavg": (
        [check_q_fedavg],
        {
            "scale forgets the loss": ("+ share / self.local_lr", "+ 1 / self.local_lr"),
            "power is off by one": ("local.loss ** (self.q - 1)", "local.loss**self.q"),
            "change is not divided by the step": (
                "(message.primal - local.primal) / self.local_lr",
                "(message.primal - local.primal)",
            ),
        },
    ),
    "personal.local_parts": (
        [check_local_parts],
        {
            "body moves with the head": ("[self.own] * self.head_steps", "[(slice(0, size),)] * self.head_steps"),
            "head moves with the body": ("body = shared if self.head_steps else", "body ="),
            "point is the server's": ("with_parts(point.primal, self.own, client.own)", "point.primal"),
        },
    ),
    "personal.ditto": (
        [check_ditto],
        {
            "pull has the wrong sign": ("prox=self.prox", "prox=-self.prox"),
            "own point takes another batch": ("gradients.again(v", "gradients(v"),
            "own point starts anew": ("client.own.clone()", "message.primal.clone()"),
            "pull is towards the moving point": ("reference=message.primal", "reference=w"),
        },
    ),
    "server_optimizer": (
        [check_server_optimizers],
        {
            "momentum is damped": (
                "self.momentum * m + change\n",
                "self.momentum * m + (1 - self.momentum) * change\n",
            ),
            "yogi is adam": ("* torch.sign(v - square)", ""),
            "tau is within the root": ("(v.sqrt() + self.tau)", "(v + self.tau).sqrt()"),
            "v starts at zero": ("torch.full_like(point.primal, self.tau**2)", "torch.zeros_like(point.primal)"),
        },
    ),
    "statistics": (
        [check_statistics],
        {
            "drift is that of the first client": ("drift=spread(vectors)", "drift=spread(vectors[:1])"),
            "sizes are those of the first client": (
                "for vector in vectors], drift",
                "for vector in vectors[:1]], drift",
            ),
        },
    ),
    "compression": (
        [check_top_k, check_8_bits],
        {
            "error is forgotten": ("change = change + errors[name].flatten()", "pass"),
            "smallest are sent": ("change.abs().topk", "(-change.abs()).topk"),
            "what is sent stays": ("change.index_fill(0, places[name].long(), 0.0)", "change"),
            "rounding is down": ("levels + up", "levels"),
            "another number of levels": ("(places[name] / LEVELS)", "(places[name] / 128)"),
        },
    ),
}
CHECKS = {f"{'algorithms' if '.' in name else 'exchange'}.{name}": checks for name, (checks, _) in TABLE.items()}
MUTANTS = {f"{'algorithms' if '.' in name else 'exchange'}.{name}": mutants for name, (_, mutants) in TABLE.items()}

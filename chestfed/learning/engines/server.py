"""The engine with a server: the order of a round, whoever computes the clients' part."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Literal

import torch
from torch import Tensor, nn

from chestfed.core.errors import TrainingError
from chestfed.learning.algorithms.returned import refuse_unlike
from chestfed.learning.algorithms.variables import (
    Algorithm,
    Client,
    Finishing,
    Message,
    Partial,
    Personal,
    Point,
    Preparing,
    Restarting,
    Server,
    Sharing,
    Stateless,
    byte_count,
    from_named_tensors,
    is_finite,
    named_tensors,
    weighted_mean,
)
from chestfed.learning.engines.engine import Engine, RoundRecord, StageEnd, refuse_outsized
from chestfed.learning.engines.fleet import Fleet
from chestfed.learning.engines.messages.requests import BestDual, Finish, Locate, Prepare, Statistics, Work
from chestfed.learning.exchange.exchange import PLAIN, Exchange
from chestfed.learning.exchange.statistics import spread
from chestfed.learning.exchange.step import Arrived, Package
from chestfed.learning.models import FlatModule
from chestfed.learning.objectives.declaration import ServerEstimate

#: Batches per client from which running statistics are taken anew.
STATISTICS_BATCHES = 32


#: The record of an exchange that did not take place.
NOTHING_SPENT = RoundRecord(0, 0, 0, 0, 0.0, 0.0, 0.0)

#: Treatment of a client without an answer: it is late or cannot be used. wait: the round waits; drop: the client
#: is left out of the round; a number: it is left out if so many others have answered.
Absent = Literal["wait", "drop"] | int


@dataclass(frozen=True)
class Federation(Generic[Server]):
    """State of the server between rounds; `rounds` is the number of finished ones of the stage, int64 `[]`.

    `kept` is what the steps of the exchange keep at the server, `shared` are the objective's numbers that it sends.
    """

    server: Server
    buffers: Tensor
    rounds: Tensor
    turns: Tensor
    kept: tuple[Any, ...]
    shared: Tensor


@dataclass(frozen=True)
class Round(Generic[Message]):
    """The results of a round's local work: the server's step takes `updates` with `weights`.

    `sizes` are the Euclidean norms of the updates, by the number of the client that answered. `drift` and
    `gradient_drift` are those of `RoundRecord`.
    """

    sizes: Mapping[int, float]
    updates: Sequence[Message]
    weights: Sequence[float]
    buffers: Tensor
    loss: float
    drift: float
    gradient_drift: float
    gradients: int
    images: int
    bytes_up: int


class ServerEngine(Engine[Federation[Server]], Generic[Server, Message, Client]):
    """The rounds of an algorithm with a server; float buffers are averaged each round as the models are.

    Parameters
    ----------
    weights
        One per client, summing to 1.
    stage
        The stage that the rule is of, counted from 0.
    monitor
        `monitor(primal, buffers)` gives what is shared in the next round, for objectives of which the server estimates
        it.
    sends
        False for one client that holds all the data: nothing is sent, and no byte counted.
    participants
        `participants(number)` gives the numbers of the clients that take part in a round, counted from 0; None: all.
        Their weights are scaled to sum to 1.
    exchange
        The steps that updates and running statistics pass before the server's own.
    absent
        Whether a round goes on without clients that do not answer, see `Absent`.
    steps
        `steps(round, client)` gives a client's local steps in a round, both counted from 0; None: the rule's window.
    """

    def __init__(
        self,
        algorithm: Algorithm[Server, Message, Client],
        fleet: Fleet,
        weights: Sequence[float],
        *,
        stage: int = 0,
        monitor: Callable[[Tensor, Tensor], Tensor] | None = None,
        sends: bool = True,
        participants: Callable[[int], Sequence[int]] | None = None,
        exchange: Exchange = PLAIN,
        absent: Absent = "wait",
        steps: Callable[[int, int], int] | None = None,
    ) -> None:
        super().__init__(fleet, stage)
        self.algorithm, self.weights = algorithm, weights
        self.exchange = exchange
        self._participants = participants
        self._monitor = monitor
        self._sends, self._absent, self._steps = sends, absent, steps

    def start_stage(
        self, point: Point, buffers: Tensor, turns: Tensor | None = None, shared: Tensor | None = None
    ) -> Federation[Server]:
        """All clients and the server at the same point."""
        turns = self.start_clients(point, turns)
        server = self.algorithm.start_stage(point)
        if self._monitor is not None:
            shared = self._monitor(self.algorithm.current(server).primal, buffers)
        shared = point.primal[:0] if shared is None else shared
        kept = self.exchange.start_server(point)
        return Federation(server, buffers, torch.zeros((), dtype=torch.int64), turns, kept, shared)

    def run_round(self, state: Federation[Server]) -> tuple[Federation[Server], RoundRecord]:
        """One communication round; see `Engine.run_round`."""
        chosen: Sequence[int] = range(len(self.weights))
        if self._participants is not None:
            chosen = self._participants(int(state.rounds))
        present = [number for number in chosen if number in self.fleet.present]
        if not present:
            raise TrainingError("all clients that were drawn for this round have left", kind="no client present")
        state, spent = self._prepare(state, present)
        message = self.algorithm.message(state.server)
        steps = {number: self._steps(int(state.rounds), number) if self._steps else 0 for number in present}
        asked = {
            number: Work(int(state.turns[number]), message, state.buffers, steps[number], state.shared)
            for number in present
        }
        result = self._collect_updates(asked, state, message)
        refuse_outsized(
            {self.fleet.names[number]: size for number, size in result.sizes.items()},
            float(self.algorithm.current(state.server).primal.norm()),
        )
        turns = state.turns.clone()
        turns[list(result.sizes)] += 1
        if len(result.sizes) < len(self.weights) and isinstance(self.algorithm, Partial):
            share = sum(self.weights[number] for number in result.sizes)
            server = self.algorithm.partial_round(state.server, result.updates, result.weights, share)
        else:
            server = self.algorithm.server_round(state.server, result.updates, result.weights)
        self._refuse_unusable(server, state.server)
        sent = len(result.sizes) if self._sends else 0
        buffer_bytes = _bytes(result.buffers)
        record = RoundRecord(
            result.gradients + spent.gradients,
            result.images + spent.images,
            bytes_up=(result.bytes_up + sent * buffer_bytes if self._sends else 0) + spent.bytes_up,
            bytes_down=sent * (byte_count(message) + buffer_bytes + _bytes(state.shared)) + spent.bytes_down,
            loss=result.loss,
            drift=result.drift,
            gradient_drift=result.gradient_drift,
            steps=tuple(steps.values()) if self._steps else (),
            absent=tuple(self.fleet.names[number] for number in chosen if number not in result.sizes),
        )
        server, kept = self.exchange.move(state.server, server, state.kept)
        shared = state.shared
        if self._monitor is not None:
            shared = self._monitor(self.algorithm.current(server).primal, result.buffers)
        elif isinstance(self.algorithm, Sharing):
            shared = self.algorithm.share(state.server, result.updates, result.weights)
        return Federation(server, result.buffers, state.rounds + 1, turns, kept, shared), record

    def _refuse_unusable(self, server: Server, before: Server) -> None:
        """Refuse what the server's step returned if it is not a state as before, of finite numbers."""
        rule = type(self.algorithm).__name__
        refuse_unlike(server, before, f"{rule}.server_round")
        if not is_finite(self.algorithm.current(server).primal):
            raise TrainingError(
                f"the server's model is not finite (NaN or infinity) after {rule}.server_round, and all updates were: "
                "the fault is in that step",
                kind="not finite",
                rule=rule,
            )

    def _prepare(self, state: Federation[Server], chosen: Sequence[int]) -> tuple[Federation[Server], RoundRecord]:
        """The state after what the clients of a `Preparing` algorithm send before their local steps; what that cost."""
        if not isinstance(self.algorithm, Preparing):
            return state, NOTHING_SPENT
        point = self.algorithm.current(state.server)
        asked = {
            number: Prepare[Message](int(state.turns[number]), point, state.buffers, state.shared) for number in chosen
        }
        answers = self.fleet.ask(asked, self._enough(len(asked)))
        done, weights = list(answers.values()), list(self._scale_weights(answers).values())
        server = self.algorithm.prepared(state.server, [part.message for part in done], weights)
        sent = len(done) if self._sends else 0
        spent = replace(
            NOTHING_SPENT,
            gradients=sum(part.gradients for part in done),
            images=sum(part.images for part in done),
            bytes_up=sent * byte_count(done[0].message),
            bytes_down=sent * (byte_count(point) + _bytes(state.buffers) + _bytes(state.shared)),
        )
        return replace(state, server=server), spent

    def _scale_weights(self, numbers: Collection[int]) -> dict[int, float]:
        """The weights of these clients, scaled to sum to 1 if others are missing."""
        if len(numbers) == len(self.weights):
            return dict(enumerate(self.weights))
        share = sum(self.weights[number] for number in numbers)
        return {number: self.weights[number] / share for number in numbers}

    def _collect_updates(
        self, asked: Mapping[int, Work[Message]], state: Federation[Server], message: Message
    ) -> Round[Message]:
        """The round of those who answer, each with its update."""
        answers = self.fleet.ask(asked, self._enough(len(asked)))
        done, weights = list(answers.values()), list(self._scale_weights(answers).values())
        arrived = self._pass_steps([Package(work.update, work.buffers) for work in done], weights, message, state)
        return Round(
            dict(zip(answers, arrived.sizes, strict=True)),
            [part.update for part in arrived.parts],
            arrived.weights,
            weighted_mean([part.buffers for part in arrived.parts], arrived.weights),
            loss=sum(weight * work.loss for weight, work in zip(weights, done, strict=True)),
            drift=arrived.drift,
            gradient_drift=spread([work.slope for work in done]),
            gradients=sum(work.gradients for work in done),
            images=sum(work.images for work in done),
            bytes_up=sum(byte_count(work.update) for work in done),
        )

    def _pass_steps(
        self, parts: Sequence[Package], weights: Sequence[float], sent: object, state: Federation[Server]
    ) -> Arrived:
        """Pass these packages through the exchange; the message `sent` and the state's buffers went down before."""
        before = Package(sent, state.buffers)
        return self.exchange.at_server(Arrived(parts, weights, before, (self.stage, int(state.rounds))))

    def _enough(self, asked: int) -> int | None:
        """Answers that are enough for a round; None: all."""
        if self._absent == "wait":
            return None
        least = 1 if self._absent == "drop" else self._absent
        return min(asked, max(least, self.exchange.least))

    def current(self, state: Federation[Server]) -> Point:
        return self.algorithm.current(state.server)

    def local_points(self, state: Federation[Server], point: Point) -> dict[str, Point]:
        if not isinstance(self.algorithm, Personal):
            return {}
        answers = self.fleet.ask_all(lambda number: Locate(int(state.turns[number]), point))
        return {self.fleet.names[number]: answer.point for number, answer in answers.items()}

    def finish_stage(self, state: Federation[Server]) -> StageEnd:
        """The point that the algorithm returns after a stage, and what the clients send for it."""
        if not isinstance(self.algorithm, Finishing):
            return super().finish_stage(state)
        answers = self.fleet.ask_all(lambda number: Finish[Message](int(state.turns[number])))
        finals = [answer.message for answer in answers.values()]
        sent = [final for final in finals if final is not None]
        up = sum(map(byte_count, sent)) if self._sends else 0
        weights = list(self._scale_weights(answers).values())
        if len(sent) == len(finals):
            parts = [Package(final, state.buffers[:0]) for final in sent]
            arrived = self._pass_steps(parts, weights, self.current(state), replace(state, buffers=state.buffers[:0]))
            output = self.algorithm.stage_output(state.server, [part.update for part in arrived.parts], arrived.weights)
        else:
            output = self.algorithm.stage_output(state.server, finals, weights)
        end = self.with_statistics(output, state)
        return replace(end, bytes_up=end.bytes_up + up)

    def with_statistics(self, point: Point, state: Federation[Server]) -> StageEnd:
        """A point with running statistics of its own: those of the last round are of other weights.

        The weights go down, every client passes `STATISTICS_BATCHES` batches through them, and the mean of the clients'
        statistics is taken, with the same weights as the models'.
        """
        if not state.buffers.numel() or torch.equal(point.primal, self.current(state).primal):
            return StageEnd(point, state.buffers, turns=state.turns, shared=state.shared)
        answers = self.fleet.ask_all(
            lambda number: Statistics(int(state.turns[number]), point.primal, state.buffers, STATISTICS_BATCHES)
        )
        statistics = [answer.buffers for answer in answers.values()]
        up, down = sum(map(_bytes, statistics)), len(statistics) * _bytes(point.primal)
        images = sum(answer.images for answer in answers.values())
        weights = list(self._scale_weights(answers).values())
        arrived = self._pass_steps([Package(Stateless(), part) for part in statistics], weights, Stateless(), state)
        buffers = weighted_mean([part.buffers for part in arrived.parts], arrived.weights)
        return StageEnd(point, buffers, *((up, down) if self._sends else (0, 0)), images, state.turns, state.shared)

    def restart(self, end: StageEnd) -> StageEnd:
        """Start of a further stage: of a `Restarting` algorithm with dual variables estimated anew."""
        if not isinstance(self.algorithm, Restarting) or end.turns is None:
            return super().restart(end)
        point, turns, batches = end.point, end.turns, self.algorithm.dual_batches
        answers = self.fleet.ask_all(lambda number: BestDual(int(turns[number]), point, end.buffers, batches))
        duals = [answer.dual for answer in answers.values()]
        up, down = sum(map(_bytes, duals)), len(duals) * (byte_count(point) + _bytes(end.buffers))
        images = sum(answer.images for answer in answers.values())
        start = self.algorithm.restart(point, duals, list(self._scale_weights(answers).values()))
        turns = turns.clone()
        turns[list(answers)] += 1
        return StageEnd(start, end.buffers, up, down, images, turns, end.shared)

    def tensors(self, state: Federation[Server]) -> dict[str, Tensor]:
        return named_tensors(state) | self.fleet.exported(state.turns.tolist(), "client")

    def restored(self, tensors: Mapping[str, Tensor], like: Federation[Server]) -> Federation[Server]:
        state = from_named_tensors(like, tensors)
        blank = self.exchange.start_client(self.algorithm, self.current(like))
        self.fleet.restore(tensors, "client", state.turns.tolist(), self.stage, [blank] * len(self.weights))
        return state


class ClassMonitor:
    """The server's look at auxiliary images `[n, 3, h, w]` and their labels `[n, J]` in {0, 1, NaN}, on the device.

    The objective estimates what is shared from what the network makes of them.
    """

    def __init__(
        self,
        network: FlatModule,
        objective: ServerEstimate,
        images: Tensor,
        labels: Tensor,
        *,
        autocast: bool = False,
    ) -> None:
        self._network, self._objective = network, objective
        self._images, self._labels = images, labels
        self._autocast = autocast
        self._classifier = [part for part in network.module.modules() if isinstance(part, nn.Linear)][-1]

    def __call__(self, primal: Tensor, buffers: Tensor) -> Tensor:
        """Estimate the objective's `shared` numbers from the network with these parameters and running statistics."""
        self._network.bind(primal)
        self._network.load_buffers(buffers)
        self._network.module.eval()
        seen: list[Tensor] = []
        hook = self._classifier.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0].flatten(1)))
        try:
            with (
                torch.no_grad(),
                torch.autocast(self._images.device.type, torch.bfloat16, enabled=self._autocast),
            ):
                logits = self._network.module(self._images)
        finally:
            hook.remove()
        return self._objective.estimate_shared(logits.to(primal), seen[0].to(primal), self._labels)


def _bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()

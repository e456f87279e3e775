"""The engine with a server: the order of a round, whoever computes the clients' part."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from chestfed.algorithms.variables import (
    Algorithm,
    Finishing,
    Partial,
    Point,
    Restarting,
    byte_count,
    from_named_tensors,
    named_tensors,
    weighted_mean,
)
from chestfed.engines.aggregation import MEAN, Aggregation, Privacy
from chestfed.engines.engine import Engine, RoundRecord, StageEnd, refuse_outsized, spread
from chestfed.engines.fleet import Fleet
from chestfed.engines.requests import BestDual, Finish, Statistics, Work
from chestfed.models import FlatModule
from chestfed.objectives.ratio_loss import class_ratios

#: Batches per client from which running statistics are taken anew.
STATISTICS_BATCHES = 32


#: What is done without a client's answer, because it is late or cannot be used. wait: the round waits; drop: the client
#: is left out of the round; a number: it is left out if so many others have answered.
Absent = Literal["wait", "drop"] | int


@dataclass(frozen=True)
class Federation:
    """What the server keeps between rounds; `rounds` is the number of finished ones of the stage, int64 `[]`."""

    server: Any
    buffers: Tensor
    rounds: Tensor
    turns: Tensor


class ServerEngine(Engine):
    """Float buffers are averaged each round, with the same weights as the models.

    Parameters
    ----------
    weights
        One per client, summing to 1.
    stage
        The stage that the rule is of, counted from 0.
    monitor
        `monitor(primal, buffers)` gives the dual variables that the server sends with the next round's message, for
        objectives whose dual variables are the server's own estimate.
    sends
        False for one client that holds all the data: nothing is sent, and no byte counted.
    participants
        `participants(number)` gives the numbers of the clients that take part in a round, counted from 0; None: all.
        Their weights are scaled to sum to 1.
    aggregation
        What takes the place of the weighted mean, of updates and of running statistics alike.
    absent
        Whether a round goes on without clients that do not answer, see `Absent`.
    privacy
        What clips the clients' changes and adds noise to their mean, for networks without buffers and algorithms whose
        server's step takes nothing else; None: nothing does.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        fleet: Fleet,
        weights: Sequence[float],
        *,
        stage: int = 0,
        monitor: Callable[[Tensor, Tensor], Tensor] | None = None,
        sends: bool = True,
        participants: Callable[[int], Sequence[int]] | None = None,
        aggregation: Aggregation = MEAN,
        absent: Absent = "wait",
        privacy: Privacy | None = None,
    ) -> None:
        super().__init__(algorithm, fleet, stage)
        self.weights = weights
        self._combine = aggregation
        self._participants = participants
        self._monitor = monitor
        self._sends, self._absent, self._privacy = sends, absent, privacy

    def start_stage(self, point: Point, buffers: Tensor, turns: Tensor | None = None) -> Federation:
        """All clients and the server at the same point."""
        turns = self.begun(point, turns)
        server = self._watched(self.algorithm.start_stage(point), buffers)
        return Federation(server, buffers, torch.zeros((), dtype=torch.int64), turns)

    def _watched(self, server: Any, buffers: Tensor) -> Any:
        """The server's state with what its monitor sees in the current model."""
        if self._monitor is None:
            return server
        return replace(server, dual=self._monitor(self.algorithm.current(server).primal, buffers))

    def run_round(self, state: Federation) -> tuple[Federation, RoundRecord]:
        """One communication round; see `Engine.run_round`."""
        message = self.algorithm.message(state.server)
        chosen: Sequence[int] = range(len(self.weights))
        if self._participants is not None:
            chosen = self._participants(int(state.rounds))
        work = self.fleet.ask_all(
            lambda number: Work(int(state.turns[number]), message, state.buffers), chosen, self._enough(len(chosen))
        )
        weights, share = self.weights, 1.0
        if len(work) < len(weights):
            share = sum(weights[number] for number in work)
            weights = [weights[number] / share for number in work]
        done, turns = list(work.values()), state.turns.clone()
        turns[list(work)] += 1
        updates = [its.update for its in done]
        refuse_outsized(
            {self.fleet.names[number]: float(its.update.primal.norm()) for number, its in work.items()},
            float(self.algorithm.current(state.server).primal.norm()),
        )
        combined = self._combine(updates, weights, message)
        if self._privacy is not None:
            combined = [self._privacy(updates, weights, message, self.stage, int(state.rounds))], [1.0]
        if len(work) < len(self.weights) and isinstance(self.algorithm, Partial):
            server = self.algorithm.partial_round(state.server, *combined, share)
        else:
            server = self.algorithm.server_round(state.server, *combined)
        mean_buffers = weighted_mean(*self._combine([its.buffers for its in done], weights, state.buffers))
        buffer_bytes = _bytes(mean_buffers)
        up = sum(byte_count(update) + buffer_bytes for update in updates)
        down = len(updates) * (byte_count(message) + buffer_bytes)
        record = RoundRecord(
            sum(its.gradients for its in done),
            sum(its.images for its in done),
            bytes_up=up if self._sends else 0,
            bytes_down=down if self._sends else 0,
            loss=sum(weight * its.loss for weight, its in zip(weights, done, strict=True)),
            drift=spread([update.primal for update in updates]),
            gradient_drift=spread([its.slope for its in done]),
            absent=tuple(self.fleet.names[number] for number in chosen if number not in work),
        )
        watched = self._watched(server, mean_buffers)
        return Federation(watched, mean_buffers, state.rounds + 1, turns), record

    def _enough(self, asked: int) -> int | None:
        """Answers that are enough for a round; None: all."""
        if self._absent == "wait":
            return None
        least = 1 if self._absent == "drop" else self._absent
        return min(asked, max(least, self._combine.needs()))

    def current(self, state: Federation) -> Point:
        """The server's."""
        return self.algorithm.current(state.server)

    def finish_stage(self, state: Federation) -> StageEnd:
        """The point that the algorithm returns after a stage, and what the clients send for it."""
        if not isinstance(self.algorithm, Finishing):
            return super().finish_stage(state)
        finals = [its.message for its in self.fleet.ask_all(lambda number: Finish(int(state.turns[number]))).values()]
        up = sum(byte_count(final) for final in finals if final is not None) if self._sends else 0
        given: Any = finals, self.weights
        if None not in finals:
            given = self._combine(finals, self.weights, self.current(state))
        end = self.settled(self.algorithm.stage_output(state.server, *given), state)
        return replace(end, bytes_up=end.bytes_up + up)

    def settled(self, point: Point, state: Federation) -> StageEnd:
        """A point with running statistics of its own: those of the last round are of other weights.

        The weights go down, every client passes `STATISTICS_BATCHES` batches through them, and the mean of the clients'
        statistics is taken, with the same weights as the models'.
        """
        if not state.buffers.numel() or torch.equal(point.primal, self.current(state).primal):
            return StageEnd(point, state.buffers, turns=state.turns)
        answers = self.fleet.ask_all(
            lambda number: Statistics(int(state.turns[number]), point.primal, state.buffers, STATISTICS_BATCHES)
        )
        found = [its.buffers for its in answers.values()]
        up, down = sum(map(_bytes, found)), len(found) * _bytes(point.primal)
        images = sum(its.images for its in answers.values())
        buffers = weighted_mean(*self._combine(found, self.weights, state.buffers))
        return StageEnd(point, buffers, *((up, down) if self._sends else (0, 0)), images, state.turns)

    def restart(self, end: StageEnd) -> StageEnd:
        """What a further stage starts from: of a `Restarting` algorithm with dual variables estimated anew."""
        if not isinstance(self.algorithm, Restarting) or end.turns is None:
            return super().restart(end)
        point, turns, batches = end.point, end.turns, self.algorithm.dual_batches
        answers = self.fleet.ask_all(lambda number: BestDual(int(turns[number]), point, end.buffers, batches))
        duals = [its.dual for its in answers.values()]
        up, down = sum(map(_bytes, duals)), len(duals) * (byte_count(point) + _bytes(end.buffers))
        images = sum(its.images for its in answers.values())
        begun = self.algorithm.restart(point, duals, self.weights)
        return StageEnd(begun, end.buffers, up, down, images, turns + 1)

    def tensors(self, state: Federation) -> dict[str, Tensor]:
        """See `Engine.tensors`."""
        return named_tensors(state) | self.fleet.exported(state.turns.tolist(), "client")

    def restored(self, tensors: Mapping[str, Tensor], like: Federation) -> Federation:
        """See `Engine.restored`."""
        state = from_named_tensors(like, tensors)
        blank = self.algorithm.start_client(self.current(like))
        self.fleet.restore(tensors, "client", state.turns.tolist(), self.stage, blank)
        return state


class ClassMonitor:
    """The server's look at auxiliary images `[n, 3, h, w]` and their labels `[n, J]` in {0, 1, NaN}, on the device.

    It estimates how scarce each class is for a model, from the gradients at the classifier's weights.
    """

    def __init__(self, network: FlatModule, images: Tensor, labels: Tensor, *, autocast: bool = False) -> None:
        self._network = network
        self._images, self._labels = images, labels
        self._autocast = autocast
        self._classifier = [part for part in network.module.modules() if isinstance(part, nn.Linear)][-1]

    def __call__(self, primal: Tensor, buffers: Tensor) -> Tensor:
        """The ratios `[2J]` of the network with these parameters and running statistics."""
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
        return class_ratios(logits.float(), seen[0].float(), self._labels).to(primal.dtype)


def _bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()

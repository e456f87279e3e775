"""The engine with a server: clients one after the other in this process, on one device, in client order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from chestfed.algorithms.variables import Algorithm, Finishing, Point, Restarting, byte_count, weighted_mean
from chestfed.engines.engine import Client, Engine, RoundRecord, StageEnd, spread
from chestfed.models import FlatModule
from chestfed.objectives.ratio_loss import class_ratios

#: Batches per client from which running statistics are taken anew.
STATISTICS_BATCHES = 32


@dataclass(frozen=True)
class Federation:
    """Everything that a stage keeps between rounds; `rounds` is the number of finished ones, int64 `[]`."""

    server: Any
    clients: tuple[Any, ...]
    buffers: Tensor
    rounds: Tensor


class InProcessEngine(Engine):
    """Float buffers are averaged each round, with the same weights as the models.

    Parameters
    ----------
    weights
        One per client, summing to 1.
    monitor
        `monitor(primal, buffers)` gives the dual variables that the server sends with the next round's message, for
        objectives whose dual variables are the server's own estimate.
    sends
        False for one client that holds all the data: nothing is sent, and no byte counted.
    participants
        `participants(number)` gives the numbers of the clients that take part in a round, counted from 0; None: all.
        Their weights are scaled to sum to 1.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        clients: Sequence[Client],
        weights: Sequence[float],
        *,
        monitor: Callable[[Tensor, Tensor], Tensor] | None = None,
        sends: bool = True,
        participants: Callable[[int], Sequence[int]] | None = None,
    ) -> None:
        super().__init__(algorithm, clients)
        self.weights = weights
        self._participants = participants
        self._monitor = monitor
        self._sends = sends

    def start_stage(self, point: Point, buffers: Tensor) -> Federation:
        """All clients and the server at the same point."""
        states = tuple(self.algorithm.start_client(point) for _ in self.clients)
        server = self._watched(self.algorithm.start_stage(point), buffers)
        return Federation(server, states, buffers, torch.zeros((), dtype=torch.int64))

    def _watched(self, server: Any, buffers: Tensor) -> Any:
        """The server's state with what its monitor sees in the current model."""
        if self._monitor is None:
            return server
        return replace(server, dual=self._monitor(self.algorithm.current(server).primal, buffers))

    def run_round(self, state: Federation) -> tuple[Federation, RoundRecord]:
        """One communication round; see `Engine.run_round`."""
        message, weights = self.algorithm.message(state.server), self.weights
        chosen: Sequence[int] = range(len(self.clients))
        if self._participants is not None:
            chosen = self._participants(int(state.rounds))
            weights = [weights[number] / sum(weights[other] for other in chosen) for number in chosen]
        work = self.local_work(
            [state.clients[number] for number in chosen],
            state.buffers,
            lambda client, its: self.algorithm.local_round(message, its, client.oracle),
            lambda result: (result[0].primal, result[0].dual),
            clients=[self.clients[number] for number in chosen],
        )
        updates, states = [update for update, _ in work.results], list(state.clients)
        for number, (_, its) in zip(chosen, work.results, strict=True):
            states[number] = its
        server = self.algorithm.server_round(state.server, updates, weights)
        mean_buffers = weighted_mean(work.buffers, weights)
        buffer_bytes = _bytes(mean_buffers)
        up = sum(byte_count(update) + buffer_bytes for update in updates)
        down = len(updates) * (byte_count(message) + buffer_bytes)
        record = RoundRecord(
            work.gradients,
            work.images,
            bytes_up=up if self._sends else 0,
            bytes_down=down if self._sends else 0,
            loss=sum(weight * loss for weight, loss in zip(weights, work.losses, strict=True)),
            drift=spread([update.primal for update in updates]),
            gradient_drift=spread(work.slopes),
        )
        watched = self._watched(server, mean_buffers)
        return Federation(watched, tuple(states), mean_buffers, state.rounds + 1), record

    def current(self, state: Federation) -> Point:
        """The server's."""
        return self.algorithm.current(state.server)

    def finish_stage(self, state: Federation) -> StageEnd:
        """The point that the algorithm returns after a stage, and what the clients send for it."""
        if not isinstance(self.algorithm, Finishing):
            return super().finish_stage(state)
        finals = [self.algorithm.final_message(its) for its in state.clients]
        up = sum(byte_count(final) for final in finals if final is not None) if self._sends else 0
        end = self.settled(self.algorithm.stage_output(state.server, finals, self.weights), state)
        return replace(end, bytes_up=end.bytes_up + up)

    def settled(self, point: Point, state: Federation) -> StageEnd:
        """A point with running statistics of its own: those of the last round are of other weights.

        The weights go down, every client passes `STATISTICS_BATCHES` batches through them, and the mean of the clients'
        statistics is taken, with the same weights as the models'.
        """
        if not state.buffers.numel() or torch.equal(point.primal, self.current(state).primal):
            return StageEnd(point, state.buffers)
        (_, images_before), found = self._counted(), []
        for client in self.clients:
            with client.training(state.buffers):
                client.gather_statistics(point.primal, STATISTICS_BATCHES)
                found.append(client.buffers())
        up, down = sum(map(_bytes, found)), len(self.clients) * _bytes(point.primal)
        images = self._counted()[1] - images_before
        return StageEnd(point, weighted_mean(found, self.weights), *((up, down) if self._sends else (0, 0)), images)

    def restart(self, end: StageEnd) -> StageEnd:
        """What a further stage starts from: of a `Restarting` algorithm with dual variables estimated anew."""
        if not isinstance(self.algorithm, Restarting):
            return super().restart(end)
        (_, images_before), duals, point = self._counted(), [], end.point
        for client in self.clients:
            with client.training(end.buffers):
                duals.append(client.best_dual(point.primal, point.dual, self.algorithm.dual_batches))
        up, down = sum(map(_bytes, duals)), len(self.clients) * (byte_count(point) + _bytes(end.buffers))
        images = self._counted()[1] - images_before
        return StageEnd(self.algorithm.restart(point, duals, self.weights), end.buffers, up, down, images)


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

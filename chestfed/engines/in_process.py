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


@dataclass(frozen=True)
class Federation:
    """Everything that a stage keeps between rounds: the server's and the clients' states, and the buffers."""

    server: Any
    clients: tuple[Any, ...]
    buffers: Tensor


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
    """

    def __init__(
        self,
        algorithm: Algorithm,
        clients: Sequence[Client],
        weights: Sequence[float],
        *,
        monitor: Callable[[Tensor, Tensor], Tensor] | None = None,
        sends: bool = True,
    ) -> None:
        super().__init__(algorithm, clients)
        self.weights = weights
        self._monitor = monitor
        self._sends = sends

    def start_stage(self, point: Point, buffers: Tensor) -> Federation:
        """All clients and the server at the same point."""
        states = tuple(self.algorithm.start_client(point) for _ in self.clients)
        return Federation(self._watched(self.algorithm.start_stage(point), buffers), states, buffers)

    def _watched(self, server: Any, buffers: Tensor) -> Any:
        """The server's state with what its monitor sees in the current model."""
        if self._monitor is None:
            return server
        return replace(server, dual=self._monitor(self.algorithm.current(server).primal, buffers))

    def run_round(self, state: Federation) -> tuple[Federation, RoundRecord]:
        """One communication round; see `Engine.run_round`."""
        message = self.algorithm.message(state.server)
        work = self.local_work(
            state.clients,
            state.buffers,
            lambda client, its: self.algorithm.local_round(message, its, client.oracle),
            lambda result: (result[0].primal, result[0].dual),
        )
        updates, states = [update for update, _ in work.results], tuple(its for _, its in work.results)
        server = self.algorithm.server_round(state.server, updates, self.weights)
        mean_buffers = weighted_mean(work.buffers, self.weights)
        buffer_bytes = _bytes(mean_buffers)
        up = sum(byte_count(update) + buffer_bytes for update in updates)
        down = len(self.clients) * (byte_count(message) + buffer_bytes)
        record = RoundRecord(
            work.gradients,
            work.images,
            bytes_up=up if self._sends else 0,
            bytes_down=down if self._sends else 0,
            loss=sum(weight * loss for weight, loss in zip(self.weights, work.losses, strict=True)),
            drift=spread([update.primal for update in updates]),
            gradient_drift=spread(work.slopes),
        )
        return Federation(self._watched(server, mean_buffers), states, mean_buffers), record

    def current(self, state: Federation) -> Point:
        """The server's."""
        return self.algorithm.current(state.server)

    def finish_stage(self, state: Federation) -> StageEnd:
        """The point that the algorithm returns after a stage, and what the clients send for it."""
        if not isinstance(self.algorithm, Finishing):
            return super().finish_stage(state)
        finals = [self.algorithm.final_message(its) for its in state.clients]
        up = sum(byte_count(final) for final in finals if final is not None) if self._sends else 0
        return StageEnd(self.algorithm.stage_output(state.server, finals, self.weights), up)

    def restart(self, point: Point, buffers: Tensor) -> StageEnd:
        """What a further stage starts from: of a `Restarting` algorithm with dual variables estimated anew."""
        if not isinstance(self.algorithm, Restarting):
            return super().restart(point, buffers)
        (_, images_before), duals = self._counted(), []
        for client in self.clients:
            with client.training(buffers):
                duals.append(client.best_dual(point.primal, point.dual, self.algorithm.dual_batches))
        up, down = sum(map(_bytes, duals)), len(self.clients) * (byte_count(point) + _bytes(buffers))
        images = self._counted()[1] - images_before
        return StageEnd(self.algorithm.restart(point, duals, self.weights), up, down, images)


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

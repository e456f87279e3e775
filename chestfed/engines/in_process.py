"""The in-process engine: clients one after the other, on one device, in client order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch import Tensor

from chestfed.algorithms.variables import (
    Algorithm,
    Finishing,
    Point,
    Restarting,
    byte_count,
    from_named_tensors,
    named_tensors,
    weighted_mean,
)
from chestfed.core.errors import TrainingError


class Client(Protocol):
    """What the engine needs of a client; `NetworkClient` is one.

    `gradients_computed` and `images_seen` count from the client's first step on.
    """

    name: str
    gradients_computed: int
    images_seen: int

    @property
    def oracle(self) -> Any:
        """What the algorithm asks in its local steps: `Gradients`, or what its file names instead."""
        ...

    def training(self, buffers: Tensor) -> AbstractContextManager[None]:
        """Enter a round with these buffers."""
        ...

    def buffers(self) -> Tensor:
        """The buffers after the local steps."""
        ...

    def mean_loss(self) -> float:
        """Mean loss over the round's steps."""
        ...

    def mean_gradient(self) -> Tensor:
        """Mean over the round's steps of the gradient by the primal variables `[d + extra]`."""
        ...

    def best_dual(self, primal: Tensor, dual: Tensor, batches: int) -> Tensor:
        """The dual variables that are best for this client's loss at `primal`, estimated on so many batches."""
        ...


@dataclass(frozen=True)
class Federation:
    """Everything that a stage keeps between rounds: the server's and the clients' states, and the buffers."""

    server: Any
    clients: tuple[Any, ...]
    buffers: Tensor


@dataclass(frozen=True)
class RoundRecord:
    """What one round cost and how it went, summed over clients unless said otherwise.

    `bytes_up` and `bytes_down` count the tensors of the messages as sent, buffers included. `drift` is the mean
    over clients of the squared distance between a local model and the mean of the local models;
    `gradient_drift` the same for the clients' mean gradients over the round.
    """

    gradients: int
    images: int
    bytes_up: int
    bytes_down: int
    loss: float
    drift: float
    gradient_drift: float


@dataclass(frozen=True)
class StageEnd:
    """The point that a stage returns or the next one starts from; what was sent and seen for it beyond the rounds."""

    point: Point
    bytes_up: int
    bytes_down: int
    images: int


class InProcessEngine:
    """Runs stages of an algorithm over clients; float buffers are averaged each round, with the same weights.

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
        self.algorithm = algorithm
        self.clients = clients
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

    def run_round(self, federation: Federation) -> tuple[Federation, RoundRecord]:
        """One communication round.

        Raises
        ------
        TrainingError
            If a client's update is not finite; the federation given stays as it was.
        """
        message = self.algorithm.message(federation.server)
        images_before = sum(client.images_seen for client in self.clients)
        gradients_before = sum(client.gradients_computed for client in self.clients)
        updates, states, buffers, losses, slopes = [], [], [], [], []
        for client, state in zip(self.clients, federation.clients, strict=True):
            with client.training(federation.buffers):
                update, new_state = self.algorithm.local_round(message, state, client.oracle)
            if not (torch.isfinite(update.primal).all() and torch.isfinite(update.dual).all()):
                raise TrainingError(
                    f"client '{client.name}': its update is not finite (NaN or infinity) after "
                    f"{self.algorithm.window} local steps. Lower federated.local_lr or federated.window; the last "
                    "saved round is kept."
                )
            updates.append(update)
            states.append(new_state)
            buffers.append(client.buffers())
            losses.append(client.mean_loss())
            slopes.append(client.mean_gradient())

        server = self.algorithm.server_round(federation.server, updates, self.weights)
        mean_buffers = weighted_mean(buffers, self.weights)
        buffer_bytes = mean_buffers.numel() * mean_buffers.element_size()
        up = sum(byte_count(update) + buffer_bytes for update in updates)
        down = len(self.clients) * (byte_count(message) + buffer_bytes)
        record = RoundRecord(
            gradients=sum(client.gradients_computed for client in self.clients) - gradients_before,
            images=sum(client.images_seen for client in self.clients) - images_before,
            bytes_up=up if self._sends else 0,
            bytes_down=down if self._sends else 0,
            loss=sum(weight * loss for weight, loss in zip(self.weights, losses, strict=True)),
            drift=spread([update.primal for update in updates]),
            gradient_drift=spread(slopes),
        )
        return Federation(self._watched(server, mean_buffers), tuple(states), mean_buffers), record

    def tensors(self, federation: Federation) -> dict[str, Tensor]:
        """Everything that a stage keeps, by name: what a checkpoint stores."""
        named = {f"server.{name}": tensor for name, tensor in named_tensors(federation.server).items()}
        for index, state in enumerate(federation.clients):
            named |= {f"client.{index}.{name}": tensor for name, tensor in named_tensors(state).items()}
        return named | {"buffers": federation.buffers}

    def restored(self, tensors: Mapping[str, Tensor], like: Federation) -> Federation:
        """The inverse of `tensors`; `like` is any federation of this engine and gives the types of the states."""

        def restore(record: Any, prefix: str) -> Any:
            names = named_tensors(record)
            return from_named_tensors(
                type(record), {name: tensors[f"{prefix}.{name}"].to(names[name].device) for name in names}
            )

        states = tuple(restore(state, f"client.{index}") for index, state in enumerate(like.clients))
        return Federation(restore(like.server, "server"), states, tensors["buffers"].to(like.buffers.device))

    def current(self, federation: Federation) -> Point:
        """The point to evaluate after a round."""
        return self.algorithm.current(federation.server)

    def finish_stage(self, federation: Federation) -> StageEnd:
        """The point that the algorithm returns after a stage."""
        if not isinstance(self.algorithm, Finishing):
            return StageEnd(self.current(federation), 0, 0, 0)
        finals = [self.algorithm.final_message(state) for state in federation.clients]
        up = sum(byte_count(final) for final in finals if final is not None) if self._sends else 0
        return StageEnd(self.algorithm.stage_output(federation.server, finals, self.weights), up, 0, 0)

    def restart(self, point: Point, buffers: Tensor) -> StageEnd:
        """What a further stage starts from, given the point and buffers that the stage before it returned."""
        if not isinstance(self.algorithm, Restarting):
            return StageEnd(point, 0, 0, 0)
        images_before = sum(client.images_seen for client in self.clients)
        duals = []
        for client in self.clients:
            with client.training(buffers):
                duals.append(client.best_dual(point.primal, point.dual, self.algorithm.dual_batches))
        up = sum(dual.numel() * dual.element_size() for dual in duals)
        down = len(self.clients) * (byte_count(point) + buffers.numel() * buffers.element_size())
        images = sum(client.images_seen for client in self.clients) - images_before
        return StageEnd(self.algorithm.restart(point, duals, self.weights), up, down, images)


def spread(vectors: Sequence[Tensor]) -> float:
    """Mean squared distance to the mean."""
    mean = weighted_mean(vectors, [1 / len(vectors)] * len(vectors))
    return sum(float((vector - mean).square().sum()) for vector in vectors) / len(vectors)

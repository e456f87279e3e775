"""The seam between training and who computes where: what an engine does, and what it asks of a client.

An engine moves states and messages, which are dataclasses of tensors, and counts their bytes; it knows no mathematics.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from chestfed.algorithms.variables import Point, from_named_tensors, named_tensors, weighted_mean
from chestfed.core.errors import TrainingError


class Client(Protocol):
    """What an engine needs of a client; `NetworkClient` is one.

    `gradients_computed` and `images_seen` count from the client's first step on.
    """

    name: str
    gradients_computed: int
    images_seen: int

    @property
    def oracle(self) -> Any:
        """What the algorithm asks in its local steps: `Gradients`, or what its file names instead."""

    def training(self, buffers: Tensor) -> AbstractContextManager[None]:
        """Enter a round with these buffers."""

    def buffers(self) -> Tensor:
        """The buffers after the local steps."""

    def mean_loss(self) -> float:
        """Mean loss over the round's steps."""

    def mean_gradient(self) -> Tensor:
        """Mean over the round's steps of the gradient by the primal variables `[d + extra]`."""

    def gather_statistics(self, primal: Tensor, batches: int) -> None:
        """Take the running statistics anew, with the weights in `primal`, from the next `batches` batches."""

    def best_dual(self, primal: Tensor, dual: Tensor, batches: int) -> Tensor:
        """The dual variables that are best for this client's loss at `primal`, estimated on so many batches."""


@dataclass(frozen=True)
class RoundRecord:
    """What one round cost and how it went, summed over clients unless said otherwise.

    `bytes_up` and `bytes_down` count the tensors of the messages as sent, buffers included; what nodes send along edges
    is sent once, and counted as up. `drift` is the mean
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
    """The point and buffers that a stage returns or the next one starts from; what that cost beyond the rounds."""

    point: Point
    buffers: Tensor
    bytes_up: int = 0
    bytes_down: int = 0
    images: int = 0


@dataclass
class LocalWork:
    """What the clients' local steps came to, client by client; `gradients` and `images` in all."""

    results: list[Any]
    buffers: list[Tensor]
    losses: list[float]
    slopes: list[Tensor]
    gradients: int = 0
    images: int = 0


class Engine(ABC):
    """Runs stages of an algorithm over clients.

    A state is a dataclass of tensors, of such dataclasses and of tuples of them: all that is kept between rounds. Its
    `buffers` are the network's running statistics.
    """

    def __init__(self, algorithm: Any, clients: Sequence[Client]) -> None:
        self.algorithm = algorithm
        self.clients = clients

    @abstractmethod
    def start_stage(self, point: Point, buffers: Tensor) -> Any:
        """The state at the start of a stage: all at the same point."""

    @abstractmethod
    def run_round(self, state: Any) -> tuple[Any, RoundRecord]:
        """The state after one round.

        Raises
        ------
        TrainingError
            If what a client computes is not finite; the state given stays as it was.
        """

    @abstractmethod
    def current(self, state: Any) -> Point:
        """The point to evaluate after a round."""

    def finish_stage(self, state: Any) -> StageEnd:
        """What the algorithm returns after a stage."""
        return StageEnd(self.current(state), state.buffers)

    def settled(self, point: Point, state: Any) -> StageEnd:
        """Another point than `current`, with buffers that suit it."""
        return StageEnd(point, state.buffers)

    def restart(self, end: StageEnd) -> StageEnd:
        """What a further stage starts from, given what the stage before it returned."""
        return StageEnd(end.point, end.buffers)

    def tensors(self, state: Any) -> dict[str, Tensor]:
        """All of a state by name: what a checkpoint stores."""
        return named_tensors(state)

    def restored(self, tensors: Mapping[str, Tensor], like: Any) -> Any:
        """The inverse of `tensors`; `like` is any state of this engine."""
        return from_named_tensors(like, tensors)

    def local_work(
        self,
        states: Iterable[Any],
        buffers: Tensor,
        step: Callable[[Client, Any], Any],
        finite: Callable[[Any], Iterable[Tensor]],
        what: str = "client '{}': its update",
        clients: Sequence[Client] | None = None,
    ) -> LocalWork:
        """Each client's `step(client, state)`, one after the other; `finite` gives the tensors of a result to check."""
        before, work = self._counted(), LocalWork([], [], [], [])
        for client, state in zip(self.clients if clients is None else clients, states, strict=True):
            with client.training(buffers):
                result = step(client, state)
            if not all(torch.isfinite(tensor).all() for tensor in finite(result)):
                raise TrainingError(
                    f"{what.format(client.name)} is not finite (NaN or infinity) after {self.algorithm.window} local "
                    "steps. Lower federated.local_lr or federated.window; the last saved round is kept."
                )
            work.results.append(result)
            work.buffers.append(client.buffers())
            work.losses.append(client.mean_loss())
            work.slopes.append(client.mean_gradient())
        work.gradients, work.images = (after - first for after, first in zip(self._counted(), before, strict=True))
        return work

    def _counted(self) -> tuple[int, int]:
        """Gradients and images of all clients since their first step."""
        return (
            sum(client.gradients_computed for client in self.clients),
            sum(client.images_seen for client in self.clients),
        )


def spread(vectors: Sequence[Tensor]) -> float:
    """Mean squared distance to the mean."""
    mean = weighted_mean(vectors, [1 / len(vectors)] * len(vectors))
    return sum(float((vector - mean).square().sum()) for vector in vectors) / len(vectors)

"""Work of an engine: the order of a round, and the record of what it cost.

An engine moves states and messages, which are dataclasses of tensors; it knows no mathematics. Where the clients
compute is their fleet's business (`fleet.py`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Generic, Protocol, TypeVar

import torch
from torch import Tensor

from chestfed.core.errors import TrainingError
from chestfed.learning.algorithms.variables import Point, Record
from chestfed.learning.engines.fleet import Fleet
from chestfed.learning.engines.messages.requests import Start

#: No honest update is so many times as large as the model and as the median of the others' updates.
OUTSIZED = 1000.0


@dataclass(frozen=True)
class RoundRecord:
    """Costs and statistics of one round, summed over clients unless stated otherwise.

    `bytes_up` and `bytes_down` count the tensors of the messages as sent, buffers included; what nodes send along edges
    is sent once, and counted as up. `drift` is the mean
    over clients of the squared distance between a local model and the mean of the local models;
    `gradient_drift` the same for the clients' mean gradients over the round. `absent` are the clients without which the
    round went on; `steps` the local steps of those asked, where they may differ.
    """

    gradients: int
    images: int
    bytes_up: int
    bytes_down: int
    loss: float
    drift: float
    gradient_drift: float
    absent: tuple[str, ...] = ()
    steps: tuple[int, ...] = ()


@dataclass(frozen=True)
class StageEnd:
    """The point and buffers that a stage returns or the next one starts from; what that cost beyond the rounds.

    `turns` are those that the clients stand at, int64 `[K]`; None: at their first. `shared` are the objective's numbers
    that the server sends; None: 0, or as the server estimates them.
    """

    point: Point
    buffers: Tensor
    bytes_up: int = 0
    bytes_down: int = 0
    images: int = 0
    turns: Tensor | None = None
    shared: Tensor | None = None


class EngineState(Record, Protocol):
    """State of the server, or of who stands in for one, between rounds: tensors, states, and tuples of them."""

    @property
    def buffers(self) -> Tensor:
        """The network's running statistics."""

    @property
    def shared(self) -> Tensor:
        """The objective's numbers that the server sends."""

    @property
    def turns(self) -> Tensor:
        """Those that the clients stand at, int64 `[K]`; their own states are with their hosts."""


State = TypeVar("State", bound=EngineState)


class Engine(ABC, Generic[State]):
    """Runs stages of an algorithm over the clients of a fleet."""

    def __init__(self, fleet: Fleet, stage: int = 0) -> None:
        self.fleet, self.stage = fleet, stage

    @abstractmethod
    def start_stage(
        self, point: Point, buffers: Tensor, turns: Tensor | None = None, shared: Tensor | None = None
    ) -> State:
        """The state at the start of a stage: all at the same point; `turns` and `shared` as in `StageEnd`."""

    @abstractmethod
    def run_round(self, state: State) -> tuple[State, RoundRecord]:
        """The state after one round.

        Raises
        ------
        TrainingError
            If what a client computes is not finite; the state given stays as it was.
        """

    @abstractmethod
    def current(self, state: State) -> Point:
        """The point to evaluate after a round."""

    def local_points(self, state: State, point: Point) -> dict[str, Point]:
        """The clients' points by name, given the server's; empty unless the algorithm is `Personal`."""
        return {}

    def finish_stage(self, state: State) -> StageEnd:
        """Result of the algorithm after a stage."""
        return StageEnd(self.current(state), state.buffers, turns=state.turns, shared=state.shared)

    def with_statistics(self, point: Point, state: State) -> StageEnd:
        """Another point than `current`, with buffers that suit it."""
        return StageEnd(point, state.buffers, turns=state.turns, shared=state.shared)

    def restart(self, end: StageEnd) -> StageEnd:
        """Start of a further stage, given what the stage before it returned."""
        return StageEnd(end.point, end.buffers, turns=end.turns, shared=end.shared)

    @abstractmethod
    def tensors(self, state: State) -> dict[str, Tensor]:
        """All of a state by name, the clients' own included: what a checkpoint stores."""

    @abstractmethod
    def restored(self, tensors: Mapping[str, Tensor], like: State) -> State:
        """The inverse of `tensors`, also at the clients; `like` is any state of this engine."""

    def start_clients(self, point: Point, turns: Tensor | None) -> Tensor:
        """Start the stage at every client; returns the turns that they then stand at."""
        turns = torch.zeros(len(self.fleet.names), dtype=torch.int64) if turns is None else turns.clone()
        self.fleet.ask_all(lambda number: Start(int(turns[number]), self.stage, point))
        turns[list(self.fleet.present)] += 1
        return turns


def refuse_outsized(sizes: Mapping[str, float], model: float) -> None:
    """Refuse what is `OUTSIZED` times as large as the model and as what the others send, by the client's name.

    `sizes` are the Euclidean norms of what the clients send, `model` that of the model before the round.

    Raises
    ------
    TrainingError
        If there is one.
    """
    for name, size in sizes.items():
        others = [other for key, other in sizes.items() if key != name]
        usual = max(model, median(others) if others else 0.0)
        if 0 < OUTSIZED * usual < size:
            raise TrainingError(
                f"client '{name}': its update is {size / usual:,.0f} times as large as the model and as the updates of "
                "the others. It is refused, and the round does not count; the last saved round is kept. Find out what "
                "this client sends.",
                kind="update too long",
                client=name,
            )

"""Requests to a client's host, and its answers: a closed set, and what a layout without a server adds.

Each is a dataclass of tensors, of the algorithm's states and messages, and of plain numbers, so that any engine can
pack it (`wire.py`). A host counts the turns of its client: what changes the client's state, or draws from its batches,
goes on from turn `after` and leads to `after + 1`. Who asks says which turn it has taken in, so that a request that is
repeated, or whose answer was lost or discarded, changes nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import Field, dataclass
from typing import Any, ClassVar, Final, Generic, TypeVar

import torch
from torch import Tensor

from chestfed.learning.algorithms.variables import Message, Point, Record

NOTHING: Final = torch.zeros(0)
Answer = TypeVar("Answer", bound=Record, covariant=True)


class Request(Generic[Answer]):
    """A request, a dataclass too, that is answered by a record of this class."""

    __dataclass_fields__: ClassVar[dict[str, Field[object]]]
    is_turn: ClassVar[bool] = False  #: whether the client's state is another one afterwards
    trains: ClassVar[bool] = False  #: whether it is local work of a round, of which a plan has so many


class OwnRequest(Request[Answer], ABC):
    """A request of a layout without a server; it says how it is answered, and what it and its answer look like."""

    @abstractmethod
    def answer(self, host: Any) -> Answer:
        """Carry it out at a `Host`."""

    @classmethod
    @abstractmethod
    def blank(cls, shapes: Any, plain: Mapping[str, object], sender: str) -> OwnRequest[Answer]:
        """The request without content at a client of these `Shapes`, given the plain fields that came with it.

        Raises
        ------
        WireError
            If the plain fields are not what this client can be asked.
        """

    @abstractmethod
    def blank_answer(self, shapes: Any) -> Answer:
        """Answer to it, without content."""


@dataclass(frozen=True)
class Done:
    """The request was carried out."""


@dataclass(frozen=True)
class Start(Request[Done]):
    """Begin a stage, counted from 0, at a point: the client's state is made anew. A turn."""

    is_turn: ClassVar[bool] = True

    after: int
    stage: int
    point: Point


@dataclass(frozen=True)
class Worked(Generic[Message]):
    """The client's update and buffers; `slope` is its mean gradient `[d + extra]`, for `RoundRecord.gradient_drift`."""

    update: Message
    buffers: Tensor
    slope: Tensor
    loss: float
    gradients: int
    images: int


@dataclass(frozen=True)
class Work(Request[Worked[Message]]):
    """One local round on the server's message, of so many `steps`; 0: the rule's window. A turn."""

    is_turn: ClassVar[bool] = True
    trains: ClassVar[bool] = True

    after: int
    message: Message
    buffers: Tensor
    steps: int = 0
    shared: Tensor = NOTHING  #: numbers of the objective that the server sends


@dataclass(frozen=True)
class Prepared(Generic[Message]):
    """Message of the client before its local steps."""

    message: Message
    gradients: int
    images: int


@dataclass(frozen=True)
class Prepare(Request[Prepared[Message]]):
    """Message of a `Preparing` algorithm's client at the server's point; no batch is drawn."""

    trains: ClassVar[bool] = True

    after: int
    point: Point
    buffers: Tensor
    shared: Tensor = NOTHING


@dataclass(frozen=True)
class Located:
    """Where the client is."""

    point: Point


@dataclass(frozen=True)
class Locate(Request[Located]):
    """The client's point of a `Personal` algorithm, given the server's."""

    after: int
    point: Point


@dataclass(frozen=True)
class Gathered:
    """Running statistics."""

    buffers: Tensor
    images: int


@dataclass(frozen=True)
class Statistics(Request[Gathered]):
    """Running statistics of these weights, from the next batches without consuming them."""

    after: int
    primal: Tensor
    buffers: Tensor
    batches: int


@dataclass(frozen=True)
class Estimated:
    """The best dual variables."""

    dual: Tensor
    images: int


@dataclass(frozen=True)
class BestDual(Request[Estimated]):
    """The dual variables that are best at a point, from the next batches. A turn."""

    is_turn: ClassVar[bool] = True

    after: int
    point: Point
    buffers: Tensor
    batches: int


@dataclass(frozen=True)
class Finished(Generic[Message]):
    """Message of a client at the end of a stage, or None."""

    message: Message | None


@dataclass(frozen=True)
class Finish(Request[Finished[Message]]):
    """Send what belongs to the end of a stage."""

    after: int


@dataclass(frozen=True)
class Exported:
    """The algorithm's state at the client, and how many batches it has drawn from each sequence, int64 `[S]`.

    `memory` is what the objective remembers of each row, `[rows, m]`.
    """

    state: Record
    drawn: Tensor
    memory: Tensor


@dataclass(frozen=True)
class Export(Request[Exported]):
    """Send the client's state, for a checkpoint."""

    after: int


@dataclass(frozen=True)
class Import(Request[Done]):
    """Go on from a checkpoint: stand at turn `turn` of this stage."""

    turn: int
    stage: int
    state: Record
    drawn: Tensor
    memory: Tensor

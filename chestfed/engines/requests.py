"""What may be asked of a client's host, and what it answers: a closed set, the same for every engine.

Each is a dataclass of tensors, of the algorithm's states and messages, and of plain numbers, so that any engine can
pack it (`wire.py`). A host counts the turns of its client: what changes the client's state, or draws from its batches,
goes on from turn `after` and leads to `after + 1`. Who asks says which turn it has taken in, so that a request that is
repeated, or whose answer was lost or not wanted, changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from chestfed.algorithms.variables import Point


@dataclass(frozen=True)
class Start:
    """Begin a stage, counted from 0, at a point: the client's state is made anew. A turn; answered by `Done`."""

    after: int
    stage: int
    point: Point


@dataclass(frozen=True)
class Work:
    """One local round on the server's message. A turn; answered by `Worked`."""

    after: int
    message: Any
    buffers: Tensor


@dataclass(frozen=True)
class Worked:
    """The client's update and buffers; `slope` is its mean gradient `[d + extra]`, for `RoundRecord.gradient_drift`."""

    update: Any
    buffers: Tensor
    slope: Tensor
    loss: float
    gradients: int
    images: int


@dataclass(frozen=True)
class Steps:
    """A node's local steps; it sends along these of its edges. Answered by `Stepped`; `Take` ends the turn."""

    after: int
    buffers: Tensor
    edges: tuple[int, ...]


@dataclass(frozen=True)
class Stepped:
    """What the node sends, one message per edge asked for."""

    messages: tuple[Any, ...]
    slope: Tensor
    loss: float
    gradients: int
    images: int


@dataclass(frozen=True)
class Take:
    """What came along these edges, after the `Steps` from the same turn. A turn; answered by `Taken`."""

    after: int
    edges: tuple[int, ...]
    messages: tuple[Any, ...]


@dataclass(frozen=True)
class Taken:
    """Where the node is."""

    point: Point


@dataclass(frozen=True)
class Statistics:
    """Running statistics of these weights, from the next batches, which training then goes on with."""

    after: int
    primal: Tensor
    buffers: Tensor
    batches: int


@dataclass(frozen=True)
class Gathered:
    """The statistics."""

    buffers: Tensor
    images: int


@dataclass(frozen=True)
class BestDual:
    """The dual variables that are best at a point, from the next batches. A turn; answered by `Estimated`."""

    after: int
    point: Point
    buffers: Tensor
    batches: int


@dataclass(frozen=True)
class Estimated:
    """The dual variables."""

    dual: Tensor
    images: int


@dataclass(frozen=True)
class Finish:
    """What the client sends at the end of a stage. Answered by `Finished`."""

    after: int


@dataclass(frozen=True)
class Finished:
    """The message, or None."""

    message: Any | None


@dataclass(frozen=True)
class Export:
    """The client's state, for a checkpoint. Answered by `Exported`."""

    after: int


@dataclass(frozen=True)
class Exported:
    """The algorithm's state at the client, and how many batches it has drawn from each sequence, int64 `[S]`."""

    state: Any
    drawn: Tensor


@dataclass(frozen=True)
class Import:
    """Go on from a checkpoint: stand at turn `turn` of this stage. Answered by `Done`."""

    turn: int
    stage: int
    state: Any
    drawn: Tensor


@dataclass(frozen=True)
class Done:
    """Nothing to tell."""


Request = Start | Work | Steps | Take | Statistics | BestDual | Finish | Export | Import
Reply = Done | Worked | Stepped | Taken | Gathered | Estimated | Finished | Exported

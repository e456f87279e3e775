"""A step of an exchange: what is done to an update between a client's local work and the server's own step.

A step works at the clients (`at_client`), on what arrived (`at_server`), or on the server's new point (`move`); what it
keeps from round to round is a record of tensors. A file of this package, or an installed one, declares a step by a
`StepSpec`: its keys of a pipeline's `federated`, and how the step is made of their values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final, Literal, get_args

import torch
from torch import Tensor

from chestfed.core.plugins import Options
from chestfed.learning.abilities import Demand
from chestfed.learning.algorithms.variables import Point, Record, Stateless, from_named_tensors, named_tensors

#: Where a step stands between arrival and the server's step, in this order. code: another form of an update;
#: statistics: what is measured of single updates; mean: one package in the place of all; server: after the
#: server's step.
Place = Literal["code", "statistics", "mean", "server"]
PLACES: Final[tuple[Place, ...]] = get_args(Place)

#: Makes the generator of a step's random numbers at a client: of the seed, the client, the step and the batches so far.
Draw = Callable[[], torch.Generator]


@dataclass(frozen=True)
class Package:
    """Message of one client: its update, and running statistics `[b]`. An empty half has no numbers."""

    update: Any
    buffers: Tensor


@dataclass(frozen=True)
class Arrived:
    """Packages of a round at the server.

    Attributes
    ----------
    parts, weights
        One package per client that answered, with weights that sum to 1; or one in the place of all, of weight 1.
    before
        The message and the running statistics that the server sent.
    place
        Stage and round, counted from 0: names random numbers of the server.
    sizes, drift
        Euclidean norms of the clients' updates in order, and `RoundRecord.drift`; none where single ones are not known.
    """

    parts: Sequence[Package]
    weights: Sequence[float]
    before: Package
    place: tuple[int, int] = (0, 0)
    sizes: Sequence[float] = ()
    drift: float = math.nan

    @property
    def updates(self) -> list[Any]:
        """Those of the parts."""
        return [part.update for part in self.parts]

    def combined(self, package: Package) -> Arrived:
        """With one package in the place of all."""
        return replace(self, parts=[package], weights=[1.0])


class Step:
    """A step that does nothing; a subclass says what it does. A frozen dataclass of plain numbers."""

    key: ClassVar[str] = ""  #: its key in a pipeline, also the name of its random numbers
    place: ClassVar[Place] = "code"

    @property
    def demand(self) -> Demand:
        """Abilities that it needs of the algorithm, and those that others then lack."""
        return Demand(self.key)

    @property
    def least(self) -> int:
        """Clients that a round needs."""
        return 1

    @property
    def protects(self) -> frozenset[str]:
        """Protections that a policy may require: clipping, noise."""
        return frozenset()

    @property
    def takes_buffers(self) -> bool:
        """Whether running statistics may pass it."""
        return True

    def describe(self) -> str:
        """The step in words, for whoever approves a study; empty if it changes nothing of what a server learns."""
        return self.key

    def start_client(self, message: Any) -> Record:
        """State that it keeps at a client from the start of a stage; `message` is the server's first."""
        return Stateless()

    def start_server(self, point: Point) -> Record:
        """State that it keeps at the server from the start of a stage at this point."""
        return Stateless()

    def at_client(self, update: Any, message: Any, kept: Any, draw: Draw) -> tuple[Any, Any]:
        """Update as it is sent, and what is kept."""
        return update, kept

    def at_server(self, arrived: Arrived) -> Arrived:
        """Packages for the next step, and at last the server."""
        return arrived

    def move(self, before: Any, after: Any, kept: Any) -> tuple[Any, Any]:
        """The server's state in place of `after`, which its own step made of `before`; and what is kept."""
        return after, kept

    def problems(self, clients: int, buffers: int) -> Iterator[str]:
        """Why a round of so many clients, with so many running statistics, is impossible: key, reason."""
        yield from ()

    def account(self, rounds: int) -> dict[str, float]:
        """Amount that so many rounds spend of a budget, by its name; empty without one."""
        return {}


@dataclass(frozen=True)
class StepSpec:
    """One kind of step.

    Attributes
    ----------
    name, text
        Its name, and for people what it does.
    fields
        Keys of `federated`: key -> type and pydantic field. Null, or the field's default, means without this step.
    build
        Makes the step, or None, from the values of these keys and the study's seed.
    """

    name: str
    text: str
    fields: Mapping[str, tuple[Any, Any]]
    build: Callable[[Mapping[str, Any], int], Step | None]
    options: type[Options] = field(default=Options, repr=False)


def start_of(sent: Mapping[str, Tensor], name: str, like: Tensor) -> Tensor:
    """From what a tensor that arrived is a change: what was sent under its name, if of its shape, else zero."""
    start = sent.get(name)
    return start if start is not None and start.shape == like.shape else torch.zeros_like(like)


def unchanged(update: Any, message: object) -> Any:
    """An update in the form of this one, of a client that changed nothing of what was sent."""
    sent = named_tensors(message)
    return from_named_tensors(update, {key: start_of(sent, key, like) for key, like in named_tensors(update).items()})


def is_empty(update: object) -> bool:
    """Whether the half of a package has no numbers."""
    return not named_tensors(update)

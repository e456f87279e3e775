"""Clients that send to each other, without a server: who sends to whom, and the requests that this takes.

An algorithm that has no server declares how its layout is made of its options (`AlgorithmSpec.layout`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from chestfed.core.errors import ConfigError
from chestfed.learning.algorithms.variables import Point, Record
from chestfed.learning.engines.messages.requests import OwnRequest


class Place(ABC):
    """Where one client stands: what it starts from, and which requests it answers beside those of every client."""

    requests: ClassVar[Mapping[str, type[OwnRequest[Any]]]]

    @abstractmethod
    def start(self, rule: Any, point: Point) -> Record:
        """The rule's state of this client at the start of a stage."""


class Layout(ABC):
    """Who sends to whom, after local work at every client."""

    @property
    @abstractmethod
    def degree(self) -> int:
        """The largest number of clients that one client sends to."""

    @property
    @abstractmethod
    def messages(self) -> int:
        """Messages of a round, of all clients together."""

    @abstractmethod
    def place(self, number: int) -> Place:
        """The place of a client."""

    @abstractmethod
    def count_bytes(self, rule: Any, point: Point) -> int:
        """Bytes that a client sends in a round, on average; `point` may be any of the right size."""

    @abstractmethod
    def engine(self, rule: Any, fleet: Any, seed: int) -> Any:
        """The `Engine` that runs the rounds of a rule."""


def refuse_running_statistics(number: int) -> None:
    """Raise ConfigError if a network has any."""
    if number:
        raise ConfigError(
            "without a server nobody averages running statistics (batch normalization). Choose a network without them; "
            "for a built-in one, set model.norm: group",
            kind="running statistics without a server",
        )

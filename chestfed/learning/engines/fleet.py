"""Where the clients of an engine compute: in this process here, elsewhere in the modules of the other engines."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import cast

from torch import Tensor

from chestfed.core.errors import TrainingError
from chestfed.learning.algorithms.variables import Record, Rule, from_named_tensors, named_tensors
from chestfed.learning.engines.host import NO_MEMORY, Client, Host
from chestfed.learning.engines.layout import Layout
from chestfed.learning.engines.messages.requests import Answer, Done, Export, Import, Request
from chestfed.learning.exchange.exchange import PLAIN, Exchange

_log = logging.getLogger("chestfed.learning.engines")


#: Of a message: the node that sends it, its edge, the node that takes it, and the edge's number there.
Route = tuple[int, int, int, int]


class Fleet(ABC):
    """The clients of a run, by number in the order of addition, wherever their hosts are."""

    names: tuple[str, ...]
    carries = False  #: whether nodes' messages go from host to host, by `carry`, and not by whoever asks
    keeps_its_states = False  #: whether hosts keep their clients' states themselves, so that no checkpoint has them

    @abstractmethod
    def ask(self, requests: Mapping[int, Request[Answer]], enough: int | None = None) -> dict[int, Answer]:
        """Each client's answer to its request, in the order of the requests.

        With `enough` some may be missing, of clients that are late or cannot answer, if there are so many others.

        Raises
        ------
        TrainingError
            If a client cannot answer, or too many cannot; the message names it.
        """

    def carry(self, turns: Sequence[int], routes: Sequence[Route]) -> list[tuple[float, int]]:
        """Give messages of nodes, after local steps from these turns, to neighbors' hosts; norm and bytes of each."""
        raise NotImplementedError

    @property
    def present(self) -> Sequence[int]:
        """The clients that still take part; one that has left is never asked again."""
        return range(len(self.names))

    def ask_all(self, make: Callable[[int], Request[Answer]]) -> dict[int, Answer]:
        """The answers of all present clients, each to `make(number)`."""
        return self.ask({number: make(number) for number in self.present})

    def exported(self, turns: Sequence[int], name: str) -> dict[str, Tensor]:
        """The clients' states at these turns, for a checkpoint; `name` is what a client is called in it."""
        tensors: dict[str, Tensor] = {}
        for number, answer in self.ask_all(lambda number: Export(turns[number])).items():
            tensors |= named_tensors(answer.state, f"{name}.{number}") | {f"drawn.{number}": answer.drawn}
            if answer.memory.numel():
                tensors[f"memory.{number}"] = answer.memory
        return tensors

    def restore(
        self, tensors: Mapping[str, Tensor], name: str, turns: Sequence[int], stage: int, like: Sequence[Record]
    ) -> None:
        """The inverse of `exported`; `like` has any state of each client."""
        self.ask_all(
            lambda number: Import(
                turns[number],
                stage,
                from_named_tensors(like[number], tensors, f"{name}.{number}"),
                tensors[f"drawn.{number}"].cpu(),
                tensors.get(f"memory.{number}", _no_memory(like[number])),
            )
        )

    @abstractmethod
    def close(self) -> None:
        """Release what the clients hold."""


class LocalFleet(Fleet):
    """Clients in this process, one after the other, on one device; nothing is packed."""

    def __init__(self, hosts: Sequence[Host]) -> None:
        self.hosts = hosts
        self.names = tuple(host.client.name for host in hosts)

    @classmethod
    def of(
        cls, clients: Sequence[Client], rule: Rule, layout: Layout | None = None, exchange: Exchange = PLAIN
    ) -> LocalFleet:
        """The clients under one rule for all stages."""
        places = [layout.place(number) if layout else None for number in range(len(clients))]
        pairs = zip(clients, places, strict=True)
        return cls([Host(client, lambda stage: rule, place, exchange) for client, place in pairs])

    def ask(self, requests: Mapping[int, Request[Answer]], enough: int | None = None) -> dict[int, Answer]:
        answers: dict[int, Answer] = {}
        for left, (number, request) in zip(reversed(range(len(requests))), requests.items(), strict=True):
            try:
                answers[number] = self.hosts[number].answer(request)
            except TrainingError as error:
                if enough is None or len(answers) + left < enough:
                    raise
                _log.warning("%s: dropped for the round: %s", self.names[number], error)
        return answers

    def close(self) -> None:
        """Release the batches' threads and files."""
        for host in self.hosts:
            host.client.close()


class BlankFleet(Fleet):
    """Begins stages and does nothing else: for states that are needed only for their shapes."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names

    def ask(self, requests: Mapping[int, Request[Answer]], enough: int | None = None) -> dict[int, Answer]:
        return dict.fromkeys(requests, cast("Answer", Done()))

    def close(self) -> None:
        """Nothing is held."""


def _no_memory(state: Record) -> Tensor:
    """An empty memory where the tensors of a client's state are."""
    return next((NO_MEMORY.to(part.device) for part in named_tensors(state).values()), NO_MEMORY)

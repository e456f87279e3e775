"""The host of a client: it keeps the client's state and answers requests, the same code under every engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch import Tensor

from chestfed.algorithms.variables import Finishing, Point, is_finite, named_tensors
from chestfed.core.errors import TrainingError
from chestfed.engines import requests
from chestfed.engines.topology import Graph


class Client(Protocol):
    """What a host needs of a client; `NetworkClient` is one.

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

    def positions(self) -> list[int]:
        """How many batches were drawn from each of its sequences."""

    def seek(self, positions: Sequence[int]) -> None:
        """The inverse of `positions`."""

    def close(self) -> None:
        """Let threads and files go."""


@dataclass(frozen=True)
class Kept:
    """A client at one turn: the algorithm's state (None before the first stage), batches drawn so far, the stage."""

    state: Any
    drawn: tuple[int, ...]
    stage: int = 0


class Host:
    """A client and its states by turn.

    Those from the last round's start on are kept: an answer that was lost, or was not taken in, is asked for again.

    Parameters
    ----------
    rule_of
        The algorithm's rule in a stage, counted from 0.
    graph, number
        Of a decentralized algorithm: the graph, and which of its nodes the client is.
    """

    def __init__(
        self, client: Client, rule_of: Callable[[int], Any], graph: Graph | None = None, number: int = 0
    ) -> None:
        self.client, self.graph, self.number = client, graph, number
        self.stage = 0
        self.rule: Any = rule_of(0)
        self.kept: dict[int, Kept] = {0: Kept(None, tuple(client.positions()))}
        self._rule_of = rule_of
        self.stepped: dict[int, Kept] = {}  #: a node after its local steps, by the turn that they went on from

    def answer(self, request: requests.Request) -> requests.Reply:
        """Do what is asked.

        Raises
        ------
        TrainingError
            If what the client computes is not finite, or the turn to go on from is not there any more.
        """
        return _ANSWERS[type(request)](self, request)

    def begin(self, stage: int) -> None:
        """Take the rule of a stage."""
        self.stage, self.rule = stage, self._rule_of(stage)

    def start_at(self, point: Point) -> Any:
        """The state of the algorithm at this client, at the start of the stage."""
        if self.graph is None:
            return self.rule.start_client(point)
        return self.rule.start_node(point, *ends_of(self.graph, self.number))

    def _at(self, turn: int) -> Kept:
        """The client at a turn, with its batches and its rule as they were: the next stage may have begun since."""
        if turn not in self.kept:
            raise TrainingError(
                f"client '{self.client.name}' is asked to go on from turn {turn}, and has "
                f"{', '.join(map(str, sorted(self.kept)))}. Its state is of another run, or older: delete the state "
                "of this run at the client and in the run folder to train it again.",
                kind="unexpected turn",
                client=self.client.name,
                turn=turn,
            )
        kept = self.kept[turn]
        if kept.stage != self.stage:
            self.begin(kept.stage)
        if tuple(self.client.positions()) != kept.drawn:
            self.client.seek(kept.drawn)
        return kept

    def _keep(self, turn: int, state: Any) -> None:
        self.kept[turn] = Kept(state, tuple(self.client.positions()), self.stage)

    @contextmanager
    def _counted(self, found: list[int]) -> Iterator[None]:
        """Append what the client computed within: gradients and images."""
        client = self.client
        before = client.gradients_computed, client.images_seen
        yield
        found += [client.gradients_computed - before[0], client.images_seen - before[1]]

    def _refuse_not_finite(self, tensors: Iterable[Tensor], what: str) -> None:
        if not all(map(is_finite, tensors)):
            raise TrainingError(
                f"{what} is not finite (NaN or infinity) after {self.rule.window} local steps. "
                "Lower federated.local_lr or federated.window; the last saved round is kept.",
                kind="not finite",
                client=self.client.name,
            )

    def _start(self, request: requests.Start) -> requests.Done:
        self._at(request.after)
        self.begin(request.stage)
        self._keep(request.after + 1, self.start_at(request.point))
        return requests.Done()

    def _work(self, request: requests.Work) -> requests.Worked:
        base, client, counts = self._at(request.after), self.client, list[int]()
        self._forget_before(request.after)
        with client.training(request.buffers), self._counted(counts):
            update, state = self.rule.local_round(request.message, base.state, client.oracle)
        buffers, loss = client.buffers(), client.mean_loss()
        parts = [*named_tensors(update).values(), buffers, torch.tensor(loss)]
        self._refuse_not_finite(parts, f"client '{client.name}': its update")
        self._keep(request.after + 1, state)
        return requests.Worked(update, buffers, client.mean_gradient(), loss, *counts)

    def _steps(self, request: requests.Steps) -> requests.Stepped:
        base, client, counts = self._at(request.after), self.client, list[int]()
        self._forget_before(request.after)
        with client.training(request.buffers), self._counted(counts):
            node = self.rule.local_round(base.state, client.oracle)
        self._refuse_not_finite([self.rule.current(node).primal], f"node '{client.name}': its point")
        self.stepped = {request.after: Kept(node, tuple(self.client.positions()), self.stage)}
        messages = tuple(self.rule.message(node, edge) for edge in request.edges)
        return requests.Stepped(messages, client.mean_gradient(), client.mean_loss(), *counts)

    def _take(self, request: requests.Take) -> requests.Taken:
        if request.after not in self.stepped:
            raise TrainingError(f"node '{self.client.name}' has made no local steps from turn {request.after}")
        own = self.stepped[request.after]
        node = self.rule.exchange(own.state, dict(zip(request.edges, request.messages, strict=True)))
        self.kept[request.after + 1] = replace(own, state=node)
        return requests.Taken(self.rule.current(node))

    def _statistics(self, request: requests.Statistics) -> requests.Gathered:
        self._at(request.after)
        client, counts = self.client, list[int]()
        with client.training(request.buffers), self._counted(counts):
            client.gather_statistics(request.primal, request.batches)
        return requests.Gathered(client.buffers(), counts[1])

    def _best_dual(self, request: requests.BestDual) -> requests.Estimated:
        base, client, counts = self._at(request.after), self.client, list[int]()
        with client.training(request.buffers), self._counted(counts):
            dual = client.best_dual(request.point.primal, request.point.dual, request.batches)
        self._keep(request.after + 1, base.state)
        return requests.Estimated(dual, counts[1])

    def _finish(self, request: requests.Finish) -> requests.Finished:
        state = self._at(request.after).state
        return requests.Finished(self.rule.final_message(state) if isinstance(self.rule, Finishing) else None)

    def _export(self, request: requests.Export) -> requests.Exported:
        kept = self._at(request.after)
        return requests.Exported(kept.state, torch.tensor(kept.drawn, dtype=torch.int64))

    def _import(self, request: requests.Import) -> requests.Done:
        self.begin(request.stage)
        self.kept = {request.turn: Kept(request.state, tuple(request.drawn.tolist()), request.stage)}
        self._at(request.turn)
        return requests.Done()

    def _forget_before(self, turn: int) -> None:
        self.kept = {number: kept for number, kept in self.kept.items() if number >= turn}


def ends_of(graph: Graph, node: int) -> tuple[Tensor, Tensor]:
    """What a node starts from, per neighbor: +1 if it has the larger number, else -1, and its degree, `[E]`."""
    neighbors = graph.neighbors(node)
    signs = torch.tensor([1.0 if node < other else -1.0 for other in neighbors])
    return signs, torch.tensor([float(graph.degree(other)) for other in neighbors])


_ANSWERS: dict[type[requests.Request], Callable[[Host, Any], requests.Reply]] = {
    requests.Start: Host._start,
    requests.Work: Host._work,
    requests.Steps: Host._steps,
    requests.Take: Host._take,
    requests.Statistics: Host._statistics,
    requests.BestDual: Host._best_dual,
    requests.Finish: Host._finish,
    requests.Export: Host._export,
    requests.Import: Host._import,
}

"""The host of a client: it keeps the client's state and answers requests, the same code under every engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Final, Protocol, cast

import torch
from torch import Tensor

from chestfed.core.errors import TrainingError
from chestfed.learning.algorithms.variables import (
    Finishing,
    Move,
    Personal,
    Point,
    Record,
    is_finite,
    named_tensors,
)
from chestfed.learning.engines.layout import Place
from chestfed.learning.engines.messages import requests
from chestfed.learning.engines.messages.requests import Answer, Request
from chestfed.learning.exchange.exchange import PLAIN, Exchange
from chestfed.learning.exchange.step import unchanged


class Client(Protocol):
    """Client as its host needs it; `NetworkClient` is one.

    `gradients_computed` and `images_seen` count from the client's first step on.
    """

    name: str
    gradients_computed: int
    images_seen: int
    memory: Tensor  #: what the objective remembers of each row, `[rows, m]`

    @property
    def oracle(self) -> Any:
        """Gradients for the algorithm's local steps: `Gradients`, or those of the objective's own."""

    def training(self, buffers: Tensor, shared: Tensor) -> AbstractContextManager[None]:
        """Enter a round with these buffers, and what the objective has `shared`."""

    def buffers(self) -> Tensor:
        """The buffers after the local steps."""

    def mean_loss(self) -> float:
        """Mean loss over the round's steps."""

    def mean_gradient(self) -> Tensor:
        """Mean over the round's steps of the gradient by the primal variables `[d + extra]`."""

    def gather_statistics(self, primal: Tensor, batches: int) -> None:
        """Take the running statistics anew, with the weights in `primal`, from the next `batches` batches."""

    def find_not_finite(self, primal: Tensor, dual: Tensor) -> str:
        """Name of what is not finite at a point on the next batch: images, logits, loss or gradient; or empty."""

    def best_dual(self, primal: Tensor, dual: Tensor, batches: int) -> Tensor:
        """The dual variables that are best for this client's loss at `primal`, estimated on so many batches."""

    def positions(self) -> list[int]:
        """Number of batches drawn from each of its sequences."""

    def seek(self, positions: Sequence[int]) -> None:
        """The inverse of `positions`."""

    def close(self) -> None:
        """Release threads and files."""


NO_MEMORY = torch.zeros(0, 0)

#: Causes of what is not finite on a batch first, the things before it in this order being finite.
_CAUSES: Final = {
    "images": "the fault is in the data, or in how they are read; `chestfed site check` checks those of a site",
    "logits": "the fault is in the network; check_model in chestfed.testing checks one",
    "loss": "the logits are finite, so the fault is in the objective; check_objective in chestfed.testing checks one",
    "gradient": "the loss is finite, so the fault is in a derivative of objective or network, such as of sqrt at 0",
}


@dataclass(frozen=True)
class Snapshot:
    """A client at one turn: the algorithm's state (None before the first stage), batches drawn so far, the stage.

    `memory` is what its objective remembers of each row, `[rows, m]`.
    """

    state: Record | None
    drawn: tuple[int, ...]
    stage: int = 0
    memory: Tensor = NO_MEMORY


@dataclass
class TurnWork:
    """Work of a client from a turn on, `state` being the algorithm's there."""

    state: Record | None
    gradients: int = 0
    images: int = 0


class Host:
    """A client and its states by turn.

    Those from the last round's start on are kept: an answer that was lost, or was not taken in, is asked for again.

    Parameters
    ----------
    rule_of
        The algorithm's rule in a stage, counted from 0; with `steps=`, that of another number of local steps.
    place
        Where the client stands among others without a server.
    exchange
        The steps that an update passes before it is sent to a server.

    `tells_not_finite`: whether a round whose numbers are not finite is an error, which tells whoever asked that they
    are not; else it counts as a round without a change, and the client's state stays.
    """

    tells_not_finite = True

    def __init__(
        self,
        client: Client,
        rule_of: Callable[..., Any],
        place: Place | None = None,
        exchange: Exchange = PLAIN,
    ) -> None:
        self.client, self.place, self.exchange = client, place, exchange
        self.stage = 0
        self.rule: Any = rule_of(0)
        self.snapshots: dict[int, Snapshot] = {0: Snapshot(None, tuple(client.positions()), memory=client.memory)}
        self._rule_of = rule_of
        self.stepped: dict[int, Snapshot] = {}  #: after local steps alone, by the turn that they went on from
        self.arrived: dict[int, Record] = {}  #: messages that neighbors' hosts gave, by edge, until they are taken

    def answer(self, request: Request[Answer]) -> Answer:
        """Carry out a request.

        Raises
        ------
        TrainingError
            If what the client computes is not finite, or the turn to go on from is not there any more.
        """
        return cast("Answer", self._answer(request))

    def _answer(self, request: Request[Record]) -> Record:
        match request:
            case requests.Start():
                point = self._local_point(request.point, request.after)
                self._take_rule(request.stage)
                self._keep(request.after + 1, self.start_at(point))
            case requests.Locate():
                return requests.Located(self._local_point(request.point, request.after))
            case requests.Work():
                return self._work(request)
            case requests.Prepare():
                with self.running(request.after, request.buffers, request.shared) as run:
                    message = self.rule.prepare(request.point, self.client.oracle)
                self.refuse_not_finite(named_tensors(message).values(), f"client '{self.client.name}': what it sends")
                return requests.Prepared(message, run.gradients, run.images)
            case requests.OwnRequest():
                return request.answer(self)
            case requests.Statistics(primal=primal, batches=batches):
                with self.running(request.after, request.buffers) as run:
                    self.client.gather_statistics(primal, batches)
                return requests.Gathered(self.client.buffers(), run.images)
            case requests.BestDual(point=point, batches=batches):
                with self.running(request.after, request.buffers) as run:
                    dual = self.client.best_dual(point.primal, point.dual, batches)
                self._keep(request.after + 1, run.state)
                return requests.Estimated(dual, run.images)
            case requests.Finish():
                state = self.exchange.own_state(self._state_at(request.after))
                return requests.Finished(self.rule.final_message(state) if isinstance(self.rule, Finishing) else None)
            case requests.Export():
                state = self._state_at(request.after)
                assert state is not None
                snapshot = self.snapshots[request.after]
                return requests.Exported(state, torch.tensor(snapshot.drawn, dtype=torch.int64), snapshot.memory)
            case requests.Import():
                self._take_rule(request.stage)
                drawn = tuple(request.drawn.tolist())
                self.snapshots = {request.turn: Snapshot(request.state, drawn, request.stage, request.memory)}
                self._state_at(request.turn)
        return requests.Done()

    def _take_rule(self, stage: int) -> None:
        self.stage, self.rule = stage, self._rule_of(stage)

    def _local_point(self, point: Point, turn: int) -> Point:
        """The client's point at a turn, given the server's."""
        state = self._state_at(turn)
        if state is None or not isinstance(self.rule, Personal):
            return point
        located: Point = self.rule.local_point(point, self.exchange.own_state(state))
        return located

    def start_at(self, point: Point) -> Record:
        """The state of the algorithm at this client, at the start of the stage."""
        return self.place.start(self.rule, point) if self.place else self.exchange.start_client(self.rule, point)

    def _state_at(self, turn: int) -> Record | None:
        """The client's state at a turn, with its batches and its rule as they were: a later stage may have begun."""
        if turn not in self.snapshots:
            raise TrainingError(
                f"client '{self.client.name}' is asked to go on from turn {turn}, and has "
                f"{', '.join(map(str, sorted(self.snapshots)))}. Its state is of another run, or older: delete the "
                "state of this run at the client and in the run folder to train it again.",
                kind="unexpected turn",
                client=self.client.name,
                turn=turn,
            )
        snapshot = self.snapshots[turn]
        if snapshot.stage != self.stage:
            self._take_rule(snapshot.stage)
        if tuple(self.client.positions()) != snapshot.drawn:
            self.client.seek(snapshot.drawn)
        self.client.memory = snapshot.memory
        return snapshot.state

    def _keep(self, turn: int, state: Record | None) -> None:
        self.snapshots[turn] = self.snapshot(state)

    def snapshot(self, state: Record | None) -> Snapshot:
        """The client as it is now, with this state of the algorithm."""
        return Snapshot(state, tuple(self.client.positions()), self.stage, self.client.memory)

    @contextmanager
    def running(self, turn: int, buffers: Tensor, shared: Tensor = requests.NOTHING) -> Iterator[TurnWork]:
        """The client at a turn, in training with these buffers; afterwards the counts of what it computed."""
        client, run = self.client, TurnWork(self._state_at(turn))
        client.memory = client.memory.clone() if client.memory.numel() else client.memory  # that of the turn stays
        gradients, images = client.gradients_computed, client.images_seen
        with client.training(buffers, shared):
            yield run
        run.gradients, run.images = client.gradients_computed - gradients, client.images_seen - images

    def refuse_not_finite(self, tensors: Iterable[Tensor], what: str) -> None:
        """Raise TrainingError if a number of `what` is not finite."""
        if not all(map(is_finite, tensors)):
            kind = type(self.rule)
            own = "" if kind.__module__.startswith("chestfed.") else f", or correct the step of {kind.__name__}"
            raise TrainingError(
                f"{what} is not finite (NaN or infinity) after {self.rule.window} local steps. "
                f"Lower federated.local_lr or federated.window{own}; the last saved round is kept.",
                kind="not finite",
                client=self.client.name,
            )

    def _refuse_not_finite_start(self, request: requests.Work[Any]) -> None:
        """Refuse a round in which something is not finite before the first step: no step size is the cause of that."""
        message, client = request.message, self.client
        if not isinstance(getattr(message, "dual", None), Tensor):
            return
        with self.running(request.after, request.buffers, request.shared):
            first = client.find_not_finite(message.primal.clone(), message.dual.clone())
        if first:
            raise TrainingError(
                f"client '{client.name}': the {first} of the first batch of this round "
                f"{'is' if first in ('loss', 'gradient') else 'are'} not finite (NaN or infinity), before any step: "
                f"{_CAUSES[first]}"
                f"{', or training has diverged: lower federated.local_lr then' if self._has_trained(request) else ''}. "
                "The last saved round is kept.",
                kind="not finite",
                client=client.name,
                first=first,
            )

    def _has_trained(self, request: requests.Work[Any]) -> bool:
        """Whether this is another round than the first, which goes on from the turn of its `Start`."""
        return self.stage > 0 or request.after > 1

    def _work(self, request: requests.Work[Move]) -> requests.Worked[Move]:
        client = self.client
        with self.running(request.after, request.buffers, request.shared) as run:
            self.drop_before(request.after)
            rule = self._rule_of(self.stage, steps=request.steps) if request.steps else self.rule
            update, state = self.exchange.local_round(rule, request.message, run.state, client.oracle)
        buffers, loss = client.buffers(), client.mean_loss()
        parts = [*named_tensors(update).values(), buffers, torch.tensor(loss)]
        if self.tells_not_finite:
            if not all(map(is_finite, parts)):
                self._refuse_not_finite_start(request)
            self.refuse_not_finite(parts, f"client '{client.name}': its update")
        elif not all(map(is_finite, parts)):
            assert run.state is not None
            update, state = unchanged(update, request.message), run.state
        self._keep(request.after + 1, state)
        return requests.Worked(update, buffers, client.mean_gradient(), loss, run.gradients, run.images)

    def drop_before(self, turn: int) -> None:
        """Forget the states before a turn."""
        self.snapshots = {number: snapshot for number, snapshot in self.snapshots.items() if number >= turn}

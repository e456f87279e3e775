"""Shapes of every request and reply of a client: records without content, made from the rule alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cached_property
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from chestfed.core.errors import ConfigError
from chestfed.learning.algorithms.variables import Finishing, Move, Point, Preparing, Record, Rule
from chestfed.learning.engines.host import NO_MEMORY
from chestfed.learning.engines.layout import Place
from chestfed.learning.engines.messages import requests
from chestfed.learning.engines.messages.requests import Answer, Request
from chestfed.learning.engines.messages.wire import WireError
from chestfed.learning.exchange.exchange import PLAIN, Exchange
from chestfed.learning.objectives.declaration import Objective, ObjectiveSpec, count_remembered


class BlankOracle:
    """`Gradients` of the right shapes, whatever their values."""

    rows = torch.zeros(0, dtype=torch.int64)
    loss = torch.zeros(())

    def __init__(self, diseases: int = 1, remembered: int = 0) -> None:
        self._diseases, self._remembered = diseases, remembered
        self.logits = self.labels = self.remembered = torch.zeros(0, 0)

    def __call__(self, primal: Tensor, dual: Tensor) -> tuple[Tensor, Tensor]:
        self.logits = self.labels = primal.new_zeros(1, self._diseases)
        self.remembered = primal.new_zeros(1, self._remembered)
        return primal, dual

    again = full = __call__

    def over(self, primal: Tensor, dual: Tensor, batches: int) -> tuple[Tensor, Tensor]:
        return primal, dual

    def stream(self, purpose: str) -> torch.Generator:
        return torch.Generator()


def make_blank(spec: ObjectiveSpec, objective: Objective, diseases: int) -> Any:
    """The oracle without content of an objective."""
    return spec.oracle.blank if spec.oracle else BlankOracle(diseases, count_remembered(objective))


@dataclass(frozen=True)
class Shapes:
    """Those of one client in one stage; all stages of a run have the same.

    `rule` is run once on tensors of the right sizes without content (torch's meta device); no gradient is taken.
    """

    rule: Rule
    primal: int  #: d + extra
    dual: int
    buffers: int
    sequences: int = 1  #: of batches that the client draws from
    place: Place | None = None  #: without a server
    dtype: torch.dtype = torch.float32
    memory: tuple[int, int] = (0, 0)  #: of the objective: rows, and numbers of each
    exchange: Exchange = PLAIN
    shared: int = 0  #: numbers of the objective that the server sends
    oracle: Any = field(default_factory=BlankOracle)

    def request(self, name: str, plain: Mapping[str, object], sender: str) -> Request[Record]:
        """The request of this name; `plain` are the plain fields that came with it.

        Raises
        ------
        WireError
            If there is no such request, or a layout's cannot be asked so.
        """
        if self.place is not None and name in self.place.requests:
            return self.place.requests[name].blank(self, plain, sender)
        match name:
            case "Start":
                return requests.Start(0, 0, self.point)
            case "Work" if self.place is None:
                return requests.Work(0, self._message, self.no_buffers, shared=self._empty(self.shared))
            case "Prepare" if self.place is None and isinstance(self.rule, Preparing):
                return requests.Prepare(0, self.point, self.no_buffers, self._empty(self.shared))
            case "Locate" if self.place is None:
                return requests.Locate(0, self.point)
            case "Statistics":
                return requests.Statistics(0, self.point.primal, self.no_buffers, 0)
            case "BestDual":
                return requests.BestDual(0, self.point, self.no_buffers, 0)
            case "Finish":
                return requests.Finish(0)
            case "Export":
                return requests.Export(0)
            case "Import":
                return requests.Import(0, 0, self.state, self._drawn, self._memory)
        raise WireError(
            f"{sender} sent {ascii(name)[:80]}, which is not a request that this client answers",
            kind="unknown request",
            sender=sender,
        )

    def reply(self, request: Request[Answer]) -> Answer:
        """Reply to the request."""
        return cast("Answer", self._reply(request))

    def _reply(self, request: Request[Record]) -> Record:
        match request:
            case requests.Work():
                return self.worked
            case requests.OwnRequest():
                return request.blank_answer(self)
            case requests.Prepare():
                return requests.Prepared(self.blank_rule.prepare(self.point, self.oracle), 0, 0)
            case requests.Locate():
                return requests.Located(self.point)
            case requests.Statistics():
                return requests.Gathered(self.no_buffers, 0)
            case requests.BestDual():
                return requests.Estimated(self.point.dual, 0)
            case requests.Finish():
                own = self.exchange.own_state(self.state)
                final = self.blank_rule.final_message(own) if isinstance(self.rule, Finishing) else None
                return requests.Finished(final)
            case requests.Export():
                return requests.Exported(self.state, self._drawn, self._memory)
        return requests.Done()

    @cached_property
    def point(self) -> Point:
        """A point without content."""
        return Point(self._empty(self.primal), self._empty(self.dual))

    @property
    def worked(self) -> requests.Worked[Move]:
        """Reply to local work."""
        return requests.Worked(self._round[0], self.no_buffers, self.point.primal, 0.0, 0, 0)

    @property
    def no_buffers(self) -> Tensor:
        """Running statistics without content."""
        return self._empty(self.buffers)

    def _empty(self, size: int) -> Tensor:
        return torch.empty(size, dtype=self.dtype, device="meta")

    @property
    def _memory(self) -> Tensor:
        dtype = self.dtype if self.memory[1] else NO_MEMORY.dtype
        return torch.empty(self.memory, dtype=dtype, device="meta")

    @property
    def _drawn(self) -> Tensor:
        return torch.zeros(self.sequences, dtype=torch.int64)

    @cached_property
    def blank_rule(self) -> Any:
        """The rule with its own tensors, such as step sizes per disease, without content too."""
        return _without_content(self.rule)

    @cached_property
    def _message(self) -> Move:
        return self.blank_rule.message(self.blank_rule.start_stage(self.point))

    @property
    def edge_message(self) -> Record:
        """Message of a node along an edge."""
        message: Record = self.blank_rule.message(self.state, 0)
        return message

    @cached_property
    def state(self) -> Record:
        """The client's state."""
        if self.place is None:
            return self.exchange.start_client(self.blank_rule, self.point)
        return self.place.start(self.blank_rule, self.point)

    @cached_property
    def _round(self) -> tuple[Move, Record]:
        """The update, and the client's new state."""
        try:
            return self.exchange.local_round(self.blank_rule, self._message, self.state, self.oracle)
        except (RuntimeError, NotImplementedError) as error:
            raise ConfigError(
                f"{type(self.rule).__name__} cannot be run on tensors without content (torch's meta device), which "
                f"tells the sizes of its messages: {str(error).splitlines()[0]}. Leave out what asks for values, such "
                "as .item(), or use engine in-process",
                kind="shapes depend on values",
            ) from None


Part = TypeVar("Part")


def _without_content(rule: Part) -> Part:
    if isinstance(rule, Tensor):
        return cast("Part", rule.to("meta"))
    if not is_dataclass(rule) or isinstance(rule, type):
        return rule
    parts = {field.name: getattr(rule, field.name) for field in fields(rule) if field.init}
    return replace(rule, **{name: _without_content(part) for name, part in parts.items()})

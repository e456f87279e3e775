"""An exchange: the list of steps between the clients' local work and the server's own step."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Final

from chestfed.core.errors import ConfigError
from chestfed.core.plugins import Catalogue
from chestfed.learning.algorithms.returned import unpack_update
from chestfed.learning.algorithms.variables import Point, Record, Stateless, named_tensors
from chestfed.learning.exchange.statistics import Statistics
from chestfed.learning.exchange.step import PLACES, Arrived, Step, StepSpec

STEPS: Final[Catalogue[StepSpec]] = Catalogue("step", "chestfed.steps", StepSpec, packages=(__package__,))


@dataclass(frozen=True)
class StatesAtClient:
    """A client's state where steps keep something: the rule's own, and that of every step."""

    rule: Any
    steps: tuple[Any, ...]


@dataclass(frozen=True)
class Exchange:
    """Steps in the order in which what arrived passes them; a client's update passes them the other way round.

    Statistics are always one of them: they tell an update that is too large.
    """

    steps: tuple[Step, ...] = ()

    def __post_init__(self) -> None:
        steps = [*(step for step in self.steps if not isinstance(step, Statistics)), Statistics()]
        object.__setattr__(self, "steps", tuple(sorted(steps, key=lambda step: PLACES.index(step.place))))

    @property
    def least(self) -> int:
        """The clients that a round needs."""
        return max(step.least for step in self.steps)

    @property
    def protects(self) -> frozenset[str]:
        """Protections of all steps together, see `Step.protects`."""
        return frozenset[str]().union(*(step.protects for step in self.steps))

    @property
    def takes_buffers(self) -> bool:
        """Whether running statistics may be averaged."""
        return all(step.takes_buffers for step in self.steps)

    def describe(self) -> str:
        """All steps in words."""
        return "; ".join(filter(None, (step.describe() for step in self.steps))) or "the mean of the updates"

    def problems(self, clients: int, buffers: int) -> Iterator[str]:
        """Those of all steps, see `Step.problems`."""
        for step in self.steps:
            yield from step.problems(clients, buffers)

    def account(self, rounds: int) -> dict[str, float]:
        """Amounts that so many rounds spend, see `Step.account`."""
        return {name: value for step in self.steps for name, value in step.account(rounds).items()}

    def start_client(self, rule: Any, point: Point) -> Record:
        """A client's state at the start of a stage: the rule's own, unless a step keeps something there."""
        own: Record = rule.start_client(point)
        if all(type(step).start_client is Step.start_client for step in self.steps):
            return own
        message = rule.message(rule.start_stage(point))
        kept = tuple(step.start_client(message) for step in self.steps)
        return StatesAtClient(own, kept) if any(map(named_tensors, kept)) else own

    @staticmethod
    def own_state(state: Any) -> Any:
        """The rule's part of a client's state."""
        return state.rule if isinstance(state, StatesAtClient) else state

    def kept_by(self, state: Any) -> dict[str, Any]:
        """The steps' parts of a client's state, by their keys; of those that keep something."""
        if not isinstance(state, StatesAtClient):
            return {}
        return {step.key: kept for step, kept in zip(self.steps, state.steps, strict=True) if named_tensors(kept)}

    def local_round(self, rule: Any, message: Any, state: Any, oracle: Any) -> tuple[Any, Record]:
        """The rule's local round at a client: what is sent, and its new state."""
        before, what = self.own_state(state), f"{type(rule).__name__}.local_round"
        update, own = unpack_update(rule.local_round(message, before, oracle), message, before, what)
        kept = list(state.steps) if isinstance(state, StatesAtClient) else [Stateless()] * len(self.steps)
        for number, step in reversed(list(enumerate(self.steps))):
            draw = partial(_stream, oracle, step.key)
            update, kept[number] = step.at_client(update, message, kept[number], draw)
        return update, StatesAtClient(own, tuple(kept)) if isinstance(state, StatesAtClient) else own

    def start_server(self, point: Point) -> tuple[Record, ...]:
        """States that the steps keep at the server from the start of a stage."""
        return tuple(step.start_server(point) for step in self.steps)

    def at_server(self, arrived: Arrived) -> Arrived:
        """Packages for the server's step."""
        for step in self.steps:
            arrived = step.at_server(arrived)
        return arrived

    def move(self, before: Any, after: Any, kept: Sequence[Any]) -> tuple[Any, tuple[Any, ...]]:
        """The server's state after all steps, and what they keep."""
        states = []
        for step, state in zip(self.steps, kept, strict=True):
            after, state = step.move(before, after, state)
            states.append(state)
        return after, tuple(states)


#: With no step but statistics.
PLAIN: Final = Exchange()


def _stream(oracle: Any, key: str) -> Any:
    return oracle.stream(key)


@cache
def list_specs() -> tuple[StepSpec, ...]:
    """All steps that can be chosen: built in and installed."""
    return tuple(STEPS.find(name) for name in STEPS.names)


def list_fields(taken: Collection[str] = ()) -> dict[str, tuple[Any, Any]]:
    """The keys of all steps in a pipeline, with type and field.

    Raises
    ------
    ConfigError
        If a step wants a key that is `taken`, or another step's.
    """
    fields: dict[str, tuple[Any, Any]] = {}
    for spec in list_specs():
        for key, declared in spec.fields.items():
            if key in fields or key in taken:
                raise ConfigError(f"step '{spec.name}': its key '{key}' is another's", kind="key taken", key=key)
            fields[key] = declared
    return fields


def choose_steps(settings: Any, seed: int = 0) -> tuple[Step, ...]:
    """The steps that the fields of `settings` choose; `seed` is the study's."""
    made = (_build(spec, settings, seed) for spec in list_specs())
    return tuple(step for step in made if step is not None)


def chooses(spec: StepSpec, settings: Any) -> bool:
    """Whether the fields of `settings` choose a step of this kind."""
    return _build(spec, settings, 0) is not None


def _build(spec: StepSpec, settings: Any, seed: int) -> Step | None:
    return spec.build({key: getattr(settings, key) for key in spec.fields}, seed)

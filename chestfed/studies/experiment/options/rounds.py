"""Options of a round in a pipeline: local steps where clients differ."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Self

from pydantic import Field, model_validator

from chestfed.core.config import StrictModel
from chestfed.learning.abilities import Can, Demand, find_conflicts
from chestfed.learning.algorithms import ALGORITHMS

if TYPE_CHECKING:
    from chestfed.studies.experiment.stage_2 import Federated


class LocalSteps(StrictModel):
    """Local steps per round where clients differ; `window` is what rounds are planned with."""

    epochs: float | None = Field(None, gt=0, description="passes of each client over its own training images")
    per_client: list[Annotated[int, Field(ge=1)]] | None = Field(
        None, min_length=1, description="a number for each client, in the order of addition"
    )
    stragglers: float = Field(
        0.0, ge=0, le=1, description="probability of each client, in each round, to make only a part of its steps"
    )
    least: float = Field(0.1, gt=0, le=1, description="smallest part that a straggler makes; drawn evenly up to all")

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if self.epochs is not None and self.per_client is not None:
            raise ValueError("epochs and per_client: give one of them")
        if not self.stragglers and self.epochs is None and self.per_client is None:
            raise ValueError("give epochs, per_client or stragglers; without them every client makes `window` steps")
        return self


def list_demands(settings: Federated) -> list[Demand]:
    """Demands of a round's settings on the algorithm, and what each leaves the others."""
    returned, weights = settings.stage_output, settings.weights
    demands = list[Demand]()
    if settings.clients_per_round is not None:
        needs = frozenset({Can.SOME_CLIENTS})
        demands.append(Demand("clients_per_round", needs, {Can.ALL_CLIENTS: "some are drawn for each round"}))
    if settings.absent != "wait":
        takes = {Can.ALL_CLIENTS: "a round goes on without some", Can.FIXED_WEIGHTS: "who is absent sets the weights"}
        demands.append(Demand("absent", frozenset({Can.SOME_CLIENTS}), takes))
    if settings.local_steps is not None:
        of_some = {Can.UNEQUAL_STEPS_OF_SOME} if demands else set[Can]()
        demands.append(Demand("local_steps", frozenset({Can.UNEQUAL_STEPS, *of_some})))
    if weights != "uniform":
        demands.append(Demand("weights", takes={Can.EQUAL_WEIGHTS: f"{weights} counts clients by their images"}))
    if returned == "random_round":
        demands.append(Demand("stage_output", frozenset({Can.ONE_POINT})))
    if returned == "average":
        demands.append(Demand("stage_output", frozenset({Can.ONE_POINT, Can.MEAN_POINT})))
    if returned == "algorithm":
        takes = {Can.ONE_MESSAGE: "clients send more for what a stage returns"}
        demands.append(Demand("stage_output", frozenset({Can.ONE_POINT, Can.ALL_CLIENTS}), takes))
    return [*demands, *(step.demand for step in settings.exchange().steps)]


def check_demands(settings: Federated) -> None:
    """Raise ValueError if settings of a round do not go with the algorithm and objective, or with each other."""
    spec, objective = settings.spec, settings.objective_spec
    common = {Can.OWN_DUALS, Can.MEAN_POINT, *({Can.ONE_POINT} if Can.OWN_POINTS not in spec.can else ())}
    can = (spec.can | common) - objective.lacks
    name = f"{spec.name} with {objective.name}"
    if conflicts := list(find_conflicts(name, can, list_demands(settings), list_able)):
        raise ValueError("; ".join(conflicts))


def list_able(ability: Can) -> list[str]:
    """The built-in algorithms whose declaration has it."""
    return [name for name, spec in ALGORITHMS.built_in.items() if ability in spec.can]

"""Options of a round in a pipeline: noise, and local steps where clients differ."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import Field, model_validator

from chestfed.core.config import StrictModel
from chestfed.learning.algorithms import ALGORITHMS

if TYPE_CHECKING:
    from chestfed.studies.experiment.stage_2 import Federated


class PrivacyOptions(StrictModel):
    """Client-level differential privacy of the weights that stage 2 returns; docs/privacy.md says what it protects."""

    clip: float = Field(
        gt=0, description="largest norm of a client's change in a round; larger ones are scaled down to it [C]"
    )
    noise_multiplier: float = Field(
        gt=0, description="standard deviation of the noise, relative to the most that one client can move the mean [z]"
    )
    delta: float = Field(1e-5, gt=0, lt=1, description="the delta for which epsilon is reported [delta]")
    noise: Literal["secret", "seed"] = Field(
        "secret",
        description="source of the noise. secret: the system's entropy, so that no two runs are equal; seed: the "
        "study's `seed`, the same bits with every engine. Only to measure what the noise "
        "costs: it protects nothing, because the run folder has the seed",
    )


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


def check_options(settings: Federated) -> None:
    """Raise ValueError if steps, server optimizer or compression of a `Federated` do not go with its algorithm."""
    spec, steps = settings.spec, settings.local_steps
    some = settings.clients_per_round is not None or settings.absent != "wait"
    if steps is not None and not spec.unequal_steps:
        raise ValueError(
            f"local_steps: all clients of {spec.name} make equal steps; others are possible with "
            f"{list_able('unequal_steps')}"
        )
    if steps is not None and some and spec.unequal_steps == "full rounds":
        raise ValueError(f"local_steps: {spec.name} needs all clients in a round if their steps differ")
    for key in ("server_optimizer", "compression"):
        if getattr(settings, key) is not None and not spec.averages:
            raise ValueError(
                f"{key}: {spec.name} relies on the mean of what the clients send; possible with {list_able('averages')}"
            )
        if getattr(settings, key) is not None and settings.stage_output == "algorithm":
            raise ValueError(f"{key}: not with stage_output algorithm, for which clients send more; take another")
    if settings.server_optimizer is not None and settings.objective_spec.kind == "server-weighted":
        raise ValueError("server_optimizer: the dual variables of this objective are the server's own estimate")


def list_able(ability: str) -> str:
    """The built-in algorithms whose declaration has it, and that others may."""
    names = [name for name, spec in ALGORITHMS.built_in.items() if getattr(spec, ability)]
    return f"{', '.join(names)}, and plug-ins that declare {ability}"

"""The schema of stage 2 in a pipeline: the algorithm and the objective with their options, and the schedule."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field, create_model, field_validator, model_validator
from torch import Tensor

from chestfed.core.config import AddedLater, StrictModel
from chestfed.core.errors import ConfigError
from chestfed.core.plugins import Choice, Options
from chestfed.learning.algorithms import ALGORITHMS, AlgorithmSpec
from chestfed.learning.algorithms.declaration import Setting
from chestfed.learning.engines.layout import Layout
from chestfed.learning.engines.weights import WeightMode
from chestfed.learning.exchange.exchange import Exchange, choose_steps, list_fields
from chestfed.learning.objectives import OBJECTIVES, ObjectiveSpec
from chestfed.studies.experiment.options.rounds import LocalSteps, check_demands
from chestfed.studies.experiment.options.sampling import Sampling, check_sampling


@dataclass(frozen=True)
class Stage:
    """One stage: its window, its whole rounds, and the factor on the step sizes."""

    window: int
    rounds: int
    lr_factor: float


if TYPE_CHECKING:

    class Steps(StrictModel):
        """The keys of the steps of an exchange, see `chestfed.learning.exchange`; only they know their names."""

else:
    Steps = create_model("Steps", __base__=StrictModel, **list_fields())


class Federated(Steps):
    """Stage 2, federated training: algorithm, objective, schedule. Names in brackets are the papers' symbols.

    The experiments of the source paper keep window and stage length and divide the step sizes; its Theorems 1 and 2
    let all three change geometrically: `lr_decay`, `stage_growth` and `window_growth` of the same size.
    """

    own_keys: ClassVar[frozenset[str]] = frozenset({"algorithm", "objective"})

    window: int = Field(
        32,
        ge=1,
        le=1_000_000,
        description="local steps per round [I]; npa communicates after every step, npa_large_batch after every step "
        "on this many batches at once",
    )
    window_growth: float = Field(1.0, ge=1, description="factor of the window after each stage")
    local_lr: float = Field(
        0.1,
        gt=0,
        description="step size (learning rate) of the weights in local steps [eta_l]",
        json_schema_extra={"search": [0.01, 1.0, "log"]},
    )
    batch_size: int = Field(32, ge=1, le=65_536, description="images per client and step")
    weights: WeightMode = Field(
        "uniform",
        description="weight of a client in every mean. uniform: 1/K (the paper); images: its share of the "
        "training rows; sqrt: proportional to the square root of its training rows",
    )
    stages: int = Field(
        3, ge=1, le=1000, description="number of stages; an algorithm without a server makes all their steps in one"
    )
    stage_steps: int = Field(
        1000, ge=1, le=1_000_000_000, description="local steps per stage [T0], rounded to whole rounds"
    )
    total_steps: int | None = Field(
        None,
        ge=1,
        le=1_000_000_000,
        description="local steps of all stages together, in place of `stages`: as many stages as that takes, the last "
        "one shorter; null: `stages` of them",
    )
    stage_growth: float = Field(1.0, ge=1, description="factor of stage_steps after each stage")
    lr_decay: float = Field(3.0, ge=1, description="divisor of the step sizes after each stage")
    stage_output: Literal["last", "average", "algorithm", "random_round"] = Field(
        "last",
        description="the point that a stage returns. last: after the last round; average: the mean over its "
        "rounds; random_round: after a random round, as in CODASCA's analysis; algorithm: the "
        "algorithm's own rule (CODA+, CODA and NPA: the mean of all iterates of all clients). "
        "Averaged weights get their own running statistics",
    )
    weight_decay: float = Field(0.0, ge=0, description="coefficient of |w|^2 / 2, added to every loss; not on a and b")
    clients_per_round: int | None = Field(
        None,
        ge=1,
        description="number of clients drawn for each round [S]; null: all. Not for algorithms that need all clients "
        "in every round, such as codasca_minimal",
    )
    participation: Annotated[Literal["drawn", "cyclic"], AddedLater()] = Field(
        "drawn",
        description="which clients_per_round. drawn: at random for each round; cyclic: the clients in the order of "
        "addition form groups of that size, which take part one after the other in a fixed, repeating schedule over "
        "all stages (Vangapally et al., TMLR 2026)",
    )
    local_steps: LocalSteps | None = Field(
        None, description="local steps per round where clients differ; null: `window` everywhere"
    )
    absent: Literal["wait", "drop"] | Annotated[int, Field(ge=1)] = Field(
        "wait",
        description="what to do about a client that is late or whose answer cannot be used. wait: the round waits; "
        "drop: the round continues without it; a number: it does if at least so many others have answered. In a "
        "federation a hospital is late after `faults.late_after` seconds",
    )
    sampling: Annotated[Sampling | None, AddedLater()] = Field(
        None,
        description="draw batches of stage 2 by class, such as {positives: 0.5}: each from all images, without epochs; "
        "null: an epoch has all images once",
    )
    algorithm: Annotated[Options, Choice(ALGORITHMS)] = Field(
        default="codasca",
        validate_default=True,
        description="a name, or a mapping of `name` and the algorithm's own options",
    )
    objective: Annotated[Options | None, Choice(OBJECTIVES, optional=True)] = Field(
        None, description="the loss: a name, or a mapping of `name` and options; null: the algorithm's own"
    )

    by_k: Annotated[dict[str, dict[str, float]], AddedLater()] = Field(
        {},
        description="settings of single K in place of these, as `chestfed tune --k all` finds them: "
        "`{1: {local_lr: 0.02}, 3: {local_lr: 0.1, objective.inner_lr: 0.01}}`. Step size and options of algorithm, "
        "objective and server optimizer",
    )

    @field_validator("by_k", mode="before")
    @classmethod
    def _numbers_are_keys(cls, value: Any) -> Any:
        """Let K be written as a number."""
        return {str(key): values for key, values in value.items()} if isinstance(value, dict) else value

    @field_validator("by_k")
    @classmethod
    def _keys_are_numbers(cls, value: dict[str, dict[str, float]]) -> dict[str, dict[str, float]]:
        if wrong := [key for key in value if not key.isdecimal() or int(key) < 1]:
            raise ValueError(f"its keys are numbers of clients; found {', '.join(wrong)}")
        return value

    @model_validator(mode="before")
    @classmethod
    def _own_objective(cls, data: Any) -> Any:
        """Fill in the algorithm's own objective, or its name where only options are given."""
        if not isinstance(data, dict):
            return data
        default = cls.model_fields["algorithm"].get_default()
        objective, algorithm = data.get("objective"), get_part_name(data.get("algorithm", default))
        if get_part_name(objective) or not isinstance(objective, dict | None):
            return data
        try:
            spec = ALGORITHMS.find(algorithm)
        except ConfigError:
            return data  # refused where it is checked
        return {**data, "objective": {"name": spec.objective, **(objective or {})}}

    def check(self) -> None:
        """Raise `ValueError` if algorithm, objective and settings do not go together."""
        spec, objective = self.spec, self.objective_spec
        if objective.kind not in spec.takes:
            fitting = [name for name, other in ALGORITHMS.built_in.items() if objective.kind in other.takes]
            text = f"objective: {objective.name} ({objective.kind}) does not go with {spec.name}, which takes "
            others = f"it goes with {', '.join(fitting)}" if fitting else "no built-in algorithm takes its kind"
            raise ValueError(f"{text}{' or '.join(spec.takes)}; {others}")
        check_demands(self)
        check_sampling(self)
        if self.participation == "cyclic" and self.clients_per_round is None:
            raise ValueError("participation: cyclic needs clients_per_round, the size of a group")
        if self.total_steps is not None and self.stages != type(self).model_fields["stages"].default:
            raise ValueError("stages: no effect beside total_steps; remove one")
        if self.total_steps is not None and self.total_steps > 1000 * self.stage_steps:
            raise ValueError("total_steps: more than 1000 stages; raise stage_steps")
        if idle := [key for key in idle_keys(spec) if key in self.model_fields_set]:
            raise ValueError(f"{', '.join(idle)}: no effect with {spec.name}; remove it")

    def exchange(self, seed: int = 0) -> Exchange:
        """The steps between the clients' local work and the server's own; `seed` is the study's."""
        return Exchange((*self.spec.steps(self.algorithm), *choose_steps(self, seed)))

    @property
    def spec(self) -> AlgorithmSpec:
        return ALGORITHMS.find(self.algorithm.name)

    @property
    def objective_spec(self) -> ObjectiveSpec:
        assert self.objective is not None
        return OBJECTIVES.find(self.objective.name)

    def taking_part(self, k: int) -> int:
        """Clients of `k` that take part in a round."""
        return min(k, self.clients_per_round or k)

    @property
    def batches_per_step(self) -> int:
        """Batches that a client takes at once in a local step: 1, except for NPA with large batches."""
        return self.window if self.spec.pace == "large batch" else 1

    @property
    def images_per_step(self) -> int:
        """Images that a client sees per local step; centralized, per client whose images were moved."""
        return self.batch_size * self.batches_per_step

    @property
    def rounds_per_window(self) -> int:
        """Rounds in which a client takes `window` steps: 1, except for NPA."""
        return self.window if self.spec.pace == "every step" else 1

    @property
    def schedule(self) -> tuple[Stage, ...]:
        """The stages. Without a server they are one, at the first's step size, for dual variables live on the edges.

        A stage is whole rounds and ends as near as they come to where it should, counted from the start of training:
        what one stage is too long by, the next is shorter by, so that the whole is not off by more than half a window,
        unless a stage is shorter than its window, for it has one round at least.
        """
        planned, target, done = [], 0.0, 0
        spec, batches = self.spec, self.batches_per_step
        for number, length in enumerate(self._stage_lengths):
            window = round(self.window * self.window_growth**number) if spec.pace == "window" else 1
            target += length
            rounds = _nearest(target - done, window * batches)
            done += rounds * window * batches
            planned.append(Stage(window, rounds, self.lr_decay**-number))
        if not spec.has_server:
            return (Stage(self.window, _nearest(target, self.window), 1.0),)
        return tuple(planned)

    @property
    def wanted_steps(self) -> int:
        """Local steps that the stages should have together, in batches of one client; whole rounds may miss it."""
        return round(sum(self._stage_lengths))

    @property
    def _stage_lengths(self) -> list[float]:
        """Local steps that each stage should have."""
        if self.total_steps is None:
            return [self.stage_steps * self.stage_growth**number for number in range(self.stages)]
        lengths: list[float] = []
        while (rest := self.total_steps - sum(lengths)) > 0:
            lengths.append(min(rest, self.stage_steps * self.stage_growth ** len(lengths)))
        return lengths

    @property
    def batches(self) -> int:
        """Batches that one client takes over all stages: what `wanted_steps` asks for, in whole rounds."""
        return sum(self.stage_batches)

    @property
    def stage_batches(self) -> list[int]:
        """Batches that one client takes in each stage, in whole rounds."""
        return [stage.rounds * stage.window * self.batches_per_step for stage in self.schedule]

    def build_rule(self, number: int, p: Tensor, clients: int, layout: Layout | None = None, **more: Any) -> Any:
        """The rule with the hyper-parameters of a stage, counted from 0: an `Algorithm`, or what the layout runs.

        `p` is that of `ratio_of_duals`; `more` are further fields of `Setting`: client, groups, shared, normalized,
        seed, window.
        """
        stage = self.schedule[number]
        setting = Setting(
            **{"window": stage.window, **more},
            local_lr=self.local_lr * stage.lr_factor,
            lr_factor=stage.lr_factor,
            clients=clients,
            positive_ratio=p,
            degree=0 if layout is None else layout.degree,
            returns_average=self.stage_output == "algorithm",
        )
        return self.spec.build(self.algorithm, setting)

    @property
    def rounds(self) -> int:
        return sum(stage.rounds for stage in self.schedule)

    @property
    def steps(self) -> int:
        """Local steps of one client over all stages."""
        return sum(stage.rounds * stage.window for stage in self.schedule)


list_fields(Federated.__annotations__)  # refuses an installed step that takes a key of these


def idle_keys(spec: AlgorithmSpec) -> tuple[str, ...]:
    """Keys that have no effect on an algorithm."""
    if not spec.has_server:  # one stage, no weighted averaging
        return ("window_growth", "lr_decay", "weights")
    return (*["window_growth"] * (spec.pace != "window"), *["weights"] * spec.pooled)


def whole_rounds(settings: Federated) -> str:
    """The steps that rounding to whole rounds gives in place of those asked for; empty if they are the same."""
    if settings.batches == settings.wanted_steps:
        return ""
    return f", {settings.batches:,} steps instead of {settings.wanted_steps:,} (rounded to whole rounds)"


def get_part_name(part: Any) -> str:
    """The name of a part that is given by its name, as a mapping, or as options; empty if there is none."""
    if isinstance(part, Options):
        return part.name
    name = part.get("name") if isinstance(part, Mapping) else part
    return name if isinstance(name, str) else ""


def complete_entry(common: Mapping[str, Any], entry: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of one method: its own, and those in common where it has none and they have an effect on it."""
    try:
        idle = idle_keys(ALGORITHMS.find(get_part_name(entry.get("algorithm"))))
    except ConfigError:
        idle = ()  # the algorithm is refused where it is checked
    return {key: value for key, value in common.items() if key not in idle} | dict(entry)


def _nearest(steps: float, window: int) -> int:
    """Rounds of `window` steps that come nearest to `steps`, one at least; half a round is rounded up."""
    return max(1, math.floor(steps / window + 0.5))

"""The schema of a pipeline's YAML: an experiment and the methods that it compares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Any, ClassVar, Final, Self

from pydantic import Field, GetJsonSchemaHandler, ValidationError, field_validator, model_validator
from pydantic_core import CoreSchema

from chestfed.core.errors import ConfigError
from chestfed.core.plugins import Choice, Options
from chestfed.core.randomness import MOST_SEED
from chestfed.data.images.augment import Augment
from chestfed.learning.algorithms import ALGORITHMS
from chestfed.learning.exchange.exchange import Exchange, choose_steps
from chestfed.learning.models import MODELS, FeatureOptions, ModelOptions
from chestfed.studies.designs.design import DESIGNS, find_conflicts, list_keys
from chestfed.studies.experiment.pipeline import Conditions, Pipeline, TuningRecord
from chestfed.studies.experiment.ranges import parse_space
from chestfed.studies.experiment.stage_2 import Federated, get_part_name

#: Description of the section `federated` of a pipeline's file.
COMMON: Final = (
    "stage 2, federated training: what the methods have in common; names in brackets are the papers' symbols"
)
_Seeds = (
    Annotated[int, Field(ge=1, le=1000)]
    | Annotated[list[Annotated[int, Field(ge=0, le=MOST_SEED)]], Field(min_length=1)]
)


class Method(Federated):
    """One method: an algorithm, its objective, and what differs for it from `federated`."""

    own_keys: ClassVar[frozenset[str]] = Federated.own_keys | {"name", "model", "tuning"}

    name: str = Field(
        "",
        pattern=r"^(\w[^\s,/\\<>\x00-\x20\x7f-\x9f]*)?$",
        description="name in tables and after `--methods`, which begins with a letter or digit; by default the "
        "algorithm's",
    )
    algorithm: Annotated[Options, Choice(ALGORITHMS)] = Field(
        description="a name, or a mapping of `name` and the algorithm's own options"
    )
    model: Annotated[ModelOptions | None, Choice(MODELS, optional=True)] = Field(
        None, description="the network of this method; null: the common one"
    )
    tuning: TuningRecord | None = Field(
        None, description="how `chestfed tune`, which writes it, found the settings; null: they were set by hand"
    )

    @model_validator(mode="before")
    @classmethod
    def _default_name(cls, data: Any) -> Any:
        if not isinstance(data, dict) or data.get("name", "") != "":
            return data
        return {**data, "name": get_part_name(data.get("algorithm"))}

    @property
    def averages_statistics(self) -> bool:
        """Whether its server averages running statistics, as it does without noise on what it returns."""
        return Exchange(choose_steps(self)).takes_buffers and ALGORITHMS.find(self.algorithm.name).has_server


class PipelineFile(Conditions):
    """One experiment: one method is a study with every K, several are a comparison at the largest K."""

    in_common: ClassVar[Mapping[str, str]] = {"federated": "methods"}

    methods: list[Method] = Field(
        default_factory=lambda: [Method.model_validate({"algorithm": "codasca"})],
        min_length=1,
        description="the methods, in the order of the table",
    )
    selected: list[str] | None = Field(
        None, min_length=1, description="names of the methods that run, as `--methods`; null: all of them"
    )
    windows: list[Annotated[int, Field(ge=1)]] = Field(
        [],
        description="windows (local steps per round) to compare, for every method; none: federated.window",
    )
    seeds: _Seeds = Field(
        1, description="number of training seeds, counted up from `seed`, or a list of them, as `--seeds`"
    )
    splits: int = Field(
        1, ge=1, le=100, description="number of splits of patients, counted up from `split`, as `--splits`"
    )
    design: Annotated[Options | None, Choice(DESIGNS, optional=True)] = Field(
        None,
        description="which studies are run, by a key of its own such as `target_images`; null: every K",
    )
    search: dict[str, list[Any] | None] = Field(
        default_factory=dict,
        description="what `chestfed tune` searches instead of the declared ranges, for every method that has the "
        "key: a range `local_lr: [0.01, 1, log]`, `momentum: [0.5, 0.99, linear]`; a grid `window: [16, 32, 64]`; "
        "null: not searched",
    )

    @classmethod
    def list_known_keys(cls) -> list[str]:
        """Keys of a file: `complete` moves `federated` and those of designs elsewhere before this model sees them."""
        return ["federated", *(key for key in cls.model_fields if key != "design"), *list_keys()]

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """That of a file, with the keys of `list_known_keys`."""

        def describe(model: type[Options] | type[Federated]) -> dict[str, Any]:
            section = handler.resolve_ref_schema(handler(model.__pydantic_core_schema__))
            keys = {key: value for key, value in section["properties"].items() if key not in model.own_keys}
            return {**section, "properties": keys}

        pipeline = handler.resolve_ref_schema(handler(schema))
        properties: dict[str, Any] = {}
        for key, value in pipeline["properties"].items():
            if key == "methods":
                properties["federated"] = describe(Federated) | {"description": COMMON}
            if key != "design":
                properties[key] = value
                continue
            for name, spec in list_keys().items():
                section = {"anyOf": [describe(spec.options), {"type": "null"}], "default": None}
                properties[name] = section | {"description": spec.description}
        pipeline["properties"] = properties
        return pipeline

    @field_validator("search")
    @classmethod
    def _ranges_are_ranges(cls, value: dict[str, list[Any] | None]) -> dict[str, list[Any] | None]:
        for limits in value.values():
            if limits is not None:
                parse_space(limits)
        return value

    @model_validator(mode="after")
    def _lists_have_each_once(self) -> Self:
        names = [method.name for method in self.methods]
        lists: dict[str, Sequence[object]] = {"methods": names, "selected": self.selected or []}
        lists |= {"windows": self.windows, "seeds": self.seed_list}
        for key, values in lists.items():
            if len(set(values)) < len(values):
                advice = "; give each entry a `name` of its own" if key == "methods" else ""
                raise ValueError(f"{key}: name each once; found {', '.join(map(str, values))}{advice}")
        if self.splits > 1:
            self.check_splits("splits")
        if max(self.seed_list) > MOST_SEED:
            raise ValueError(f"seeds: counted up from {self.seed}, the last one is above {MOST_SEED}")
        if unknown := sorted({*(self.selected or [])} - {*names}):
            raise ValueError(f"selected: {', '.join(unknown)}: not among the methods {', '.join(names)}")
        return self

    @model_validator(mode="after")
    def _methods_can_run(self) -> Self:
        """Check the selected methods with what is common to all; of the others only keys and values are checked."""
        problems = []
        for method in self.selected_methods:
            try:
                self.check_method(method)
            except ConfigError as error:
                problems.append(str(error))
        if problems:
            raise ValueError("\n".join(problems))
        for conflict in find_conflicts(self):
            raise ValueError(conflict)
        return self

    @property
    def selected_methods(self) -> list[Method]:
        """The methods that run, in the order of the selection."""
        by_name = {method.name: method for method in self.methods}
        return [by_name[name] for name in (self.selected if self.selected is not None else by_name)]

    @property
    def is_comparison(self) -> bool:
        """Whether methods or windows are compared, at the largest K."""
        return bool(self.windows) or len(self.selected_methods) > 1

    @property
    def seed_list(self) -> list[int]:
        """The training seeds."""
        return [self.seed + number for number in range(self.seeds)] if isinstance(self.seeds, int) else self.seeds

    @property
    def draws(self) -> list[dict[str, int]]:
        """The keys of each training run of a study: split of the patients and seed."""
        splits = range(self.split, self.split + self.splits)
        return [{"seed": seed, "split": split} for split in splits for seed in self.seed_list]

    def resolve(self, name: str | None = None) -> Pipeline:
        """The study of one method; by default the first selected one.

        What depends on the method but must not differ between those that are compared (`model.norm: auto`) is chosen to
        suit all of them.

        Raises `ConfigError` if there is no such method, or its settings do not go together.
        """
        compared = self.selected_methods
        method = next((candidate for candidate in self.methods if candidate.name == (name or compared[0].name)), None)
        if method is None:
            raise ConfigError(
                f"methods: no '{name}'; they are {', '.join(candidate.name for candidate in self.methods)}"
            )
        if method not in compared:
            self.check_method(method)
            compared = [method]
        averaged = self.runtime.passes == 1 and all(candidate.averages_statistics for candidate in compared)
        model = (method.model or self.model).resolve_norm(averaged=averaged)
        written = {key: getattr(method, key) for key in Federated.model_fields if key in method.model_fields_set}
        common = {key: getattr(self, key) for key in Conditions.model_fields}
        own = {"method": method.name, "federated": Federated.model_construct(**written), "tuning": method.tuning}
        own |= {"model": model} | ({"augment": Augment(enabled=False)} if isinstance(model, FeatureOptions) else {})
        return Pipeline.model_construct(self.model_fields_set & common.keys() | own.keys(), **common | own)

    def check_method(self, method: Method) -> None:
        """Raise `ConfigError` if the settings of a method do not go together, or not with what is common to all."""
        reasons = []
        model = method.model or self.model
        for check in (partial(self.check_model, model), partial(self.check_federated, method)):
            try:
                check()
            except ValidationError as error:
                reasons += [detail["msg"].removeprefix("Value error, ") for detail in error.errors()]
            except ValueError as error:
                reasons.append(str(error))
        if reasons:
            raise ConfigError(f"methods, {method.name}: {'; '.join(reasons)}")

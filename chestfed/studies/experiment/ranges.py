"""The ranges and grids that `chestfed tune` searches: declared beside an option, or in a pipeline.

An option declares its range as `Field(..., json_schema_extra={"search": [0.01, 1.0, "log"]})`. All algorithms that have
an option are searched over the same range of it. An option whose value is not a number (`null`, `auto`) is left as it
is, unless the pipeline's `search` gives it a range.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from pydantic.fields import FieldInfo

from chestfed.core.config import StrictModel
from chestfed.learning.exchange.exchange import list_fields
from chestfed.studies.experiment.stage_2 import Federated

#: The best value is at an edge if it lies in this outer share of the range, which then grows by `_WIDER` of its width.
_EDGE, _WIDER = 0.1, 0.5


@dataclass(frozen=True)
class Grid:
    """The only values that are tried."""

    values: tuple[float, ...]

    def plain(self) -> list[Any]:
        return list(self.values)

    @property
    def extremes(self) -> tuple[float, ...]:
        """Values that must be valid."""
        return self.values

    @property
    def description(self) -> str:
        return f"one of {', '.join(f'{value:g}' for value in self.values)}"

    def at(self, share: float) -> float:
        """The value at this share of the way, below 1, through the list."""
        return self.values[int(share * len(self.values))]

    def widened(self, best: float) -> Grid:
        """Grid itself: it is not changed."""
        return self

    def at_edge(self, best: float) -> bool:
        """Whether it is the smallest or the largest of three or more."""
        return len(self.values) > 2 and best in (min(self.values), max(self.values))

    def as_written(self, value: float) -> float:
        """The value itself."""
        return value


@dataclass(frozen=True)
class Range:
    """From `low` to `high`, evenly or by factors (`log`); `bounds` are the option's limits, which are not reached."""

    low: float
    high: float
    log: bool
    bounds: tuple[float, float] = (-math.inf, math.inf)
    integer: bool = False

    @classmethod
    def parse(cls, value: Any) -> Self:
        """A range as it is written: `[low, high, log]` or `[low, high, linear]`."""
        low, high, scale = value if isinstance(value, list | tuple) and len(value) == 3 else (0.0, 0.0, "")
        fine = all(isinstance(bound, int | float) and math.isfinite(bound) for bound in (low, high))
        if not fine or scale not in ("log", "linear") or not low < high:
            raise ValueError(
                f"a range is [low, high, log] or [low, high, linear], such as [0.01, 1, log]; found {value}"
            )
        if scale == "log" and low <= 0:
            raise ValueError(f"a range on a log scale must start above 0; found {value}")
        return cls(float(low), float(high), scale == "log")

    def plain(self) -> list[Any]:
        return [self.low, self.high, "log" if self.log else "linear"]

    @property
    def extremes(self) -> tuple[float, ...]:
        """Values that must be valid."""
        return (self.as_written(self.low), self.as_written(self.high))

    @property
    def description(self) -> str:
        return f"{self.low:.3g} to {self.high:.3g}"

    def as_written(self, value: float) -> float:
        """A value as it stands in YAML: four digits, or a whole number."""
        return round(value) if self.integer else float(f"{value:.4g}")

    def at(self, share: float) -> float:
        """The value at this share of the way from `low` to `high`."""
        return self.low * (self.high / self.low) ** share if self.log else self.low + share * (self.high - self.low)

    def widened(self, best: float) -> Range:
        """The range, wider on the side where `best` lies at its edge, unless the option's limit is near there."""
        to, back = (math.log, math.exp) if self.log else (float, float)
        low, high = to(self.low), to(self.high)
        edge = _EDGE * (high - low)
        below, above = (to(limit) if limit > 0 or not self.log else -math.inf for limit in self.bounds)
        if to(best) < low + edge and low - below > edge:
            return replace(self, low=back(max(low - _WIDER * (high - low), (low + below) / 2)))
        if to(best) > high - edge and above - high > edge:
            return replace(self, high=back(min(high + _WIDER * (high - low), (high + above) / 2)))
        return self

    def at_edge(self, best: float) -> bool:
        """Whether it lies in the outer tenth of the range on either side, which may be next to the option's limit."""
        without = replace(self, bounds=(-math.inf, math.inf))
        return without.widened(best) != without


#: Values to search of one key.
Space = Range | Grid


def parse_space(value: Any) -> Space:
    """A range, or a grid: a list of two or more different numbers; raises `ValueError` for anything else."""
    if not isinstance(value, list | tuple) or not all(
        isinstance(bound, int | float) and not isinstance(bound, bool) for bound in value
    ):
        return Range.parse(value)
    if len(set(value)) < max(2, len(value)) or not all(map(math.isfinite, value)):
        raise ValueError(f"a grid is a list of two or more different numbers, such as [16, 32, 64]; found {value}")
    return Grid(tuple(value))


def select_ranges(settings: Federated, chosen: Mapping[str, list[Any] | None]) -> dict[str, Space]:
    """Ranges to search: the algorithm's options, keys of `federated`, those of objective and steps after their names.

    `chosen` are the pipeline's own ranges, which replace the declared ones; null: not searched.
    """
    spaces: dict[str, Space] = {}
    for key, (field, value) in list_options(settings).items():
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        space: Space | None = declared_range(field) if is_number else None
        if key in chosen:
            space = None if (given := chosen[key]) is None else parse_space(given)
        if isinstance(space, Range):
            space = replace(space, bounds=_bounds(field), integer=field.annotation is int)
        if space is not None:
            spaces[key] = space
    return spaces


def declared_range(field: FieldInfo) -> Range | None:
    """The range that an option declares, if it does."""
    extra = field.json_schema_extra
    return Range.parse(extra["search"]) if isinstance(extra, dict) and "search" in extra else None


def list_options(settings: Federated) -> dict[str, tuple[FieldInfo, Any]]:
    """Every key that may be searched, such as `local_lr`, `prox`, `server_optimizer.lr`: its field and its value."""

    def fields(prefix: str, part: Any) -> Iterator[tuple[str, tuple[FieldInfo, Any]]]:
        for name, field in type(part).model_fields.items():
            if name not in ("name", "algorithm", "objective"):
                yield prefix + name, (field, getattr(part, name))

    common = dict(fields("", settings))
    algorithm_options = {key: value for key, value in fields("", settings.algorithm) if key not in common}
    steps = [(key, getattr(settings, key)) for key in list_fields()]
    of_steps = [option for key, part in steps if isinstance(part, StrictModel) for option in fields(f"{key}.", part)]
    return {**common, **algorithm_options, **dict(fields("objective.", settings.objective)), **dict(of_steps)}


def set_values(entry: Mapping[str, Any], settings: Federated, values: Mapping[str, float]) -> dict[str, Any]:
    """An entry of `methods`, as plain data, with these values; `settings` are those that it stands for."""
    changed = dict(entry)
    for key, value in values.items():
        part, _, option = key.rpartition(".")
        part = part or ("" if key in Federated.model_fields else "algorithm")
        if not part:
            changed[key] = value
            continue
        options = changed.get(part) or {}
        if part not in list_fields() and (isinstance(options, str) or "name" not in options):
            options = {"name": getattr(settings, part).name} | ({} if isinstance(options, str) else options)
        changed[part] = {**options, option: value}
    return changed


def _bounds(field: FieldInfo) -> tuple[float, float]:
    """The limits of a number, as its field declares them."""
    low, high = -math.inf, math.inf
    for limit in field.metadata:
        low = max(low, *(getattr(limit, name, -math.inf) for name in ("gt", "ge")))
        high = min(high, *(getattr(limit, name, math.inf) for name in ("lt", "le")))
    return low, high

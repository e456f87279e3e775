"""The ranges and grids that `chestfed tune` searches: declared beside an option, or in a pipeline.

An option declares its range as `Field(..., json_schema_extra={"search": [0.01, 1.0, "log"]})`. All algorithms that have
an option are searched over the same range of it. An option whose value is not a number (`null`, `auto`) is left as it
is, unless the pipeline's `search` gives it a range. Ranges of step sizes are in units of the loss: they are divided by
the `gradient_scale` of the objective, so that all losses move the weights alike.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from pydantic.fields import FieldInfo

from chestfed.core.config import StrictModel
from chestfed.learning.exchange.exchange import list_fields
from chestfed.studies.experiment.stage_2 import Federated

#: The best value is at an edge if it lies in this outer share of the range, which then grows by `_WIDER` of its width,
#: on a log scale by a factor of `_FACTOR` at most.
_EDGE, _WIDER, _FACTOR = 0.1, 0.5, 4.0


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

    def scaled(self, unit: float) -> Grid:
        """Grid itself: its values are those that are tried."""
        return self

    def open_ends(self, best: float, tried: Iterable[float]) -> list[float]:
        """None: nothing else is tried."""
        return []

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
        to, back = self._axis
        low, high = to(self.low), to(self.high)
        edge = _EDGE * (high - low)
        below, above = self._limits
        if to(best) < low + edge and low - below > edge:
            return replace(self, low=back(max(low - self._reach, (low + below) / 2)))
        if to(best) > high - edge and above - high > edge:
            return replace(self, high=back(min(high + self._reach, (high + above) / 2)))
        return self

    def scaled(self, unit: float) -> Range:
        """The range divided by `unit`."""
        return self if unit == 1 else replace(self, low=self.low / unit, high=self.high / unit)

    def including(self, value: float) -> Range:
        """The range, as wide as it must be to hold `value`."""
        return replace(self, low=min(self.low, value), high=max(self.high, value))

    def open_ends(self, best: float, tried: Iterable[float]) -> list[float]:
        """Values to try beyond `best`: one on each side where none of `tried` is near it.

        Near: on a log scale within a factor of four, else within half the width; but not nearer than a tenth of it.
        None on a side where the option's limit is that near.
        """
        to, back = self._axis
        place, edge = to(best), _EDGE * (to(self.high) - to(self.low))
        distances = [to(value) - place for value in tried]
        ends = []
        for side, limit in zip((-1, 1), self._limits, strict=True):
            reach = min(self._reach, side * (limit - place) / 2)
            if reach < edge / 2 or any(min(edge, reach) * 0.999 <= side * step <= reach * 1.001 for step in distances):
                continue
            value = self.as_written(back(place + side * reach))
            if value != best:
                ends.append(value)
        return ends

    @property
    def _axis(self) -> tuple[Callable[[float], float], Callable[[float], float]]:
        """To the scale on which the range is even, and back."""
        return (math.log, math.exp) if self.log else (float, float)

    @property
    def _limits(self) -> tuple[float, float]:
        """The option's limits on that scale."""
        below, above = (self._axis[0](limit) if limit > 0 or not self.log else -math.inf for limit in self.bounds)
        return below, above

    @property
    def _reach(self) -> float:
        """The most by which it is widened at once, on that scale."""
        to, _ = self._axis
        wider = _WIDER * (to(self.high) - to(self.low))
        return min(wider, math.log(_FACTOR)) if self.log else wider

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


def find_scaled_keys(settings: Federated) -> set[str]:
    """The step sizes that gradients of the loss are multiplied by as they are."""
    plain = getattr(settings.algorithm, "dual_step", "") == "gradient"
    return {"local_lr", "dual_lr"} if plain else {"local_lr"}


def with_values(settings: Federated, values: Mapping[str, float]) -> Federated:
    """The settings with these values of keys of `list_options`; they are not checked."""
    for key, value in values.items():
        name, option = _locate(key)
        part = value if not name else getattr(settings, name).model_copy(update={option: value})
        settings = settings.model_copy(update={name or option: part})
    return settings


def at_k(settings: Federated, k: int) -> Federated:
    """The settings with which the first `k` clients train."""
    return with_values(settings, settings.by_k.get(str(k), {})).model_copy(update={"by_k": {}})


def check_values(settings: Federated, values: Mapping[str, float]) -> None:
    """Raise `ValueError` if values of `by_k`, or of a hospital's own data, are not valid or not those of options."""
    options = list_options(settings)
    for key in values:
        name, _ = _locate(key)
        if key not in options or (not name and key != "local_lr") or name in set(list_fields()) - {"server_optimizer"}:
            raise ValueError(f"{key}: takes local_lr and options of the algorithm, the objective or the server's step")
    written = settings.model_dump(exclude_unset=True) | {"by_k": {}}
    type(settings).model_validate(set_values(written, settings, values)).check()


def _locate(key: str) -> tuple[str, str]:
    """The part of `federated` that a key of `list_options` is of, empty for its own, and the name there."""
    part, _, option = key.rpartition(".")
    return part or ("" if key in Federated.model_fields else "algorithm"), option


def set_values(entry: Mapping[str, Any], settings: Federated, values: Mapping[str, float]) -> dict[str, Any]:
    """An entry of `methods`, as plain data, with these values; `settings` are those that it stands for."""
    changed = dict(entry)
    for key, value in values.items():
        part, option = _locate(key)
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

"""Changes by a rule's steps of what they are given, and differences of two states."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import is_dataclass
from inspect import signature
from unittest.mock import patch

import torch
from torch import Tensor

from chestfed.learning.algorithms.variables import (
    Finishing,
    Partial,
    PeerAlgorithm,
    Personal,
    Preparing,
    Restarting,
    named_tensors,
)

#: The protocols whose methods are steps.
STEPS = (PeerAlgorithm, Partial, Finishing, Restarting, Personal, Preparing)


def list_problem(problem: str, names: Collection[str]) -> str | None:
    """A problem with the names that have it; None without names."""
    return f"{problem}: {', '.join(names)}" if names else None


def find_differences(
    first: Mapping[str, Tensor], second: Mapping[str, Tensor], same: Callable[[Tensor, Tensor], bool] = torch.equal
) -> list[str]:
    """Names of the tensors that are not the same in both."""
    return [name for name, tensor in first.items() if not same(tensor, second[name])]


@contextmanager
def watch_steps(kind: type, changed: list[str]) -> Iterator[None]:
    """Adds to `changed` what the steps of this class of rules change of their arguments."""

    def watch(name: str, step: Callable[..., object]) -> Callable[..., object]:
        keys = list(signature(step).parameters)

        def call(*arguments: object) -> object:
            before = {place: tensor.clone() for place, tensor in _tensors(keys, arguments).items()}
            result = step(*arguments)
            changed.extend(f"{place} by {name}" for place in find_differences(before, _tensors(keys, arguments)))
            return result

        return call

    with ExitStack() as patches:
        for name in {name for part in STEPS for name in dir(part) if not name.startswith("_")}:
            if callable(step := getattr(kind, name, None)):
                patches.enter_context(patch.object(kind, name, watch(name, step)))
        yield


def _tensors(keys: Sequence[str], arguments: Sequence[object]) -> dict[str, Tensor]:
    """The tensors among the arguments of a step, by their place."""
    tensors: dict[str, Tensor] = {}
    for key, value in zip(keys, arguments, strict=False):
        if key != "self" and (isinstance(value, Tensor) or is_dataclass(value)):
            tensors |= {place: part for place, part in named_tensors(value, key).items() if not part.is_meta}
        elif isinstance(value, Mapping | list | tuple):
            parts = value if isinstance(value, Mapping) else dict(enumerate(value))
            tensors |= _tensors([f"{key}.{number}" for number in parts], list(parts.values()))
    return tensors

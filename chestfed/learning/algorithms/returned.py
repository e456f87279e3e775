"""Checks of a rule's return values where they are taken in: later their cause could not be named."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import is_dataclass
from typing import Any

from torch import Tensor

from chestfed.core.errors import TrainingError
from chestfed.learning.algorithms.variables import named_tensors


def refuse_unlike(record: object, like: Any, what: str) -> None:
    """Refuse a state that has not the type of another, with tensors of the same shapes and types.

    `what` returned it: a method of a rule. Raises `TrainingError`.
    """
    if type(record) is not type(like):
        raise _refusal(f"{what} returned {_name(record)}, not {_name(like)}")
    _refuse_other_tensors(named_tensors(record), named_tensors(like), what)


def unpack_update(returned: object, message: Any, state: Any, what: str) -> tuple[Any, Any]:
    """The update and the client's new state that a rule's local round returned, given those that it got.

    Raises
    ------
    TrainingError
        If it is no such pair, its weights are not like those of the message, or the state is not like the old one.
    """
    if not isinstance(returned, tuple) or len(returned) != 2 or not is_dataclass(returned[0]):
        raise _refusal(f"{what} returned {_name(returned)}, not an update, a dataclass of tensors, and the new state")
    update, new = returned
    refuse_unlike(new, state, what)
    if isinstance(getattr(message, "primal", None), Tensor) and hasattr(update, "primal"):
        _refuse_other_tensors({"primal": update.primal}, {"primal": message.primal}, what)
    return update, new


def _refuse_other_tensors(tensors: Mapping[str, object], expected: Mapping[str, Tensor], what: str) -> None:
    for name, like in expected.items():
        tensor = tensors.get(name)
        shown = f"{tensor.dtype} {list(tensor.shape)}" if isinstance(tensor, Tensor) else f"a {type(tensor).__name__}"
        if shown != (expected_form := f"{like.dtype} {list(like.shape)}"):
            raise _refusal(f"{what} returned {name} as {shown}, not {expected_form}")


def _refusal(text: str) -> TrainingError:
    return TrainingError(f"{text}. check_algorithm in chestfed.testing checks a rule", kind="unexpected return value")


def _name(value: object) -> str:
    return "None" if value is None else f"a {type(value).__name__}"

"""What a check of a plug-in says: every broken rule of the contract at once."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np
import torch

from chestfed.core.errors import ChestfedError

Test = TypeVar("Test", bound=Callable[[Any], str | None])


class ContractError(ChestfedError):
    """A plug-in breaks rules of its contract; `broken` are their names."""

    def __init__(self, what: str, problems: dict[str, str]) -> None:
        self.broken = list(problems)
        lines = [f"  {rule}: {told}" for rule, told in problems.items()]
        super().__init__("\n".join([f"{what} breaks its contract:", *lines]))


def rule(text: str) -> Callable[[Test], Test]:
    """Marks a method that tests one rule: it returns None, or says what is wrong."""

    def mark(test: Test) -> Test:
        test.rule = text  # type: ignore[attr-defined]
        return test

    return mark


class Contract:
    """The rules of one kind of plug-in: the methods marked by `rule`, checked in their order.

    An `unclaimed` rule is left out; if the rule `decisive` is broken, no other is checked.
    """

    what: str
    unclaimed: frozenset[str] = frozenset()
    decisive: str | None = None

    def check(self) -> list[str]:
        """The rules that hold.

        Raises
        ------
        ContractError
            If any rule is broken; an exception breaks it too.
        """
        kept, problems = [], {}
        for test in vars(type(self)).values():
            text = getattr(test, "rule", None)
            if text is None or text in self.unclaimed or self.decisive in problems:
                continue
            try:
                told = test(self)
            except Exception as error:
                told = f"{type(error).__name__}: {error}"
            if told is None:
                kept.append(text)
            else:
                problems[text] = told
        if problems:
            raise ContractError(self.what, problems)
        return kept

    def refuses_unknown(self, options: Any, name: str) -> str | None:
        """Whether a model of options refuses a key that it does not have."""
        try:
            options.model_validate({"name": name, "an_option_that_nobody_has": 1})
        except ValueError:
            return None
        return f"{options.__name__} accepts any key; derive it from chestfed.plugins.Options (networks: ModelOptions)"


@contextmanager
def global_generators_untouched(found: list[str]) -> Iterator[None]:
    """Adds to `found` the global generators that were used within."""

    def states() -> dict[str, bytes]:
        old = np.random.get_state(legacy=False)  # noqa: NPY002 (looked at, not used)
        return {
            "torch": torch.get_rng_state().numpy().tobytes(),
            "numpy": repr(old).encode(),
            "random": repr(random.getstate()).encode(),
        }

    before = states()
    yield
    found += [name for name, state in states().items() if state != before[name]]

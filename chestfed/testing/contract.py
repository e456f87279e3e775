"""What a check of a plug-in says: every broken rule of the contract at once."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch

from chestfed.core.errors import ChestfedError


class ContractError(ChestfedError):
    """A plug-in breaks rules of its contract; `broken` are their names."""

    def __init__(self, what: str, problems: dict[str, str]) -> None:
        self.broken = list(problems)
        lines = [f"  {rule}: {told}" for rule, told in problems.items()]
        super().__init__("\n".join([f"{what} breaks its contract:", *lines]))


class Contract:
    """Collects the rules that were checked and those that are broken."""

    def __init__(self, what: str) -> None:
        self.what = what
        self.kept: list[str] = []
        self.problems: dict[str, str] = {}

    def check(self, rule: str, test: Callable[[], str | None]) -> None:
        """Run a test: it returns None, or says what is wrong. An exception breaks the rule too."""
        try:
            told = test()
        except Exception as error:
            told = f"{type(error).__name__}: {error}"
        if told is None:
            self.kept.append(rule)
        else:
            self.problems[rule] = told

    def finish(self) -> list[str]:
        """The rules that hold.

        Raises
        ------
        ContractError
            If any rule is broken.
        """
        if self.problems:
            raise ContractError(self.what, self.problems)
        return self.kept


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

"""Contract of a plug-in: a check says every broken rule at once."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import numpy as np
import torch
from pydantic import ValidationError

from chestfed.core.config.mistakes import describe_value
from chestfed.core.errors import ChestfedError, ConfigError
from chestfed.core.plugins import Catalogue, Declaration, Options, find_fault

#: In place of pydantic's words.
_WORDS: Final = {"extra_forbidden": "is not an option", "missing": "has no default: give it"}

Part = TypeVar("Part", bound=Declaration)
Test = TypeVar("Test", bound=Callable[[Any], str | None])


def find_declaration(catalogue: Catalogue[Part], part: Part | str, options: Mapping[str, object]) -> tuple[Part, Any]:
    """The declaration of a part that is given so, or by name or reference, and its options.

    Raises `ConfigError` if it is neither, or an option is not one of its own.
    """
    if not isinstance(part, str) and not hasattr(part, "options"):
        raise ConfigError(
            f"{catalogue.kind} {part!r}: give its declaration, or its name or package.module:Name", kind="not a part"
        )
    spec = catalogue.find(part) if isinstance(part, str) else part
    name = part if isinstance(part, str) else spec.name
    try:
        return spec, spec.options.model_validate({"name": name, **options})
    except ValidationError as error:
        known = ", ".join(key for key in spec.options.model_fields if key != "name") or "none"
        problems = (
            f"{'.'.join(map(str, detail['loc']))} {_WORDS.get(detail['type']) or describe_value(detail)}"
            for detail in error.errors()
        )
        raise ConfigError(
            f"options of {catalogue.kind} '{name}': {'; '.join(problems)}. It has: {known}",
            kind="invalid options",
            part=name,
        ) from None


class ContractError(ChestfedError):
    """A plug-in breaks rules of its contract; `broken` are their names."""

    def __init__(self, what: str, problems: dict[str, str]) -> None:
        self.broken = list(problems)
        lines = [f"  {rule}: {problem}" for rule, problem in problems.items()]
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

        Raises `ContractError` if any rule is broken; an exception breaks it too.
        """
        faults: list[str] = []
        problems: dict[str, str] = {}
        tests: dict[str, Callable[[Contract], str | None]] = {
            test.rule: test for test in vars(type(self)).values() if hasattr(test, "rule")
        }
        for text, test in tests.items():
            if text in self.unclaimed or self.decisive in problems:
                continue
            try:
                problem = test(self)
            except Exception as error:
                problem = describe_error(error)
            if problem is None:
                faults.append(text)
            else:
                problems[text] = problem
        if problems:
            raise ContractError(self.what, problems)
        return faults

    def refuses_unknown(self, options: type[Options], name: str) -> str | None:
        """Whether a model of options refuses a key that it does not have."""
        try:
            options.model_validate({"name": name, "an_option_that_nobody_has": 1})
        except ValueError:
            return None
        return f"{options.__name__} accepts any key; derive it from chestfed.plugins.Options (networks: ModelOptions)"


def describe_error(error: Exception) -> str:
    """The line of the plug-in's own code that an error came from, and the error."""
    return find_fault(error) or f"{type(error).__name__}: {error}"


@contextmanager
def watch_global_generators(used: list[str]) -> Iterator[None]:
    """Adds to `used` the global generators that were used within."""

    def states() -> dict[str, bytes]:
        old = np.random.get_state(legacy=False)  # noqa: NPY002 (looked at, not used)
        return {
            "torch": torch.get_rng_state().numpy().tobytes(),
            "numpy": repr(old).encode(),
            "random": repr(random.getstate()).encode(),
        }

    before = states()
    yield
    used += [name for name, state in states().items() if state != before[name]]

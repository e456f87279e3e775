"""Many cases in one test: a loop with a folder of its own for each, in place of one test item per case."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from chestfed.core.errors import ChestfedError


def each(names: str | tuple[str, ...], cases: Iterable[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """As `pytest.mark.parametrize`, but one test runs all cases, and stops at the first that fails, naming it.

    `tmp_path` is a new folder in each case, and what `monkeypatch` changes is undone after it.
    """
    keys = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    listed = [tuple(case) if len(keys) > 1 else (case,) for case in cases]
    assert listed
    assert all(len(case) == len(keys) for case in listed)

    def wrap(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def run(**fixtures: Any) -> None:
            for number, case in enumerate(listed):
                with ExitStack() as stack:
                    given = dict(fixtures)
                    if "tmp_path" in given:
                        given["tmp_path"] = fixtures["tmp_path"] / f"case-{number}"
                        given["tmp_path"].mkdir()
                    if "monkeypatch" in given:
                        given["monkeypatch"] = stack.enter_context(fixtures["monkeypatch"].context())
                    try:
                        test(**given, **dict(zip(keys, case, strict=True)))
                    except Exception as error:
                        error.add_note(f"in case {number}: {case!r}")
                        raise

        signature = inspect.signature(test)
        parameters = [parameter for name, parameter in signature.parameters.items() if name not in keys]
        run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        return run

    return wrap


@contextmanager
def assert_refused(
    error: type[ChestfedError], kind: str, **fields: object
) -> Iterator[pytest.ExceptionInfo[ChestfedError]]:
    """Fail unless the block raises an error of this class and kind, with at least these fields."""
    with pytest.raises(error) as caught:
        yield caught
    assert caught.value.kind == kind, caught.value
    assert fields.items() <= caught.value.fields.items()

"""Errors cross processes: what a pool of processes cannot unpickle leaves it waiting."""

from __future__ import annotations

import pickle

import pytest

from chestfed.core.errors import ChestfedError, ConfigError, NotWrittenError, Problem, SiteError
from chestfed.core.manifest import MisplacedError

ERRORS = (
    ConfigError("a", kind="unknown key", key="b", suggestion="c"),
    SiteError("anne", [Problem("missing column", "a.csv", "no column b", 3)]),
    NotWrittenError("full", OSError(28, "")),
)


@pytest.mark.parametrize("error", ERRORS)
def test_errors_can_be_pickled(error: ChestfedError) -> None:
    copy = pickle.loads(pickle.dumps(error))  # our own bytes
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert vars(copy) == vars(error)


def test_no_subclass_undoes_it() -> None:
    """Whatever it takes, its `__reduce__` is that of the base."""
    kinds = [ChestfedError]
    for kind in kinds:
        kinds += kind.__subclasses__()
    assert MisplacedError in kinds
    assert all(kind.__reduce__ is ChestfedError.__reduce__ for kind in kinds)

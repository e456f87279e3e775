"""Errors cross processes: what a pool of processes cannot unpickle leaves it waiting. Names that are near others."""

from __future__ import annotations

import pickle

import pytest

from chestfed.core.errors import ChestfedError, ConfigError, NotWrittenError, Problem, SiteError, list_near, nearest
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
    kinds: list[type[ChestfedError]] = [ChestfedError]
    for kind in kinds:
        kinds += kind.__subclasses__()
    assert MisplacedError in kinds
    assert all(kind.__reduce__ is ChestfedError.__reduce__ for kind in kinds)


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        *(("seedd", "seeds"), ("desease", "diseases"), ("widnows", "windows"), ("Held-out", "held_out")),
        *(
            ("batchsize", "batch_size"),
            ("images", "target_images"),
            ("random_seeds", "seeds"),
            ("altenatives", "alternatives"),
        ),
        *((word, "") for word in ("patients", "optimizer", "language", "color", "author", "email", "k")),
    ],
)
def test_only_a_near_name_is_meant(typed: str, meant: str) -> None:
    known = ["alternatives", "augment", "batch_size", "collection", "diseases", "evaluation", "held_out"]
    known += ["runtime", "seeds", "split", "target_images", "titles", "windows"]
    assert nearest(typed, known) == meant


@pytest.mark.parametrize(
    ("typed", "known", "meant"),
    [
        ("local_learning_rate", ["stage_growth", "local_lr"], "local_lr"),
        ("local_lr", ["stage_growth", "local_learning_rate"], "local_learning_rate"),
        ("validation", ["valid", "test"], "valid"),
        ("val", ["valid", "test"], ""),
        ("tests_of_all_others", ["test"], ""),
    ],
)
def test_a_shorter_or_longer_form_is_meant(typed: str, known: list[str], meant: str) -> None:
    assert nearest(typed, known) == meant


def test_nearest_name_comes_first() -> None:
    assert list_near("codasca", ["codasca_minimal", "codasco", "scaffold"]) == ["codasco", "codasca_minimal"]

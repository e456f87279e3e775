"""Names of a model's outputs, in their order and in the spelling of whoever trained it."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from chestfed.core.diseases import DISEASES, TITLES, check_name, recognize_name
from chestfed.core.errors import ConfigError

#: Stands for an output that is ignored.
IGNORED: Final = "-"


def select_own_outputs(path: Path, stored_names: Sequence[str], declared: Sequence[str] | None) -> tuple[str, ...]:
    """The outputs of a model of chestfed, whose file names them; `declared` may ignore some with '-'.

    Raises `ConfigError` if `declared` contradicts.
    """
    if declared is None:
        return tuple(stored_names)
    known = {_plain(name): name for name in stored_names}
    order = [known.get(_plain(name)) or _disease(name) or name for name in declared]
    _check(path, order)
    _agree(path, stored_names, order)
    return tuple(order)


def name_outputs(
    path: Path, stored_names: Sequence[str] | None, declared: Sequence[str] | None
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The outputs of a model from elsewhere, by the given or else the stored names, and notes.

    Case, spaces and aliases do not matter. What cannot be the name of a disease is ignored, and the notes count it.

    Raises `ConfigError` if nothing names them, they are named twice, contradict, or a name is nearly a known one.
    """
    given = declared or stored_names
    if given is None:
        raise ConfigError(
            f"{path}: does not say what its outputs are. Name the diseases in order: --output-names "
            "cardiomegaly,edema,... ('-' to ignore one)",
            kind="unnamed outputs",
        )
    order = [_disease(name) for name in given]
    others = [name for name, disease in zip(given, order, strict=True) if disease is None]
    for name, disease in zip(given, order, strict=True):
        close = difflib.get_close_matches(_plain(name), TITLES, n=1, cutoff=0.85)
        if close and disease not in TITLES and close[0] not in order:
            raise ConfigError(
                f"{path}: unknown output '{name}'; did you mean '{close[0]}'? ('-' to ignore it)",
                kind="unknown output",
                suggestion=close[0],
            )
    _check(path, [disease or IGNORED for disease in order], given)
    if stored_names and declared:
        _agree(path, [_disease(name) or name for name in stored_names], [disease or IGNORED for disease in order])
    notes: tuple[str, ...] = ()
    if others:
        notes = (f"{len(others)} of {len(order)} outputs cannot be names of diseases and are ignored: {_some(others)}",)
    return tuple(disease or IGNORED for disease in order), notes


def read_output_names(path: Path, text: str | bytes | None) -> list[str] | None:
    """The order that a program carries as JSON, if any.

    Raises `ConfigError` if it is not a list of names.
    """
    if not text:
        return None
    try:
        names = json.loads(text)
    except ValueError:
        names = None
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise ConfigError(f"{path}: its list of diseases is not a JSON list of names", kind="not a list of names")
    return names


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")


def _disease(name: str) -> str | None:
    """Our name of a disease; '-' for nothing, None if it cannot be one."""
    plain = recognize_name(name)
    if not plain:
        return IGNORED
    try:
        return check_name(plain)
    except ValueError:
        return None


def _check(path: Path, order: Sequence[str], given: Sequence[str] = ()) -> None:
    named = [name for name in order if name != IGNORED]
    if not named:
        raise ConfigError(
            f"{path}: none of the outputs ({_some(given or order)}) has the name of a disease, as in "
            + ", ".join(DISEASES),
            kind="no disease",
        )
    twice = next((name for name in named if named.count(name) > 1), None)
    if twice is not None:
        raise ConfigError(f"{path}: two outputs are named '{twice}'", kind="repeated output", disease=twice)


def _agree(path: Path, stored_names: Sequence[str], declared: Sequence[str]) -> None:
    if len(stored_names) != len(declared) or any(
        b not in (a, IGNORED) for a, b in zip(stored_names, declared, strict=True)
    ):
        raise ConfigError(
            f"{path}: the file names its outputs {', '.join(stored_names)}; --output-names says {', '.join(declared)}. "
            "Omit or correct it",
            kind="contradicted outputs",
        )


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")

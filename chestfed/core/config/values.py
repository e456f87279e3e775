"""Lists and paths, as configurations and arguments give them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from chestfed.core.errors import ConfigError


def listed(values: Iterable[Any], key: str, kind: type = object) -> list[Any]:
    """An argument of several values of a kind.

    A text or path alone, which would be taken apart, is a `ConfigError`, and so is a value of another kind.
    """
    if isinstance(values, str | bytes | Path | Mapping) or not isinstance(values, Iterable):
        raise ConfigError(
            f"{key}={values!r}: give a list, such as {key}=[...], also of one", kind="not a list", key=key
        )
    items = list(values)
    for item in items:
        if not isinstance(item, kind):
            raise ConfigError(f"{key}: {item!r} is not of the type {kind.__name__}", kind="another type", key=key)
    return items


def as_path(value: object, key: str) -> Path:
    """An argument that is a path or its text; anything else is a `ConfigError`."""
    if isinstance(value, str | Path):
        return Path(value)
    raise ConfigError(f"{key}={value!r}: give a path", kind="not a path", key=key)


def expand_path(text: str, base: Path) -> Path:
    """Expand `~` and `$VARIABLE` in a configured path; a relative path is relative to `base`.

    Raises
    ------
    ConfigError
        If the path uses an environment variable that is not set.
    """
    expanded = os.path.expandvars(text)
    unset = re.search(r"\$(?:\{(\w+)\}|(\w+))", expanded)
    if unset:
        name = unset.group(1) or unset.group(2)
        raise ConfigError(
            f"'{text}' needs the environment variable {name}: set it, or give the path itself",
            kind="environment variable not set",
            variable=name,
        )
    path = Path(expanded).expanduser()
    return path if path.is_absolute() else base / path

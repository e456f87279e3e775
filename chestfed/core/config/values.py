"""Lists and paths, as configurations and arguments give them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from chestfed.core.errors import ConfigError


def listed(values: Iterable[Any], key: str) -> list[Any]:
    """An argument of several values; a text or path alone, which would be taken apart, is a `ConfigError`."""
    if isinstance(values, str | Path | Mapping):
        raise ConfigError(
            f"{key}={values!r}: give a list, such as {key}=[...], also of one", kind="not a list", key=key
        )
    return list(values)


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

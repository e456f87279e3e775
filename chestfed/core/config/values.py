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


def relative_path(path: Path, folder: Path) -> str:
    """A path as a file in this folder names it; the whole path on another drive.

    Folders on the way are followed through symbolic links, on both sides: `..` leads above what a link points to. A
    link to the file itself stays, because names in the file are relative to the folder of the link.
    """
    path = path.parent.resolve() / path.name
    try:
        return Path(os.path.relpath(path, folder.resolve())).as_posix()
    except ValueError:
        return path.as_posix()


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

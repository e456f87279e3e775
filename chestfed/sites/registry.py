"""Readers by name: chestfed's own, and those that installed packages offer as entry points.

A package offers a class in the group `chestfed.readers`. It is imported only when a site's YAML names it: listing the
names reads the metadata of the installed packages and runs none of their code.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any, Final

from pydantic import BaseModel, ValidationError

from chestfed.core.errors import ConfigError

if TYPE_CHECKING:
    from chestfed.sites.reader import SiteReader

GROUP: Final = "chestfed.readers"

#: Name -> module whose function `read` it is. `table` reads what a `table` block describes; the others are the
#: distributions of one set each.
BUILT_IN: Final[dict[str, str]] = {
    "table": "chestfed.sites.spreadsheet.reader",
    "chexpert": "chestfed.sites.releases.chexpert",
    "chestxray8": "chestfed.sites.releases.chestxray8",
    "padchest": "chestfed.sites.releases.padchest",
    "mimic_cxr": "chestfed.sites.releases.mimic_cxr",
    "vindr": "chestfed.sites.releases.vindr",
}


def reader_names() -> list[str]:
    """Chestfed's own readers, then those of installed packages; none is imported."""
    return list(dict.fromkeys([*BUILT_IN, *sorted(entry.name for entry in entry_points(group=GROUP))]))


def check_name(name: str) -> None:
    """Check that exactly one reader has this name, without importing it.

    Raises
    ------
    ConfigError
        If none has it, several packages claim it, or a package claims a name of chestfed's own.
    """
    _entry(name)


def make_reader(name: str, options: Mapping[str, Any] | None = None) -> SiteReader:
    """The reader of this name; one from a package is imported now, and made with its checked options.

    Raises
    ------
    ConfigError
        As `check_name`; if the package cannot be imported or what it offers is no reader; for wrong options.
    """
    entry = _entry(name)
    if entry is None:
        if options:
            raise ConfigError(f"reader '{name}' takes no options; found {', '.join(map(str, options))}")
        return importlib.import_module(BUILT_IN[name])
    kind, owner = _imported(entry), _owner(entry)
    declared = getattr(kind, "Options", None)
    if declared is None:
        if options:
            raise ConfigError(f"reader '{name}' of {owner} takes no options; found {', '.join(map(str, options))}")
        return kind()
    if not (isinstance(declared, type) and issubclass(declared, BaseModel)):
        raise ConfigError(f"reader '{name}' of {owner}: {entry.value}.Options is no pydantic model")
    return kind(_checked(name, declared, options or {}))


def _entry(name: str) -> EntryPoint | None:
    """The entry point of a name; None for one of chestfed's own."""
    found: dict[tuple[str, str], EntryPoint] = {}
    for entry in entry_points(group=GROUP, name=name):
        found.setdefault((_owner(entry), entry.value), entry)
    claims = "; ".join(f"{owner} ({value})" for owner, value in found)
    if name in BUILT_IN:
        if found:
            raise ConfigError(
                f"'{name}' is a reader of chestfed itself, and {claims} claims its name: choose another name in that "
                "package's entry points, or uninstall it"
            )
        return None
    if not found:
        names = reader_names()
        close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
        hint = f"; did you mean '{close[0]}'?" if close else "."
        raise ConfigError(
            f"unknown reader '{name}'{hint} There are: {', '.join(names)}. A reader of your own is offered by a "
            f"package that is installed beside chestfed, in the entry point group '{GROUP}'"
        )
    if len(found) > 1:
        raise ConfigError(f"{len(found)} readers are called '{name}': {claims}. Rename one, or uninstall one")
    return next(iter(found.values()))


def _imported(entry: EntryPoint) -> Any:
    """The class that an entry point names."""
    owner = _owner(entry)
    try:
        kind = entry.load()
    except Exception as error:  # foreign code: whatever it raises keeps the site from being read
        text = f"{type(error).__name__}: {error}"
        raise ConfigError(f"reader '{entry.name}' of {owner}: {entry.value} cannot be imported ({text})") from error
    if not (inspect.isclass(kind) and callable(getattr(kind, "read", None))):
        raise ConfigError(
            f"reader '{entry.name}' of {owner}: {entry.value} is no class with a method read(self, source); see "
            "docs/own_reader.md"
        )
    return kind


def _owner(entry: EntryPoint) -> str:
    return "an unknown package" if entry.dist is None else f"package '{entry.dist.name}'"


def _checked(name: str, model: type[BaseModel], options: Mapping[str, Any]) -> BaseModel:
    """The options as the reader's own model."""
    try:
        return model.model_validate(dict(options))
    except ValidationError as error:
        mistakes = []
        for detail in error.errors():
            key = ".".join(map(str, detail["loc"]))
            close = difflib.get_close_matches(key, model.model_fields, n=1, cutoff=0.5)
            hint = f"; did you mean '{close[0]}'?" if close else f"; known: {', '.join(model.model_fields)}"
            text = f"unknown key '{key}'{hint}" if detail["type"] == "extra_forbidden" else f"'{key}': {detail['msg']}"
            mistakes.append(text)
        raise ConfigError(f"reader '{name}': " + "; ".join(mistakes)) from None

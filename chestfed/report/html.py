"""Pages are templates of this package, filled with plain values."""

from __future__ import annotations

from importlib import resources
from typing import Any


def fill(template: str, **values: Any) -> str:
    """A template of `chestfed.report`, named from there, filled; what it names must be given, and text is escaped."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("chestfed.report", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(template).render(**values)


def text_of(file: str) -> str:
    """The text of a file of `chestfed.report`, named from there."""
    return resources.files("chestfed.report").joinpath(file).read_text(encoding="utf-8")

"""Pages are templates of this package, filled with plain values."""

from __future__ import annotations

from importlib import resources
from typing import Any

from markupsafe import Markup, escape


def fill(template: str, **values: Any) -> str:
    """A template of `chestfed.reports.pages`, filled; what it names must be given, and text is escaped."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("chestfed.reports.pages", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["commands"] = _mark_commands
    return environment.get_template(template).render(**values)


def _mark_commands(text: str) -> Markup:
    """Text with the parts between backticks as code."""
    parts = (
        Markup("<code>{}</code>").format(part) if odd % 2 else escape(part) for odd, part in enumerate(text.split("`"))
    )
    return Markup("").join(parts)


def read_template(file: str) -> str:
    """The text of a file of `chestfed.reports.pages`, named from there."""
    return resources.files("chestfed.reports.pages").joinpath(file).read_text(encoding="utf-8")

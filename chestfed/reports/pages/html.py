"""Pages are templates filled with plain values: all extend `skeleton.html` of this package."""

from __future__ import annotations

import re
from importlib import resources
from typing import Any

from markupsafe import Markup, escape


def fill(template: str, package: str = "chestfed.reports.pages", /, **values: Any) -> str:
    """A template of a package, filled; what it names must be given, and text is escaped.

    It finds the templates of `chestfed.reports.pages` too.
    """
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=ChoiceLoader([PackageLoader(name, "") for name in (package, "chestfed.reports.pages")]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["commands"] = _mark_commands
    return environment.get_template(template).render(**values)


def _mark_commands(text: str) -> Markup:
    """Text with the parts between backticks as code; options such as --quick are not broken at their hyphens."""
    shown = (escape, Markup("<code>{}</code>").format, Markup('<span class="option">{}</span>').format)
    parts = re.split(r"(`[^`]*`|--[a-z][a-z-]*)", text)
    kinds = (1 if part.startswith("`") else 2 if part.startswith("--") else 0 for part in parts)
    return Markup("").join(shown[kind](part.strip("`")) for kind, part in zip(kinds, parts, strict=True))


def read_template(file: str) -> str:
    """The text of a file of `chestfed.reports.pages`, named from there."""
    return resources.files("chestfed.reports.pages").joinpath(file).read_text(encoding="utf-8")

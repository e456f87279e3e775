"""What pages are made of: tables as plain values, and templates that are filled with them."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources
from typing import Any


@dataclass(frozen=True)
class Cell:
    """A number as it is shown, with smaller lines below it."""

    text: str
    below: tuple[str, ...] = ()
    strong: bool = False


@dataclass(frozen=True)
class Line:
    """A row of a table: its heading, plain cells that follow it, and the numbers. `kind` is a class of the style."""

    head: str
    cells: tuple[Cell, ...]
    kind: str = ""


@dataclass(frozen=True)
class Table:
    """A table: caption, headings of the columns (with a smaller line below), and rows."""

    name: str
    caption: str
    columns: tuple[Cell, ...]
    lines: tuple[Line, ...]


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

"""Folders of images and tables as somebody would bring them, and what is made of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import yaml
from typer.testing import CliRunner

from chestfed.cli import app
from chestfed.new_site import Choices, Draft, draft_site
from chestfed.sites import SiteTable, load_site_config, open_site
from chestfed.sites.spreadsheet.term_table import terms_text
from tests.command_line import timed_once
from tests.sites.own_tables import Row, save_rows

LABELS = ("Enlarged heart", "Oedema", "Consolidation", "Atelectasis", "Effusion")


def rows(number: int = 12, **cells: Sequence[object]) -> list[dict[str, object]]:
    """Two images for each patient, with labels that differ; further columns by name."""
    made = []
    for n in range(number):
        labels = {name: (n + place) % 2 for place, name in enumerate(LABELS)}
        own = {name: given[n % len(given)] for name, given in cells.items()}
        made.append({"File": f"img{n:03d}", "Patient": f"Zappa{n // 2}", **own, **labels})
    return made


def bring(
    folder: Path, table: Sequence[Row], images: Sequence[str] | None = None, file: str = "labels.csv", **how: Any
) -> Path:
    """Write the table to `folder/file` and empty images below `folder/images`, by default those of the column File."""
    for name in images if images is not None else sorted({f"{row['File']}.png" for row in table}):
        path = folder / "images" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    save_rows(folder / file, table, **how)
    return folder / file


def draft(
    folder: Path, file: str | None = "labels.csv", ask: Any = None, images: str = "images", **choices: Any
) -> Draft:
    """What is made of them without asking."""
    labels = None if file is None else folder / file
    return draft_site("st-anne", folder / images, labels, Choices(**choices), ask)


def keys(made: Draft) -> dict[str, Any]:
    """The YAML as data."""
    return yaml.safe_load(made.text)


def opened(folder: Path, made: Draft) -> SiteTable:
    """The site that the draft describes."""
    path = folder / "st-anne.yaml"
    path.write_text(made.text, encoding="utf-8")
    (folder / "st-anne.terms.csv").write_text(terms_text(made.terms), encoding="utf-8")
    return open_site(load_site_config(path), folder)


def everything_said(made: Draft) -> str:
    """All that is written or shown."""
    return "\n".join([made.text, *map(str, made.guesses), *made.notes])


def chestfed(*arguments: object, typed: str | None = None) -> str:
    """What a command prints; its error is raised."""
    with timed_once() if "--dry-run" in arguments else nullcontext():
        result = CliRunner().invoke(app, [str(argument) for argument in arguments], input=typed)
    if result.exception is not None:
        raise result.exception
    return result.output


def without(row: Mapping[str, object], *names: str) -> dict[str, object]:
    """The row without some columns."""
    return {name: cell for name, cell in row.items() if name not in names}

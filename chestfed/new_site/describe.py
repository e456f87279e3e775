"""The parts of a site's YAML, with the evidence as comments."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pandas as pd

from chestfed.new_site.choosing import Choices
from chestfed.new_site.columns.found import Found
from chestfed.new_site.columns.pictures import Pictures
from chestfed.new_site.labeling import Labels
from chestfed.new_site.spreadsheet import Spreadsheet
from chestfed.new_site.yaml_text import Page
from chestfed.sites.config import SiteConfig
from chestfed.sites.opening import SYNTHETIC_MARKER
from chestfed.sites.spreadsheet.term_table import TermRow

#: Columns that may be left out.
OPTIONAL: Final = ("study", "view", "split", "sex", "age")
_VIEWS: Final = ["pa", "ap", "frontal"]


@dataclass(frozen=True)
class Draft:
    """The YAML's text, the guesses as (what, value, why), and what the user should know.

    `terms` are the rows of the mapping table, none if the labels are columns. `examples` of rows and their images are
    for the terminal only.
    """

    text: str
    guesses: tuple[tuple[str, str, str], ...]
    notes: tuple[str, ...]
    terms: tuple[TermRow, ...] = ()
    examples: tuple[str, ...] = ()


def terms_file(name: str) -> str:
    """What the mapping table of a site is called, beside its YAML."""
    return f"{name}.terms.csv"


def head(
    name: str, pictures: Pictures, data: Path | None, choices: Choices, files: dict[str, list[str]], line: str
) -> Page:
    """The lines above everything else."""
    root = pictures.root
    page = Page()
    page.comment(f"{name}, described by `chestfed site new`: {line}.")
    page.comment('The comments say how each key was found. Look at those that say "a guess": they are your decisions.')
    page.blank()
    page.key("site", name)
    page.key("title", choices.title or name.replace("-", " ").replace("_", " ").title())
    page.key("reader", "table")
    if _is_synthetic(pictures):
        page.key("synthetic", True, f"{SYNTHETIC_MARKER} exists")
    below = data is not None and root.is_relative_to(data.resolve())
    where = root.relative_to(data.resolve()).as_posix() if below and data is not None else root.as_posix()
    page.key("root", where, "below the data root" if below else "on this machine; change it if the folder moves")
    page.key("label_files", files)
    page.blank()
    return page


def _is_synthetic(pictures: Pictures) -> bool:
    """Whether the images lie in or below a folder that is marked so."""
    folder = pictures.root / pictures.folder
    return any((place / SYNTHETIC_MARKER).is_file() for place in (folder, *folder.parents[:2]))


def policy(page: Page, labels: Labels, found: Found) -> None:
    """Views, diseases, labels, and how uncertain and blank labels are treated."""
    if "view" in found.columns:
        page.key("views", _VIEWS, "lateral, other and unknown views are left out")
    else:
        page.key("views", [*_VIEWS, "unknown"], "no column holds the view: all images are kept")
    page.key("diseases", list(labels.names), "the others are missing here, not negative")
    if labels.terms:
        for disease in labels.names:
            page.comment(f"{disease}: {labels.evidence[disease]}")
    else:
        page.section("labels", "disease -> your names for it")
        for disease, names in labels.names.items():
            page.key(disease, names, labels.evidence[disease])
        page.end()
    page.key("uncertain", labels.uncertain, labels.evidence["uncertain"])
    page.key("blank", labels.blank, labels.evidence["blank"])
    page.blank()


def about_layout(labels: Labels, image: pd.Series) -> str:
    """What the layout means, with counts."""
    rows, images = int(image.notna().sum()), image.nunique()
    kinds = {
        "onehot": "a column per finding",
        "readers": "a row per image and annotator",
        "long": "a row per image and finding",
        "delimited": "one column of findings",
        "list": "a list of findings in a cell",
    }
    return f"{kinds[labels.layout]}: {rows:,} rows of {images:,} images"


def columns_of(page: Page, found: Found, labels: Labels, by_path: tuple[str, str] | None) -> None:
    """Which column holds what."""
    if by_path is not None:
        page.key("from_path", *by_path)
    page.section("columns")
    for what in ("image", "patient", *OPTIONAL):
        if what in found.columns:
            page.key(what, found.columns[what], found.evidence[what])
    for what, column in labels.columns.items():
        page.key(what, column, labels.evidence[what])
    page.end()


def with_roles(path: str, found: Found) -> str:
    """In a path, patient and study by their roles, so that the names of columns are written once."""
    for role in ("patient", "study"):
        column = found.columns.get(role)
        if column is not None:
            path = path.replace(f"{{{column}}}", f"{{{role}}}").replace(f"{{{column}[", f"{{{role}[")
    return path


def rest_of_table(page: Page, found: Found, labels: Labels) -> None:
    """Words, and the keys that the labels need."""
    words = {
        what: {word: meaning for word, meaning in told.items() if word != str(meaning).lower()}
        for what, told in found.words.items()
    }
    if any(words.values()):
        page.section("words", "your words for them, in lower case")
        for what in filter(words.get, words):
            page.key(what, words[what])
        page.end()
    if found.missing:
        page.key("missing", sorted(found.missing), "cells that count as empty")
    if labels.raters is not None:
        page.key("raters", labels.raters, labels.evidence["raters"])
    for key, value in labels.keys.items():
        page.key(key, value, labels.evidence.get(key, ""))
    page.end()


def finished(
    page: Page,
    found: Found,
    labels: Labels,
    notes: list[str],
    sheet: Spreadsheet | None,
    by_path: tuple[str, str] | None = None,
    examples: tuple[str, ...] = (),
) -> Draft:
    """The whole page, and a summary of it."""
    page.blank()
    split = found.columns.get("split")
    page.section("splits")
    page.key("official", True, f"by the column {split}" if split else "no column holds a split: every image trains")
    page.key("valid_fraction", 0.0, "share of the training patients to set aside")
    page.key("test_fraction", 0.0)
    page.end()
    guesses = [(what, column, found.evidence[what]) for what, column in found.columns.items()]
    if by_path is not None:
        guesses.insert(1, ("patient", "(from the path)", by_path[1]))
    guesses += [("layout", labels.layout, "")]
    guesses += [(what, column, labels.evidence[what]) for what, column in labels.columns.items()]
    guesses += [(disease, ", ".join(names), labels.evidence[disease]) for disease, names in labels.names.items()]
    decided = {"terms": labels.keys.get("terms"), "uncertain": labels.uncertain, "blank": labels.blank}
    decided["raters"] = labels.raters
    guesses += [(key, value, labels.evidence[key]) for key, value in decided.items() if value is not None]
    if sheet is not None:
        guesses += [(key, repr(value), sheet.evidence[key]) for key, value in sheet.keys.items()]
    if "view" not in found.columns:
        notes.append(
            "the views are not known: laterals, if there are any, will train (--view-column NAME if a column holds "
            "them; if all are frontal, default_view: frontal below table says so)"
        )
    lacking = [what for what in OPTIONAL if what not in found.columns]
    if lacking and sheet is not None:
        notes.append(f"no column found for {', '.join(lacking)}: left out (--{lacking[0]}-column NAME if there is one)")
    absent = [disease for disease in SiteConfig.model_fields["diseases"].default if disease not in labels.names]
    if absent:
        notes.append(f"not labeled here, so missing: {', '.join(absent)} (--label {absent[0]}=NAME if it is)")
    return Draft(page.text(), tuple(guesses), tuple(notes), labels.terms, examples)

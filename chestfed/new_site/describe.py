"""The text of a site's YAML, with the evidence as comments, and the guesses as they are shown."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from chestfed.new_site.work import Work
from chestfed.sites.config import SiteConfig
from chestfed.sites.opening import SYNTHETIC_MARKER
from chestfed.sites.spreadsheet.term_table import TermRow

_WIDTH: Final = 118
_COMMENT_AT: Final = 42
_PLAIN: Final = re.compile(r"[^\W\d_][\w .()-]*|/[\w./-]+")
_RESERVED: Final = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n", "nan", "inf"})
#: Columns that may be left out.
OPTIONAL: Final = ("study", "view", "split", "sex", "age")
_VIEWS: Final = ["pa", "ap", "frontal"]
_LAYOUTS: Final = {
    "onehot": "a column per finding",
    "readers": "a row per image and annotator",
    "long": "a row per image and finding",
    "delimited": "one column of findings",
    "list": "a list of findings in a cell",
}


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


def draft(
    work: Work,
    line: str,
    files: Mapping[str, list[str]],
    sheet: Mapping[str, tuple[Any, str]],
    images: tuple[Mapping[str, Any], str] = ({}, ""),
    by_path: tuple[str, str] | None = None,
    examples: tuple[str, ...] = (),
) -> Draft:
    """The whole YAML, and a summary of it.

    `line` says what there is; `files` are its label files; `sheet` has the keys that it takes to read them, and why;
    `images` the keys that lead from rows to images, and how; `by_path` is the expression that tells the patient.
    """
    page = Page()
    _head(page, work, line, files)
    _policy(page, work)
    page.section("table", "how the table is laid out; every key: docs/new_site.md")
    rows, different = int(work.image.notna().sum()), work.image.nunique()
    about = f"{_LAYOUTS.get(work.layout, '')}: {rows:,} rows of {different:,} images"
    page.key("layout", work.layout, "no table was given" if work.layout == "dicom" else about)
    for key, (value, why) in sheet.items():
        page.key(key, value, why)
    if by_path is not None:
        page.key("from_path", *by_path)
    page.section("columns")
    for what in dict.fromkeys(("image", "patient", *OPTIONAL, *work.columns)):
        if what in work.columns:
            page.key(what, work.columns[what], work.evidence[what])
    page.end()
    rule, how = images
    if rule:
        page.section("images", how)
        for key, value in rule.items():
            page.key(key, _with_roles(value, work) if key == "path" else value)
        page.end()
    _words(page, work)
    for key, value in work.keys.items():
        page.key(key, value, work.evidence.get(key, ""))
    page.end()
    page.blank()
    split = work.columns.get("split")
    page.section("splits")
    page.key("official", True, f"by the column {split}" if split else "no column holds a split: every image trains")
    page.key("valid_fraction", 0.0, "share of the training patients to set aside")
    page.key("test_fraction", 0.0)
    page.end()
    guesses = _guesses(work, sheet, by_path)
    _last_notes(work, has_table=bool(sheet) or work.layout != "dicom")
    return Draft(page.text(), tuple(guesses), tuple(work.notes), work.terms, examples)


def _head(page: Page, work: Work, line: str, files: Mapping[str, list[str]]) -> None:
    """The lines above everything else."""
    root, data = work.pictures.root, None if work.data is None else work.data.resolve()
    page.comment(f"{work.name}, described by `chestfed site new`: {line}.")
    page.comment('The comments say how each key was found. Look at those that say "a guess": they are your decisions.')
    page.blank()
    page.key("site", work.name)
    page.key("title", work.choices.title or work.name.replace("-", " ").replace("_", " ").title())
    page.key("reader", "table")
    folder = root / work.pictures.folder
    if any((place / SYNTHETIC_MARKER).is_file() for place in (folder, *folder.parents[:2])):
        page.key("synthetic", True, f"{SYNTHETIC_MARKER} exists")
    if data is not None and root.is_relative_to(data):
        page.key("root", root.relative_to(data).as_posix(), "below the data root")
    else:
        page.key("root", root.as_posix(), "on this machine; change it if the folder moves")
    page.key("label_files", files)
    page.blank()


def _policy(page: Page, work: Work) -> None:
    """Views, diseases, labels, and how uncertain and blank labels are treated."""
    if "view" in work.columns:
        page.key("views", _VIEWS, "lateral, other and unknown views are left out")
    else:
        page.key("views", [*_VIEWS, "unknown"], "no column holds the view: all images are kept")
    page.key("diseases", list(work.names), "the others are missing here, not negative")
    if work.terms:
        for disease in work.names:
            page.comment(f"{disease}: {work.evidence[disease]}")
    else:
        page.section("labels", "disease -> your names for it")
        for disease, names in work.names.items():
            page.key(disease, names, work.evidence[disease])
        page.end()
    page.key("uncertain", work.uncertain, work.evidence["uncertain"])
    page.key("blank", work.blank, work.evidence["blank"])
    page.blank()


def _words(page: Page, work: Work) -> None:
    """The words of the columns, and those that count as empty."""
    words = {
        what: {word: meaning for word, meaning in told.items() if word != str(meaning).lower()}
        for what, told in work.words.items()
    }
    if any(words.values()):
        page.section("words", "your words for them, in lower case")
        for what in filter(words.get, words):
            page.key(what, words[what])
        page.end()
    if work.missing:
        page.key("missing", sorted(work.missing), "cells that count as empty")


def _with_roles(path: str, work: Work) -> str:
    """In a path, patient and study by their roles, so that the names of columns are written once."""
    for role in ("patient", "study"):
        column = work.columns.get(role)
        if column is not None:
            path = path.replace(f"{{{column}}}", f"{{{role}}}").replace(f"{{{column}[", f"{{{role}[")
    return path


def _guesses(
    work: Work, sheet: Mapping[str, tuple[Any, str]], by_path: tuple[str, str] | None
) -> list[tuple[str, str, str]]:
    guesses = [(what, column, work.evidence[what]) for what, column in work.columns.items()]
    if by_path is not None:
        guesses.insert(1, ("patient", "(from the path)", by_path[1]))
    guesses.append(("layout", work.layout, ""))
    guesses += [(disease, ", ".join(names), work.evidence[disease]) for disease, names in work.names.items()]
    decided = {"terms": work.keys.get("terms"), "uncertain": work.uncertain, "blank": work.blank}
    decided["raters"] = work.keys.get("raters")
    guesses += [(key, value, work.evidence[key]) for key, value in decided.items() if value is not None]
    return guesses + [(key, repr(value), why) for key, (value, why) in sheet.items()]


def _last_notes(work: Work, *, has_table: bool) -> None:
    """What was not found."""
    if "view" not in work.columns:
        work.notes.append(
            "the views are not known: laterals, if there are any, will train (--view-column NAME if a column holds "
            "them; if all are frontal, default_view: frontal below table says so)"
        )
    lacking = [what for what in OPTIONAL if what not in work.columns]
    if lacking and has_table:
        flag = f"--{lacking[0]}-column NAME if there is one"
        work.notes.append(f"no column found for {', '.join(lacking)}: left out ({flag})")
    absent = [disease for disease in SiteConfig.model_fields["diseases"].default if disease not in work.names]
    if absent:
        work.notes.append(f"not labeled here, so missing: {', '.join(absent)} (--label {absent[0]}=NAME if it is)")


class Page:
    """Lines of YAML, written from top to bottom."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._depth = 0

    def comment(self, text: str) -> None:
        """Lines of their own."""
        width = _WIDTH - 2 - len(self._indent)
        lines = textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)
        self._lines += [f"{self._indent}# {line}" for line in lines]

    def blank(self) -> None:
        """An empty line."""
        self._lines.append("")

    def section(self, key: str, comment: str = "") -> None:
        """The keys that follow, until `end`, are below this one."""
        self._put(f"{key}:", comment)
        self._depth += 1

    def end(self) -> None:
        """The section is complete."""
        self._depth -= 1

    def key(self, key: str, value: object, comment: str = "") -> None:
        """A key with its value on one line, or as a block if that is too long."""
        line = f"{flow(key)}: {flow(value)}"
        if len(self._indent) + len(line) <= _WIDTH or not isinstance(value, list | Mapping):
            self._put(line, comment)
            return
        self._put(f"{flow(key)}:", comment)
        if isinstance(value, Mapping):
            self._lines += [f"{self._indent}  {flow(name)}: {flow(cell)}" for name, cell in value.items()]
        else:
            self._lines += [f"{self._indent}  - {flow(cell)}" for cell in value]

    def text(self) -> str:
        """All of it."""
        return "\n".join(line.rstrip() for line in self._lines).rstrip() + "\n"

    @property
    def _indent(self) -> str:
        return "  " * self._depth

    def _put(self, line: str, comment: str) -> None:
        text = self._indent + line
        shown = " ".join(comment.split())
        if shown and max(len(text) + 2, _COMMENT_AT) + len(shown) + 2 <= _WIDTH:
            text = f"{text:<{_COMMENT_AT - 2}}  # {shown}"
        elif shown:
            self.comment(shown)
        self._lines.append(text)


def flow(value: object) -> str:
    """A value on one line, quoted where YAML would read something else."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{flow(key)}: {flow(cell)}" for key, cell in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(flow, value)) + "]"
    if not isinstance(value, str):
        return json.dumps(value)
    safe = _PLAIN.fullmatch(value) and value == value.strip() and value.lower() not in _RESERVED
    return value if safe else json.dumps(value, ensure_ascii=False)

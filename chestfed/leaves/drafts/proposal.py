"""The proposal for a new hospital: what the user answered, what was read off the files, and what is still open."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd

from chestfed.core.config import is_text_key, parse_assigned
from chestfed.core.diseases import check_spelling
from chestfed.core.errors import ConfigError
from chestfed.data.sites.config import SiteConfig
from chestfed.data.sites.left_out import Rows
from chestfed.data.sites.lexicon import COLUMNS, IDENTIFIERS, plain
from chestfed.data.sites.reader import VIEWS as ALL_VIEWS
from chestfed.data.sites.tables.codebook import EMPTY, YES, Code, normalize_value, parse_code
from chestfed.data.sites.tables.rows import match_reader
from chestfed.data.sites.tables.schema import ROLES, TableFormat
from chestfed.leaves.drafts.matching import Pictures

#: Answers in place of a column: there is none; of the patient: the image's folder, or how the file's name begins; of a
#: label: every image has the disease.
NONE, FOLDER, PREFIX, ALL = "none", "folder", "prefix", "all"
#: Roles that several columns may have, which are lists of the YAML.
LISTED: Final = ("keep", "ignore")
#: Roles that `--column` may name.
COLUMN_ROLES: Final = (
    *(
        "image",
        "patient",
        "study",
        "view",
        "split",
        "sex",
        "age",
        "date",
        "birth",
        "findings",
        "finding",
        "value",
        "reader",
        "site",
    ),
)
#: Roles of columns of identifiers.
_IDENTIFIED: Final = ("image", "patient", "study", "reader")
#: Views that are used, unless the user says otherwise.
VIEWS: Final = ("pa", "ap", "frontal")
#: Evidence of a row of the book that was given as an option.
OPTION: Final = "given"
#: Share of the cells that must name a file, or be known words.
ENOUGH: Final = 0.9
_SITE_KEYS: Final = ("title", "one_class", "views")
_TABLE_KEYS: Final = (*TableFormat.model_fields, "missing_values")


@dataclass(frozen=True)
class Answers:
    """The user's answers: `columns` by role, `labels` by disease, code-book rows, keys of the YAML, and policies."""

    columns: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, Sequence[str]] = field(default_factory=dict)
    codes: Sequence[Code] = ()
    keys: Mapping[str, Any] = field(default_factory=dict)
    uncertain: str | None = None
    blank: str | None = None
    raters: str | None = None
    test_fraction: float | None = None
    no_split: bool = False

    def get_code(self, column: str, kind: str, value: str) -> Code | None:
        """The last confirmed row of the book for a value: of its column, else of its kind."""
        rows = [code for code in self.codes if (code.kind, code.value) == (kind, value) and code.is_known]
        matches = [code for code in rows if code.column == column] or [code for code in rows if not code.column]
        return matches[-1] if matches else None


def parse_answers(
    columns: Sequence[str] = (),
    labels: Sequence[str] = (),
    codes: Sequence[str] = (),
    keys: Sequence[str] = (),
    book: Sequence[Code] = (),
    **policies: Any,
) -> Answers:
    """The answers of the options `--column ROLE=NAME`, `--label DISEASE=NAME`, `--code ...` and `--set KEY=VALUE`.

    Raises `ConfigError` that names the option.
    """
    by_role, by_disease, by_key = dict[str, str](), dict[str, list[str]](), dict[str, Any]()
    for text in columns:
        role, name = _cut("--column", text, "ROLE=NAME")
        if role in LISTED:
            by_key.setdefault(role, []).append(name)
        elif role not in COLUMN_ROLES:
            raise ConfigError(f"--column {text}: '{role}' is not one of {', '.join((*COLUMN_ROLES, *LISTED))}")
        else:
            by_role[role] = name
    for text in labels:
        disease, name = _cut("--label", text, "DISEASE=NAME")
        try:
            check_spelling(disease)
        except ValueError as error:
            raise ConfigError(f"--label {text}: {error}") from None
        by_disease.setdefault(disease, []).extend([] if name == NONE else [name])
    for text in keys:
        key, value = _cut("--set", text, "KEY=VALUE")
        head, _, tail = key.partition(".")
        if head == "rows" and tail not in Rows.model_fields:
            raise ConfigError(f"--set {text}: rows has the keys {', '.join(Rows.model_fields)}")
        if head not in (*_SITE_KEYS, *_TABLE_KEYS, "rows"):
            raise ConfigError(f"--set {text}: '{head}' is not a key of a site's table ({', '.join(_TABLE_KEYS)})")
        if key == "from_path":
            try:
                re.compile(value)
            except re.error as error:
                raise ConfigError(f"--set {text}: is not a regular expression: {error}") from None
        place = tuple(key.split(".")) if head in (*_SITE_KEYS, "rows") else ("table", *key.split("."))
        is_text = is_text_key(SiteConfig, place, {})
        if is_text and value[0] not in "\"'":
            parsed: object = value.replace("\\t", "\t")
        else:
            parsed = parse_assigned(value, f"--set {text}", f"--set {key}", is_text=is_text)
        if (
            key == "views"
            and parsed != "all"
            and not (isinstance(parsed, list) and all(view in ALL_VIEWS for view in parsed))
        ):
            raise ConfigError(f"--set {text}: expected all, or views=[pa, ap] with views of {', '.join(ALL_VIEWS)}")
        if tail:
            by_key[head] = {**by_key.get(head, {}), tail: parsed}
        elif isinstance(parsed, list) and isinstance(by_key.get(head), list):
            by_key[head] += parsed
        else:
            by_key[head] = parsed
    rows = [*book, *map(_parse_code, codes)]
    return Answers(by_role, by_disease, rows, by_key, **policies)


def _cut(option: str, text: str, form: str) -> tuple[str, str]:
    name, equals, value = (part.strip() if option != "--set" else part for part in text.partition("="))
    if not equals or not name or not value:
        raise ConfigError(f"{option} {text}: expected {form}")
    return name, value


def _parse_code(text: str) -> Code:
    """A row of the book from `[COLUMN or role:]VALUE=MEANING`; without a column, a value of the label columns."""
    value, equals, meaning = (part.strip() for part in text.rpartition("="))
    column, colon, cell = (part.strip() for part in value.partition(":"))
    column, cell = (column, cell) if colon and cell else ("labels", value)
    known = "" if cell == EMPTY else cell
    kind = ROLES.get(column)
    try:
        if not equals or not cell:
            raise ValueError("expected COLUMN:VALUE=MEANING")
        if kind is None:  # a header: keep or drop, else a label value
            kind = "keep" if meaning.casefold() in ("keep", "drop") else "label"
            return Code(column, kind, normalize_value(kind, known), 0, "", OPTION, parse_code(kind, meaning), YES)
        return Code("", kind, normalize_value(kind, known), 0, "", OPTION, parse_code(kind, meaning), YES)
    except ValueError as error:
        raise ConfigError(f"--code {text}: {error}") from None


@dataclass(frozen=True)
class Question:
    """A decision for the user; each of the options `answers` is enough.

    Without answers the file has to be changed, or a row of the code book filled in.
    """

    text: str
    answers: tuple[str, ...] = ()


@dataclass
class Proposal:
    """A hospital that is being described.

    `frame` has all cells as text, indexed by the number of the row in the file (but see `expand`); `image` is the image
    of each row.
    `evidence` says why, by role, disease and key; `rule` are the keys of `table.images`,
    `rows` those of `rows` that need no answer.
    """

    name: str
    pictures: Pictures
    answers: Answers
    data: Path | None = None
    frame: pd.DataFrame = field(default_factory=pd.DataFrame)
    image: pd.Series = field(default_factory=lambda: pd.Series(dtype=object))
    numbers: pd.Index | None = None  #: the number in the file of each row of an expanded frame; None: the index is it
    elements: frozenset[str] = frozenset()  #: columns of an expanded frame that are not the table's, but of headers
    left_out: list[pd.DataFrame] = field(default_factory=list)  #: rows that filter columns drop
    columns: dict[str, str] = field(default_factory=dict)
    evidence: dict[str, str] = field(default_factory=dict)
    rule: dict[str, Any] = field(default_factory=dict)
    table: dict[str, Any] = field(default_factory=dict)
    site: dict[str, Any] = field(default_factory=dict)
    rows: dict[str, str] = field(default_factory=dict)
    labels: dict[str, list[str]] = field(default_factory=dict)
    constant: dict[str, str] = field(default_factory=dict)
    diseases: list[str] = field(default_factory=list)
    codes: list[Code] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    first: list[str] = field(default_factory=list)  #: notes to look at first
    idle: str = ""  #: image files that no row names so far
    questions: list[Question] = field(default_factory=list)
    unused: frozenset[Any] = frozenset()  #: rows of views that are left out, by their numbers
    present: pd.Series | None = None  #: whether a label column of each row says that a disease is present
    pending: set[str] = field(default_factory=set)  #: columns that a question is about
    examples: tuple[str, ...] = ()  #: rows and their images, for the terminal only
    text: str = ""  #: of the YAML
    shown: list[tuple[str, str, str]] = field(default_factory=list)  #: key, value and why, as they are printed

    @property
    def headers(self) -> list[str]:
        """The names of the table's columns."""
        return list(map(str, self.frame))

    @property
    def label_columns(self) -> list[str]:
        """The columns of labels, those of annotators too."""
        names = [name for names in self.labels.values() for name in names]
        return names + [name for pattern in names for name in match_reader(pattern, self.headers)]

    @property
    def free(self) -> list[str]:
        """Columns with cells that nothing has taken yet."""
        taken = {*self.columns.values(), *self.label_columns, *self.table.get("ignore", [])}
        return [name for name in self.headers if name not in taken and self.frame[name].notna().any()]

    @property
    def has_split(self) -> bool:
        """Whether a column or the path says which images are for testing."""
        return "split" in self.columns or self.is_in_path("split")

    def is_in_path(self, role: str) -> bool:
        """Whether the user's `from_path` has the role."""
        return f"(?P<{role}>" in str(self.answers.keys.get("from_path", ""))

    def expand(self, rows: np.ndarray) -> pd.DataFrame:
        """The frame with a row per image: `rows` are places of its rows, some of them several times, int `[images]`."""
        self.numbers = self.frame.index[rows]
        return self.frame.iloc[rows].reset_index(drop=True)

    def list_rows(self, index: pd.Index) -> str:
        """The rows of the file behind these rows of the frame, each once, as `list_rows` writes them."""
        return list_rows(index if self.numbers is None else self.numbers[index].unique())

    def select_counted(self, column: str, without: Collection[int] = ()) -> pd.Series:
        """The cells of a column, each once: of an expanded frame one per row of the file, or per image of a header.

        `without` are rows of the frame that do not count.
        """
        cells = self.frame[column]
        cells = cells[~cells.index.isin(without)] if without else cells
        if self.numbers is None:
            return cells
        whose = self.image[cells.index] if column in self.elements else self.numbers[cells.index]
        return cells[~whose.duplicated()]

    def name_counted(self, column: str) -> str:
        """Name of what `select_counted` counts: ` (rows)` or ` (images)`; empty if each row is an image."""
        if self.numbers is None and not self.image.dropna().duplicated().any():
            return ""
        return " (images)" if column in self.elements else " (rows)"

    def leave_out(self, rows: pd.Series, why: str) -> None:
        """Leave out rows, a mask, that the site's reader does not read; `ConfigError` if no row would be left."""
        if not rows.any():
            return
        if rows.all():
            raise ConfigError(f"{why} leaves out every row")
        self.left_out.append(self.frame[rows])
        self.image = self.image[~rows] if len(self.image) else self.image
        self.frame = self.frame[~rows]

    def take(self, role: str, column: str, evidence: str) -> None:
        """Note a column and why it is that."""
        self.columns[role], self.evidence[role] = column, evidence

    def ask(self, text: str, *answers: str, about: Collection[str] = ()) -> None:
        """Note something that is open, once; `about` are columns that get their role by it."""
        self.pending |= {*about}
        if all(question.text != text for question in self.questions):
            self.questions.append(Question(text, answers))

    def get_answer(self, role: str) -> str | None:
        """The column that the user names, or `none`; None without an answer.

        Raises `ConfigError` if there is no such column; capitals do not matter.
        """
        name = self.answers.columns.get(role)
        if name in (None, NONE) or (role in ("patient", "site") and name in (FOLDER, PREFIX)) or name in self.headers:
            return name
        return self.check_column(f"--column {role}={name}", str(name))

    def check_column(self, option: str, name: str) -> str:
        """A column of the table by its name; raises `ConfigError` if there is none."""
        alike = [other for other in self.headers if other == name or other.casefold() == name.casefold()]
        if len(alike) != 1:
            raise ConfigError(f"{option}: no such column; the columns are {', '.join(self.headers)}")
        return alike[0]


def option(name: str, value: str) -> str:
    """An option as it is typed in a shell."""
    return f"{name} {shlex.quote(value)}"


def ignore(names: Collection[str]) -> str:
    """The option by which the user says that nothing reads these columns."""
    plain_name = re.compile(r"[^\W\d][\w ]*")
    words = ("no", "yes", "on", "off", "y", "n", "true", "false", "null")
    quoted = [
        name if plain_name.fullmatch(name) and name.lower() not in words else json.dumps(name, ensure_ascii=False)
        for name in names
    ]
    return option("--set", f"ignore=[{', '.join(quoted)}]")


def is_called(role: str, name: str) -> bool:
    """Whether a column is called like the image, the patient, the view, ..., or an identifier of it."""
    bare = " ".join(word for word in plain(name).split() if word not in IDENTIFIERS)
    return plain(name) in COLUMNS[role] or (role in _IDENTIFIED and bare in COLUMNS[role])


def find_called(role: str, names: Collection[str]) -> list[str]:
    """The columns that are called so."""
    return [name for name in names if is_called(role, name)]


def is_small(cells: pd.Series) -> bool:
    """Whether many of the cells are small whole numbers: they name a file, or are in a header, by chance."""
    return bool(cells.dropna().str.fullmatch(r"\d{1,6}").mean() >= 0.5)


def count(number: int, total: int, noun: str = "cells") -> str:
    """`9,812 of 9,900 cells`."""
    return f"{number:,} of {total:,} {noun}"


def list_rows(rows: Sequence[int] | pd.Index, most: int = 5) -> str:
    """`row 7`, or the first of several."""
    shown, more = ", ".join(str(row) for row in rows[:most]), len(rows) - most
    return f"row{'s' if len(rows) != 1 else ''} {shown}" + (f" and {more:,} more" if more > 0 else "")


def is_date(cells: pd.Series) -> pd.Series:
    """Whether each cell is a date, also in the form 20260131."""
    pattern = r"(?:\d{4}[-./]\d{1,2}[-./]\d{1,2}|\d{1,2}[-./]\d{1,2}[-./]\d{2,4}|(?:19|20)\d{6})(?:[T ].*)?"
    return cells.str.strip().str.fullmatch(pattern)


def has_dates(cells: pd.Series) -> bool:
    """Whether most of the cells are dates, and no mere numbers, which may name patients."""
    given = cells.dropna()
    return bool(len(given) and is_date(given).mean() >= ENOUGH) and not given.iloc[0].strip().isdigit()

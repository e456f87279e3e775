"""The text of a site's YAML, with the evidence as comments, and the guesses as they are shown."""

from __future__ import annotations

import json
import re
import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from chestfed.new_site.work import SAID, Work, terms_file
from chestfed.sites.config import SiteConfig
from chestfed.sites.opening import SYNTHETIC_MARKER
from chestfed.sites.spreadsheet.term_table import LEXICON, YES, TermRow

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


class Said(NamedTuple):
    """The value of a key, perhaps further keys, and why it is that."""

    value: Any
    why: str = ""


@dataclass(frozen=True)
class Draft:
    """The YAML's text, the guesses as (what, value, why), and what the user should know.

    `terms` are the rows of the mapping table. `examples` of rows and their images are
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
    why, rule = work.evidence, images[0]
    rows, number, different = work.table_rows, int(work.image.notna().sum()), work.image.nunique()
    about = f"{_LAYOUTS.get(work.layout)}: {number:,} rows of {different:,} images"
    columns = [what for what in dict.fromkeys(("image", "patient", *OPTIONAL, *work.columns)) if what in work.columns]
    split = work.columns.get("split")
    table = {
        "layout": Said(work.layout, "no table was given" if work.layout == "dicom" else about),
        **{key: Said(*said) for key, said in sheet.items()},
        **({} if by_path is None else {"from_path": Said(*by_path)}),
        "columns": Said({what: Said(work.columns[what], why[what]) for what in columns}),
        "images": Said({key: Said(_with_roles(v, work) if key == "path" else v) for key, v in rule.items()}, images[1]),
        **{key: Said(value, why.get(key, "")) for key, value in work.keys.items()},
    }
    if rows:
        table["terms"] = Said(terms_file(work.name), f"what the table's words mean: {_known_by(rows)}")
    splits = {
        "official": Said(True, f"by the column {split}" if split else "no column for a split: every image is in train"),
        "valid_fraction": Said(0.0, "share of the training patients to set aside"),
        "test_fraction": Said(0.0),
    }
    body = {key: said for key, said in table.items() if said.value or key != "images"}
    last = {"table": Said(body, "how the table is laid out; every key: docs/new_site.md")}
    blocks = (*_head(work, line, files), _policy(work), last, {"splits": Said(splits)})
    guesses = _guesses(work, sheet, by_path)
    _last_notes(work, has_table=bool(sheet) or work.layout != "dicom")
    guesses += [("mapping table", said.value, said.why) for key, said in body.items() if key == "terms"]
    return Draft(yaml_text(blocks), tuple(guesses), tuple(work.notes), rows, examples)


def _known_by(rows: Sequence[TermRow]) -> str:
    """`31 rows: 20 known to the lexicon, 6 confirmed, 5 to be confirmed`."""
    by = Counter(row.confirmed if row.known else "" for row in rows)
    told = ((LEXICON, "known to the lexicon"), (YES, "confirmed"), ("", "to be confirmed"))
    return f"{len(rows):,} rows: " + ", ".join(f"{by[kind]:,} {text}" for kind, text in told if by[kind])


def _head(work: Work, line: str, files: Mapping[str, list[str]]) -> list[dict[str, Said]]:
    """What is above everything else."""
    root, data = work.pictures.root, None if work.data is None else work.data.resolve()
    folder, below = root / work.pictures.folder, data is not None and root.is_relative_to(data)
    marked = any((place / SYNTHETIC_MARKER).is_file() for place in (folder, *folder.parents[:2]))
    where = root.relative_to(data) if below and data is not None else root
    why = 'Comments say how each key was found. Check those that say "a guess": you decide.'
    keys = {
        "site": Said(work.name),
        "title": Said(work.choices.title or work.name.replace("-", " ").replace("_", " ").title()),
        "reader": Said("table"),
        **({"synthetic": Said(True, f"{SYNTHETIC_MARKER} exists")} if marked else {}),
        "root": Said(
            where.as_posix(), "below the data root" if below else "on this machine; change it if the folder moves"
        ),
        "label_files": Said(files),
    }
    return [{"#1": Said(f"{work.name}, described by `chestfed site new`: {line}."), "#2": Said(why)}, keys]


def _policy(work: Work) -> dict[str, Said]:
    """Views, diseases, labels, and how uncertain and blank labels are treated."""
    views, kept = _VIEWS, "lateral, other and unknown views are left out"
    if "view" not in work.columns:
        views, kept = [*_VIEWS, "unknown"], "no column for the view: all images are kept"
    told = {disease: Said(names, work.evidence[disease]) for disease, names in work.names.items()}
    labels = {"labels": Said(told, "disease -> your names for it")}
    if work.terms:
        labels = {f"#{disease}": Said(f"{disease}: {said.why}") for disease, said in told.items()}
    return {
        "views": Said(views, kept),
        "diseases": Said(list(work.names), "all others are missing, not negative"),
        **labels,
        "uncertain": Said(work.uncertain, work.evidence["uncertain"]),
        "blank": Said(work.blank, work.evidence["blank"]),
        **({"rows": Said(dict.fromkeys(work.choices.drop, "drop"), SAID)} if work.choices.drop else {}),
    }


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
    decided = {"uncertain": work.uncertain, "blank": work.blank, "raters": work.keys.get("raters")}
    guesses += [(key, value, work.evidence[key]) for key, value in decided.items() if value is not None]
    return guesses + [(key, repr(value), why) for key, (value, why) in sheet.items()]


def _last_notes(work: Work, *, has_table: bool) -> None:
    """What was not found."""
    if "view" not in work.columns:
        work.notes.append(
            "the views are unknown: lateral images, if any, are used for training (--view-column NAME if a column "
            "has them; if all are frontal, set default_view: frontal below table)"
        )
    lacking = [what for what in OPTIONAL if what not in work.columns]
    if lacking and has_table:
        flag = f"--{lacking[0]}-column NAME if there is one"
        work.notes.append(f"no column found for {', '.join(lacking)}: left out ({flag})")
    absent = [disease for disease in SiteConfig.model_fields["diseases"].default if disease not in work.names]
    if absent:
        work.notes.append(f"not labeled here, so missing: {', '.join(absent)} (--label {absent[0]}=NAME if it is)")


def yaml_text(blocks: Iterable[Mapping[str, Said]]) -> str:
    """Blocks of keys with an empty line between them."""
    return "\n\n".join("\n".join(line.rstrip() for line in _lines(block)) for block in blocks) + "\n"


def _lines(entries: Mapping[str, Said], depth: int = 0) -> list[str]:
    """Each key with its value, on one line or as a block if that is too long, and its comment behind or above it.

    A key that begins with # is a comment of its own.
    """
    indent, lines = "  " * depth, list[str]()
    for key, (value, why) in entries.items():
        shown = " ".join((str(value) if key.startswith("#") else why).split())
        shown = "".join(sign if sign.isprintable() else "?" for sign in shown)
        line, block = f"{indent}{flow(key)}: {flow(value)}", list[str]()
        if isinstance(value, Mapping) and any(isinstance(cell, Said) for cell in value.values()):
            line, block = f"{indent}{flow(key)}:", _lines(value, depth + 1)
        elif len(line) > _WIDTH and isinstance(value, list | Mapping):
            line = f"{indent}{flow(key)}:"
            cells = value.items() if isinstance(value, Mapping) else ()
            block = [f"{indent}  {flow(name)}: {flow(cell)}" for name, cell in cells]
            block += [f"{indent}  - {flow(cell)}" for cell in value] if isinstance(value, list) else []
        if not key.startswith("#") and shown and max(len(line) + 2, _COMMENT_AT) + len(shown) + 2 <= _WIDTH:
            line, shown = f"{line:<{_COMMENT_AT - 2}}  # {shown}", ""
        width = _WIDTH - 2 - len(indent)
        lines += [
            f"{indent}# {text}" for text in textwrap.wrap(shown, width, break_long_words=False, break_on_hyphens=False)
        ]
        lines += [] if key.startswith("#") else [line, *block]
    return lines


def flow(value: object) -> str:
    """A value on one line, quoted where YAML would read something else."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{flow(key)}: {flow(cell)}" for key, cell in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(flow, value)) + "]"
    if not isinstance(value, str):
        return json.dumps(value)
    safe = _PLAIN.fullmatch(value) and value == value.strip() and value.lower() not in _RESERVED
    quoted = (sign if sign.isprintable() else f"\\U{ord(sign):08x}" for sign in json.dumps(value, ensure_ascii=False))
    return value if safe else "".join(quoted)

"""The text of a site's YAML, with the evidence as comments, and the evidence as it is shown."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping
from typing import Any, Final

import yaml

from chestfed.core.diseases import DISEASES
from chestfed.data.sites.phantoms import is_phantoms
from chestfed.leaves.drafts.proposal import COLUMN_ROLES, VIEWS, Proposal

_WIDTH: Final = 118
_COMMENT_AT: Final = 42
_PLAIN: Final = re.compile(r"[^\W\d_][\w .()-]*|/[\w./-]+")
_RESERVED: Final = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n", "nan", "inf"})
_ROLES: Final[tuple[str, ...]] = tuple(role for role in COLUMN_ROLES if role != "site")


def name_book(site: str) -> str:
    """The file name of a site's code book, beside its YAML."""
    return f"{site}.codes.csv"


def write_draft(proposal: Proposal, line: str, files: Mapping[str, list[str]]) -> None:
    """Write the YAML's text, and what is shown of it; `line` says what there is, `files` are `label_files`."""
    why = proposal.evidence
    columns: dict[str, str] = {role: proposal.columns[role] for role in _ROLES if role in proposal.columns}
    known = "view" in columns or "default_view" in proposal.table or proposal.is_in_path("view")
    views = [*VIEWS] if known else [*VIEWS, "unknown"]
    keys = {key: (value, "given") for key, value in proposal.answers.keys.items() if key in ("one_class", "title")}
    title = proposal.name.replace("-", " ").replace("_", " ").title()
    rows = {**proposal.rows, **proposal.answers.keys.get("rows", {})}
    splits = {"valid_fraction": 0.0, "test_fraction": 0.0, **proposal.site.get("splits", {})}
    source = "by the path" if proposal.is_in_path("split") else "every image is in train"
    source = f"by the column {columns['split']}" if "split" in columns else source
    entries: dict[str, Any] = {
        "site": (proposal.name, ""),
        "title": keys.pop("title", (title, "")),
        "reader": ("table", ""),
        **_place(proposal),
        "label_files": (dict(files), ""),
        "views": (proposal.answers.keys.get("views", views), "all other views are left out"),
        "diseases": (proposal.diseases, "all others are missing, not negative"),
        "labels": {disease: (names, why.get(disease, "")) for disease, names in proposal.labels.items()},
        **({"constant": (proposal.constant, "the label of every image")} if proposal.constant else {}),
        "uncertain": (proposal.site["uncertain"], "how uncertain labels count"),
        "blank": (proposal.site["blank"], "how diseases that are not mentioned count"),
        **keys,
        **({"rows": (rows, "left out, and counted")} if rows else {}),
        "table": _list_keys(proposal, columns),
        "splits": (splits, why.get("splits", source)),
    }
    lines = _render({key: value for key, value in entries.items() if value})
    proposal.text = f"# {proposal.name}, described by `chestfed site new`: {line}.\n" + "\n".join(lines) + "\n"
    absent = [disease for disease in DISEASES if disease not in proposal.diseases]
    if absent:
        proposal.first.append(f"not labeled here, so missing: {', '.join(absent)} (--label {absent[0]}=NAME if it is)")
    shown = proposal.shown
    shown += [(role, name, why.get(role, "")) for role, name in columns.items()]
    shown += [(disease, ", ".join(names), why.get(disease, "")) for disease, names in proposal.labels.items()]
    shown += [(disease, "every image", "given") for disease in proposal.constant]
    shown += [(key, str(value), why.get(key, "")) for key, value in proposal.table.items()]
    if proposal.codes:
        shown.append(("codes", name_book(proposal.name), why.get("codes", f"{len(proposal.codes)} values")))


def _list_keys(proposal: Proposal, columns: Mapping[str, str]) -> dict[str, Any]:
    """The keys of `table`, each with its comment."""
    why = proposal.evidence
    rule = {key: _use_roles(value, columns) if key == "path" else value for key, value in proposal.rule.items()}
    keys: dict[str, Any] = {"columns": {role: (name, why.get(role, "")) for role, name in columns.items()}}
    if rule:
        keys["images"] = (rule, why.get("images", ""))
    keys |= {key: (value, why.get(key, "")) for key, value in proposal.table.items()}
    if proposal.codes:
        keys["codes"] = (name_book(proposal.name), why.get("codes", "meanings of the table's values"))
    return {key: value for key, value in keys.items() if value}


def _place(proposal: Proposal) -> dict[str, Any]:
    """The site's root, and whether it is synthetic."""
    root, data = proposal.pictures.root, None if proposal.data is None else proposal.data.resolve()
    folder, below = root / proposal.pictures.folder, data is not None and root.is_relative_to(data)
    where = root.relative_to(data) if below and data is not None else root
    why = "below the data root" if below else "on this machine; change it if the folder moves"
    return {
        **({"synthetic": (True, "bundled phantoms, by their digest")} if is_phantoms(folder, 2) else {}),
        "root": (where.as_posix(), why),
    }


def _use_roles(path: str, columns: Mapping[str, str]) -> str:
    """A path with patient and study by their roles, so that the names of columns are written once."""
    for role in ("patient", "study"):
        if role in columns:
            path = path.replace(f"{{{columns[role]}}}", f"{{{role}}}").replace(f"{{{columns[role]}[", f"{{{role}[")
    return path


def _render(entries: Mapping[str, Any], depth: int = 0) -> list[str]:
    """Lines of keys, each a block of further keys or (value, comment) with the comment behind or above it."""
    indent, lines = "  " * depth, list[str]()
    for key, entry in entries.items():
        if isinstance(entry, Mapping):
            lines += ([""] if not depth else []) + [f"{indent}{_dump(key)}:", *_render(entry, depth + 1)]
            continue
        value, comment = entry
        block = f"{_dump(key)}: {_dump(value)}"
        if len(block) > _WIDTH - len(indent):
            block = _dump({key: value}, _WIDTH - len(indent), flow=False)
        comment = "".join(sign if sign.isprintable() else "?" for sign in comment)
        line = f"{indent}{block}"
        if comment and "\n" not in line and max(len(line) + 2, _COMMENT_AT) + len(comment) + 2 <= _WIDTH:
            lines.append(f"{line:<{_COMMENT_AT - 2}}  # {comment}")
            continue
        wrapped = textwrap.wrap(comment, _WIDTH - 2 - len(indent), break_long_words=False, break_on_hyphens=False)
        lines += [f"{indent}# {part}" for part in wrapped] + textwrap.indent(block, indent).split("\n")
    return lines


class _Dumper(yaml.SafeDumper):
    """Quotes all text but plain words: YAML readers differ in what they take for a number."""


def _represent(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    plain = _PLAIN.fullmatch(text) and text == text.strip() and text.lower() not in _RESERVED
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=None if plain else '"')


_Dumper.add_representer(str, _represent)


def _dump(value: object, width: float = 10**9, flow: bool = True) -> str:
    """A value on one line, or as a block."""
    options: Any = {"default_flow_style": flow, "allow_unicode": True, "sort_keys": False, "width": width}
    return str(yaml.dump(value, Dumper=_Dumper, **options)).removesuffix("...\n").strip()

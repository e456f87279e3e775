"""Text files of a hospital as columns of strings: cells with a delimiter, JSON, COCO and FHIR."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pandas as pd

from chestfed.sites.label_files.encodings import is_text
from chestfed.sites.label_files.source import DELIMITERS, Source, UnreadableError, first_cells, shown
from chestfed.sites.tables.columns import Sheet, from_objects
from chestfed.sites.tables.schema import FileFormat

#: A first line such as `sep=;`, which Excel writes and does not show.
_SEPARATOR: Final = re.compile(rb"\"?sep=([^\r\n\"\x80-\xff])\"?\r?\n", re.IGNORECASE)
_SNIFFED: Final = 100  # rows
_MOST_COLUMNS: Final = 1 << 14


def open_text(source: Source, path: Path, options: FileFormat) -> Sheet | None:
    """The cells of a delimited or JSON file; None, with problems, if it cannot be used."""
    before = len(source.problems)
    text = source.text(path, options.encoding)
    if text is None:
        return None
    if text.lstrip()[:1] in (b"{", b"["):
        objects = _parse_json(text)
        if objects is not None:
            return from_objects(source.name(path), _select_rows(objects))
        message = "is neither a list of JSON objects nor an object per line, or an object has a key twice"
        source.problem("malformed JSON", source.name(path), message, advice="export the file again")
        return None
    return _open_delimited(source, path, text, options) if len(source.problems) == before or source.keep_going else None


def _open_delimited(source: Source, path: Path, text: bytes, options: FileFormat) -> Sheet | None:
    stated = _SEPARATOR.match(text)
    text = text if stated is None else text[stated.end() :]
    above = options.header_row - 1
    start = text[: 1 << 20].decode("utf-8", errors="ignore")
    delimiter = options.delimiter or (stated and stated[1].decode("latin-1")) or _sniff(start, above)
    if delimiter is None:
        message = "the delimiter is ambiguous: " + " and ".join(map(shown, DELIMITERS)) + " fit several ways"
        source.problem("wrong delimiter", source.name(path), message, advice="set table.delimiter in the site's YAML")
        return None
    text = _skip_rows(text, above, delimiter)
    names = [name.strip() for name in first_cells(text[: 1 << 20].decode("utf-8", errors="ignore"), delimiter)]
    if not any(names):
        message = f"row {options.header_row} is not a header" if above else "has no header line"
        advice = "set table.header_row to the row with the column names" if above else "export the table again"
        source.problem("empty file", source.name(path), message, advice=advice)
        return None
    cells = source.csv_cells(path, text, len(names), range(len(names)), delimiter, above)
    if cells is None:
        return None
    return Sheet(source.name(path), names, list(cells[0].columns), cells[1], options.header_row)


def _sniff(start: str, above: int) -> str | None:
    """The delimiter of most rows' width; None if two fit equally. A file of one column has commas."""
    shares: dict[str, tuple[float, int]] = {}
    for delimiter in DELIMITERS:
        rows = []
        try:
            for _, row in zip(range(above + _SNIFFED), csv.reader(io.StringIO(start, newline=""), delimiter=delimiter)):
                rows.append(row)
        except csv.Error:
            pass
        widths = [len(row) for row in rows[above:] if row]
        if widths and widths[0] > 1:
            shares[delimiter] = sum(width == widths[0] for width in widths) / len(widths), widths[0]
    best = max(shares.values(), default=None)
    fitting = [delimiter for delimiter, share in shares.items() if share == best]
    return "," if not fitting else fitting[0] if len(fitting) == 1 else None


def _skip_rows(text: bytes, number: int, delimiter: str) -> bytes:
    """The text behind its first rows, cells with line breaks being one; empty if it has no more of them."""
    if not number:
        return text
    rows = csv.reader(io.StringIO(text.decode("utf-8"), newline=""), delimiter=delimiter)
    try:
        for _ in zip(range(number), rows, strict=False):
            pass
    except csv.Error:
        return b""
    return text.split(b"\n", rows.line_num)[rows.line_num] if text.count(b"\n") >= rows.line_num else b""


def _parse_json(text: bytes) -> list[dict[str, Any]] | None:
    """The objects of a JSON list or of lines; None if it is not one, or an object has a key twice."""
    try:
        try:
            parsed = json.loads(text, object_pairs_hook=_unique)
        except ValueError:
            parsed = [json.loads(line, object_pairs_hook=_unique) for line in text.splitlines() if line.strip()]
    except (ValueError, RecursionError):
        return None
    objects = [parsed] if isinstance(parsed, dict) else parsed
    if not isinstance(objects, list) or not all(isinstance(row, dict) for row in objects):
        return None
    return objects if all(is_text(name) for row in objects for name in row) else None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The pairs by key; a key that is there twice is an error."""
    if len(unique := dict(pairs)) < len(pairs):
        raise ValueError("duplicate key")
    return unique


def _select_rows(objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of a COCO file or a FHIR bundle, flattened; other objects, with the keys of nested ones by a dot.

    Raises `UnreadableError` if a COCO annotation names no image or category of the file.
    """
    first = objects[0] if objects else {}
    if len(objects) == 1 and {"images", "annotations", "categories"} <= first.keys():
        return _join_coco(first)
    if len(objects) == 1 and first.get("resourceType") == "Bundle":
        objects = [entry.get("resource", {}) for entry in first.get("entry", [])]
    if any("resourceType" in row for row in objects):
        objects = [_number_lists(row) for row in objects]
    if not any(isinstance(value, dict) for row in objects for value in row.values()):
        return objects
    frame = pd.json_normalize(objects)  # type: ignore[arg-type]
    if len(frame.columns) > _MOST_COLUMNS:
        raise UnreadableError(f"has more than {_MOST_COLUMNS:,} columns", "flatten it with pandas (docs/convert.md)")
    return frame.astype(object).where(frame.notna(), None).to_dict("records")  # type: ignore[return-value]


def _number_lists(value: Any) -> Any:
    """A FHIR resource, its lists as objects whose keys are the places: `coding.0.display`."""
    if isinstance(value, list):
        return {str(place): _number_lists(part) for place, part in enumerate(value)}
    return {key: _number_lists(part) for key, part in value.items()} if isinstance(value, dict) else value


def _join_coco(file: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A row per image and category, `category` being its name; an image without annotation has a row without one."""
    try:
        names = {category["id"]: category["name"] for category in file["categories"]}
        images: dict[Any, dict[str, Any]] = {image["id"]: image for image in file["images"]}
        shown = dict.fromkeys((part["image_id"], names[part["category_id"]]) for part in file["annotations"])
        fits = len(images) == len(file["images"]) and all(image in images for image, _ in shown)
    except (KeyError, TypeError):
        fits = False
    if not fits:
        message = "is a COCO file whose annotations do not fit its images and categories, or that has an id twice"
        raise UnreadableError(message, "export the file again")
    by_image: dict[Any, list[str | None]] = {}
    for image, name in shown:
        by_image.setdefault(image, []).append(name)
    return [image | {"category": name} for key, image in images.items() for name in by_image.get(key, [None])]

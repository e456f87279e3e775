"""Columns of values as columns of strings: parquet, feather, and the objects of JSON."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.feather
import pyarrow.parquet as pq

from chestfed.data.sites.label_files import text as limits
from chestfed.data.sites.label_files.encodings import is_text
from chestfed.data.sites.label_files.text import TOO_LARGE, Sheet, UnreadableError, convert, row_numbers

_AGAIN: Final = "export the table again"
_EXPLODE: Final = convert("frame.explode('NAME'), then pd.json_normalize(frame['NAME'])")
_ARROW: Final = b"ARROW1"
_MOST_COLUMNS: Final = 1 << 14


def open_parquet(path: Path, label: str) -> Sheet:
    """A parquet file, unless its columns would take more than `LARGEST` bytes: a word of its dictionary is stored once.

    Raises `UnreadableError` if it is damaged or too large.
    """
    try:
        plain = pq.ParquetFile(path)
        leaves = [plain.schema.column(place) for place in range(len(plain.schema))]
        stated = plain.metadata
        groups = [stated.row_group(place) for place in range(stated.num_row_groups)]
        chunks = [group.column(place) for group in groups for place in range(group.num_columns)]
        if sum(max(chunk.total_uncompressed_size, chunk.num_values) for chunk in chunks) > limits.LARGEST:
            raise UnreadableError(*TOO_LARGE)
        stored = [leaf.path for leaf in leaves if leaf.physical_type == "BYTE_ARRAY"]
        schema, parts, total = plain.schema_arrow, [], 0
        for batch in pq.ParquetFile(path, read_dictionary=stored).iter_batches(1 << 16):
            total += sum(map(_measure_expanded, batch.columns))
            if total > limits.LARGEST:
                raise UnreadableError(*TOO_LARGE)
            parts.append(pa.Table.from_batches([batch]).cast(schema))
    except (pa.ArrowException, OSError):
        raise UnreadableError("is not a parquet file, or is damaged", _AGAIN) from None
    return _from_arrow(label, pa.concat_tables(parts) if parts else schema.empty_table())


def open_feather(path: Path, label: str) -> Sheet:
    """A feather (Arrow IPC) file.

    Raises `UnreadableError` if it is damaged or too large.
    """
    try:
        if _measure_feather(path) > limits.LARGEST:
            raise UnreadableError(*TOO_LARGE)
        table = pyarrow.feather.read_table(path, memory_map=False)
    except (pa.ArrowException, OSError, ValueError, struct.error):
        raise UnreadableError("is not a feather file, or is damaged", _AGAIN) from None
    if sum(_measure_expanded(chunk) for column in table.columns for chunk in column.chunks) > limits.LARGEST:
        raise UnreadableError(*TOO_LARGE)
    return _from_arrow(label, table)


def _measure_feather(path: Path) -> int:
    """Bytes that the compressed buffers of an Arrow file state: each begins with its length before compression."""
    total, content = 0, pa.OSFile(str(path), "rb").read_buffer()
    if content.slice(0, 6).to_pybytes() != _ARROW:  # the first version of feather has no compression
        return 0
    messages = pa.ipc.MessageReader.open_stream(pa.BufferReader(content.slice(8)))
    while True:
        try:
            message = messages.read_next_message()
        except StopIteration:
            return total
        if message.type in ("record batch", "dictionary") and message.body is not None:
            body = memoryview(message.body)
            for start in _list_buffers(message.metadata.to_pybytes(), is_dictionary=message.type == "dictionary"):
                stated = struct.unpack_from("<q", body, start)[0] if start + 8 <= len(body) else 0
                total += max(stated, 0)


def _list_buffers(message: bytes, *, is_dictionary: bool) -> list[int]:
    """Places of the compressed buffers in the body of a message (Arrow's Message.fbs); none if none is compressed."""

    def find(table: int, field: int) -> int | None:
        """Where a field of a table is; None if the table lacks it."""
        vtable = table - struct.unpack_from("<i", message, table)[0]
        entry = 4 + 2 * field
        offset = struct.unpack_from("<H", message, vtable + entry)[0] if entry < _read_short(message, vtable) else 0
        return table + offset if offset else None

    def follow(place: int | None) -> int:
        if place is None:
            raise ValueError("no such field")
        return int(place + struct.unpack_from("<I", message, place)[0])

    batch = follow(find(follow(0), 2))
    batch = follow(find(batch, 1)) if is_dictionary else batch
    if find(batch, 3) is None or find(batch, 2) is None:
        return []
    buffers = follow(find(batch, 2))
    (count,) = struct.unpack_from("<I", message, buffers)
    places = [struct.unpack_from("<qq", message, buffers + 4 + 16 * number) for number in range(count)]
    return [start for start, length in places if length > 8]


def _read_short(message: bytes, place: int) -> int:
    return int(struct.unpack_from("<H", message, place)[0])


def from_objects(label: str, objects: Sequence[Mapping[str, Any]]) -> Sheet:
    """Objects as rows, their keys as columns."""
    names = list(dict.fromkeys(name for row in objects for name in row))
    return _from_values(label, names, [[row.get(name) for row in objects] for name in names], len(objects))


def from_frame(label: str, frame: pd.DataFrame) -> Sheet:
    """A frame; its index is not read."""
    columns = [frame.iloc[:, place] for place in range(frame.shape[1])]
    values = [column.astype(object).where(column.notna(), None).tolist() for column in columns]
    return _from_values(label, [str(name) for name in frame.columns], values, len(frame))


def as_text(value: Any) -> str | None:
    """A value as a cell of a table; None if it is empty. Lists become JSON.

    Raises `ValueError` if it has no plain text.
    """
    if value is None or value is pd.NaT or value != value:
        return None
    if isinstance(value, bool | np.bool_):
        return str(bool(value)).lower()
    if isinstance(value, float | np.floating):  # as programs write whole numbers if some are missing
        number = float(value) if isinstance(value, float) else float(str(value))
        return str(int(number)) if number.is_integer() and abs(number) < 1e15 else repr(number)
    if isinstance(value, datetime):
        return value.isoformat(sep=" ").removesuffix(" 00:00:00")
    if isinstance(value, str | int | np.integer | date | time | timedelta):
        text = str(value)
    elif isinstance(value, list | tuple):
        text = json.dumps(value)
    else:
        raise ValueError("no text")
    if not is_text(text):
        raise ValueError("half a character")
    return text


def parse_json(text: bytes) -> list[dict[str, Any]] | None:
    """The rows of a JSON list of objects, an object per line, COCO or FHIR; None if it is none of these.

    Raises `UnreadableError` if the annotations of a COCO file do not fit its images and categories.
    """
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
    return _select_rows(objects) if all(is_text(name) for row in objects for name in row) else None


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
    _refuse_nested(first, len(objects))
    if any("resourceType" in row for row in objects):
        objects = [_number_lists(row) for row in objects]
    if not any(isinstance(value, dict) for row in objects for value in row.values()):
        return objects
    frame = pd.json_normalize(objects)
    if len(frame.columns) > _MOST_COLUMNS:
        raise UnreadableError(f"has more than {_MOST_COLUMNS:,} columns", "flatten it with pandas (docs/convert.md)")
    rows = frame.astype(object).where(frame.notna(), None).itertuples(index=False, name=None)
    return [dict(zip(map(str, frame.columns), row, strict=True)) for row in rows]


def _refuse_nested(first: Mapping[str, Any], count: int) -> None:
    """Raise `UnreadableError` for one object that holds all, and for annotation tools', with what flattens them."""
    load = "json.load(open('labels.json'))"
    tables = [key for key, value in first.items() if isinstance(value, list) and value and isinstance(value[0], dict)]
    if "_via_img_metadata" in first:
        form, line = "a VIA project", f"pd.json_normalize(list({load}['_via_img_metadata'].values()))"
    elif {"data", "annotations"} <= first.keys():
        form, line = (
            "a Label Studio export",
            f"pd.json_normalize({load}, ['annotations', 'result'], [['data', 'image']])",
        )
    elif count == 1 and "resourceType" not in first and tables:
        form, line = "one JSON object around the rows", f"pd.json_normalize({load}['{tables[0]}'])"
    elif count == 1 and len(first) > 1 and all(isinstance(value, dict) for value in first.values()):
        form, line = "one JSON object by image", "pd.read_json('labels.json', orient='index').reset_index()"
    else:
        return
    raise UnreadableError(f"is {form}, not a list of rows", convert(f"{line}.to_csv('labels.csv', index=False)"))


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


def _from_values(label: str, names: list[str], columns: Iterable[list[Any]], count: int) -> Sheet:
    return _make_sheet(label, names, map(_as_cells, columns), count)


def _from_arrow(label: str, table: pa.Table) -> Sheet:
    return _make_sheet(label, table.column_names, map(_convert_arrow, table.columns), table.num_rows)


def _make_sheet(label: str, names: Sequence[str], columns: Iterable[pa.ChunkedArray[Any] | None], count: int) -> Sheet:
    """The columns that are text, numbers, dates or lists; a note names the others, which are None."""
    sheet = Sheet(label, [], [], row_numbers(count))
    for name, cells in zip(names, columns, strict=True):
        if cells is None:
            sheet.notes.append(
                f"{label}: column '{name}' is not read: it is not text, numbers, dates or lists; {_EXPLODE}"
            )
        else:
            sheet.names.append(name)
            sheet.cells.append(cells)
    return sheet


def _as_cells(values: Iterable[Any]) -> pa.ChunkedArray[Any] | None:
    """Values as strings; None if one of them has no plain text, such as a list of objects."""
    try:
        return pa.chunked_array([pa.array([as_text(value) for value in values], pa.string())])
    except (ValueError, TypeError):
        return None


def _convert_arrow(cells: pa.ChunkedArray[Any]) -> pa.ChunkedArray[Any] | None:
    """Cells as strings; None if the type has no plain text."""
    kind = cells.type
    if pa.types.is_dictionary(kind):
        return _convert_arrow(cells.cast(kind.value_type))
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_integer(kind):
        return cells.cast(pa.string())
    if pa.types.is_float16(kind) or pa.types.is_float32(kind):  # 0.1 stays 0.1
        cells = cells.cast(pa.float32())
        short = cells.cast(pa.string()).to_pylist()
        return _as_cells(None if text is None or text == "nan" else as_text(float(text)) for text in short)
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return None
    return _as_cells(cells.to_pylist())


def _measure_expanded(cells: pa.Array[Any]) -> int:
    """Count the bytes of cells whose references are replaced by words."""
    if isinstance(cells, pa.DictionaryArray):
        words: Any = cells.dictionary
        text = pa.types.is_string(words.type) or pa.types.is_large_string(words.type) or pa.types.is_binary(words.type)
        lengths = pc.fill_null(pc.binary_length(words), 0).to_numpy() if text else np.full(len(words), 8)
        return 4 * len(cells) + int(lengths[cells.indices.drop_null().to_numpy()].sum(dtype=np.int64))
    if isinstance(cells, pa.StructArray):
        return sum(map(_measure_expanded, cells.flatten()))
    if isinstance(cells, pa.MapArray):
        return 4 * len(cells) + _measure_expanded(cells.keys) + _measure_expanded(cells.items)
    lists: Any = cells
    return 4 * len(cells) + _measure_expanded(lists.flatten()) if pa.types.is_nested(cells.type) else int(cells.nbytes)

"""Checks on changed copies of the label files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from chestfed.core.errors import ChestfedError
from chestfed.testing.case import Case, Copy, as_set
from chestfed.testing.table_checks import same_labels
from chestfed.testing.text import columns, shuffled, without_column

_GARBAGE = b"\x93\x00\xff\xfe\x01 no table \x00" * 64


def shuffled_rows(case: Case) -> Iterator[str]:
    """The order of the rows in the label files does not matter, but for their numbers."""
    copy, changed = case.copy(), False
    for name in case.label_files():
        data = (copy.root / name).read_bytes()
        other = shuffled(data, name, len(name.as_posix()), max(case.header_lines, _header_row(case)))
        if other is None:
            case.note(f"{name.name}: the rows of such a file cannot be shuffled here")
        elif other != data:
            copy.write(name, other)
            changed = True
    if not changed:
        case.note("no label file has rows to shuffle")
        return
    error, found = _opened(copy)
    if error is not None:
        yield f"with the rows of the label files shuffled: {error}"
    elif found is not None and not as_set(found).equals(as_set(case.table)):
        yield "with the rows of the label files shuffled, other rows come out"


def missing_columns(case: Case) -> Iterator[str]:
    """Without a column that it needs, a label file is refused by name; without another, the labels stay the same."""
    looked = missed = 0
    copy, row = case.copy(), _header_row(case)
    for name in case.label_files()[: case.files]:
        original = (case.table.root / name).read_bytes()
        for place, column in enumerate(columns(original, row)):
            looked += 1
            copy.write(name, without_column(original, place, row))
            error, found = _opened(copy)
            if isinstance(error, ChestfedError):
                missed += 1
                if not _named(name, error):
                    yield f"{name} without column '{column}': the error does not name the file: {_first_line(error)}"
            elif error is not None:
                yield f"{name} without column '{column}': {_told(error)}"
            elif not same_labels(case.table, found):
                yield f"{name} without column '{column}': opens, with other rows or labels"
        copy.write(name, original)
    if not looked:
        case.note("no label file has a header of columns")
    elif not missed:
        yield "no column of any label file is missed when it is not there"


def damaged_label_files(case: Case) -> Iterator[str]:
    """A label file that is empty or no table is refused by name; cut short or absent, it raises no foreign error."""
    copy = case.copy()
    for name in case.label_files()[: case.files]:
        original = (case.table.root / name).read_bytes()
        for damage, data in (("empty", b""), ("not a table", _GARBAGE), ("cut short", original[: len(original) // 2])):
            copy.write(name, data)
            error, _ = _opened(copy)
            must_fail = damage != "cut short"  # at the end of a row that cannot be seen
            if error is None and must_fail:
                yield f"{name}, {damage}: the site opens nevertheless"
            elif error is not None and not isinstance(error, ChestfedError):
                yield f"{name}, {damage}: {_told(error)}"
            elif error is not None and must_fail and not _named(name, error):
                yield f"{name}, {damage}: the error does not name the file: {_first_line(error)}"
        (copy.root / name).unlink()
        error, _ = _opened(copy)
        copy.write(name, original)
        if error is not None and not isinstance(error, ChestfedError):
            yield f"{name}, removed: {_told(error)}"


def _header_row(case: Case) -> int:
    return 1 if case.config.table is None else case.config.table.header_row


def _opened(copy: Copy) -> tuple[Exception | None, Any]:
    try:
        return None, copy.open()
    except Exception as error:  # whatever a reader raises is what is looked for
        return error, None


def _named(name: Path, error: Exception) -> bool:
    return name.name.removesuffix(".gz") in str(error)


def _told(error: Exception) -> str:
    return f"raises {type(error).__name__}, not a ChestfedError: {_first_line(error)}"


def _first_line(error: Exception) -> str:
    return " ".join(str(error).split())[:160]

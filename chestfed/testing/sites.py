"""Checks of a site whose reader is a plug-in: all that `chestfed site check` finds, and how the reader behaves."""

from __future__ import annotations

import csv
import gzip
import io
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import numpy as np

from chestfed.core.errors import ChestfedError
from chestfed.core.plugins import pinned
from chestfed.inspection import check_site as inspect_site
from chestfed.sites.config import SiteConfig, load_site_config
from chestfed.sites.label_files.source import DELIMITERS, Source
from chestfed.sites.opening import open_site
from chestfed.sites.table import SiteTable

#: Key of a check -> what must hold.
CHECKS: Final = {
    "site check": "`chestfed site check` finds no error, and the rows of the reader are valid.",
    "repeatable": "Read from another working folder, the site has the same rows in the same order.",
    "missing columns": "If a column is missing, the site is refused, a remark names it, or the labels do not change.",
    "damaged label files": "A label file that is empty, or is not a table, is refused by name.",
    "untouched": "No file of the site is changed, added or removed.",
}
#: A larger site is refused: the checks copy it.
MOST_FILES, MOST_BYTES = 20_000, 500_000_000

_NOT_A_TABLE: Final = b"\x93\x00\xff\xfe\x01 not a table \x00" * 64


@dataclass(frozen=True)
class Violation:
    """One thing that is wrong; `check` is the key of `CHECKS` that found it."""

    check: str
    message: str

    def __str__(self) -> str:
        return f"{self.check}: {self.message}"


@dataclass(frozen=True)
class ConformanceReport:
    """What was checked: per check how many things were looked at (images, rows, columns, damaged copies, files)."""

    site: str
    looked_at: dict[str, int]

    def __str__(self) -> str:
        counts = ", ".join(f"{check} ({number})" for check, number in self.looked_at.items())
        return f"site '{self.site}' conforms; checked: {counts}"


class ConformanceError(AssertionError):
    """The message lists all violations."""

    def __init__(self, site: str, violations: Sequence[Violation]) -> None:
        self.violations = tuple(violations)
        lines = [f"site '{site}' violates {len(violations)} of what chestfed relies on:", *map(str, violations)]
        super().__init__("\n  ".join(lines))


def check_site(config_path: str | Path, data_root: str | Path, *, overrides: Sequence[str] = ()) -> ConformanceReport:
    """Check that a site keeps what chestfed relies on; takes seconds on a small sample of its files.

    Parameters
    ----------
    config_path
        The site's YAML.
    data_root
        The folder that the YAML's `root` is below, as for `--data`. Files are damaged only in temporary copies.
    overrides
        Keys of the YAML, as for `--set`.

    Raises
    ------
    ConformanceError
        With all violations. It is an AssertionError: a test needs nothing else.
    ConfigError
        If the YAML is invalid.
    """
    config = load_site_config(Path(config_path).absolute(), overrides)
    root = Path(data_root).absolute()
    folder = config.folder(root)
    before = _files(folder)
    violations: list[Violation] = []
    looked_at: dict[str, int] = {}
    with TemporaryDirectory(prefix="chestfed-testing-") as scratch:
        try:
            looked_at["site check"] = _inspect(config, root, Path(scratch), violations)
            if not violations:
                _compare(config, root, folder, Path(scratch), violations, looked_at)
        except Exception as error:  # whatever a reader raises is a finding
            violations.append(Violation("site check", f"the reader raised {_told(error)}"))
    looked_at["untouched"] = len(before)
    after = _files(folder)
    changed = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    violations += [Violation("untouched", f"{name} was changed, added or removed") for name in changed]
    if violations:
        raise ConformanceError(config.site, violations)
    return ConformanceReport(config.site, looked_at)


def _inspect(config: SiteConfig, root: Path, scratch: Path, violations: list[Violation]) -> int:
    report = inspect_site(config, root, cache_root=scratch / "cache")
    violations += [Violation("site check", f"{problem.kind}: {problem}") for problem in report.errors]
    if not violations and np.isnan(report.looked.survey.table.labels()).all():
        violations.append(Violation("site check", "every label is missing"))
    return report.counts.rows


def _compare(
    config: SiteConfig, root: Path, folder: Path, scratch: Path, violations: list[Violation], looked_at: dict[str, int]
) -> None:
    """Open the site again, and changed copies of it."""
    table = open_site(config, root)
    with chdir(scratch), pinned():  # a reader may be a module of the working folder
        again = open_site(config, root)
    if not again.frame.equals(table.frame):
        violations.append(Violation("repeatable", "read again from another working folder, the site has other rows"))
    copy = _copied(folder, scratch / "copy")
    moved = config.model_copy(update={"root": str(copy)})
    labels = _label_files(config, folder, set(table.frame["image"]))
    header_row = config.table.header_row if config.table is not None else 1

    def open_with(name: Path, data: bytes) -> SiteTable | Exception:
        original = (copy / name).read_bytes()
        (copy / name).unlink()  # it may be a link to the original
        (copy / name).write_bytes(data)
        try:
            return open_site(moved, root)
        except Exception as error:
            return error
        finally:
            (copy / name).write_bytes(original)

    looked_at.update({"repeatable": len(table.frame), "missing columns": 0, "damaged label files": 0})
    for name in labels:
        original = (folder / name).read_bytes()
        for column, data in _without_each_column(original, header_row):
            looked_at["missing columns"] += 1
            text = f"{name} without column '{column}'"
            found = _missing_column(name, column, table, open_with(name, data))
            violations += [Violation("missing columns", f"{text}: {found}")] if found else []
        for damage, data in (("empty", b""), ("not a table", _NOT_A_TABLE)):
            looked_at["damaged label files"] += 1
            found = _refusal(name, open_with(name, data))
            violations += [Violation("damaged label files", f"{name}, {damage}: {found}")] if found else []


def _missing_column(name: Path, column: str, table: SiteTable, opened: SiteTable | Exception) -> str:
    """What is wrong if a column is missing: it is refused, or the labels are the same, or a note names it."""
    if isinstance(opened, Exception):
        return _refusal(name, opened)
    same = opened.frame["row"].tolist() == table.frame["row"].tolist()
    same = same and np.array_equal(opened.labels(), table.labels(), equal_nan=True)
    told = any(f"'{column}'" in note for note in opened.notes)
    return "" if same or told else "opens without a note, with other rows or labels"


def _refusal(name: Path, opened: SiteTable | Exception) -> str:
    """What is wrong with the refusal of a damaged file."""
    if not isinstance(opened, Exception):
        return "the site opens nevertheless"
    if not isinstance(opened, ChestfedError):
        return f"raises {_told(opened)}"
    return "" if name.name in str(opened) else f"the error does not name the file: {str(opened).partition(chr(10))[0]}"


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"


def _files(folder: Path) -> dict[str, tuple[int, int]]:
    """Size and time of change of every file."""
    status = {path: path.stat() for path in folder.rglob("*") if path.is_file()}
    return {path.relative_to(folder).as_posix(): (one.st_size, one.st_mtime_ns) for path, one in status.items()}


def _copied(folder: Path, target: Path) -> Path:
    """A copy of a folder, its files linked where that is possible."""
    sizes = [size for size, _ in _files(folder).values()]
    if len(sizes) > MOST_FILES or sum(sizes) > MOST_BYTES:
        raise ChestfedError(
            f"{folder} holds {len(sizes):,} files, {sum(sizes) / 1e6:,.0f} MB: too many to be copied for tests. Make a "
            "small sample in the same layout, some ten patients, and check that"
        )
    return Path(shutil.copytree(folder, target, copy_function=_link))


def _link(source: str, target: str) -> None:
    try:
        os.link(Path(source).resolve(), target)
    except OSError:  # another file system
        shutil.copy2(source, target)


def _label_files(config: SiteConfig, folder: Path, images: set[str]) -> list[Path]:
    """The label files relative to the root, as the patterns of `label_files` find them; no images."""
    source = Source(config, folder)
    found = [path.relative_to(folder) for role in config.label_files for path in source.find_all(role)]
    return [name for name in dict.fromkeys(found) if name.as_posix() not in images]


def _without_each_column(data: bytes, header_row: int) -> Iterator[tuple[str, bytes]]:
    """Each column of a delimited text, and the text with another name in its place; nothing of other files."""
    pack: Callable[[bytes], bytes] = bytes
    if data[:2] == b"\x1f\x8b":
        data, pack = gzip.decompress(data), gzip.compress
    rest = data.split(b"\n", 1)[-1] if data[:5].lower().strip(b'"').startswith(b"sep=") else data
    if b"\0" in rest or rest[:2] == b"PK" or rest.lstrip()[:1] in (b"[", b"{"):
        return
    above, lines = data[: len(data) - len(rest)], rest.splitlines(keepends=True)
    if len(lines) < header_row:
        return
    header = lines[header_row - 1].removeprefix(b"\xef\xbb\xbf").decode("utf-8", errors="replace").rstrip("\r\n")
    delimiter = max(DELIMITERS, key=header.count)
    names = next(csv.reader([header], delimiter=delimiter), []) if delimiter in header else []
    for place, name in enumerate(names):
        line = io.StringIO()
        renamed = [*names[:place], f"x{place} was here", *names[place + 1 :]]
        csv.writer(line, delimiter=delimiter, lineterminator="\n").writerow(renamed)
        changed = [*lines[: header_row - 1], line.getvalue().encode(), *lines[header_row:]]
        yield name, pack(above + b"".join(changed))

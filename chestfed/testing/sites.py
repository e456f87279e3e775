"""`check_site`: the contract of a site's reader: what `chestfed site check` finds, and how the reader behaves."""

from __future__ import annotations

import csv
import gzip
import io
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import chdir
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import numpy as np

from chestfed.core.errors import ChestfedError
from chestfed.core.plugins import freeze_plugins
from chestfed.data.checks import check_site as inspect_site
from chestfed.data.sites.config import SiteConfig, load_site_config
from chestfed.data.sites.label_files.source import Source
from chestfed.data.sites.label_files.text import DELIMITERS
from chestfed.data.sites.opening import open_site
from chestfed.data.sites.table import SiteTable
from chestfed.testing.contract import ContractError

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


def check_site(config_path: str | Path, data_root: str | Path, *, overrides: Sequence[str] = ()) -> dict[str, int]:
    """Check that a site keeps what chestfed relies on; takes seconds on a small sample of its files.

    Parameters
    ----------
    config_path
        The site's YAML.
    data_root
        The folder that the YAML's `root` is below, as for `--data`. Files are damaged only in temporary copies.
    overrides
        Keys of the YAML, as for `--set`.

    Returns
    -------
    dict
        Per check of `CHECKS` the number of rows, columns, damaged copies or files that were checked.

    Raises
    ------
    ContractError
        With all problems, by check.
    ConfigError
        If the YAML is invalid.
    """
    config = load_site_config(Path(config_path).absolute(), overrides)
    root = Path(data_root).absolute()
    folder = config.folder(root)
    before = _list_files(folder)
    problems: defaultdict[str, list[str]] = defaultdict(list)
    counts = dict.fromkeys(CHECKS, 0)
    with TemporaryDirectory(prefix="chestfed-testing-") as scratch:
        try:
            report = inspect_site(config, root, cache_root=Path(scratch) / "cache")
            counts["site check"] = report.counts.rows
            problems["site check"] += [f"{problem.kind}: {problem}" for problem in report.errors]
            if not report.errors and np.isnan(report.inspection.survey.table.labels()).all():
                problems["site check"].append("every label is missing")
            if not problems["site check"]:
                _reopen(config, root, folder, Path(scratch), problems, counts)
        except Exception as error:  # whatever a reader raises is a problem
            problems["site check"].append(f"the reader raised {_describe(error)}")
    after = _list_files(folder)
    counts["untouched"] = len(before)
    changed = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    problems["untouched"] += [f"{name} was changed, added or removed" for name in changed]
    if broken := {check: "\n    ".join(texts) for check, texts in problems.items() if texts}:
        raise ContractError(f"site '{config.site}'", broken)
    return counts


def _reopen(
    config: SiteConfig, root: Path, folder: Path, scratch: Path, problems: dict[str, list[str]], counts: dict[str, int]
) -> None:
    """Open the site again, and changed copies of it."""
    table = open_site(config, root)
    with chdir(scratch), freeze_plugins():  # a reader may be a module of the working folder
        again = open_site(config, root)
    counts["repeatable"] = len(table.frame)
    if not again.frame.equals(table.frame):
        problems["repeatable"].append("read again from another working folder, the site has other rows")
    copy = _copy_site(folder, scratch / "copy")
    moved = config.model_copy(update={"root": str(copy)})

    def open_with(name: Path, data: bytes) -> SiteTable | Exception:
        original = (copy / name).read_bytes()
        (copy / name).write_bytes(data)
        try:
            return open_site(moved, root)
        except Exception as error:
            return error
        finally:
            (copy / name).write_bytes(original)

    for name in _label_files(config, folder, set(table.frame["image"])):
        header_row = config.table.header_row if config.table is not None else 1
        for column, data in _without_each_column((folder / name).read_bytes(), header_row):
            counts["missing columns"] += 1
            if problem := _check_missing_column(name, column, table, open_with(name, data)):
                problems["missing columns"].append(f"{name} without column '{column}': {problem}")
        for damage, data in (("empty", b""), ("not a table", _NOT_A_TABLE)):
            counts["damaged label files"] += 1
            if problem := _check_refusal(name, open_with(name, data)):
                problems["damaged label files"].append(f"{name}, {damage}: {problem}")


def _check_missing_column(name: Path, column: str, table: SiteTable, opened: SiteTable | Exception) -> str:
    """Problem with a missing column; none if it is refused, or the labels are the same, or a note names it."""
    if isinstance(opened, Exception):
        return _check_refusal(name, opened)
    same = opened.frame["row"].tolist() == table.frame["row"].tolist()
    same = same and np.array_equal(opened.labels(), table.labels(), equal_nan=True)
    reported = any(f"'{column}'" in note for note in opened.notes)
    return "" if same or reported else "opens without a note, with other rows or labels"


def _check_refusal(name: Path, opened: SiteTable | Exception) -> str:
    """Problem with the refusal of a damaged file."""
    if not isinstance(opened, Exception):
        return "the site opens nevertheless"
    if not isinstance(opened, ChestfedError):
        return f"raises {_describe(opened)}"
    return "" if name.name in str(opened) else f"the error does not name the file: {str(opened).partition(chr(10))[0]}"


def _describe(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"


def _list_files(folder: Path) -> dict[str, tuple[int, int]]:
    """Size and time of change of every file."""
    status = {path: path.stat() for path in folder.rglob("*") if path.is_file()}
    return {path.relative_to(folder).as_posix(): (stat.st_size, stat.st_mtime_ns) for path, stat in status.items()}


def _copy_site(folder: Path, target: Path) -> Path:
    """A copy of a folder; raises `ChestfedError` if it is too large."""
    sizes = [size for size, _ in _list_files(folder).values()]
    if len(sizes) > MOST_FILES or sum(sizes) > MOST_BYTES:
        raise ChestfedError(
            f"{folder} holds {len(sizes):,} files, {sum(sizes) / 1e6:,.0f} MB: too many to be copied for tests. Make a "
            "small sample in the same layout, some ten patients, and check that"
        )
    return Path(shutil.copytree(folder, target))


def _label_files(config: SiteConfig, folder: Path, images: set[str]) -> list[Path]:
    """The label files relative to the root, as the patterns of `label_files` find them; no images."""
    source = Source(config, folder)
    paths = [path.relative_to(folder) for role in config.label_files for path in source.find_all(role)]
    return [name for name in dict.fromkeys(paths) if name.as_posix() not in images]


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

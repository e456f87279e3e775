"""A site's folder as a reader sees it: finds label files, reads them strictly, collects problems."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import pandas as pd

from chestfed.core.errors import Problem
from chestfed.data.sites.label_files.encodings import WrongEncoding
from chestfed.data.sites.label_files.options import FileFormat
from chestfed.data.sites.label_files.text import (
    FILE,
    ROW,
    Choose,
    Sheet,
    UnreadableError,
    as_frame,
    cut_text,
    mention_nearest,
    read_header,
    read_text,
)

if TYPE_CHECKING:
    from chestfed.data.sites.config import SiteConfig

#: The kind of problem of a cell that is a formula.
FORMULA: Final = "formula cell"
_NAMED: Final = 3  # files, in a message about many
#: A published file: in one encoding, whatever its delimiter.
_PUBLISHED: Final = FileFormat(encoding="utf-8")


@dataclass
class Source:
    """Where a reader reads from, and the problems found on the way.

    `labels_file` replaces the site's label files; then files that belong to it (splits, metadata) are looked for
    beside it, and no image is looked for. `progress(done, total)` counts headers where images are read for labels.
    With `keep_going` a file in the wrong encoding is read as far as possible, to find its other problems. `remarks` say
    how a file was interpreted where its cells alone leave it open. `not_understood` counts labels that are missing
    because the meaning of a cell is unknown: reason -> disease -> images. `left_out` counts rows that a key of the YAML
    leaves out before they are rows of the reader.
    """

    config: SiteConfig
    root: Path
    labels_file: Path | None = None
    problems: list[Problem] = field(default_factory=list)
    progress: Callable[[int, int], None] | None = None
    keep_going: bool = False
    remarks: list[str] = field(default_factory=list)
    not_understood: dict[str, Counter[str]] = field(default_factory=dict)
    left_out: Counter[str] = field(default_factory=Counter)
    #: Keys in a joined file, by its role and their column, and those of them that no row of the tables has.
    joined: dict[tuple[str, str], tuple[int, pd.Index]] = field(default_factory=dict)
    columns: dict[str, None] = field(default_factory=dict)  #: all names of columns of the files that are read, in order
    last_opened: str = field(default="", init=False)  #: the name of the text file that was opened last
    _held: tuple[Path, bytes | None] | None = field(default=None, init=False, repr=False)

    @property
    def folder(self) -> Path:
        """The folder that label files are looked for in."""
        return self.root if self.labels_file is None else self.labels_file.parent

    @property
    def has_images(self) -> bool:
        """Whether folders of images may be listed."""
        return self.labels_file is None

    def problem(self, kind: str, file: str, message: str, row: int | None = None, advice: str = "") -> None:
        """Note a problem; reading continues to find the others."""
        self.problems.append(Problem(kind, file, message, row, advice))

    def unread(self, reason: str, disease: str, number: int) -> None:
        """Count labels that are missing because a cell is not understood; the reason quotes none."""
        if number:
            self.not_understood.setdefault(reason, Counter())[disease] += number

    def name(self, path: Path) -> str:
        """The name of a file in messages: relative to the site's root."""
        return path.relative_to(self.folder).as_posix() if path.is_relative_to(self.folder) else path.name

    def find(self, role: str, *, required: bool = True, folder: bool = False) -> Path | None:
        """The file of a role: the first pattern of `label_files` that matches; None, with a problem, if none does.

        With `folder`, a folder of files may be named too.
        """
        patterns = self.config.label_files.get(role, [])
        for pattern in patterns:
            paths = (
                [self.folder / pattern] if folder and (self.folder / pattern).is_dir() else self._match_files(pattern)
            )
            if len(paths) > 1:
                names = ", ".join(self.name(path) for path in paths[:_NAMED])
                more = f" and {len(paths) - _NAMED:,} more" if len(paths) > _NAMED else ""
                all_of_them = ", or the folder of all of them" if folder else ""
                advice = f"name the one to use in label_files.{role} of the site's YAML{all_of_them}"
                self.problem("ambiguous label file", pattern, f"several files match: {names}{more}", advice=advice)
                return None
            if paths:
                return paths[0]
        if required:
            self._report_missing(role, f"no {role} file")
        return None

    def find_all(self, role: str) -> list[Path]:
        """All files that match any pattern of a role, sorted by path; empty, with a problem, if none does."""
        patterns = self.config.label_files.get(role, [])
        paths = sorted({path for pattern in patterns for path in self._match_files(pattern)})
        if not paths:
            self._report_missing(role, f"no {role} files")
        return paths

    def _report_missing(self, role: str, what: str) -> None:
        patterns = self.config.label_files.get(role, [])
        text = f"{what} in {self.folder}; looked for {', '.join(patterns) or 'nothing'} (also as .gz)"
        advice = f"set the site's root to the folder of the release, or name the file in label_files.{role} of its YAML"
        self.problem("missing file", patterns[0] if patterns else role, text, advice=advice)

    def read(self, path: Path, required: Sequence[str], optional: Sequence[str] = ()) -> pd.DataFrame | None:
        """The named columns of a table as strings (blank is missing), and `row`, the row in the file.

        Optional columns that the file lacks come out blank. None, with a problem, if the file cannot be used.
        """

        def choose(headers: Sequence[str]) -> list[str]:
            return list(dict.fromkeys([*required, *(name for name in optional if name in headers)]))

        before = len(self.problems)
        text = self.text(path)
        sheet = None if text is None else self.cut(path, text, _PUBLISHED, choose, published=True)
        if sheet is None:
            return None
        frame = as_frame(sheet, range(len(sheet.names))).set_axis([*sheet.names, ROW, FILE], axis=1)
        advice = "check that this is the release's own label file, unedited"
        empty = "download the file again" if len(self.problems) == before else ""
        selected = self.select(path, frame, sheet.headers, choose(sheet.headers), advice=advice, empty=empty)
        if selected is None:
            return None
        selected = selected.drop(columns=FILE).rename(columns={ROW: "row"})
        blank = pd.Series(None, index=selected.index, dtype=object)
        return selected.assign(**{name: blank for name in optional if name not in selected})

    def cut(
        self, path: Path, text: bytes, options: FileFormat, choose: Choose, *, published: bool = False
    ) -> Sheet | None:
        """The chosen columns of a delimited text, whose problems are noted."""
        sheet, problems = cut_text(self.name(path), text, options, choose, published=published)
        self.problems += problems
        return sheet

    def select(
        self,
        path: Path,
        frame: pd.DataFrame,
        headers: Sequence[str],
        names: Sequence[str],
        *,
        row: int = 1,
        advice: str,
        empty: str,
    ) -> pd.DataFrame | None:
        """The named columns with `ROW` and `FILE`, of the rows that have a cell there.

        A cell that is a formula is a problem, and emptied, so that it causes no second one. None, with a problem and
        `advice`, if the `headers` in that row lack a column or repeat it. No row is a problem with `empty`, if given.
        """
        if not self._has_columns(path, headers, names, row, advice):
            return None
        frame = frame[[*names, ROW, FILE]]
        frame = frame[frame[[*names]].notna().any(axis=1).to_numpy()].reset_index(drop=True)
        if frame.empty and empty:
            self.problem("empty file", self.name(path), "has a header and no rows", advice=empty)
        what_to_do = "paste the column as values and export the table again; formulas are not evaluated"
        for name in names:
            bad = frame[name].str.startswith("=").fillna(False).to_numpy(dtype=bool)
            if bad.any():
                text = f"'{name}' is a formula or the error value of one"
                self.bad_rows(path, FORMULA, bad, frame[ROW].to_numpy(), text, what_to_do)
                frame[name] = frame[name].mask(bad, None)
        return frame

    def _has_columns(self, path: Path, header: Sequence[str], names: Sequence[str], row: int, advice: str) -> bool:
        """Whether a header, in this row of the file, has the columns, each of them once; else that is a problem."""
        lacking = [name for name in names if name not in header]
        # The names of the others are shown only if this is a header: it may be the first patient.
        others = f"; the columns are {', '.join(filter(None, header))}" if len(lacking) < len(names) else ""
        for name in lacking:
            text = f"no column '{name}'{mention_nearest(name, header)} among {len(header)}{others}"
            self.problem("missing column", self.name(path), text, row, advice)
        repeated = [name for name in names if header.count(name) > 1]
        for name in repeated:
            text = f"{header.count(name)} columns are named '{name}'"
            self.problem("duplicate column", self.name(path), text, row, "rename or remove all but one of them")
        return not lacking and not repeated

    def read_role(
        self, role: str, required: Sequence[str], optional: Sequence[str] = (), *, given: Path | None = None
    ) -> tuple[Path, pd.DataFrame] | None:
        """The file of a role, or the given one, and its columns as `read` has them; None, with a problem, without."""
        path = given or self.find(role)
        frame = None if path is None else self.read(path, required, optional)
        return None if path is None or frame is None else (path, frame)

    def header(self, path: Path) -> list[str]:
        """Column names of a text file; empty, with a problem, if it cannot be read. The text is kept for `read`."""
        text = self.text(path)
        self._held = (path, text)
        return [] if text is None else read_header(text)

    def lines(self, path: Path) -> list[str]:
        """The lines of a text file, stripped; blank ones are empty strings."""
        text = self.text(path)
        return [] if text is None else [line.strip() for line in text.decode("utf-8").splitlines()]

    def bad_rows(
        self, path: Path, kind: str, bad: np.ndarray, rows: np.ndarray, tell: str | Callable[[int], str], advice: str
    ) -> None:
        """Note one problem per place where `bad`; `tell` is the message, or a function of the place."""
        for place in np.flatnonzero(bad).tolist():
            text = tell if isinstance(tell, str) else tell(place)
            self.problem(kind, self.name(path), text, row=int(rows[place]), advice=advice)

    def _match_files(self, pattern: str) -> list[Path]:
        """Files that match, or are called just so (`labels[1].csv`); a plain file wins over its compressed twin."""
        bare = pattern.removesuffix(".gz")
        names = (bare, f"{bare}.gz")
        paths = [path for name in names if (path := self.folder / name).is_file()]
        paths = paths or sorted({path for name in names for path in self.folder.glob(name) if path.is_file()})
        return [path for path in paths if not (path.suffix == ".gz" and path.with_suffix("") in paths)]

    def text(self, path: Path, encoding: str | None = "utf-8") -> bytes | None:
        """A file's text as UTF-8 bytes without BOM, decompressed if it is gzip, whatever its name.

        With an encoding (a name that Python knows) no other is accepted; with None it is detected, and noted.
        """
        if self._held is not None and self._held[0] == path and encoding == "utf-8":
            text, self._held = self._held[1], None
            return text
        self.last_opened = self.name(path)
        try:
            text, detected = read_text(path, encoding)
        except WrongEncoding as error:
            for line in (error.lines if self.keep_going else ()) or (None,):
                self.problem("wrong encoding", self.name(path), str(error), line, error.advice)
            return error.text if self.keep_going else None
        except UnreadableError as error:
            self.problem("unreadable file", self.name(path), str(error), advice=error.advice)
            return None
        if encoding is None and detected not in ("utf-8", "utf-16"):
            self.remarks.append(f"{self.name(path)} is read as {detected}, which was detected, not declared")
        return text

"""The site that is being checked, and copies of it that may be damaged."""

from __future__ import annotations

import hashlib
import itertools
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from chestfed.core.errors import ChestfedError
from chestfed.sites.config import SiteConfig
from chestfed.sites.label_files.source import Source
from chestfed.sites.opening import open_site
from chestfed.sites.registry import make_reader
from chestfed.sites.table import SiteTable

#: A larger site is refused: the checks copy it several times.
MOST_FILES, MOST_BYTES = 20_000, 500_000_000


@dataclass(frozen=True)
class Case:
    """A site that opens. `raw` are the reader's rows, `scratch` a folder that goes away.

    `images` and `files` bound how many images are decoded, and how many label files damaged; `header_lines` is how
    many lines at the beginning of a text file are no rows.
    """

    config: SiteConfig
    config_file: Path
    overrides: tuple[str, ...]
    data_root: Path
    table: SiteTable
    raw: pd.DataFrame
    scratch: Path
    images: int
    files: int
    header_lines: int
    notes: list[str] = field(default_factory=list)
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def note(self, reason: str) -> None:
        """Say what the running check cannot look at."""
        if reason not in self.notes:
            self.notes.append(reason)

    def sample(self) -> SiteTable:
        """Some rows, spread over the table, whose patients and images stand for all."""
        count = len(self.table.frame)
        places = sorted(
            {round(place * (count - 1) / max(1, self.images - 1)) for place in range(min(self.images, count))}
        )
        return self.table.with_frame(self.table.frame.iloc[places].reset_index(drop=True))

    def label_files(self) -> list[Path]:
        """The label files relative to the root, as the patterns of `label_files` find them; no images."""
        source = Source(self.config, self.table.root)
        images = set(self.raw["image"])
        found = [path for role in self.config.label_files for path in source.find_all(role)]
        names = dict.fromkeys(path.relative_to(self.table.root) for path in found)
        return [name for name in names if name.as_posix() not in images]

    def copy(self) -> Copy:
        """A copy of the site's folder; label files are copied, other files linked where that is possible."""
        return Copy(self, _copied(self.table.root, self.scratch / f"copy{next(self._numbers)}", self.label_files()))


@dataclass(frozen=True)
class Copy:
    """A copy of a case's folder, to be changed and opened."""

    case: Case
    root: Path

    def open(self) -> SiteTable:
        """Open the copy as the site was opened."""
        return open_site(self.case.config.model_copy(update={"root": str(self.root)}), self.case.data_root)

    def write(self, name: Path | str, data: bytes) -> None:
        """Replace a file; never through a link, which would change the original."""
        (self.root / name).unlink(missing_ok=True)
        (self.root / name).write_bytes(data)


def raw_rows_of(config: SiteConfig, root: Path) -> pd.DataFrame:
    """What the reader yields, before policy."""
    return make_reader(config.reader, config.options).read(Source(config, root))


def digest(table: SiteTable) -> str:
    """Digest of all rows with all names, in their order; for comparing in memory only."""
    text = table.frame.to_csv(index=False)
    return hashlib.blake2b("\n".join([*table.diseases, text]).encode(), digest_size=16).hexdigest()


def as_set(table: SiteTable) -> pd.DataFrame:
    """The rows without their numbers, by image."""
    return table.frame.drop(columns="row").sort_values("image").reset_index(drop=True)


def _copied(root: Path, target: Path, labels: list[Path]) -> Path:
    sizes = [(path, path.stat().st_size) for path in sorted(root.rglob("*")) if path.is_file()]
    if len(sizes) > MOST_FILES or sum(size for _, size in sizes) > MOST_BYTES:
        raise ChestfedError(
            f"{root} holds {len(sizes):,} files, {sum(size for _, size in sizes) / 1e6:,.0f} MB: too many to be copied "
            "for tests. Make a small sample in the same layout, some ten patients, and check that"
        )
    for path, _ in sizes:
        name = path.relative_to(root)
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        if name in labels:
            shutil.copy2(path, target / name)
            continue
        try:
            os.link(path.resolve(), target / name)
        except OSError:  # another file system
            shutil.copy2(path, target / name)
    return target

"""From a site's configuration to its table, with all problems in one report."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pandas as pd

from chestfed.core.config import expand_path
from chestfed.core.errors import Problem, SiteError
from chestfed.sites.config import SiteConfig
from chestfed.sites.label_files.source import FORMULA, Source
from chestfed.sites.partition import split_patients
from chestfed.sites.reader import READERS, SPLITS, join_rows
from chestfed.sites.splits_file import with_splits
from chestfed.sites.spreadsheet.dicom_headers import SET_ASIDE
from chestfed.sites.spreadsheet.image_paths import Folders
from chestfed.sites.table import (
    OUTSIDE,
    SiteTable,
    apply_policy,
    behind_links,
    check,
    check_rows,
    nothing_left,
    repeat_positives,
    sound_rows,
)

#: A folder with this file is synthetic, whatever its configuration says.
SYNTHETIC_MARKER: Final = "SYNTHETIC.txt"


def open_site(
    config: SiteConfig,
    data_root: Path,
    labels_file: Path | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> SiteTable:
    """Read and check a site's label files. No image is decoded; missing ones are found when the cache is filled.

    With `labels_file`, that file is read instead of those below the root, which then need not exist. Where the labels
    are in the images' headers, `progress(done, total)` counts them.

    Raises
    ------
    SiteError
        All problems of the site in one report.
    ChestfedError
        If the reader returned invalid rows.
    """
    survey = survey_site(config, data_root, labels_file, progress, keep_going=False)
    if survey.problems:
        raise SiteError(config.site, survey.problems)
    return survey.table


@dataclass(frozen=True, eq=False)
class Survey:
    """A site as far as it can be read, with all problems of its label files.

    Attributes
    ----------
    raw
        Every row that the reader returned, whatever its view; see `table.RAW_COLUMNS`.
    table
        The rows that are valid by themselves, of the views that are kept.
    files
        The label file of each row of the table.
    has_images
        Whether the site's root exists, to look for images in.
    """

    raw: pd.DataFrame
    table: SiteTable
    files: tuple[str, ...]
    has_images: bool
    problems: tuple[Problem, ...]


def of_all_views(survey: Survey, config: SiteConfig) -> SiteTable | None:
    """The table of a survey without problems, with the views too that the configuration leaves out; None if none is."""
    if len(survey.raw) == len(survey.table.frame):
        return None
    everything = config.model_copy(update={"views": "all"})
    frame = _cut(apply_policy(survey.raw[sound_rows(survey.raw)], everything), everything)
    return survey.table.with_frame(repeat_positives(frame, everything))


def survey_site(
    config: SiteConfig,
    data_root: Path,
    labels_file: Path | None = None,
    progress: Callable[[int, int], None] | None = None,
    *,
    keep_going: bool = True,
) -> Survey:
    """Read a site's label files as far as they can be read; problems are returned, never raised.

    With `keep_going` the rows without problems are kept, and links out of the site's root are looked for.
    """
    root = expand_path(config.root, data_root)
    source = Source(_as_read(config), root, labels_file, progress=progress, keep_going=keep_going)
    if labels_file is None and not root.is_dir():
        source.problem(
            "missing root",
            str(root),
            "no such folder",
            advice=f"set 'root' in the YAML of '{config.site}', or give the folder that holds it with --data or "
            "$CHESTFED_DATA",
        )
        raw = join_rows([], source)
    else:
        raw = READERS.find(config.reader.name).read(source, config.reader)
        check_rows(raw, config.reader.name, config.diseases, cells=not source.problems)
    if config.splits.file is not None:
        raw = with_splits(raw, Path(config.splits.file), source)
    problems = _once([*source.problems, *check(raw, config)])
    if all(problem.kind == SET_ASIDE for problem in problems):
        problems += nothing_left(raw, config)
    if problems and not keep_going:
        return Survey(raw, _table(raw.iloc[:0], source, config), (), source.has_images, tuple(problems))
    sound = sound_rows(raw)
    if keep_going and source.has_images and len(raw):
        strays = _strays(raw, sound, source)
        told = {(problem.file, problem.row) for problem in problems if problem.kind == OUTSIDE}
        problems += [one for one in behind_links(raw, strays) if (one.file, one.row) not in told]
        sound &= ~strays
    if config.views != "all":
        sound &= raw["view"].isin(config.views).to_numpy(dtype=bool)
    kept = raw if sound.all() else raw[sound].reset_index(drop=True)
    files = tuple(kept["file"].astype("str"))
    return Survey(raw, _table(kept, source, config), files, source.has_images, tuple(problems))


def _once(problems: list[Problem]) -> list[Problem]:
    """Without the blank names of rows with a formula, which cannot be a name."""
    formulas = {(problem.file, problem.row) for problem in problems if problem.kind == FORMULA}
    return [one for one in problems if one.kind != "blank name" or (one.file, one.row) not in formulas]


def _as_read(config: SiteConfig) -> SiteConfig:
    """With a file of splits the distribution's own are not read."""
    if config.splits.file is None:
        return config
    return config.model_copy(update={"splits": config.splits.model_copy(update={"official": False})})


def _table(raw: pd.DataFrame, source: Source, config: SiteConfig) -> SiteTable:
    frame = _cut(apply_policy(raw, config), config)
    synthetic = config.synthetic or _is_marked(source)
    title = config.title if not synthetic or "synthetic" in config.title.lower() else f"{config.title} (synthetic)"
    return SiteTable(
        config.site,
        title,
        source.root,
        synthetic,
        tuple(config.diseases),
        repeat_positives(frame, config),
        tuple(source.remarks),
        config.pictures.inverted,
        config.pictures.bits,
    )


def _strays(raw: pd.DataFrame, sound: np.ndarray, source: Source) -> np.ndarray:
    """Which of the sound rows' images are behind a link out of the site's root, bool `[n]`."""
    folders, images = Folders(source.root), raw["image"].to_numpy(dtype=object)
    strays = np.zeros(len(raw), dtype=bool)
    for place in np.flatnonzero(sound).tolist():
        strays[place] = folders.strays(images[place])
    return strays


def _cut(frame: pd.DataFrame, config: SiteConfig) -> pd.DataFrame:
    """Move shares of the train patients to valid and test, if the configuration asks for it."""
    shares = {"valid": config.splits.valid_fraction, "test": config.splits.test_fraction}
    if not any(shares.values()):
        return frame
    split = frame["split"].to_numpy(dtype=object, copy=True)
    left = 1.0
    for name, share in shares.items():
        if share > 0:
            train = np.flatnonzero(split == "train")
            moved = split_patients(
                frame.iloc[train], config.diseases, share / left, config.splits.seed, config.site, name
            )
            split[train[moved]] = name
            left -= share
    return frame.assign(split=pd.Categorical(split, categories=SPLITS))


def _is_marked(source: Source) -> bool:
    folders = [source.folder, *source.folder.absolute().parents[:1]]
    return any((folder / SYNTHETIC_MARKER).is_file() for folder in folders)

"""From a site's configuration to its table, with all problems in one report."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np
import pandas as pd

from chestfed.config import expand_path
from chestfed.errors import SiteError
from chestfed.sites.config import SPLITS, SiteConfig
from chestfed.sites.partition import split_patients
from chestfed.sites.reader import check_rows
from chestfed.sites.registry import make_reader
from chestfed.sites.source import Source
from chestfed.sites.table import SiteTable, apply_policy, check, nothing_left, repeat_positives

#: A folder with this file holds no patients, whatever its configuration says.
SYNTHETIC_MARKER: Final = "SYNTHETIC.txt"


def open_site(
    config: SiteConfig,
    data_root: Path,
    labels_file: Path | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> SiteTable:
    """Read and check a site's label files. No image is decoded; missing ones are found when the cache is filled.

    With `labels_file` that file is read in place of those under the root, which then need not exist. Where the labels
    are in the images' headers, `progress(done, total)` counts them.

    Raises
    ------
    SiteError
        All problems of the site in one report.
    ChestfedError
        If a reader of an own package returned something else than rows.
    """
    source = Source(config, expand_path(config.root, data_root), labels_file, progress=progress)
    if labels_file is None and not source.root.is_dir():
        source.problem(
            "missing root",
            str(source.root),
            "no such folder",
            advice=f"set 'root' in the YAML of '{config.site}', or give the folder that holds it with --data or "
            "$CHESTFED_DATA",
        )
        raise SiteError(config.site, source.problems)
    raw = make_reader(config.reader, config.options).read(source)
    check_rows(raw, config.reader, config.diseases, cells=not source.problems)
    problems = [*source.problems, *check(raw, config)] or nothing_left(raw, config)
    if problems:
        raise SiteError(config.site, problems)
    frame = _cut(apply_policy(raw, config), config)
    synthetic = config.synthetic or _is_marked(source)
    title = config.title if not synthetic or "synthetic" in config.title.lower() else f"{config.title} (synthetic)"
    return SiteTable(
        config.site, title, source.root, synthetic, tuple(config.diseases), repeat_positives(frame, config)
    )


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

"""Splits by patient for a site whose own are not: a file beside the YAML, and a YAML that takes it.

No file of the hospital is changed. Patients who are in one split stay there; a patient who is in several goes, with all
images, to the one that has most of them (train, if as many). Patients who share a picture, and those whose names differ
only in capitals, leading zeros or invisible signs, go together. Where every image is in train, shares of the patients
are moved to valid and test, rare diseases spread evenly (`data/sites/partition.py`).
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Final

import numpy as np
import pandas as pd
import yaml

from chestfed.core.checkpoint import write_text
from chestfed.core.config import relative_path
from chestfed.core.errors import ChestfedError
from chestfed.data.checks.duplicates import find_first
from chestfed.data.checks.problems import Inspection
from chestfed.data.sites.partition import assign_splits, splits_text
from chestfed.data.sites.reader import SPLITS, group_spellings

#: Shares of the patients, where there are no splits yet.
VALID_SHARE: Final = 0.1
TEST_SHARE: Final = 0.2
_MARK: Final = "# Written by `chestfed site check --fix-splits`"


def patient_splits(site: Inspection) -> dict[str, str]:
    """Patient -> split, for every patient of the label files; no patient, and no image, is in two splits.

    Raises `ChestfedError` if the site has no sound row.
    """
    table, raw = site.survey.table, site.survey.raw
    frame = table.frame
    if frame.empty:
        raise ChestfedError(f"site '{table.name}': no row can be read")
    groups = _group_patients(site)
    group = frame["patient"].map(groups)
    if (frame["split"] == "train").all():
        shares = {"valid": VALID_SHARE, "test": TEST_SHARE}
        dealt = assign_splits(frame.assign(patient=group), table.diseases, shares, 1, table.name)
        of_group = dict(zip(group, dealt.tolist(), strict=True))
    else:
        of_group = _choose_splits(group, frame["split"].astype(object))
    named = raw[raw["patient"].notna()]
    recorded = _choose_splits(
        named["patient"].astype("str"), named["split"]
    )  # of patients without a row in the table too
    return {patient: of_group.get(groups.get(patient, patient), split) for patient, split in recorded.items()}


def write_fixed(splits: dict[str, str], config_path: Path, folder: Path) -> tuple[Path, Path]:
    """Write the splits, and a YAML that extends the site's and takes them; returns both files.

    Raises `ChestfedError` if a file of that name is there that is not of this command, or the folder cannot be written.
    """
    stem = config_path.stem
    table, config = folder / f"{stem}.splits.csv", folder / f"{stem}_fixed.yaml"
    if config.exists() and not config.read_text(encoding="utf-8", errors="replace").startswith(_MARK):
        raise ChestfedError(f"{config} exists and was not written by this command: choose another folder with --out")
    write_text(table, splits_text(splits))
    about = f"{_MARK}: the site of {config_path.name} with every patient in one split.\n"
    about += f"# {table.name} names patients: keep it where the labels are.\n"
    splits_section = {"official": True, "valid_fraction": 0.0, "test_fraction": 0.0, "file": table.name}
    keys = {"extends": relative_path(config_path, folder), "splits": splits_section}
    write_text(config, about + yaml.safe_dump(keys, sort_keys=False, allow_unicode=True))
    return table, config


def _group_patients(site: Inspection) -> dict[str, str]:
    """Patient -> the name of the first of those that share a picture or are written alike, directly or over others."""
    patients = site.survey.table.frame["patient"].to_numpy(dtype=object)
    leader = {patient: patient for patient in patients.tolist()}

    def find(patient: str) -> str:
        while leader[patient] != patient:
            leader[patient] = leader[leader[patient]]
            patient = leader[patient]
        return patient

    def join(first: str, second: str) -> None:
        root, linked = sorted((find(first), find(second)))
        leader[linked] = root

    for names in group_spellings(leader):
        for name in names[1:]:
            join(names[0], name)
    if site.scan is not None:
        rows = np.flatnonzero(site.scan.hashed)
        for row, first in zip(rows, rows[find_first(site.scan.digests[rows])], strict=True):
            join(patients[row], patients[first])
    return {patient: find(patient) for patient in leader}


def _choose_splits(groups: pd.Series, splits: pd.Series) -> dict[str, str]:
    """Group -> the split of most of its images; of as many, the first of train, valid, test."""
    votes: dict[str, Counter[str]] = {}
    for group, split in zip(groups, splits, strict=True):
        votes.setdefault(group, Counter())[split] += 1
    return {group: max(SPLITS, key=lambda split, counts=counts: counts[split]) for group, counts in votes.items()}  # type: ignore[misc]

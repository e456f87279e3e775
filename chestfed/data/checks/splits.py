"""Splits by patient for a site whose own are not: a file beside the YAML, and a YAML that takes it.

No file of the hospital is changed. Patients who are in one split stay there; a patient who is in several goes, with all
images, to the one that has most of them (train, if as many). Patients who share a picture, and those whose names differ
only in capitals, leading zeros or invisible signs, go together. Where every image is in train, shares of the patients
are moved to valid and test, rare diseases spread evenly (`data/sites/partition.py`).

Patients of an earlier file keep its split, also those whom the present label files lack: models may be trained on them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import numpy as np
import yaml

from chestfed.core.checkpoint import write_text
from chestfed.core.config import expand_path, relative_path
from chestfed.core.console import plural
from chestfed.core.errors import ChestfedError, SiteError
from chestfed.data.checks.duplicates import find_first
from chestfed.data.checks.problems import Inspection
from chestfed.data.sites.config import SiteConfig
from chestfed.data.sites.label_files.source import Source
from chestfed.data.sites.partition import assign_splits, read_splits, splits_text
from chestfed.data.sites.reader import SPLITS, group_spellings

#: Shares of the patients, where there are no splits yet.
VALID_SHARE: Final = 0.1
TEST_SHARE: Final = 0.2
_MARK: Final = "# Written by `chestfed site check --fix-splits`"


def read_kept(config: SiteConfig, data_root: Path, target: Path) -> dict[str, str]:
    """Patient -> split of the file that the site uses and of the file `target`, if it is there, in their order.

    Raises `SiteError` if one cannot be read or has an unclear row, `ChestfedError` if they contradict each other:
    none of their patients may be split anew without a word.
    """
    source = Source(config, config.folder(data_root))
    used = [] if config.splits.file is None else [expand_path(config.splits.file, source.root)]
    kept: dict[str, str] = {}
    for path in [*used, *([target] if target.exists() else [])]:
        of_file = read_splits(path, source)
        if of_file is None or source.problems:
            raise SiteError(config.site, source.problems)
        if differing := sum(kept.get(patient, split) != split for patient, split in of_file.items()):
            raise ChestfedError(
                f"{used[0]} and {path} differ in the split of {plural(differing, 'patient')}: choose another folder "
                "with --out, or delete the one that no study uses"
            )
        kept |= of_file
    return kept


def patient_splits(site: Inspection, kept: Mapping[str, str]) -> dict[str, str]:
    """Patient -> split: the kept ones as they are, then every other patient of the label files, by name.

    No other patient, and no image of one, is in two splits; those who share a picture or the spelling of their name
    with a kept one follow it. Raises `ChestfedError` if the site has no sound row.
    """
    table, raw = site.survey.table, site.survey.raw
    frame = table.frame
    if frame.empty:
        raise ChestfedError(f"site '{table.name}': no row can be read")
    groups = _group_patients(site, kept)
    group = frame["patient"].map(groups)
    if (frame["split"] == "train").all():
        shares = {"valid": VALID_SHARE, "test": TEST_SHARE}
        dealt = assign_splits(frame.assign(patient=group), table.diseases, shares, 1, table.name)
        of_group = dict(zip(group, dealt.tolist(), strict=True))
    else:
        of_group = _choose_splits(group, frame["split"].astype(object))
    of_group |= _choose_splits((groups[patient] for patient in kept), kept.values())
    named = raw[raw["patient"].notna()]
    recorded = _choose_splits(
        named["patient"].astype("str"), named["split"]
    )  # of patients without a row in the table too
    new = {patient: split for patient, split in sorted(recorded.items()) if patient not in kept}
    return {**kept, **{patient: of_group.get(groups.get(patient, patient), split) for patient, split in new.items()}}


def describe_splits(splits: Mapping[str, str], kept: Mapping[str, str], site: Inspection, file: str) -> list[str]:
    """Sentences on the patients of `file`: how many are in each split, who kept theirs, and where new ones went."""
    sentences = [f"{plural(len(splits), 'patient')} in {file}: {_count_splits(splits.values())}."]
    if not kept:
        return sentences
    absent = len(set(kept) - set(site.survey.raw["patient"].dropna()))
    lacking = f", also {absent:,} without a row in the present label files" if absent else ""
    sentences.append(f"{plural(len(kept), 'patient')} of the earlier file keep their split{lacking}.")
    new = [split for patient, split in splits.items() if patient not in kept]
    if new:
        text = f"{plural(len(new), 'new patient')}, the last rows of the file: {_count_splits(new)}."
        advice = " None of them is tested: to test some, write test in their rows before a model is trained on them."
        sentences.append(text + ("" if "test" in new else advice))
    of_group: dict[str, set[str]] = {}
    groups = _group_patients(site, kept)
    for patient, split in kept.items():
        of_group.setdefault(groups[patient], set()).add(split)
    if crossing := sum(len(of_group[groups[patient]]) > 1 for patient in kept):
        sentences.append(
            f"{plural(crossing, 'patient')} of the earlier file share a picture or the spelling of their name with one "
            "in another split, and are not moved: correct the file, or delete it before any model is trained and run "
            "this again."
        )
    return sentences


def write_fixed(splits: dict[str, str], config_path: Path, folder: Path) -> tuple[Path, Path]:
    """Write the splits in their order, and a YAML that extends the site's and takes them; returns both files.

    Raises `ChestfedError` if a file of that name is there that is not of this command, or the folder cannot be written.
    """
    table, config = name_file(config_path, folder), folder / f"{config_path.stem}_fixed.yaml"
    if config.exists() and not config.read_text(encoding="utf-8", errors="replace").startswith(_MARK):
        raise ChestfedError(f"{config} exists and was not written by this command: choose another folder with --out")
    write_text(table, splits_text(splits))
    about = f"{_MARK}: the site of {config_path.name} with every patient in one split.\n"
    about += f"# {table.name} names patients: keep it where the labels are.\n"
    splits_section = {"official": True, "valid_fraction": 0.0, "test_fraction": 0.0, "file": table.name}
    keys = {"extends": relative_path(config_path, folder), "splits": splits_section}
    write_text(config, about + yaml.safe_dump(keys, sort_keys=False, allow_unicode=True))
    return table, config


def name_file(config_path: Path, folder: Path) -> Path:
    """The file with the splits of the site of this YAML."""
    return folder / f"{config_path.stem}.splits.csv"


def _group_patients(site: Inspection, kept: Iterable[str]) -> dict[str, str]:
    """Patient -> the name of the first of those that share a picture or are written alike, directly or over others."""
    patients = site.survey.table.frame["patient"].to_numpy(dtype=object)
    named = site.survey.raw["patient"].dropna().astype("str")
    leader = {patient: patient for patient in [*patients.tolist(), *named, *kept]}

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


def _count_splits(splits: Iterable[str]) -> str:
    """`3 train, 1 test`."""
    counts = Counter(splits)
    return ", ".join(f"{counts[split]:,} {split}" for split in SPLITS if counts[split])


def _choose_splits(groups: Iterable[str], splits: Iterable[str]) -> dict[str, str]:
    """Group -> the split of most of its images; of as many, the first of train, valid, test."""
    votes: dict[str, Counter[str]] = {}
    for group, split in zip(groups, splits, strict=True):
        votes.setdefault(group, Counter())[split] += 1
    return {group: max(SPLITS, key=lambda split, counts=counts: counts[split]) for group, counts in votes.items()}  # type: ignore[misc]

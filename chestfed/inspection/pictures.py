"""Problems of a site's image files: of each by itself, of pairs, and against a release's checksums."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Final

import numpy as np

from chestfed.core.errors import ConfigError, Problem
from chestfed.core.workers import parallel_map
from chestfed.images.polarity import UNSURE
from chestfed.inspection.duplicates import NEAR, first_alike, near_pairs
from chestfed.inspection.facts import HASH_BITS
from chestfed.inspection.problems import (
    BLANK_PICTURE,
    COLOURED,
    NEAR_REPEATED,
    NO_CHECKSUM,
    PATIENTS_SHARE_PICTURE,
    PICTURES_READ,
    POLARITY,
    REPEATED,
    SPLITS_SHARE_PICTURE,
    TEXT_DECLARED,
    UNREADABLE,
    UNSUITABLE,
    WRONG_CHECKSUM,
    WRONG_SUFFIX,
    Looked,
)
from chestfed.inspection.scan import Scan

#: The correlation with the mean film from which on a picture that does not decide is said to disagree; 98 of 100 films
#: have it.
_CLEAR: Final = 0.4
_LINE: Final = re.compile(r"([0-9a-fA-F]{64})\s+\*?(\S.*)")
_DOWNLOAD: Final = "download the file again, or make it readable"


def damaged_files(site: Looked, scan: Scan) -> list[Problem]:
    """Missing, unreadable and unsuitable files, wrong extensions, colors, blank pictures."""
    frame, images = scan.frame, site.survey.table.frame["image"]
    errors, unsuitable = frame["error"].to_numpy(dtype=object), frame["unsuitable"].to_numpy(dtype=bool)
    damaged = (errors != "") & ~unsuitable
    unreadable = [row for row in np.flatnonzero(damaged).tolist() if row not in scan.failures]
    lines, files = site.survey.table.frame["row"].to_numpy(), site.survey.files

    def named(row: int) -> str:
        return printable(str(images.iat[row]))

    def failed(row: int) -> Problem:
        problem = scan.failures[row].problem(files[row], int(lines[row]))
        return replace(problem, message=f"{named(row)}: {problem.message}")

    found = [failed(row) for row in sorted(scan.failures)]
    advice = "export the image again, or remove the row; --skip-unreadable leaves such images out of a study"
    found += site.problems(UNREADABLE, unreadable, lambda row: f"{named(row)}: {errors[row]}", advice)
    for reason, number in Counter(errors[unsuitable].tolist()).most_common():
        row = int(np.flatnonzero(errors == reason)[0])
        text = f"{number:,} of {len(frame):,} files, the first of them {named(row)}: {reason}"
        found.append(Problem(UNSUITABLE, files[row], text, int(lines[row])))
    rename = "it is read by its content; rename it, because other programs may not"
    look = "inspect it: a radiograph is gray; this may be a screenshot or another kind of image"
    for kind, column, text, advice in (
        (WRONG_SUFFIX, "wrong_suffix", "is a {} file", rename),
        (COLOURED, "colored", "has colors", look),
        (BLANK_PICTURE, "blank", "has a single gray level", "export the image again, or remove the row"),
    ):
        rows = np.flatnonzero(frame[column]).tolist()
        told = {row: f"{named(row)} {text.format(frame['format'].iat[row])}" for row in rows}
        found += site.problems(kind, told, told.__getitem__, advice)
    return found


def repeated_pictures(site: Looked, scan: Scan) -> list[Problem]:
    """Duplicate and near-duplicate images; blank ones are not compared."""
    compared = np.flatnonzero(scan.hashed)
    first = compared[first_alike([scan.digests[row] for row in compared])] if len(compared) else compared
    frame, images = site.survey.table.frame, site.survey.table.frame["image"]
    splits, patients = frame["split"].to_numpy(dtype=object), frame["patient"].to_numpy(dtype=object)
    people_known = len(set(patients)) < len(patients)
    kinds: dict[str, list[tuple[int, int]]] = {SPLITS_SHARE_PICTURE: [], PATIENTS_SHARE_PICTURE: [], REPEATED: []}
    for row, earlier in zip(compared.tolist(), first.tolist(), strict=True):
        if row == earlier:
            continue
        strangers = people_known and patients[row] != patients[earlier]
        kind = PATIENTS_SHARE_PICTURE if strangers else REPEATED
        kinds[SPLITS_SHARE_PICTURE if splits[row] != splits[earlier] else kind].append((row, earlier))
    found: list[Problem] = []
    for kind, pairs in kinds.items():
        other = dict(pairs)

        def tell(row: int, other: dict[int, int] = other) -> str:
            there = other[row]
            split = f", in '{splits[there]}'," if splits[row] != splits[there] else ""
            return f"{printable(str(images.iat[row]))} is a duplicate{split} of {site.where(there)}"

        found += site.problems(kind, other, tell, _ADVICE[kind])
    return found + _nearly(site, scan, np.unique(first))


_ADVICE = {
    SPLITS_SHARE_PICTURE: "leakage between splits: remove one of the rows, or use --fix-splits",
    PATIENTS_SHARE_PICTURE: "one of the patients is wrong: fix the table, or remove one of the rows",
    REPEATED: "remove one of the rows, unless the image should count twice",
}


def _nearly(site: Looked, scan: Scan, rows: np.ndarray) -> list[Problem]:
    """One problem per row that is near to an earlier one: to the nearest of them."""
    pairs, bits = near_pairs(scan.hashes[rows], NEAR)
    nearest: dict[int, tuple[int, int]] = {}
    for (earlier, row), apart in zip(rows[pairs].tolist(), bits.tolist(), strict=True):
        nearest[row] = min(nearest.get(row, (apart, earlier)), (apart, earlier))
    frame = site.survey.table.frame
    splits, patients = frame["split"].to_numpy(dtype=object), frame["patient"].to_numpy(dtype=object)

    def tell(row: int) -> str:
        apart, there = nearest[row]
        who = "the same patient" if patients[row] == patients[there] else "another patient"
        split = f" in '{splits[there]}'" if splits[row] != splits[there] else ""
        name = printable(str(frame["image"].iat[row]))
        return f"{name} is nearly a duplicate of {site.where(there)} ({who}{split}; {apart} of {HASH_BITS} bits)"

    advice = "inspect both: a copy, another export of one image, or two very similar images"
    return site.problems(NEAR_REPEATED, sorted(nearest), tell, advice)


def gray_level_problems(site: Looked, scan: Scan) -> list[Problem]:
    """Films of another polarity than their header or label file says, with counts; DICOM files without a window."""
    table, frame, stored = site.survey.table, scan.frame, site.survey.table.stored()
    dicom = (frame["format"] == "DICOM").to_numpy(dtype=bool)
    decides = np.array([row.by_picture for row in stored], dtype=bool) & ~dicom
    inverted = np.array([row.inverted for row in stored], dtype=bool) & ~dicom  # of DICOM the header was followed
    frontal = table.frontal() & scan.readable & ~frame["blank"].to_numpy(dtype=bool)
    polarity = frame["polarity"].to_numpy(dtype=float)
    told = frontal & (np.abs(polarity) >= np.where(decides, UNSURE, _CLEAR))
    apart = told & ((polarity < 0) != inverted)
    images = table.frame["image"]

    def tell(row: int) -> str:
        looks = "a negative" if polarity[row] < 0 else "not a negative"
        source = "header" if dicom[row] else "label file"
        followed = "picture" if decides[row] else source
        return f"{printable(str(images.iat[row]))} is {looks}, but its {source} differs; the {followed} counts"

    advice = "open some of them; pictures.inverted in the site's YAML sets what decides for PNG and JPEG"
    found = site.problems(POLARITY, np.flatnonzero(apart), tell, advice)
    if apart.any() or inverted.any() or decides.any():
        text = (
            f"of {frontal.sum():,} frontal images {apart.sum():,} contradict their header or label file, and "
            f"{(frontal & ~told).sum():,} do not tell; the label file has {inverted.sum():,} negatives "
            f"(pictures.inverted: {table.pictures.inverted})"
        )
        found.append(Problem(PICTURES_READ, "pictures", text))
    if unwindowed := int(frame["unwindowed"].sum()):
        text = f"{unwindowed:,} of {(dicom & scan.readable).sum():,} DICOM files have no usable window"
        found.append(Problem(PICTURES_READ, "pictures", f"{text}: their 0.5 and 99.5 percentiles are used instead"))
    if turned := int(frame["turned"].sum()):
        text = f"{turned:,} of {(dicom & scan.readable).sum():,} DICOM files are rotated or mirrored"
        found.append(Problem(PICTURES_READ, "pictures", f"{text} for display, as their Patient Orientation says"))
    declared, overlays = (int(frame[name].sum()) for name in ("text", "overlays"))
    if declared or overlays:
        message = f"BurnedInAnnotation is YES in {declared:,} DICOM headers, and {overlays:,} have overlays"
        advice = "text in a picture may name a patient, or give away its label: look at these images"
        found.append(Problem(TEXT_DECLARED, "pictures", message, None, advice))
    return found


def printable(name: str) -> str:
    """A file name without signs that would steer a terminal."""
    return "".join(sign if sign.isprintable() else "?" for sign in name)


def verify_checksums(
    site: Looked, sums: Path, workers: int | None = None, progress: Callable[[str, int, int], None] | None = None
) -> list[Problem]:
    """Problems of the images and label files of a site against a file such as PhysioNet's SHA256SUMS.txt.

    Its names are relative to its folder if that is the site's root, above or below it; else to the site's root. Files
    that it does not list, and listed ones that do not exist, are counted in one problem each.

    Raises `ConfigError` if it is not such a file, or lists none of the site's files.
    """
    table = site.survey.table
    images, root = table.frame["image"].tolist(), table.root.resolve()
    listed = _listed(sums, root)
    label_files = [name for name in dict.fromkeys(site.survey.files) if (root / name).is_file()]
    known = [name for name in [*label_files, *dict.fromkeys(images)] if name in listed]
    if not known:
        example = f", such as '{(images or label_files)[0]}'" if images or label_files else ""
        raise ConfigError(f"{sums}: lists no file of the site{example}")
    wrong: dict[str, str] = {}
    for done, found in enumerate(parallel_map(_sum_of, [root / name for name in known], workers, what="checksums"), 1):
        name = known[done - 1]
        if isinstance(found, str) and found != listed[name]:
            wrong[name] = "differs from the published file"
        elif isinstance(found, OSError) and not isinstance(found, FileNotFoundError):  # that is a problem of its own
            wrong[name] = f"cannot be read ({found.strerror})"
        if progress is not None:
            progress(f"checksums of {table.name}", done, len(known))
    bad_labels = [name for name in label_files if name in wrong]
    problems = [Problem(WRONG_CHECKSUM, name, wrong[name], None, _DOWNLOAD) for name in bad_labels]
    rows = [row for row, name in enumerate(images) if name in wrong]
    problems += site.problems(
        WRONG_CHECKSUM, rows, lambda row: f"{printable(images[row])} {wrong[images[row]]}", _DOWNLOAD
    )
    unlisted = [name for name in [*label_files, *images] if name not in listed]
    absent = [name for name in listed if not (root / name).exists()]
    for group, total, what in (
        (unlisted, len(label_files) + len(images), "files of the site are not listed"),
        (absent, len(listed), "listed files do not exist"),
    ):
        if group:
            examples = ", ".join(map(printable, group[:3]))
            problems.append(Problem(NO_CHECKSUM, sums.name, f"{len(group):,} of {total:,} {what}, such as {examples}"))
    return problems


def _listed(sums: Path, root: Path) -> dict[str, str]:
    """Name, relative to the site's root -> checksum."""
    try:
        lines = sums.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise ConfigError(f"{sums}: cannot be read ({reason})") from None
    folder = sums.parent.resolve()
    above = PurePosixPath(root.relative_to(folder)) if root.is_relative_to(folder) else PurePosixPath()
    below = PurePosixPath(folder.relative_to(root)) if folder.is_relative_to(root) else PurePosixPath()
    found = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        match = _LINE.fullmatch(line.rstrip())
        if match is None:
            raise ConfigError(f"{sums}:{number}: expected a SHA-256 checksum and a file name, as in SHA256SUMS.txt")
        name = below / PurePosixPath(match[2])
        if name.is_relative_to(above):
            found[name.relative_to(above).as_posix()] = match[1].lower()
    return found


def _sum_of(path: Path) -> str | OSError:
    """SHA-256 of a file, or why it cannot be read."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        return error

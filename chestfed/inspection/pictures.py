"""Problems of a site's image files, of each by itself and of pairs."""

from __future__ import annotations

import numpy as np

from chestfed.core.errors import Problem
from chestfed.inspection.duplicates import NEAR, first_alike, near_pairs
from chestfed.inspection.facts import HASH_BITS
from chestfed.inspection.problems import (
    BLANK_PICTURE,
    COLOURED,
    MISSING_IMAGE,
    NEAR_REPEATED,
    PATIENTS_SHARE_PICTURE,
    REPEATED,
    SPLITS_SHARE_PICTURE,
    UNREADABLE,
    WRONG_SUFFIX,
    Looked,
)
from chestfed.inspection.scan import MISSING, Scan


def damaged_files(site: Looked, scan: Scan) -> list[Problem]:
    """Missing and unreadable files, wrong extensions, colors, blank pictures."""
    frame, images = scan.frame, site.survey.table.frame["image"]
    errors = frame["error"].to_numpy(dtype=object)
    missing = np.flatnonzero(errors == MISSING)
    unreadable = np.flatnonzero((errors != "") & (errors != MISSING))

    def named(row: int) -> str:
        return printable(str(images.iat[row]))

    return [
        *site.problems(
            MISSING_IMAGE,
            missing,
            lambda row: f"no file {named(row)}",
            "add the file, fix the name or remove the row",
        ),
        *site.problems(
            UNREADABLE,
            unreadable,
            lambda row: f"{named(row)}: {errors[row]}",
            "export the image again, or remove the row; --skip-unreadable leaves such images out of a study",
        ),
        *site.problems(
            WRONG_SUFFIX,
            np.flatnonzero(frame["wrong_suffix"].to_numpy(dtype=bool)),
            lambda row: f"{named(row)} is a {frame['format'].iat[row]} file",
            "it is read by its content; rename it, because other programs may not",
        ),
        *site.problems(
            COLOURED,
            np.flatnonzero(frame["colored"].to_numpy(dtype=bool)),
            lambda row: f"{named(row)} has colors",
            "inspect it: a radiograph is gray; this may be a screenshot or another kind of image",
        ),
        *site.problems(
            BLANK_PICTURE,
            np.flatnonzero(frame["blank"].to_numpy(dtype=bool)),
            lambda row: f"{named(row)} has a single gray level",
            "export the image again, or remove the row",
        ),
    ]


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


def printable(name: str) -> str:
    """A file name without signs that would steer a terminal."""
    return "".join(sign if sign.isprintable() else "?" for sign in name)

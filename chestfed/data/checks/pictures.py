"""Problems of a site's image files: of each by itself, of pairs, and of those that two sites share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

import numpy as np
import pandas as pd

from chestfed.core.diseases import format_title
from chestfed.core.errors import Problem
from chestfed.data.checks.duplicates import choose_limit, find_first, near_pairs
from chestfed.data.checks.facts import HASH_BITS
from chestfed.data.checks.problems import (
    BLANK_PICTURE,
    COLOURED,
    FLAT,
    NEAR_REPEATED,
    OPPOSITE_LABELS,
    PATIENTS_SHARE_PICTURE,
    PICTURES_READ,
    POLARITY,
    REPEATED,
    SITES_NEAR,
    SITES_SHARE_PICTURE,
    SPLITS_NEAR,
    SPLITS_SHARE_PICTURE,
    TEXT_DECLARED,
    TURNED,
    UNREADABLE,
    UNSUITABLE,
    WRONG_SUFFIX,
    Inspection,
)
from chestfed.data.checks.scan import Scan
from chestfed.data.images.decoding.polarity import UNSURE

#: The correlation with the mean image from which a picture that does not decide is reported to disagree; 98 of 100
#: images have it.
_CLEAR: Final = 0.4
_EXPORT: Final = "export the image again, or remove the file (and its row, unless another image shares it)"
_ADVICE: Final = {
    SPLITS_SHARE_PICTURE: "leakage between splits: remove one of the rows, or use --fix-splits",
    PATIENTS_SHARE_PICTURE: "one of the patients is wrong: fix the table, or remove one of the rows",
    REPEATED: "remove one of the rows, unless the image should count twice",
    UNREADABLE: f"{_EXPORT}; --skip-unreadable leaves such images out of a study",
    WRONG_SUFFIX: "it is read by its content; rename it, because other programs may not",
    COLOURED: "inspect it: a radiograph is gray; this may be a screenshot or another kind of image",
    BLANK_PICTURE: _EXPORT,
    SITES_SHARE_PICTURE: "leakage between sites: remove the rows at one of them",
    FLAT: "inspect it: a wrong window, an unexposed image, or another kind of picture",
    TURNED: "open some of them, and export them upright; a lateral image needs its view in the table",
    SPLITS_NEAR: "leakage between splits: remove one of the rows, or, if they are two images, name this kind under "
    "'allow' in the site's YAML",
    OPPOSITE_LABELS: "decide which label is right and remove the other row, or name this kind under 'allow' in the "
    "site's YAML: both rows then train",
    POLARITY: "open some of them; pictures.inverted in the site's YAML sets what decides for PNG and JPEG",
}
#: Quarter turns counterclockwise that are needed -> how the image lies.
_LYING: Final = {1: "turned by 90° clockwise", 2: "upside down", 3: "turned by 90° counterclockwise"}
_INSPECT_BOTH: Final = "inspect both: a copy, another export of one image, or two very similar images"


def damaged_files(site: Inspection, scan: Scan) -> list[Sequence[Problem]]:
    """Missing, unreadable and unsuitable files, wrong extensions, colors, blank pictures."""
    frame, failures = scan.frame, scan.failures
    errors, unsuitable = frame["error"].to_numpy(dtype=object), frame["unsuitable"].to_numpy(dtype=bool)

    def describe(row: int, image: str) -> str:
        return f"{image}: {errors[row]}"

    problems: list[Sequence[Problem]] = []
    rows_by_failure: dict[str, list[int]] = {}
    for row in sorted(failures):
        rows_by_failure.setdefault(failures[row].kind, []).append(row)
    for rows in rows_by_failure.values():
        problem = failures[rows[0]].problem("", 0)
        problems.append(site.report_rows(problem.kind, rows, describe, problem.advice))
    damaged = (errors != "") & ~unsuitable
    damaged[list(failures)] = False
    problems.append(site.report_rows(UNREADABLE, np.flatnonzero(damaged), describe, _ADVICE[UNREADABLE]))
    problems.append(_count_unsuitable(site, errors, unsuitable))
    formats = frame["format"].to_numpy(dtype=object)
    for kind, column, text in (
        (WRONG_SUFFIX, "wrong_suffix", "is a {} file"),
        (COLOURED, "colored", "has colors"),
        (BLANK_PICTURE, "blank", "has a single gray level"),
        (FLAT, "flat", "is nearly white, nearly black, or shows nearly nothing"),
    ):
        places = np.flatnonzero(frame[column])
        describe_file = partial(lambda row, image, text: f"{image} {text.format(formats[row])}", text=text)
        problems.append(site.report_rows(kind, places, describe_file, _ADVICE[kind]))
    return problems


def _count_unsuitable(site: Inspection, errors: np.ndarray, unsuitable: np.ndarray) -> list[Problem]:
    """One problem per reason, at the first image that has it."""
    problems = []
    for reason, number in Counter(errors[unsuitable].tolist()).most_common():
        row = np.flatnonzero(errors == reason)[:1]
        (first,) = site.report_rows(UNSUITABLE, row, lambda _, image: f"the first of them {image}", "")
        problems.append(replace(first, message=f"{number:,} of {len(errors):,} files, {first.message}: {reason}"))
    return problems


def repeated_pictures(site: Inspection, scan: Scan) -> list[Sequence[Problem]]:
    """Duplicate and near-duplicate images; blank ones are not compared."""
    if not scan.hashed.any():
        return []
    compared = np.flatnonzero(scan.hashed)
    first = compared[find_first(scan.digests[compared])]
    frame = site.survey.table.frame
    splits, (patients, names) = frame["split"].to_numpy(dtype=object), pd.factorize(frame["patient"])
    people_known = len(names) < len(patients)
    again, earlier = compared[first != compared], first[first != compared]
    strangers = people_known & (patients[again] != patients[earlier])
    leaks = splits[again] != splits[earlier]
    first_of = dict(zip(again.tolist(), earlier.tolist(), strict=True))

    def describe(row: int, image: str) -> str:
        there = first_of[row]
        split = f", in '{splits[there]}'," if splits[row] != splits[there] else ""
        return f"{image} is a duplicate{split} of {site.locate(there)}"

    kinds = {SPLITS_SHARE_PICTURE: leaks, PATIENTS_SHARE_PICTURE: ~leaks & strangers, REPEATED: ~leaks & ~strangers}
    return [
        *(site.report_rows(kind, again[which], describe, _ADVICE[kind]) for kind, which in kinds.items()),
        _find_opposite_labels(site, again, earlier),
        *_find_near(site, scan, np.unique(first)),
    ]


def _find_opposite_labels(site: Inspection, again: np.ndarray, earlier: np.ndarray) -> Sequence[Problem]:
    """One problem per row whose picture has a disease that an earlier row denies, or the other way round."""
    table = site.survey.table
    apart = np.zeros((len(again), len(table.diseases)), bool)
    for place, disease in enumerate(table.diseases):
        labels = table.frame[disease].to_numpy()
        apart[:, place] = np.abs(labels[again] - labels[earlier]) == 1
    opposite = dict(zip(again.tolist(), zip(earlier.tolist(), apart, strict=True), strict=True))

    def describe(row: int, image: str) -> str:
        there, differs = opposite[row]
        names = ", ".join(format_title(table.diseases[place]) for place in np.flatnonzero(differs).tolist())
        return f"{image} is a duplicate of {site.locate(there)}, but its labels are the opposite for {names}"

    return site.report_rows(OPPOSITE_LABELS, again[apart.any(axis=1)], describe, _ADVICE[OPPOSITE_LABELS])


def _find_near(site: Inspection, scan: Scan, rows: np.ndarray) -> list[Sequence[Problem]]:
    """One problem per row that is near to an earlier one: of another patient in another split, or else the nearest."""
    frame = site.survey.table.frame
    pairs, bits = near_pairs(scan.hashes[rows], choose_limit(scan.table.synthetic))
    splits, patients = frame["split"].cat.codes.to_numpy(), pd.factorize(frame["patient"])[0]
    earlier, later = rows[pairs].T
    leaks = (splits[earlier] != splits[later]) & (patients[earlier] != patients[later])
    nearest: dict[int, tuple[int, int]] = {}
    leaked: set[int] = set()
    for leak in (True, False):
        which = leaks == leak
        for there, row, apart in zip(earlier[which].tolist(), later[which].tolist(), bits[which].tolist(), strict=True):
            if leak or row not in leaked:
                nearest[row] = min(nearest.get(row, (apart, there)), (apart, there))
        leaked = set(nearest) if leak else leaked

    def describe(row: int, image: str) -> str:
        apart, there = nearest[row]
        patients, splits = (frame[name].iloc[[row, there]].tolist() for name in ("patient", "split"))
        who = "the same patient" if patients[0] == patients[1] else "another patient"
        split = f" in '{splits[1]}'" if splits[0] != splits[1] else ""
        return f"{image} is nearly a duplicate of {site.locate(there)} ({who}{split}; {apart} of {HASH_BITS} bits)"

    return [
        site.report_rows(SPLITS_NEAR, sorted(leaked), describe, _ADVICE[SPLITS_NEAR]),
        site.report_rows(NEAR_REPEATED, sorted(nearest.keys() - leaked), describe, _INSPECT_BOTH),
    ]


def shared_pictures(site: Inspection, scan: Scan, other: Inspection, other_scan: Scan) -> list[Sequence[Problem]]:
    """Images that another site also has, or nearly."""
    name = other.survey.table.name
    theirs, mine = np.flatnonzero(other_scan.hashed), np.flatnonzero(scan.hashed)
    digests, places = np.unique(other_scan.digests[theirs], return_index=True)
    others = np.sort(theirs[places])  # of several with one picture, the first
    same = np.isin(scan.digests[mine], digests)
    row_there = dict(zip(digests.tolist(), theirs[places].tolist(), strict=True))
    rest = mine[~same]
    limit = choose_limit(scan.table.synthetic or other_scan.table.synthetic)
    near = _find_nearest(scan.hashes[rest], other_scan.hashes[others], limit)
    nearest = {int(rest[place]): (int(others[there]), bits) for place, (there, bits) in near.items()}

    def describe(row: int, image: str) -> str:
        return f"{image} is a duplicate of {name}: {other.locate(row_there[scan.digests[row]])}"

    def describe_near(row: int, image: str) -> str:
        there, bits = nearest[row]
        return f"{image} is nearly a duplicate of {name}: {other.locate(there)} ({bits} of {HASH_BITS} bits)"

    return [
        site.report_rows(SITES_SHARE_PICTURE, mine[same], describe, _ADVICE[SITES_SHARE_PICTURE]),
        site.report_rows(SITES_NEAR, sorted(nearest), describe_near, _INSPECT_BOTH),
    ]


def _find_nearest(hashes: np.ndarray, others: np.ndarray, limit: int) -> Mapping[int, tuple[int, int]]:
    """Place -> place of the nearest of the others and its distance in bits, where one is near."""
    unique, codes = np.unique(np.concatenate([hashes, others]), axis=0, return_inverse=True)
    mine, theirs = np.split(codes.reshape(-1), [len(hashes)])
    first = dict(zip(*(part.tolist() for part in np.unique(theirs, return_index=True)), strict=True))
    nearest = {code: (0, place) for code, place in first.items()}
    pairs, bits = near_pairs(unique, limit)
    for pair, apart in zip(pairs.tolist(), bits.tolist(), strict=True):
        for code, another in (pair, pair[::-1]):
            if another in first:
                nearest[code] = min(nearest.get(code, (apart, first[another])), (apart, first[another]))
    return {place: nearest[code][::-1] for place, code in enumerate(mine.tolist()) if code in nearest}


def gray_level_problems(site: Inspection, scan: Scan) -> list[Sequence[Problem]]:
    """Images of another polarity than their header or label file says, with counts; DICOM files without a window."""
    table, frame, stored = site.survey.table, scan.frame, site.survey.table.stored()
    dicom = (frame["format"] == "DICOM").to_numpy(dtype=bool)
    decides = np.array([row.by_picture for row in stored], dtype=bool) & ~dicom
    inverted = np.array([row.inverted for row in stored], dtype=bool) & ~dicom  # of DICOM the header was followed
    frontal = table.frontal() & scan.readable & ~frame["blank"].to_numpy(dtype=bool)
    polarity = frame["polarity"].to_numpy(dtype=float)
    clear = frontal & (np.abs(polarity) >= np.where(decides, UNSURE, _CLEAR))
    apart = clear & ((polarity < 0) != inverted)

    def describe(row: int, image: str) -> str:
        looks = "a negative" if polarity[row] < 0 else "not a negative"
        source = "header" if dicom[row] else "label file"
        followed = "picture" if decides[row] else source
        return f"{image} is {looks}, but its {source} differs; the {followed} counts"

    remarks = []
    if apart.any() or inverted.any() or decides.any():
        text = (
            f"of {frontal.sum():,} frontal images {apart.sum():,} contradict their header or label file, and "
            f"{(frontal & ~clear).sum():,} do not tell; the label file has {inverted.sum():,} negatives "
            f"(pictures.inverted: {table.pictures.inverted})"
        )
        remarks.append(Problem(PICTURES_READ, "pictures", text))
    files = f"of {(dicom & scan.readable).sum():,} DICOM files"
    texts = {
        "have no usable window: their 0.5 and 99.5 percentiles are used instead": frame["window"] == "absent",
        "have a window or VOI LUT that leaves more than 60% of the image black or white, or fewer than 64 gray levels: "
        "the next one that shows the image is used, else the 0.5 and 99.5 percentiles": frame["window"] == "unusable",
        "are rotated or mirrored for display, as their Patient Orientation says": frame["turned"],
        "are not rotated as their Patient Orientation says, because the image contradicts it": frame["misoriented"],
    }
    counts = {text: int(which.sum()) for text, which in texts.items()}
    remarks += [Problem(PICTURES_READ, "pictures", f"{n:,} {files} {text}") for text, n in counts.items() if n]
    declared, overlays = (int(frame[name].sum()) for name in ("text", "overlays"))
    if declared or overlays:
        message = f"BurnedInAnnotation is YES in {declared:,} DICOM headers, and {overlays:,} have overlays"
        advice = "text in a picture may name a patient, or give away its label: look at these images"
        remarks.append(Problem(TEXT_DECLARED, "pictures", message, None, advice))
    turn = frame["turn"].to_numpy(dtype=int)

    def describe_turn(row: int, image: str) -> str:
        return f"{image} looks like a chest X-ray that is {_LYING[int(turn[row])]}"

    return [
        site.report_rows(POLARITY, np.flatnonzero(apart), describe, _ADVICE[POLARITY]),
        site.report_rows(TURNED, np.flatnonzero(frontal & (turn != 0)), describe_turn, _ADVICE[TURNED]),
        remarks,
    ]

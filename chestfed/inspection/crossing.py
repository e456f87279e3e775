"""What two sites share: patients by name, and images."""

from __future__ import annotations

import numpy as np
import pandas as pd

from chestfed.core.errors import Problem
from chestfed.inspection.duplicates import NEAR, near_pairs
from chestfed.inspection.facts import HASH_BITS
from chestfed.inspection.pictures import printable
from chestfed.inspection.problems import SITES_NEAR, SITES_SHARE_PATIENT, SITES_SHARE_PICTURE, Looked
from chestfed.inspection.scan import Scan


def shared_patients(site: Looked, other: Looked) -> list[Problem]:
    """One problem per patient whose name the other site also has, at the patient's first row."""
    mine, theirs = (looked.survey.table.frame["patient"] for looked in (site, other))
    first = theirs[~theirs.duplicated()]
    places = pd.Index(first).get_indexer(pd.Index(mine))
    rows = np.flatnonzero((places >= 0) & ~mine.duplicated().to_numpy(dtype=bool))
    name = other.survey.table.name

    def tell(row: int) -> str:
        return f"this row's patient has the same name as one in {name}: {other.where(int(first.index[places[row]]))}"

    advice = "if it is the same person, keep the rows of one site only; short numbers may match by chance"
    return site.problems(SITES_SHARE_PATIENT, rows, tell, advice)


def shared_pictures(site: Looked, scan: Scan, other: Looked, other_scan: Scan) -> list[Problem]:
    """Images that the other site also has, or nearly."""
    name, images = other.survey.table.name, site.survey.table.frame["image"]
    theirs: dict[bytes, int] = {}
    for row in np.flatnonzero(other_scan.hashed).tolist():
        theirs.setdefault(other_scan.digests[row], row)
    mine = np.flatnonzero(scan.hashed)
    same = {row: theirs[scan.digests[row]] for row in mine.tolist() if scan.digests[row] in theirs}

    def tell(row: int) -> str:
        return f"{printable(str(images.iat[row]))} is a duplicate of {name}: {other.where(same[row])}"

    advice = "leakage between sites: remove the rows at one of them"
    found = site.problems(SITES_SHARE_PICTURE, same, tell, advice)
    rest = np.array([row for row in mine.tolist() if row not in same], dtype=np.int64)
    others = np.fromiter(theirs.values(), dtype=np.int64)
    near = _nearest(scan.hashes[rest], other_scan.hashes[others])

    def tell_near(row: int) -> str:
        place, bits = near[int(np.searchsorted(rest, row))]
        there = other.where(int(others[place]))
        return (
            f"{printable(str(images.iat[row]))} is nearly a duplicate of {name}: {there} ({bits} of {HASH_BITS} bits)"
        )

    advice = "inspect both: a copy, another export of one image, or two very similar images"
    return found + site.problems(SITES_NEAR, rest[sorted(near)].tolist(), tell_near, advice)


def _nearest(hashes: np.ndarray, others: np.ndarray) -> dict[int, tuple[int, int]]:
    """Place -> place of the nearest of the others and its distance in bits, where one is near."""
    unique, of_row = np.unique(np.concatenate([hashes, others]), axis=0, return_inverse=True)
    mine, theirs = np.split(of_row.reshape(-1), [len(hashes)])
    codes, places = np.unique(theirs, return_index=True)
    first = dict(zip(codes.tolist(), places.tolist(), strict=True))
    nearest = {code: (0, place) for code, place in first.items()}
    pairs, bits = near_pairs(unique, NEAR)
    for pair, apart in zip(pairs.tolist(), bits.tolist(), strict=True):
        for one, another in (pair, pair[::-1]):
            if another in first:
                nearest[one] = min(nearest.get(one, (apart, first[another])), (apart, first[another]))
    return {place: nearest[code][::-1] for place, code in enumerate(mine.tolist()) if code in nearest}

"""Cells that are not file names: whether they are the accession numbers or UIDs of the images' DICOM headers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Final

import numpy as np
import pandas as pd

from chestfed.core.errors import SiteError
from chestfed.dicom.tags import IMAGE_KEYS
from chestfed.new_site.images import NoImageNamedError
from chestfed.new_site.lexicon import plain
from chestfed.new_site.matching import ImageMatch
from chestfed.new_site.work import ENOUGH, Work, called, count, is_small, listed_rows
from chestfed.sites.spreadsheet.config import Images
from chestfed.sites.spreadsheet.image_headers import of_other_patients, pairs_of

#: A column of which so many cells are found may be the one that is meant, with images missing.
_RIVAL: Final = 0.5
#: Columns whose cells are found by chance if at all, by their names.
_ELSE: Final = ("running", "patient", "view", "split", "sex", "age", "reader", "findings", "value")
#: What a column with the values of an element is called like.
_CALLED: Final = {"SOPInstanceUID": "image", "StudyInstanceUID": "study", "AccessionNumber": "study"}


@dataclass
class _Candidate:
    """A column, an element that its cells are found in, and the share that is found.

    `small`: its cells are small numbers, which are found by chance; `fits`: it is called like what the element holds;
    `strange`: like something else, or like a running number.
    """

    column: str
    element: str
    share: float
    frame: pd.DataFrame
    told: pd.DataFrame

    def __post_init__(self) -> None:
        self.small = is_small(self.frame[self.column])
        self.fits = bool(called(_CALLED[self.element], [self.column]))
        odd = not plain(self.column) or any(called(what, [self.column]) for what in _ELSE)
        self.strange = odd and not self.fits

    @cached_property
    def pairs(self) -> np.ndarray:
        """Rows and images that belong together, int64 `[pairs]`, one number for each pair."""
        rows, places = pairs_of(self.frame[self.column], self.told, self.element)
        return rows * np.int64(len(self.told)) + places

    def agrees(self, other: _Candidate) -> bool:
        """Whether both lead to the same images, or one to some of the other's, as the images of a study are."""
        few, many = sorted((self.pairs, other.pairs), key=len)
        return bool(np.isin(few, many).all())


def _best_of(candidates: Sequence[_Candidate]) -> tuple[_Candidate | None, str]:
    """The narrowest that nothing contradicts, and what is known of them; None where it would be a guess.

    Long numbers and UIDs are not found by chance; small numbers are, and their column must be called like it.
    """
    likely = [each for each in candidates if each.share >= _RIVAL]
    pools = (
        [each for each in likely if not each.small and not each.strange],
        [each for each in likely if (each.fits if each.small else not each.strange)],
        [each for each in likely if not each.small],
    )
    pool = next((each for each in pools if any(one.share >= ENOUGH for one in each)), [])
    differ = not _agree(pool)
    if differ:  # a long number weighs more than a small one, whatever their columns are called
        pool = [each for each in pool if each.fits and not each.small]
    best = next((each for each in pool if each.share >= ENOUGH), None) if _agree(pool) else None
    shares: dict[str, float] = {}
    for each in candidates:
        shares[each.column] = max(each.share, shares.get(each.column, 0.0))
    found = ", ".join(f"{name} ({share:.0%})" for name, share in shares.items() if share)
    if best is not None:
        return best, f"cells are found in the headers of the images: {found}"
    if differ:
        return None, f"cells of several columns are found in the headers, of different images: {found}"
    if any(each.share >= ENOUGH for each in candidates):
        return None, (
            "small numbers are found in the headers of the images, but possibly by chance: no such column is "
            f"named like an accession number or a study: {found}"
        )
    return None, f"too few cells are found in the headers of the images: {found}"


def _agree(candidates: Sequence[_Candidate]) -> bool:
    return all(one.agrees(other) for one, other in combinations(candidates, 2))


def match_headers(
    work: Work, headers: Callable[[], pd.DataFrame], roles: Mapping[str, str], refused: NoImageNamedError
) -> tuple[ImageMatch, list[str]]:
    """How a column's cells are found in the headers of the images, which `headers` reads: `image` and the elements.

    The table of `work` becomes one with a row per image. A role that no column of the table is called like is taken
    from the headers, where `roles` maps it to an element; the elements that were added as columns are returned.

    Raises `refused` if there are no DICOM files or nothing matches, `ConfigError` if the column is uncertain.
    """
    if not work.pictures.dicoms:
        raise refused
    frame, names, asked = work.frame, work.all_columns, work.choices.columns
    try:
        told = headers()
    except SiteError:  # none can be read
        raise refused from None
    column, element = _column_and_element(work, told, refused)
    rows, places = pairs_of(frame[column], told, element)
    wanted = {what: tag for what, tag in roles.items() if what not in asked and tag not in names}
    elements = [tag for what, tag in wanted.items() if tag in told and not called(what, names)]
    wide = frame.iloc[rows].reset_index(drop=True)
    for tag in elements:
        wide[tag] = told[tag].to_numpy(dtype=object)[places]
    paths = pd.Series(told["image"].to_numpy(dtype=object)[places], dtype=object)
    cells, named = int(frame[column].notna().sum()), len(np.unique(rows))
    images = Images.model_validate({"header": element, "roots": [work.pictures.folder or "."]})
    how = f"the {element} in the headers of {paths.nunique():,} images"
    work.take("image", column, f"{count(named, cells)} are {how}")
    if element != "SOPInstanceUID" and "study" not in asked:
        work.take("study", column, f"the {element} is that of a study")
    work.notes += _notes(work, column, told, rows, places)
    work.frame = wide
    match = ImageMatch(column, images, how, cells, cells, int(paths.nunique()), 0, paths, frame.index[rows])
    return match, elements


def _column_and_element(work: Work, told: pd.DataFrame, refused: NoImageNamedError) -> tuple[str, str]:
    """The column, and the element of the headers that its cells are found in."""
    frame, said = work.frame, work.said("image")
    shares = {
        (name, element): float(frame[name].dropna().isin(set(told[element].dropna())).mean())
        for element in IMAGE_KEYS
        if element in told
        for name in ([said] if said else work.all_columns)
        if frame[name].notna().any()
    }
    if not any(shares.values()):
        bare = {element: set(told[element].dropna().str.lstrip("0")) for element in IMAGE_KEYS if element in told}
        cut = [
            f"'{name}' would match the {element} without leading zeros: export the table with that column as text"
            for element, numbers in bare.items()
            for name in work.all_columns
            if frame[name].dropna().str.lstrip("0").isin(numbers).mean() >= ENOUGH
        ]
        hint = f". {cut[0]}" if cut else ""
        raise NoImageNamedError(f"{refused}. Nor are its cells the {', '.join(IMAGE_KEYS)} of a header{hint}")
    best = sorted(shares, key=lambda key: -shares[key])
    listed = list(dict.fromkeys(name for name, element in best if shares[name, element]))
    guess, column = None, said
    if column is None:
        guess, why = _best_of([_Candidate(*key, share, frame, told) for key, share in shares.items()])
        column = work.choose("image column", "--image-column", guess.column if guess else None, listed, why)
    if guess is not None and guess.column == column:
        return column, guess.element
    return next(key for key in best if key[0] == column)


def _notes(work: Work, column: str, told: pd.DataFrame, rows: np.ndarray, places: np.ndarray) -> list[str]:
    """Rows without an image, images that share a row, and rows whose image has another patient in its header."""
    frame, notes = work.frame, []
    if lost := int(frame[column].notna().sum()) - len(np.unique(rows)):
        notes.append(
            f"{lost:,} rows are in no header: before the site can be opened, remove them, or leave them out with "
            f"`unmatched: drop` beside `header` in the YAML"
        )
    for name in (name for name in work.all_columns if name != column):
        if not (called("patient", [name]) or name == work.choices.columns.get("patient") or not is_small(frame[name])):
            continue
        other = of_other_patients(frame[name], told, rows, places)  # nobody is named
        if other.any():
            notes.append(
                f"'{name}' is not the PatientID in the header of the image that '{column}' leads to in "
                f"{count(int(other.sum()), len(frame), 'rows')} ({listed_rows(frame.index[other])}): rows have "
                "slipped, or the wrong column was taken"
            )
    most = int(np.bincount(rows).max())
    if most > 1:
        notes.append(f"up to {most:,} images have the same '{column}' and share its row")
    return notes

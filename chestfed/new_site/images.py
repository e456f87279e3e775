"""Which column names the images, by comparing its cells with the files that exist."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
import pandas as pd

from chestfed.core.errors import ConfigError
from chestfed.dicom.file_kinds import image_ending
from chestfed.new_site.diseases import disease_of
from chestfed.new_site.matching import ImageMatch, Pictures, match_column
from chestfed.new_site.work import ENOUGH, NONE, SAID, Work, called, count, is_small
from chestfed.sites.spreadsheet.config import Images

#: Of two columns that name images, the worse counts as a rival from this share of the better one's files.
_RIVAL: Final = 0.5
_FLAG: Final = "--image-column"


class NoImageNamedError(ConfigError):
    """No cell that was looked at is the name of a file; it may be what the files' headers say."""


def find_image(work: Work) -> ImageMatch:
    """Notes the column that names the images, and how.

    Raises `ConfigError` if no column does, or it is uncertain which and nobody can be asked.
    """
    frame, pictures, said = work.frame, work.pictures, work.said("image")
    if said == NONE:
        raise ConfigError(f"{_FLAG} {NONE}: every row needs an image")
    names = [name for name in work.all_columns if disease_of(name) is None] if said is None else [said]
    hints = [*called("patient", work.all_columns), *called("study", work.all_columns)]
    tried = [match_column(frame, name, pictures, hints) for name in names]
    matches = sorted((m for m in tried if m is not None and m.named), key=lambda m: (-m.files, -m.share))
    if not matches and said is not None:
        raise NoImageNamedError(f"{_FLAG} {said}: no cell names one of the {len(pictures.files):,} images")
    if not matches:
        raise _nothing_names_images(frame[names], pictures)
    strong = [match for match in matches if match.share >= ENOUGH or _names_what_there_is(match, work)]
    strong = [match for match in strong if not match.ambiguous] or strong
    match = matches[0] if said is not None else _chosen(work, matches, strong)
    refuse_ambiguous(match)
    others = [m.column for m in strong if m is not match and m.files >= _RIVAL * match.files]
    beside = f"; so do those of {', '.join(others)}" if others else ""
    how = f"{SAID}: " if said is not None else ""
    work.take("image", match.column, f"{how}{count(match.named, match.cells)} name a file ({match.how}){beside}")
    return match


def _names_what_there_is(match: ImageMatch, work: Work) -> bool:
    """Whether it names nearly all files, and its other rows may be without one; numbers might do so by chance."""
    may = "missing_image" in work.choices.drop and not is_small(work.frame[match.column])
    return may and match.files >= ENOUGH * len(work.pictures.files)


def match_folders(work: Work, refused: NoImageNamedError) -> ImageMatch:
    """Notes the column whose cells are folders of images, one row each; the table gets a row per image.

    Raises `refused` if there is none, `ConfigError` if it is uncertain which.
    """
    frame, said = work.frame, work.said("image")
    below: dict[str, list[str]] = defaultdict(list)
    for file in work.pictures.files:
        for folder in Path(file).parents[:-1]:
            below[folder.as_posix()].append(file)
    matches = {}
    for name in [said] if said else work.all_columns:
        given = frame[name].dropna()
        told = set(given)
        tops = Counter(folder.rpartition("/")[0] for folder in below if folder.rpartition("/")[2] in told)
        top = tops.most_common(1)[0][0] if tops else ""
        of_row = [below.get(f"{top}/{cell}".removeprefix("/"), []) for cell in frame[name].fillna("\0")]
        if given.is_unique and sum(map(bool, of_row)) >= ENOUGH * max(1, len(given)):
            matches[name] = top or ".", of_row
    if not matches:
        raise refused
    sure = [name for name in matches if called("study", [name]) or not is_small(frame[name])]
    guess = sure[0] if len(sure) == 1 or (sure and len({str(matches[name][1]) for name in sure}) == 1) else None
    why = f"cells of {', '.join(matches)} are names of folders with images"
    column = said or work.choose("image column", _FLAG, guess, list(matches), why)
    top, of_row = matches[column]
    rows, cells = np.repeat(np.arange(len(frame)), list(map(len, of_row))), int(frame[column].notna().sum())
    paths, named = pd.Series([file for files in of_row for file in files], dtype=object), sum(map(bool, of_row))
    how = f"a folder of images, {paths.nunique():,} in all"
    work.take("image", column, f"{count(named, cells)} name {how}")
    if called("study", [column]) and "study" not in work.choices.columns:
        work.take("study", column, "a folder for each study")
    images, numbers = Images.model_validate({"folder": True, "roots": [top]}), frame.index[rows]
    work.frame = frame.iloc[rows].reset_index(drop=True)
    return ImageMatch(column, images, how, cells, named, int(paths.nunique()), 0, paths, numbers)


def _chosen(work: Work, matches: Sequence[ImageMatch], strong: Sequence[ImageMatch]) -> ImageMatch:
    """The match that is certain, or that is chosen."""
    best = _best(strong, work.pictures)
    doubt = "" if best is None else _doubt(best, work.frame)
    if best is not None and not doubt:
        guess, why = best.column, f"{count(best.named, best.cells)} name a file"
    else:
        several = (
            "several columns name images, and not the same ones"
            if strong
            else "too few cells name a file"
            + (
                " (if only some of the images exist, add --drop missing_image)"
                if "missing_image" not in work.choices.drop
                else ""
            )
        )
        listed = "; ".join(f"{m.column} ({count(m.named, m.cells)} name a file)" for m in matches[:8])
        guess, why = None, doubt or f"{several}: {listed}"
    examples = [f"{m.column}: {', '.join(m.examples)}" for m in matches[:3]]
    column = work.choose("image column", _FLAG, guess, [m.column for m in matches], why, examples)
    return next(m for m in matches if m.column == column)


def _best(strong: Sequence[ImageMatch], pictures: Pictures) -> ImageMatch | None:
    """The column that names most files; None if others name as many, but not the same."""
    if not strong:
        return None
    best = strong[0]
    rivals = [m for m in strong if m.files >= _RIVAL * best.files and not m.paths.equals(best.paths)]
    if rivals and best.files >= ENOUGH * len(pictures.files):  # it names all there are, and they do not
        rivals = [m for m in rivals if m.files >= ENOUGH * len(pictures.files)]
    if not rivals:
        same = [m for m in strong if m.paths.equals(best.paths)]
        return min(same, key=lambda m: (not called("image", [m.column]), m.images.path is not None))
    likely = [m for m in (best, *rivals) if called("image", [m.column])]
    return likely[0] if len(likely) == 1 else None


def _doubt(best: ImageMatch, frame: pd.DataFrame) -> str:
    """Why a column of small numbers may name files by chance, as a running number does.

    Another column then looks like the names of files: by its endings, or by its name if this one is not called so.
    """
    if not is_small(frame[best.column]):
        return ""
    so = bool(called("image", [best.column]))
    for name in (str(name) for name in frame if name != best.column):
        cells = frame[name].dropna()
        named = not so and called("image", [name]) and cells.nunique() > _RIVAL * best.named
        if named or (len(cells) and cells.map(lambda cell: bool(image_ending(str(cell)))).mean() >= _RIVAL):
            running = " like a running number" if called("running", [best.column]) else ""
            return (
                f"the cells of '{best.column}' name files, but possibly by chance{running}: '{name}' looks like "
                f"the column of the file names and its cells do not name the same files"
            )
    return ""


def refuse_ambiguous(match: ImageMatch) -> None:
    """Stop where a name fits files in several folders: taking one of them would be a guess about the image.

    Raises `ConfigError` with the number of cells; no folder is named, because it may be a patient.
    """
    if match.ambiguous:
        raise ConfigError(
            f"image column '{match.column}': {match.ambiguous:,} of {match.cells:,} cells match files of the same "
            f"name in several folders, such as originals and thumbnails, or a numbering that restarts in each "
            f"folder. Give --images only the right folder; or add a column with the path below it to the table, "
            f"or columns that spell the folders exactly (with leading zeros)"
        )


def _nothing_names_images(frame: pd.DataFrame, pictures: Pictures) -> NoImageNamedError:
    """The error where no cell of any column names a file of the folder, with what may be the reason."""
    text = f"image column: no column has cells that name the {len(pictures.files):,} images in the folder. "
    cut = [str(name) for name in frame if _lost_zeros(frame[name], pictures)]
    names = {file.rpartition("/")[2].casefold() for file in pictures.files}
    alike = [str(name) for name in frame if frame[name].dropna().str.casefold().isin(names).any()]
    if cut:
        text += (
            f"Those of {', '.join(cut)} would without leading zeros: a spreadsheet program may have turned them "
            f"into numbers (007 became 7). Export the table again with that column as text"
        )
    elif several := [str(name) for name in frame if _names_several(frame[name], names, pictures)]:
        text += (
            f"Each cell of {', '.join(several)} names several images, or is how their names begin: write one row per "
            f"image, with its file name and the labels of its study; or put the images of each study into a folder "
            f"that is named like the study"
        )
    elif alike:
        text += (
            f"Those of {', '.join(alike)} would if case did not matter (.png and .PNG): write the names in the "
            f"table as the files have them"
        )
    else:
        text += (
            f"Compare the names in the folder with those in the table; the columns are {', '.join(map(str, frame))}. "
            "Perhaps --images is not the folder that belongs to it"
        )
    return NoImageNamedError(text)


def _names_several(cells: pd.Series, names: set[str], pictures: Pictures) -> bool:
    """Whether most cells are lists of files, or what the names of files begin with, up to a _, - or blank."""
    begins = {stem.rpartition(sign)[0] for stem in pictures.by_stem for sign in "_- " if sign in stem}
    given = cells.dropna()
    lists = given.str.casefold().str.split(r"\s*[;,|]\s*|\s+", regex=True)
    several = lists.map(lambda parts: len(parts) > 1 and names.issuperset(parts)).astype(bool)
    return bool(len(given) and max(several.mean(), given.isin(begins).mean()) >= ENOUGH)


def _lost_zeros(cells: pd.Series, pictures: Pictures) -> bool:
    """Whether most cells are numbers that become the name of a file with zeros in front."""
    given = cells.dropna().str.strip()
    if given.empty or not given.str.fullmatch(r"\d+").all():
        return False
    bare = {stem.lstrip("0") for stem in pictures.by_stem if stem.isdecimal()}
    return bool(given.str.lstrip("0").isin(bare).mean() >= ENOUGH)

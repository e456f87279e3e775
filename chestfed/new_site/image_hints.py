"""Why the cells of a table name no image, or not one image: what a user could look at."""

from __future__ import annotations

from typing import Final

import pandas as pd

from chestfed.core.errors import ConfigError
from chestfed.new_site.pictures import ImageMatch, Pictures

#: Share of the cells that must name a file if leading zeros are disregarded.
_ENOUGH: Final = 0.9


class NoImageNamedError(ConfigError):
    """No cell that was looked at is the name of a file; it may be what the files' headers say."""


def nothing_names_images(frame: pd.DataFrame, pictures: Pictures) -> NoImageNamedError:
    """The error where no cell of any column names a file of the folder."""
    text = f"image column: no column has cells that name the {len(pictures.files):,} images in the folder. "
    cut = [str(name) for name in frame if _lost_zeros(frame[name], pictures)]
    if cut:
        return NoImageNamedError(
            f"{text}Those of {', '.join(cut)} would if leading zeros did not count: a spreadsheet program may have "
            "made numbers of them (007 became 7). Export the table again with that column as text"
        )
    names = {file.rpartition("/")[2].casefold() for file in pictures.files}
    alike = [str(name) for name in frame if frame[name].dropna().str.casefold().isin(names).any()]
    if alike:
        return NoImageNamedError(
            f"{text}Those of {', '.join(alike)} would if capitals did not count (.png and .PNG): write them in the "
            "table as the files are called"
        )
    return NoImageNamedError(
        f"{text}Compare the names in the folder with those in the table; the columns are "
        f"{', '.join(map(str, frame))}. Is --images the folder that belongs to it?"
    )


def refuse_ambiguous(match: ImageMatch) -> None:
    """Stop where a name stands for files in several folders: taking one of them would be a guess about the picture.

    Raises
    ------
    ConfigError
        With the number of cells; no folder is named, for it may be a patient.
    """
    if match.ambiguous:
        raise ConfigError(
            f"image column '{match.column}': {match.ambiguous:,} of {match.cells:,} cells could mean files of the "
            "same name in several folders, such as originals and thumbnails, or a numbering that starts anew in each "
            "folder. Give --images the one folder that is meant; or add to the table a column with the path below it, "
            "or columns that say the folders letter by letter (with leading zeros)"
        )


def _lost_zeros(cells: pd.Series, pictures: Pictures) -> bool:
    """Whether most cells are numbers that become the name of a file with zeros in front."""
    given = cells.dropna().str.strip()
    if given.empty or not given.str.fullmatch(r"\d+").all():
        return False
    bare = {stem.lstrip("0") for stem in pictures.by_stem if stem.isdecimal()}
    return bool(given.str.lstrip("0").isin(bare).mean() >= _ENOUGH)

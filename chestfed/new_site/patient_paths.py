"""The patient told by a folder of the image's path, where no column tells it."""

from __future__ import annotations

import pandas as pd

from chestfed.core.errors import ConfigError
from chestfed.new_site.choosing import Choices
from chestfed.new_site.columns import called
from chestfed.new_site.pictures import ImageMatch

#: Flag --patient-column: the folder, not a column.
FOLDER = "folder"


def about_folders(match: ImageMatch) -> str:
    """What the images' folders may say of the patient; empty if they do not differ."""
    found = _folder(_below_roots(match))
    if found is None:
        return ""
    return f"; if the folders tell the patient ({found[1]}), say --patient-column {FOLDER}"


def patient_from_path(match: ImageMatch, frame: pd.DataFrame, choices: Choices) -> tuple[str, str] | None:
    """A regular expression with the group `patient`, and why; None where a column is to be looked for.

    Raises
    ------
    ConfigError
        If the folders are asked for, and cannot be used.
    """
    said = choices.columns.get("patient")
    if said is not None and said != FOLDER:
        return None
    if said is None and called("patient", list(map(str, frame))):
        return None
    found = _folder(_below_roots(match))
    if found is None and said == FOLDER:
        raise ConfigError(f"--patient-column {FOLDER}: the images' folders do not differ")
    if found is None or (said is None and not found[2]):
        return None
    return found[0], f"{'as said' if said else 'a guess, for no column is called like a patient'}: {found[1]}"


def _below_roots(match: ImageMatch) -> pd.Series:
    """The images' paths as `from_path` sees them."""
    paths = match.paths.dropna()
    for root in sorted(match.images.roots, key=len, reverse=True):
        paths = paths.str.removeprefix(f"{root.rstrip('/')}/")
    return paths


def _folder(paths: pd.Series) -> tuple[str, str, bool] | None:
    """The outermost folder that differs: as an expression, with counts, and whether another one below it does too."""
    folders = [path.split("/")[:-1] for path in paths]
    depth = min(map(len, folders), default=0)
    different = [len({tuple(parts[: level + 1]) for parts in folders}) for level in range(depth)]
    levels = [level for level in range(depth) if different[level] > (different[level - 1] if level else 1)]
    if not levels:
        return None
    level = levels[0]
    above = "[^/]+/" * level  # their names stay out of the YAML
    text = f"{different[level]:,} folders at level {level + 1} of {paths.nunique():,} images"
    return f"^{above}(?P<patient>[^/]+)/", text, len(levels) > 1

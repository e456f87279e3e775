"""Which column, or which folder of the image's path, identifies the patient, and which column the study."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pandas as pd

from chestfed.core.errors import ConfigError
from chestfed.new_site.choosing import NONE, Choices, Chooser, named_column
from chestfed.new_site.columns.found import ENOUGH, Found, called, count, listed_rows
from chestfed.new_site.columns.matching import ImageMatch

#: What the flag is given for the folder, in place of a column.
FOLDER: Final = "folder"
_FLAG: Final = "--patient-column"


def find_patient(
    frame: pd.DataFrame, image: pd.Series, choices: Choices, chooser: Chooser, found: Found, hint: str = ""
) -> str | None:
    """The column of the patient; None if the user says that there is none.

    `image` tells which image a row belongs to, `hint` where else the patient may be. Raises `ConfigError` if no column
    is certain.
    """
    names = [str(name) for name in frame if name != found.columns.get("image")]
    said = choices.columns.get("patient")
    if said == NONE:
        return None
    if said is not None:
        column = named_column(said, list(map(str, frame)), _FLAG)
        found.take("patient", column, f"given on the command line; {_groups(frame[column], image)}")
        return column
    likely = [name for name in called("patient", names) if _can_be_patient(frame[name], image)]
    different = [name for name in likely if not _same_groups(frame[name], frame[likely[0]])]
    others = [name for name in names if name not in likely and _looks_like_ids(frame[name], image)]
    guess = likely[0] if likely and not different else None
    if guess is not None:
        why = f"by column name; {_groups(frame[guess], image)}"
    elif likely:
        why = "several columns have such a name, and group the images differently"
    else:
        why = (
            f"{_why_none(frame, [name for name in called('patient', names) if name not in likely])}. Without patients, "
            "images of one person may end up on both sides of a split; "
            f"if you must, say {_FLAG} {NONE}, and every image counts as a patient of its own{hint}"
        )
    candidates = likely or [*others, NONE]
    column = chooser.choose("patient column", _FLAG, guess, candidates, why)
    if column == NONE:
        return None
    also = [name for name in likely if name != column]
    beside = f"; {', '.join(also)} groups them alike" if also and column in likely and not different else ""
    found.take("patient", column, (why if column == guess else f"chosen; {_groups(frame[column], image)}") + beside)
    return column


def _why_none(frame: pd.DataFrame, unfit: Sequence[str]) -> str:
    """Why no column is taken for the patient's, though these have such a name."""
    if not unfit:
        return "no column has such a name"
    empty = frame[unfit[0]].isna()
    if empty.mean() <= 1 - ENOUGH:
        return f"'{unfit[0]}' has such a name, but several values for one image"
    return (
        f"'{unfit[0]}' has such a name, but {count(int(empty.sum()), len(frame))} are empty (the first in "
        f"{listed_rows(frame.index[empty][:1])}): fill it in on every row, also where one cell stands for several"
    )


def _groups(cells: pd.Series, image: pd.Series) -> str:
    return f"{cells.nunique():,} patients of {image.nunique():,} images"


def _can_be_patient(cells: pd.Series, image: pd.Series) -> bool:
    """Filled, and one for each image."""
    if cells.notna().mean() < ENOUGH:
        return False
    known = pd.DataFrame({"image": image, "patient": cells}).dropna().drop_duplicates()
    return bool(known["image"].duplicated().mean() < 1 - ENOUGH)


def _looks_like_ids(cells: pd.Series, image: pd.Series) -> bool:
    """Many different cells, and some images in common."""
    share = cells.nunique() / max(1, image.nunique())
    return _can_be_patient(cells, image) and 0.2 < share <= 1 and not cells.str.contains(r"\s", na=False).mean() > 0.5


def _same_groups(first: pd.Series, second: pd.Series) -> bool:
    pairs = pd.DataFrame({"a": first, "b": second}).dropna().drop_duplicates()
    return bool(pairs["a"].is_unique and pairs["b"].is_unique)


def find_study(frame: pd.DataFrame, image: pd.Series, choices: Choices, found: Found) -> None:
    """The column of the study, if one has such a name."""
    said = choices.columns.get("study")
    if said is not None:
        if said != NONE:
            column = named_column(said, list(map(str, frame)), "--study-column")
            found.take("study", column, "given on the command line")
        return
    likely = [name for name in called("study", list(map(str, frame))) if name not in found.columns.values()]
    likely = [name for name in likely if _can_be_patient(frame[name], image)]
    if likely:
        also = f"; so are {', '.join(likely[1:])}" if likely[1:] else ""
        found.take("study", likely[0], f"by column name; {frame[likely[0]].nunique():,} different{also}")


def about_folders(match: ImageMatch) -> str:
    """What the images' folders may say of the patient; empty if they do not differ."""
    found = _folder(_below_roots(match))
    if found is None:
        return ""
    return f"; if the folders identify the patient ({found[1]}), say {_FLAG} {FOLDER}"


def patient_from_path(match: ImageMatch, frame: pd.DataFrame, choices: Choices) -> tuple[str, str] | None:
    """A regular expression with the group `patient`, and why; None where a column is to be looked for.

    Raises
    ------
    ConfigError
        If the folders are asked for, and cannot be used.
    """
    said = choices.columns.get("patient")
    if said not in (None, FOLDER) or (said is None and called("patient", list(map(str, frame)))):
        return None
    found = _folder(_below_roots(match))
    if found is None and said == FOLDER:
        raise ConfigError(f"{_FLAG} {FOLDER}: the images' folders do not differ")
    if found is None or (said is None and not found[2]):
        return None
    why = "given on the command line" if said else "a guess, because no column has the name of a patient"
    return found[0], f"{why}: {found[1]}"


def _below_roots(match: ImageMatch) -> pd.Series:
    """The images' paths as `from_path` sees them."""
    paths = match.paths.dropna()
    for root in sorted(match.images.roots, key=len, reverse=True):
        paths = paths.str.removeprefix(f"{root.rstrip('/')}/")
    return paths


def _folder(paths: pd.Series) -> tuple[str, str, bool] | None:
    """The outermost folder that differs: as an expression, with counts, and whether one below it differs too."""
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

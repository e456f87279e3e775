"""Which columns tell the patient, the study, the view, the split, the sex and the age: by their names and cells."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import numpy as np
import pandas as pd

from chestfed.core.errors import ConfigError
from chestfed.new_site import lexicon
from chestfed.new_site.lexicon import plain, view_of
from chestfed.new_site.matching import ImageMatch
from chestfed.new_site.work import (
    ENOUGH,
    MISSING,
    NONE,
    SAID,
    SHOWN_FROM,
    Work,
    called,
    count,
    hint,
    listed_rows,
    unknown_words,
)
from chestfed.sites.reader import PER_YEAR, ages
from chestfed.sites.spreadsheet.term_table import LEXICON, WORD_MEANINGS, TermRow

#: What the flag of the patient is given for the folder, in place of a column.
FOLDER: Final = "folder"
_FLAG: Final = "--patient-column"
#: Share of known words from which a column that is called like the view is taken for it, however many words it has.
_TELLING: Final = 0.25
_FEW_WORDS: Final = 12
_MOST_WORDS: Final = 30
#: What an age may be mistyped as, so that it is surely not a name.
_NUMBER: Final = re.compile(r"[-+]?\d{1,3}([.,]\d{1,2})?\s?[a-z]?")
_KNOWN: Final = {"view": lexicon.VIEWS, "split": lexicon.SPLITS, "sex": lexicon.SEXES}


def find_patient(work: Work, match: ImageMatch) -> tuple[str, str] | None:
    """Notes the column of the patient; or a regular expression for the images' paths that tells him, and why.

    Raises `ConfigError` if no column is certain, or the folders are asked for and cannot be used.
    """
    in_folders = _folder(match)
    by_flag = work.choices.columns.get("patient")
    if by_flag == FOLDER and in_folders is None:
        raise ConfigError(f"{_FLAG} {FOLDER}: the images' folders do not differ")
    if in_folders is not None and by_flag == FOLDER:
        return in_folders[0], f"{SAID}: {in_folders[1]}"
    if in_folders is not None and by_flag is None and in_folders[2] and not called("patient", work.all_columns):
        return in_folders[0], f"a guess, because no column is named like a patient: {in_folders[1]}"
    hint = f"; if the folders identify the patient ({in_folders[1]}), use {_FLAG} {FOLDER}" if in_folders else ""
    if not _patient_column(work, hint):
        work.take("patient", match.column, "none: every image counts as a separate patient")
    return None


def _patient_column(work: Work, hint: str) -> bool:
    """Notes the column of the patient; not if the user says that there is none."""
    frame, said = work.frame, work.said("patient")
    if said is not None:
        if said != NONE:
            work.take("patient", said, f"{SAID}; {_groups(work, said)}")
        return said != NONE
    names = [name for name in work.all_columns if name != work.columns.get("image")]
    likely = [name for name in called("patient", names) if _fits_images(frame[name], work.image)]
    different = [name for name in likely if not _same_groups(frame[name], frame[likely[0]])]
    guess = likely[0] if likely and not different else None
    if guess is not None:
        why = f"by column name; {_groups(work, guess)}"
    elif likely:
        why = "several columns have such a name and group the images differently"
    else:
        why = (
            f"{_why_none(frame, called('patient', names))}. Without patients, images of one person may be in both "
            f"training and test; if this cannot be avoided, use {_FLAG} {NONE}: every image then counts as a "
            f"separate patient{hint}"
        )
    others = [name for name in names if name not in likely and _looks_like_ids(frame[name], work.image)]
    column = work.choose("patient column", _FLAG, guess, likely or [*others, NONE], why)
    if column == NONE:
        return False
    also = [name for name in likely if name != column]
    beside = f"; {', '.join(also)} groups them in the same way" if also and column in likely and not different else ""
    work.take("patient", column, (why if column == guess else f"chosen; {_groups(work, column)}") + beside)
    return True


def _why_none(frame: pd.DataFrame, unfit: list[str]) -> str:
    """Why no column is taken for the patient's, though these have such a name."""
    if not unfit:
        return "no column has such a name"
    empty = frame[unfit[0]].isna()
    if empty.mean() <= 1 - ENOUGH:
        return f"'{unfit[0]}' has such a name, but several values for one image"
    return (
        f"'{unfit[0]}' has such a name, but {count(int(empty.sum()), len(frame))} are empty (the first in "
        f"{listed_rows(frame.index[empty][:1])}): fill it in on every row, even if one cell stands for several"
    )


def _groups(work: Work, column: str) -> str:
    return f"{work.frame[column].nunique():,} patients of {work.image.nunique():,} images"


def _fits_images(cells: pd.Series, image: pd.Series) -> bool:
    """Filled, and one for each image."""
    known = pd.DataFrame({"image": image, "cell": cells}).dropna().drop_duplicates()
    return bool(cells.notna().mean() >= ENOUGH and known["image"].duplicated().mean() < 1 - ENOUGH)


def _looks_like_ids(cells: pd.Series, image: pd.Series) -> bool:
    """Many different cells, and some images in common."""
    share = cells.nunique() / max(1, image.nunique())
    return _fits_images(cells, image) and 0.2 < share <= 1 and not cells.str.contains(r"\s", na=False).mean() > 0.5


def _same_groups(first: pd.Series, second: pd.Series) -> bool:
    pairs = pd.DataFrame({"a": first, "b": second}).dropna().drop_duplicates()
    return bool(pairs["a"].is_unique and pairs["b"].is_unique)


def _folder(match: ImageMatch) -> tuple[str, str, bool] | None:
    """The outermost folder that differs: as an expression, with counts, and whether one below it differs too."""
    paths = match.paths.dropna()
    for root in sorted(match.images.roots, key=len, reverse=True):  # as `from_path` sees them
        paths = paths.str.removeprefix(f"{root.rstrip('/')}/")
    folders = [path.split("/")[:-1] for path in paths]
    depth = min(map(len, folders), default=0)
    different = [1, *(len({tuple(parts[: level + 1]) for parts in folders}) for level in range(depth))]
    levels = [level for level in range(depth) if different[level + 1] > different[level]]
    if not levels:
        return None
    above = "[^/]+/" * levels[0]  # their names stay out of the YAML
    text = f"{different[levels[0] + 1]:,} folders at level {levels[0] + 1} of {paths.nunique():,} images"
    return f"^{above}(?P<patient>[^/]+)/", text, len(levels) > 1


def find_optional(work: Work, what: str, said: str | None) -> None:
    """The column of the study, view, split, sex or age, `said` if that is known, if there is one."""
    if said == NONE:
        return
    if what == "study":
        _find_study(work, said)
    elif what == "age":
        _find_age(work, said)
    else:
        _find_worded(work, what, said)


def _find_study(work: Work, said: str | None) -> None:
    if said is not None:
        work.take("study", said, SAID)
        return
    likely = [name for name in called("study", work.free) if _fits_images(work.frame[name], work.image)]
    if likely:
        also = f"; so are {', '.join(likely[1:])}" if likely[1:] else ""
        work.take("study", likely[0], f"by column name; {work.frame[likely[0]].nunique():,} different{also}")


def _find_worded(work: Work, what: str, said: str | None) -> None:
    """The column of views, splits or sexes; words that are not known are noted among the stops."""
    own = work.meanings(what)
    column, how = (said, SAID) if said is not None else _guessed(work, what, own)
    if not column:
        return
    cells = work.frame[column].dropna().str.strip().str.lower()
    counts = cells.value_counts()
    if len(counts) > max(_MOST_WORDS, 2 * len(own)):
        raise ConfigError(f"--{what}-column {column}: {len(counts):,} different cells are not words for a {what}")
    known, spread, rows = _with_own(what, cells), Counter[str](), list[TermRow]()
    for word, number in zip(map(str, counts.index), counts.tolist(), strict=True):
        meaning = known.get(plain(word)) or (MISSING if word in lexicon.MISSING else None)
        row = work.row(what, word, number, meaning, hint(word, known))
        spread[row.meaning if row.known else MISSING] += number
        rows += [row] if word != row.meaning.lower() or not row.known else []  # such words need no explanation
    if strange := [row.term for row in rows if not row.known]:
        work.stops.append(
            f"column '{column}' ({what}): unknown words: {unknown_words(cells, strange)}. Enter what each means in "
            f"the mapping table, or with --word {what}:WORD=MEANING ({', '.join(WORD_MEANINGS[what])}); or omit the "
            f"column with --{what}-column {NONE}"
        )
    work.words[what] = rows
    spread[MISSING] += int(work.frame[column].isna().sum())
    shown = ", ".join(f"{number:,} {meaning}" for meaning, number in spread.most_common() if number)
    work.take(what, column, f"{how}: {shown}")
    if what == "view" and (lost := spread["unknown"] + spread[MISSING]):
        work.notes.append(
            f"{count(lost, len(work.frame), 'rows')} have no known view and are left out, because they may be "
            f"lateral (to keep them, add unknown to views in the YAML)"
        )


def _guessed(work: Work, what: str, own: Mapping[str, str]) -> tuple[str, str]:
    """The column, empty if there is none, and how it was found; what is left out is noted.

    A column that is called so is taken if most words are known, or if it has a few different ones: a lateral that is
    not recognized, or a test set, would train.
    """
    free = [name for name in work.free if work.frame[name].notna().any()]
    shares = {name: _share_known(work.frame[name], what, own) for name in called(what, free)}
    likely = sorted(shares, key=lambda name: -shares[name])
    good = [name for name in likely if shares[name] >= ENOUGH]
    for name in likely if not good else ():
        number = work.frame[name].nunique()
        if (what == "view" or number > 1) and number <= (_MOST_WORDS if shares[name] >= _TELLING else _FEW_WORDS):
            good = [name]
            break
    work.notes += [
        f"'{name}' is named like the {what}, but {shares[name]:.0%} of its cells are known words: not used. If it is "
        f"the {what}, say --{what}-column {name}"
        for name in likely
        if name not in good
    ]
    if good or what != "view":
        return (good[0] if good else ""), "by name and words"
    others = (name for name in free if name not in likely and _only_views(work.frame[name]))
    return next(others, ""), "by its words alone"


def _with_own(what: str, cells: pd.Series) -> Mapping[str, str]:
    """The known words, with those of this column that follow from them.

    Of views those with words beside them; of sexes the initials of hombre, homme and homem: M beside these is mujer or
    mulher. V and M are varon and mujer in a Spanish column; elsewhere they may be vrouw and man, and neither is known.
    """
    known, own = _KNOWN[what], set(cells.dropna().str.strip().str.lower().unique())
    if what == "view":
        return {**known, **{plain(word): view for word in own if (view := view_of(word)) is not None}}
    men = {"h", "v"}.intersection(own)
    if what != "sex" or not men or ("f" in own and "m" in own):
        return known
    if {"v", "m"} <= own and not plain(str(cells.name)).startswith(("sexo", "genero")):
        return {word: sex for word, sex in known.items() if word != "m"}
    return {**known, **dict.fromkeys(men, "M"), **({"m": "F"} if "m" in own else {})}


def _only_views(cells: pd.Series) -> bool:
    """Nothing but views, and several of them."""
    told = [view_of(word) for word in cells.dropna().unique()] if cells.nunique() <= _MOST_WORDS else []
    return None not in told and len(set(told) & {"pa", "ap", "frontal", "lateral"}) > 1


def _share_known(cells: pd.Series, what: str, own: Mapping[str, str]) -> float:
    known, words = _with_own(what, cells), cells.dropna().str.strip().str.lower()
    good = words.map(lambda word: plain(word) in known or word in own or word in lexicon.MISSING)
    return float(good.mean()) if len(words) else 0.0


def _find_age(work: Work, said: str | None) -> None:
    """The column of the age: by its name, and because its cells are ages."""
    for name in [said] if said else called("age", work.free):
        cells = work.frame[name].dropna().str.strip().str.lower()
        if cells.empty and not said:
            continue
        unit = next((word for word in plain(name).split() if len(word) > 2 and PER_YEAR.get(word, 1) > 1), None)
        if unit and cells.str.fullmatch(r"[\d.,]+").any():
            raise ConfigError(f"--age-column {name}: a bare number is years; write the unit into the cells (7 {unit})")
        own = work.meanings("age")
        gone = [word for word, meaning in own.items() if meaning == MISSING]
        years = ages(cells.where(~cells.isin(own), cells.map(own)))
        bad = cells[np.isnan(years) & ~cells.isin(gone).to_numpy(dtype=bool)]
        good = count(len(cells) - len(bad), len(cells))
        if cells.empty or len(bad) > (1 - ENOUGH) * len(cells) or bad.nunique() > _MOST_WORDS:
            if said:
                raise ConfigError(
                    f"--age-column {name}: {'the column is empty' if cells.empty else f'{good} are ages'}"
                )
            work.notes.append(f"'{name}' is named like the age, but {good} are ages: not used")
            continue
        counts = bad.value_counts()
        clear = [word for word in map(str, counts.index) if counts[word] >= SHOWN_FROM or _NUMBER.fullmatch(word)]
        words = cells[cells.isin([*own, *counts.index])].value_counts().items()
        empty = {*clear, *lexicon.MISSING}
        rows = [work.row("age", str(word), number, MISSING if word in empty else None) for word, number in words]
        rows = [replace(row, why="not an age") if row.confirmed == LEXICON else row for row in rows]
        work.words["age"] = rows
        if rest := [row.term for row in rows if not row.known]:
            work.stops.append(
                f"column '{name}' (age): not ages: {unknown_words(cells, rest)}. Fix the cells, or enter what each "
                f"means in the mapping table, or with --word age:WORD=YEARS or --word age:WORD={MISSING}"
            )
        if clear:
            shown = unknown_words(cells, clear)
            work.notes.append(f"'{name}': {shown} count as missing (--word age:WORD=YEARS if they are ages)")
        how = SAID if said else "by name"
        work.take("age", name, f"{how}: {good} are ages, {np.nanmin(years):.0f} to {np.nanmax(years):.0f}")
        return

"""Which column holds the image, the patient, the study, view, split, sex, age and the reader."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pandas as pd

from chestfed.core.errors import ConfigError
from chestfed.new_site import words
from chestfed.new_site.choosing import NONE, Choices, Chooser, named_column
from chestfed.new_site.image_hints import NoImageNamedError, nothing_names_images, refuse_ambiguous
from chestfed.new_site.pictures import ImageMatch, Pictures, match_column
from chestfed.sites.findings import ages

#: Share of the cells that must name a file, or be known words.
_ENOUGH: Final = 0.9
#: Share of known words from which a column that is called like the view is taken for it.
_TELLING: Final = 0.25
#: Of two columns that name images, the worse counts as a rival from this share of the better one's files.
_RIVAL: Final = 0.5
_MOST_WORDS: Final = 30
#: A word of a cell is shown, or written down, if it stands in so many rows: it is then no name of a person.
SHOWN_FROM: Final = 3
_SHOWN_ROWS: Final = 5
#: What an age may be mistyped as, so that it is surely no name.
_NUMBER: Final = re.compile(r"[-+]?\d{1,3}([.,]\d{1,2})?\s?[a-z]?")


@dataclass
class Found:
    """Columns by what they are, the words in them, and the evidence for each.

    `missing` maps a word that is as good as empty to the column it was needed for; `unsure` is what could not be told.
    """

    columns: dict[str, str] = field(default_factory=dict)
    evidence: dict[str, str] = field(default_factory=dict)
    words: dict[str, dict[str, str]] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    unsure: list[str] = field(default_factory=list)

    def take(self, what: str, column: str, evidence: str) -> None:
        """Note a column and why it is that."""
        self.columns[what], self.evidence[what] = column, evidence


def called(what: str, names: Collection[str]) -> list[str]:
    """The columns that are called like a patient, a view, ..."""
    return [name for name in names if words.plain(name) in words.COLUMNS[what]]


def count(number: int, total: int, noun: str = "cells") -> str:
    """`9,812 of 9,900 cells`."""
    return f"{number:,} of {total:,} {noun}"


def find_image(frame: pd.DataFrame, pictures: Pictures, choices: Choices, chooser: Chooser, found: Found) -> ImageMatch:
    """The column that names the images, and how.

    Raises
    ------
    ConfigError
        If no column does, or several do and nobody can be asked.
    """
    flag, names = "--image-column", list(map(str, frame))
    hints = [*called("patient", names), *called("study", names)]
    said = choices.columns.get("image")
    if said is not None:
        column = named_column(said, names, flag)
        match = match_column(frame, column, pictures, hints)
        if match is None or not match.named:
            raise NoImageNamedError(
                f"{flag} {column}: none of its cells names one of the {len(pictures.files):,} images"
            )
        refuse_ambiguous(match)
        found.take("image", column, f"as said: {count(match.named, match.cells)} name a file ({match.how})")
        return match
    tried = [match_column(frame, name, pictures, hints) for name in names]
    matches = sorted((m for m in tried if m is not None and m.named), key=lambda m: (-m.files, -m.share))
    strong = [match for match in matches if match.share >= _ENOUGH]
    strong = [match for match in strong if not match.ambiguous] or strong
    listed = [f"{m.column} ({count(m.named, m.cells)} name a file)" for m in matches[:8]]
    if not matches:
        raise nothing_names_images(frame, pictures)
    best = _best_image(strong, pictures)
    if best is None:
        why = "several columns name images, and not the same ones" if strong else "too few cells name a file"
        column = chooser.choose("image column", flag, None, [m.column for m in matches], f"{why}: {'; '.join(listed)}")
    else:
        why = f"{count(best.named, best.cells)} name a file"
        column = chooser.choose("image column", flag, best.column, [m.column for m in matches], why)
    match = next(m for m in matches if m.column == column)
    refuse_ambiguous(match)
    others = [m.column for m in strong if m.column != column and m.files >= _RIVAL * match.files]
    beside = f"; so do those of {', '.join(others)}" if others else ""
    found.take("image", column, f"{count(match.named, match.cells)} name a file ({match.how}){beside}")
    return match


def _best_image(strong: Sequence[ImageMatch], pictures: Pictures) -> ImageMatch | None:
    """The column that names most files; None if others name as many, but not the same."""
    if not strong:
        return None
    best = strong[0]
    rivals = [m for m in strong if m.files >= _RIVAL * best.files and not m.paths.equals(best.paths)]
    if rivals and best.files >= _ENOUGH * len(pictures.files):  # it names all there are, and they do not
        rivals = [m for m in rivals if m.files >= _ENOUGH * len(pictures.files)]
    if not rivals:
        same = [m for m in strong if m.paths.equals(best.paths)]
        return min(same, key=lambda m: (not called("image", [m.column]), m.images.path is not None))
    likely = [m for m in (best, *rivals) if called("image", [m.column])]
    return likely[0] if len(likely) == 1 else None


def find_patient(
    frame: pd.DataFrame, image: pd.Series, choices: Choices, chooser: Chooser, found: Found, hint: str = ""
) -> str | None:
    """The column of the patient; None if the user says that there is none.

    `image` tells which image a row is of, `hint` where else the patient may be told. Raises `ConfigError` if no column
    is certain.
    """
    flag = "--patient-column"
    names = [str(name) for name in frame if name != found.columns.get("image")]
    said = choices.columns.get("patient")
    if said == NONE:
        return None
    if said is not None:
        column = named_column(said, list(map(str, frame)), flag)
        found.take("patient", column, f"as said; {_groups(frame[column], image)}")
        return column
    likely = [name for name in called("patient", names) if _can_be_patient(frame[name], image)]
    different = [name for name in likely if not _same_groups(frame[name], frame[likely[0]])]
    others = [name for name in names if name not in likely and _looks_like_ids(frame[name], image)]
    listed = [*likely, *others]
    unfit = [name for name in called("patient", names) if name not in likely]
    if likely and not different:
        guess, why = likely[0], f"called like one; {_groups(frame[likely[0]], image)}"
    else:
        guess = None
        why = (
            "several columns are called like one, and group the images differently"
            if likely
            else f"{_why_none(frame, unfit)}. Without patients, images of one person may come to stand on both sides "
            f"of a split; if you must, say {flag} {NONE}, and every image counts as a patient of its own{hint}"
        )
    column = chooser.choose("patient column", flag, guess, [*listed, NONE] if not likely else listed, why)
    if column == NONE:
        return None
    also = [name for name in likely if name != column]
    beside = f"; {', '.join(also)} groups them alike" if also and column in likely and not different else ""
    found.take("patient", column, (why if column == guess else f"chosen; {_groups(frame[column], image)}") + beside)
    return column


def _why_none(frame: pd.DataFrame, unfit: Sequence[str]) -> str:
    """Why no column is taken for the patient's, though these are called like one."""
    if not unfit:
        return "no column is called like one"
    empty = frame[unfit[0]].isna()
    if empty.mean() <= 1 - _ENOUGH:
        return f"'{unfit[0]}' is called like one, but says different things of one image"
    return (
        f"'{unfit[0]}' is called like one, but {count(int(empty.sum()), len(frame))} are empty (the first in "
        f"{listed_rows(frame.index[empty][:1])}): fill it in on every row, also where one cell stands for several"
    )


def _groups(cells: pd.Series, image: pd.Series) -> str:
    return f"{cells.nunique():,} patients of {image.nunique():,} images"


def _can_be_patient(cells: pd.Series, image: pd.Series) -> bool:
    """Filled, and one for each image."""
    if cells.notna().mean() < _ENOUGH:
        return False
    known = pd.DataFrame({"image": image, "patient": cells}).dropna().drop_duplicates()
    return bool(known["image"].duplicated().mean() < 1 - _ENOUGH)


def _looks_like_ids(cells: pd.Series, image: pd.Series) -> bool:
    """Many different cells, and some images in common."""
    share = cells.nunique() / max(1, image.nunique())
    return _can_be_patient(cells, image) and 0.2 < share <= 1 and not cells.str.contains(r"\s", na=False).mean() > 0.5


def _same_groups(first: pd.Series, second: pd.Series) -> bool:
    pairs = pd.DataFrame({"a": first, "b": second}).dropna().drop_duplicates()
    return bool(pairs["a"].is_unique and pairs["b"].is_unique)


def find_study(frame: pd.DataFrame, image: pd.Series, choices: Choices, found: Found) -> None:
    """The column of the study, if one is called so."""
    if _said(frame, "study", choices, found):
        return
    taken = found.columns.values()
    likely = [name for name in called("study", list(map(str, frame))) if name not in taken]
    likely = [name for name in likely if _can_be_patient(frame[name], image)]
    if likely:
        also = f"; so are {', '.join(likely[1:])}" if likely[1:] else ""
        found.take("study", likely[0], f"called like one; {frame[likely[0]].nunique():,} different{also}")


def find_worded(frame: pd.DataFrame, what: str, known: Mapping[str, str], choices: Choices, found: Found) -> None:
    """The column of views, splits or sexes: by its name and by its words."""
    taken = set(found.columns.values())
    if choices.columns.get(what) == NONE:
        return
    said = choices.columns.get(what)
    column = None if said is None else named_column(said, list(map(str, frame)), f"--{what}-column")
    how = "as said"
    if column is None:
        likely = [name for name in called(what, list(map(str, frame))) if name not in taken]
        shares = {name: _share_known(frame[name], _with_own(known, what, frame[name])) for name in likely}
        good, how = [name for name, share in shares.items() if share >= _ENOUGH], "by name and words"
        if what == "view" and not good:  # a lateral that is not told would train
            telling = [name for name in likely if shares[name] >= _TELLING and frame[name].nunique() <= _MOST_WORDS]
            good = sorted(telling, key=lambda name: -shares[name])[:1]
        for name in (name for name in likely if name not in good and frame[name].notna().any()):
            found.unsure.append(
                f"'{name}' is called like the {what}, but {shares[name]:.0%} of its cells are known words: not used. "
                f"If it is the {what}, say --{what}-column {name}"
            )
        if what == "view" and not good:
            free = [str(name) for name in frame if name not in taken and name not in likely]
            good, how = [name for name in free if _tells_views(frame[name])], "by its words alone"
        if not good:
            return
        column = good[0]
    cells = frame[column].dropna()
    counts = cells.str.strip().str.lower().value_counts()
    if len(counts) > _MOST_WORDS:
        raise ConfigError(f"--{what}-column {column}: {len(counts):,} different cells are no {what}")
    known = _with_own(known, what, cells)
    told: dict[str, str] = {}
    strange = []
    for word in map(str, counts.index):
        meaning = known.get(words.plain(word))
        if meaning is not None:
            told[word] = meaning
        elif word in words.MISSING:
            found.missing[word] = what
        else:
            strange.append(word)
    if strange and what == "split":
        text = f"{len(strange)} of {len(counts)} words are no split that is known here"
        if said is not None:
            raise ConfigError(f"--split-column {column}: {text}")
        found.unsure.append(f"'{column}' is called like the split, but {text}: not used")
        return
    if strange:
        found.unsure.append(_unknown_words(column, what, strange, cells))
        told |= {word: "unknown" for word in strange if counts[word] >= SHOWN_FROM}
    found.words[what] = told
    spread: Counter[str] = Counter()
    for word, number in zip(map(str, counts.index), counts.tolist(), strict=True):
        spread[told.get(word, "missing")] += number
    shown = ", ".join(f"{number:,} {meaning}" for meaning, number in spread.most_common())
    found.take(what, column, f"{how}: {shown}")


def _with_own(known: Mapping[str, str], what: str, cells: pd.Series) -> Mapping[str, str]:
    """The known words, with those of this column that follow from them.

    Of views those with words beside them; of sexes the initials of hombre, homme, homem and varon: M beside these is
    mujer or mulher.
    """
    own = set(cells.dropna().str.strip().str.lower().unique())
    if what == "view":
        told = {words.plain(word): words.view_of(word) for word in own}
        return {**known, **{word: view for word, view in told.items() if view is not None}}
    men = {"h", "v"}.intersection(own)
    if what != "sex" or not men or ("f" in own and "m" in own):
        return known
    return {**known, **dict.fromkeys(men, "M"), **({"m": "F"} if "m" in own else {})}


def _tells_views(cells: pd.Series) -> bool:
    """Nothing but views, and several of them."""
    told = [words.view_of(word) for word in cells.dropna().unique()] if cells.nunique() <= _MOST_WORDS else []
    return None not in told and len(set(told) & {"pa", "ap", "frontal", "lateral"}) > 1


def _unknown_words(column: str, what: str, strange: Sequence[str], cells: pd.Series) -> str:
    """What happens to words that are not known; a rare one may be a name that strayed there, and is not written."""
    own = cells.str.strip().str.lower()
    counts = own.value_counts()
    rare = sum(counts[word] < SHOWN_FROM for word in strange)
    often = [word for word in strange if counts[word] >= SHOWN_FROM]
    rows = listed_rows(own.index[own.isin(often)])
    kept = "; laterals among them would train" if what == "view" else ""
    parts = [f"{len(often)} words not known for the {what} are taken as unknown ({rows}){kept}"] if often else []
    parts += (
        [f"{rare} that stand in fewer than {SHOWN_FROM} rows are not written down: their rows will be named"]
        if rare
        else []
    )
    return f"'{column}': {'; '.join(parts)}"


def listed_rows(rows: Sequence[int] | pd.Index) -> str:
    """`row 7`, or the first of several."""
    shown = ", ".join(str(row) for row in rows[:_SHOWN_ROWS])
    more = len(rows) - _SHOWN_ROWS
    return f"row{'s' if len(rows) != 1 else ''} {shown}" + (f" and {more:,} more" if more > 0 else "")


def _share_known(cells: pd.Series, known: Mapping[str, str]) -> float:
    given = cells.dropna()
    if given.empty:
        return 0.0
    counts = given.value_counts()
    good = [words.plain(str(word)) in known or str(word).strip().lower() in words.MISSING for word in counts.index]
    return float(counts[np.array(good)].sum() / counts.sum())


def find_age(frame: pd.DataFrame, choices: Choices, found: Found) -> None:
    """The column of the age: by its name, and because its cells are ages."""
    if choices.columns.get("age") == NONE:
        return
    said = choices.columns.get("age")
    taken = set(found.columns.values())
    names = list(map(str, frame))
    likely = (
        [named_column(said, names, "--age-column")] if said else [n for n in called("age", names) if n not in taken]
    )
    for name in likely:
        cells = frame[name].dropna()
        if cells.empty:
            continue
        years = ages(cells)
        bad = cells[np.isnan(years)].str.strip().str.lower()
        if len(bad) > (1 - _ENOUGH) * len(cells) or bad.nunique() > _MOST_WORDS:
            text = f"'{name}' is called like the age, but {count(len(cells) - len(bad), len(cells))} are ages: not used"
            found.unsure.append(text)
            continue
        often = bad.value_counts()
        plain = [word for word in map(str, often.index) if often[word] >= SHOWN_FROM or _NUMBER.fullmatch(word)]
        found.missing |= dict.fromkeys([*plain, *words.MISSING.intersection(often.index)], "age")
        if rest := len(often.index.difference(list(found.missing))):
            found.unsure.append(
                f"'{name}': {rest} cells are no ages and are not written down: their rows will be named"
            )
        left = f"; {len(bad):,} others count as missing" if len(bad) else ""
        span = f"{np.nanmin(years):.0f} to {np.nanmax(years):.0f}"
        found.take(
            "age",
            name,
            f"{'as said' if said else 'by name'}: {count(len(cells) - len(bad), len(cells))} are ages, {span}{left}",
        )
        return


def _said(frame: pd.DataFrame, what: str, choices: Choices, found: Found) -> bool:
    """Whether a flag settles it."""
    said = choices.columns.get(what)
    if said is None:
        return False
    if said != NONE:
        found.take(what, named_column(said, list(map(str, frame)), f"--{what}-column"), "as said")
    return True

"""Labels in columns of their own: a column per finding, and perhaps a row per annotator."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Final

import pandas as pd

from chestfed.core.diseases import TITLES
from chestfed.core.errors import ConfigError
from chestfed.new_site.choosing import NONE, Choices, Chooser, named_column
from chestfed.new_site.columns.found import Found, called
from chestfed.new_site.diseases import disease_of
from chestfed.new_site.labeling import (
    MEANINGS,
    MOST_VALUES,
    Labels,
    Values,
    are_values,
    doubts,
    nothing_found,
    strange_values,
    values_of,
)

#: More different annotators than this are something else, such as coordinates.
_MOST_READERS: Final = 50


def label_columns(frame: pd.DataFrame, free: Sequence[str], choices: Choices) -> dict[str, str]:
    """Column -> the disease that it is about, of those that hold values; the flags' first."""
    said = {name: disease for disease, names in choices.labels.items() for name in names if name in free}
    guessed = {}
    for name in free:
        match = disease_of(name)
        if match is not None and match.disease not in choices.labels and frame[name].notna().any():
            guessed[name] = match.disease
    return {
        **said,
        **{name: of for name, of in guessed.items() if _mostly_values(values_of(frame[name], choices))},
    }


def _mostly_values(values: Values) -> bool:
    """Few words; whether they are known is looked at later, so that unknown ones are reported."""
    different = sum(len(found) for found in values.known.values()) + len(values.strange)
    return 0 < different <= MOST_VALUES


def by_columns(
    frame: pd.DataFrame,
    image: pd.Series,
    columns: Mapping[str, str],
    layout: str,
    choices: Choices,
    chooser: Chooser,
    found: Found,
) -> Labels:
    """The columns and values of each disease; with layout readers the annotator's column too."""
    if not columns:
        raise ConfigError(nothing_found(frame, list(map(str, frame)), choices))
    labels = Labels(layout)
    if layout == "readers":
        find_reader(frame, image, columns, choices, chooser, found, labels)
    total = Values({meaning: Counter() for meaning in MEANINGS}, Counter())
    for disease in (name for name in TITLES if name in columns.values()):
        labels.names[disease] = [name for name, of in columns.items() if of == disease]
        told = [_told(frame[name], disease, choices, total, found) for name in labels.names[disease]]
        labels.evidence[disease] = "; ".join(told)
    labels.keys["values"] = {
        meaning: sorted(total.known[meaning]) for meaning in MEANINGS if total.known[meaning] or meaning != "blank"
    }
    labels.evidence["values"] = "; ".join(
        f"{meaning} {total.number(meaning):,} cells" for meaning in MEANINGS if total.number(meaning)
    )
    _policies(labels, choices, total)
    for disease, names in labels.names.items():
        negatives = sum(values_of(frame[name], choices).number("negative") for name in names)
        if labels.blank == "missing" and not negatives:
            labels.notes.append(
                f"{', '.join(names)} ({disease}) never says no, and empty cells count as missing: there is no "
                f"negative. Say --blank negative, or --label {disease}={NONE}"
            )
    others = [str(n) for n in frame if n not in columns and n not in found.columns.values()]
    others = [name for name in others if are_values(values_of(frame[name], choices))]
    if others:
        labels.notes.append(f"label columns without a disease known here, not used: {', '.join(others)}")
    return labels


def _told(cells: pd.Series, disease: str, choices: Choices, total: Values, found: Found) -> str:
    """What a column says of a disease, counted into `total`."""
    values = values_of(cells, choices)
    if values.strange:
        found.stops.append(strange_values(cells, disease, values))
    for meaning in MEANINGS:
        total.known[meaning].update(values.known[meaning])
    match = disease_of(str(cells.name))
    how = "given on the command line" if disease in choices.labels or match is None else match.why
    empty = int(cells.isna().sum()) + values.number("blank")
    shown = [f"{values.number(meaning):,} {meaning}" for meaning in MEANINGS[:3] if values.number(meaning)]
    return f"{how}: {', '.join(shown) or 'all empty'}" + (f", {empty:,} empty" if empty else "")


def find_reader(
    frame: pd.DataFrame,
    image: pd.Series,
    columns: Collection[str],
    choices: Choices,
    chooser: Chooser,
    found: Found,
    labels: Labels,
) -> None:
    """The annotator of each row, if images have several rows; `columns` hold labels.

    In a long table images have several rows in any case, so that a column must be called like an annotator, or have as
    many values for each image, to be taken or asked about.
    """
    flag, said, long = "--reader-column", choices.columns.get("reader"), labels.layout == "long"
    free = [str(n) for n in frame if n not in columns and n not in found.columns.values()]
    if said is not None:
        column, why = (
            said if said == NONE else named_column(said, list(map(str, frame)), flag),
            "given on the command line",
        )
    else:
        fitting = [name for name in free if (_varies if long else _tells_readers)(frame[name], image)]
        likely = called("reader", fitting)
        if long and not likely:
            maybe = [name for name in fitting if not _depends_on(frame[name], frame[list(columns)])]
            fitting = [name for name in maybe if _as_many(frame[name], image)]
            labels.notes += [
                f"'{name}' has several values for one image: if they are annotators, say {flag} {name} to count their "
                "votes; else what any of their rows says is taken"
                for name in maybe
                if name not in fitting
            ]
            if not fitting:
                return
        guess = likely[0] if len(likely) == 1 else None
        why = f"images have {int(image.notna().sum()) / max(1, image.nunique()):.1f} rows each"
        why += ", and no column has the name of an annotator" if not likely else ""
        column = chooser.choose("annotator column", flag, guess, [*fitting, NONE] if long else fitting, why)
    if column == NONE and long:
        return
    per_image = float(frame[column].groupby(image).nunique().median())
    labels.columns["reader"] = column
    labels.evidence["reader"] = f"{why}; {frame[column].nunique():,} annotators, {per_image:g} per image"
    labels.raters = choices.raters or ("majority" if per_image >= 3 else "any")
    guess = f"a guess, from {per_image:g} annotators per image"
    labels.evidence["raters"] = "given on the command line" if choices.raters else guess


def _tells_readers(cells: pd.Series, image: pd.Series) -> bool:
    """Filled, few different ones, and no image with two rows of one annotator."""
    if cells.isna().any() or cells.nunique() > max(2, len(cells) // 2):
        return False
    return not pd.DataFrame({"image": image, "reader": cells}).duplicated().any()


def _varies(cells: pd.Series, image: pd.Series) -> bool:
    """Filled, with a few different ones, and several of them for some images."""
    if cells.isna().any() or not 2 <= cells.nunique() <= _MOST_READERS:
        return False
    return bool(cells.groupby(image).nunique().gt(1).any())


def _as_many(cells: pd.Series, image: pd.Series) -> bool:
    """Whether all images have as many values, which are those of other images too."""
    return bool(cells.groupby(image).nunique().nunique() == 1 and 2 * cells.nunique() <= image.nunique())


def _depends_on(cells: pd.Series, others: pd.DataFrame) -> bool:
    """Whether the cell of some other column tells this one, as the name of a finding does its number."""
    return any(cells.groupby(others[name]).nunique().max() <= 1 for name in others)


def _policies(labels: Labels, choices: Choices, total: Values) -> None:
    """How uncertain and blank labels are treated."""
    negatives, said = total.number("negative"), "given on the command line"
    labels.uncertain = choices.uncertain or "missing"
    labels.evidence["uncertain"] = said if choices.uncertain else doubts(total.number("uncertain"), "cells")
    if choices.blank is not None:
        labels.blank, labels.evidence["blank"] = choices.blank, said
    elif negatives:
        labels.blank = "missing"
        labels.evidence["blank"] = f"{negatives:,} cells say no, so an empty one says nothing"
    else:
        labels.blank = "negative"
        labels.evidence["blank"] = "a guess: no cell says no, so an empty one must (--blank missing if not)"
        labels.notes.append("no cell says no: an empty one counts as negative (--blank missing if that is wrong)")

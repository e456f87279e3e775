"""How a table says which image has which disease: its layout, and what belongs to it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import pandas as pd

from chestfed.core.errors import ConfigError
from chestfed.new_site.choosing import NONE, Choices, Chooser
from chestfed.new_site.columns.found import Found, called
from chestfed.new_site.diseases import disease_of
from chestfed.new_site.label_columns import by_columns, label_columns
from chestfed.new_site.labeling import Labels, nothing_found
from chestfed.new_site.term_column import TermColumn, by_terms, find_term_column


def find_labels(
    frame: pd.DataFrame,
    image: pd.Series,
    choices: Choices,
    chooser: Chooser,
    found: Found,
    file: str,
    *,
    headers: bool = False,
    formulas: Collection[str] = (),
) -> Labels:
    """The layout and what belongs to it; `headers` if the columns are elements of DICOM headers.

    `file` is the name of the mapping table; `formulas` are the columns with formulas, which are empty here.

    Raises
    ------
    ConfigError
        If no disease is found, or the layout or its columns are uncertain and nobody can be asked.
    """
    free = [str(name) for name in frame if name not in found.columns.values()]
    onehot = {} if headers else label_columns(frame, free, choices)
    others = [name for name in free if name not in onehot]
    terms = find_term_column(frame, others, choices, chooser, has_columns=bool(onehot))
    rows_per_image = image.dropna().value_counts()
    several = bool(rows_per_image.gt(1).any())
    usual = bool(rows_per_image.gt(1).mean() > 0.5 or called("reader", free))
    named = choices.columns.get("findings") not in (None, NONE)
    guess = _layout({} if named else onehot, terms, several=several and usual)
    layout = "dicom" if headers else choices.layout or guess
    if layout in ("onehot", "readers"):
        labels = by_columns(frame, image, onehot, layout, choices, chooser, found)
        if layout == "onehot" and several:
            labels.notes.append(
                f"{rows_per_image.gt(1).sum():,} images have more than one row: remove duplicate rows, or, if several "
                "annotators labeled them, say --layout readers"
            )
        if terms is not None:
            _tell_unused(labels, [terms.column, *terms.others], "--findings-column NAME takes one of them")
    elif layout is None or terms is None:
        lost = "".join(f". {text}" for text in _lost_to_formulas((), formulas))
        raise ConfigError(nothing_found(frame, free, choices) + lost)
    else:
        layout = "long" if layout == "delimited" and several and choices.layout is None else layout
        labels = by_terms(frame, image, terms, layout, choices, chooser, found, file)
        _tell_unused(labels, terms.others, "--findings-column NAME takes another one")
        _tell_unused(labels, list(onehot), "--layout onehot takes them")
    labels.notes += _lost_to_formulas(labels.names, formulas)
    return labels


def _tell_unused(labels: Labels, columns: Sequence[str], way: str) -> None:
    """That columns with findings are not taken."""
    if columns:
        listed = ", ".join(f"'{name}'" for name in columns)
        verb = "holds" if len(columns) == 1 else "hold"
        labels.notes.append(f"{listed} {verb} findings too: not used ({way})")


def _lost_to_formulas(named: Collection[str], formulas: Collection[str]) -> list[str]:
    """The diseases that only a column of formulas is called like."""
    lost: dict[str, list[str]] = {}
    for column in formulas:
        match = disease_of(column)
        if match is not None and match.disease not in named:
            lost.setdefault(match.disease, []).append(f"'{column}'")
    return [
        f"{disease} is lost, because {', '.join(columns)} holds formulas: paste that column as values, and export again"
        for disease, columns in lost.items()
    ]


def _layout(onehot: Mapping[str, str], terms: TermColumn | None, *, several: bool) -> str | None:
    """The one that covers more diseases; columns if both cover as many."""
    of_columns = len(set(onehot.values()))
    if terms is None or (of_columns and of_columns >= len(terms.diseases)):
        return None if not of_columns else "readers" if several else "onehot"
    return "list" if terms.lists else "delimited"

"""How a table says which image has which disease: its layout, and what belongs to it."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from chestfed.errors import ConfigError
from chestfed.new_site.choosing import Choices, Chooser
from chestfed.new_site.columns import Found, called
from chestfed.new_site.label_columns import by_columns, label_columns
from chestfed.new_site.label_terms import by_terms, term_column
from chestfed.new_site.labelling import Labels, nothing_found
from chestfed.new_site.terms import TermColumn


def find_labels(
    frame: pd.DataFrame, image: pd.Series, choices: Choices, chooser: Chooser, found: Found, *, headers: bool = False
) -> Labels:
    """The layout and what belongs to it; `headers` if the columns are elements of DICOM headers.

    Raises
    ------
    ConfigError
        If no disease is found, or the layout or its columns are not certain and nobody can be asked.
    """
    free = [str(name) for name in frame if name not in found.columns.values()]
    onehot = {} if headers else label_columns(frame, free, choices)
    findings = term_column(frame, [name for name in free if name not in onehot], choices, chooser, bool(onehot))
    rows_per_image = image.dropna().value_counts()
    several = bool(rows_per_image.gt(1).any())
    usual = bool(rows_per_image.gt(1).mean() > 0.5 or called("reader", free))
    layout = "dicom" if headers else choices.layout or _layout(onehot, findings, several=several and usual)
    if layout in ("onehot", "readers"):
        labels = by_columns(frame, image, onehot, layout, choices, chooser, found)
        if layout == "onehot" and several:
            labels.notes.append(
                f"{rows_per_image.gt(1).sum():,} images stand in more than one row: remove the rows that are double, "
                "or, if several readers labelled them, say --layout readers"
            )
        if layout == "onehot" and findings is not None and choices.layout is None:
            labels.notes.append(f"'{findings.column}' holds findings too: not used (--layout, --findings-column)")
        return labels
    if layout is None or findings is None:
        raise ConfigError(nothing_found(frame, free, choices))
    if layout == "delimited" and several and choices.layout is None:
        layout = "long"
    return by_terms(frame, image, findings, layout, choices, chooser, found)


def _layout(onehot: Mapping[str, str], terms: TermColumn | None, *, several: bool) -> str | None:
    """By which more diseases are told; of columns and terms that tell as many, the columns."""
    of_columns = len(set(onehot.values()))
    of_terms = len(terms.diseases) if terms is not None else 0
    if not of_columns and not of_terms:
        return None
    if of_columns >= of_terms:
        return "readers" if several else "onehot"
    assert terms is not None
    return "list" if terms.lists else "delimited"

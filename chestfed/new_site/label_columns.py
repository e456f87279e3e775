"""Labels in columns of their own: a column per finding, and perhaps a row per reader."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

import pandas as pd

from chestfed.core.diseases import TITLES
from chestfed.core.errors import ConfigError
from chestfed.new_site.choosing import NONE, Choices, Chooser, named_column
from chestfed.new_site.columns import Found, called
from chestfed.new_site.diseases import disease_of
from chestfed.new_site.labelling import (
    MEANINGS,
    MOST_VALUES,
    Labels,
    Values,
    are_values,
    doubts,
    nothing_found,
    refuse_strange,
    values_of,
)


def label_columns(frame: pd.DataFrame, free: Sequence[str], choices: Choices) -> dict[str, str]:
    """Column -> the disease that it is about, of those that hold values; the flags' first."""
    said: dict[str, str] = {}
    for disease, names in choices.labels.items():
        for name in names:
            if name in free:
                said[name] = disease
    guessed = {}
    for name in free:
        match = disease_of(name)
        if match is not None and match.disease not in choices.labels and frame[name].notna().any():
            guessed[name] = match.disease
    guessed = {name: disease for name, disease in guessed.items() if _mostly_values(values_of(frame[name], choices))}
    return {**said, **guessed}


def _mostly_values(values: Values) -> bool:
    """Few words, and known ones among them, or none known at all: then the values are what is to be told."""
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
    """The columns and values of each disease; with layout readers the reader's column too."""
    if not columns:
        raise ConfigError(nothing_found(frame, list(map(str, frame)), choices))
    labels = Labels(layout)
    if layout == "readers":
        _find_reader(frame, image, columns, choices, chooser, found, labels)
    total = _no_values()
    for disease in (name for name in TITLES if name in columns.values()):
        names = [name for name, of in columns.items() if of == disease]
        labels.names[disease] = names
        told = []
        for name in names:
            values = values_of(frame[name], choices)
            refuse_strange(frame[name], disease, values)
            for meaning in MEANINGS:
                total.known[meaning].update(values.known[meaning])
            match = disease_of(name)
            how = "as said" if disease in choices.labels or match is None else match.how
            empty = int(frame[name].isna().sum()) + values.number("blank")
            shown = [f"{values.number(meaning):,} {meaning}" for meaning in MEANINGS[:3] if values.number(meaning)]
            told.append(f"{how}: {', '.join(shown) or 'nothing said'}" + (f", {empty:,} empty" if empty else ""))
        labels.evidence[disease] = "; ".join(told)
    labels.keys["values"] = {meaning: sorted(total.known[meaning]) for meaning in MEANINGS if total.known[meaning]}
    for meaning in MEANINGS[:3]:
        labels.keys["values"].setdefault(meaning, [])
    labels.evidence["values"] = "; ".join(
        f"{meaning} {total.number(meaning):,} cells" for meaning in MEANINGS if total.number(meaning)
    )
    _policies(labels, choices, negatives=total.number("negative"), uncertain=total.number("uncertain"), kind="cell")
    for disease, names in labels.names.items():
        negatives = sum(values_of(frame[name], choices).number("negative") for name in names)
        if labels.blank == "missing" and not negatives:
            labels.notes.append(
                f"{', '.join(names)} ({disease}) never says no, and empty cells count as missing: nothing is left to "
                f"tell it from. Say --blank negative, or --label {disease}={NONE}"
            )
    others = [str(n) for n in frame if n not in columns and n not in found.columns.values()]
    others = [name for name in others if are_values(values_of(frame[name], choices))]
    if others:
        labels.notes.append(f"label columns that mean no disease known here, not used: {', '.join(others)}")
    return labels


def _no_values() -> Values:
    return Values({meaning: Counter() for meaning in MEANINGS}, Counter())


def _find_reader(
    frame: pd.DataFrame,
    image: pd.Series,
    columns: Collection[str],
    choices: Choices,
    chooser: Chooser,
    found: Found,
    labels: Labels,
) -> None:
    flag, said = "--reader-column", choices.columns.get("reader")
    free = [str(n) for n in frame if n not in columns and n not in found.columns.values()]
    if said is not None:
        column, why = named_column(said, list(map(str, frame)), flag), "as said"
    else:
        fitting = [name for name in free if _tells_readers(frame[name], image)]
        likely = called("reader", fitting)
        guess = likely[0] if len(likely) == 1 else None
        rows = int(image.notna().sum())
        why = f"images stand in {rows / max(1, image.nunique()):.1f} rows each"
        why += ", and no column is called like a reader" if not likely else ""
        column = chooser.choose("reader column", flag, guess, fitting, why)
    per_image = float(image.dropna().value_counts().median())
    labels.columns["reader"] = column
    labels.evidence["reader"] = f"{why}; {frame[column].nunique():,} readers, {per_image:g} per image"
    labels.raters = choices.raters or ("majority" if per_image >= 3 else "any")
    labels.evidence["raters"] = "as said" if choices.raters else f"a guess, from {per_image:g} readers per image"


def _tells_readers(cells: pd.Series, image: pd.Series) -> bool:
    """Filled, few different ones, and no image twice by the same."""
    if cells.isna().any() or cells.nunique() > max(2, len(cells) // 2):
        return False
    return not pd.DataFrame({"image": image, "reader": cells}).duplicated().any()


def _policies(labels: Labels, choices: Choices, *, negatives: int, uncertain: int, kind: str) -> None:
    """What uncertain and blank labels count as."""
    labels.uncertain = choices.uncertain or "missing"
    labels.evidence["uncertain"] = "as said" if choices.uncertain else doubts(uncertain, f"{kind}s")
    if choices.blank is not None:
        labels.blank, labels.evidence["blank"] = choices.blank, "as said"
    elif negatives:
        labels.blank, labels.evidence["blank"] = (
            "missing",
            f"{negatives:,} {kind}s say no, so that an empty one says nothing",
        )
    else:
        labels.blank = "negative"
        labels.evidence["blank"] = f"a guess: no {kind} says no, so that an empty one must (--blank missing if not)"
        labels.notes.append(f"no {kind} says no: an empty one is taken as negative (--blank missing if that is wrong)")

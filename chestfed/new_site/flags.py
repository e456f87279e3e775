"""Flags that would end up in no key of the YAML: an error, because the user would take them as followed."""

from __future__ import annotations

import pandas as pd

from chestfed.core.errors import ConfigError
from chestfed.new_site.choosing import NONE, Choices
from chestfed.new_site.columns.found import Found
from chestfed.new_site.labeling import Labels
from chestfed.sites.reader import canonical

_TERMS = ("delimited", "list", "long", "dicom")


def refuse_idle(choices: Choices, labels: Labels, frame: pd.DataFrame, found: Found, *, headers: bool) -> None:
    """Stop at flags that the site that was found has no use for.

    Raises
    ------
    ConfigError
        With every such flag and what to do instead.
    """
    layout = labels.layout
    columns = {what for what, name in choices.columns.items() if name != NONE}
    idle = []
    if headers:
        idle += [
            f"--{what}-column: without a table it is the DICOM element for it"
            for what in sorted(choices.columns)
            if what not in ("findings",)
        ]
        named = ("layout", "delimiter", "encoding", "sheet", "header_row", "raters")
        idle += [f"--{key.replace('_', '-')}: there is no table" for key in named if getattr(choices, key) is not None]
    if "reader" not in labels.columns and not headers:
        why = {"long": "it needs the column of the annotator (--reader-column)"}.get(
            layout, "it needs one row per image and annotator (--layout readers), or per finding and annotator"
        )
        idle += [f"--reader-column: layout '{layout}' has none; {why}"] if "reader" in columns else []
        idle += [f"--raters: the table has no annotators; {why}"] if choices.raters is not None else []
    if layout not in _TERMS:
        idle += [f"--findings-column: layout '{layout}' takes columns of labels"] if "findings" in columns else []
    if layout != "long" and "value" in columns and not headers:
        idle.append(f"--value-column: only layout 'long' has one, and this is '{layout}'")
    if layout not in ("delimited", "dicom") and choices.separator is not None:
        idle.append(f"--separator: layout '{layout}' has none")
    idle += _idle_values(choices, labels, frame)
    for what, words in choices.words.items():
        column = found.columns.get(what)
        held = set() if column is None else set(frame[column].dropna().str.strip().str.lower())
        where = f"the column of the {what}, '{column}'" if column is not None else f"a column of the {what}"
        idle += [f"--word {what}:{word}: no cell of {where} is '{word}'" for word in words if word not in held]
    if idle:
        raise ConfigError("flags that would have no effect:\n" + "\n".join(f"  {text}" for text in idle))


def _idle_values(choices: Choices, labels: Labels, frame: pd.DataFrame) -> list[str]:
    """What `--value` explains and no cell of a label column holds."""
    if labels.terms and "value" not in labels.columns:
        text = "what a term means is written into the column MEANING of the mapping table"
        return [f"--value {word}: {text}" for word in choices.values]
    named = [name for names in labels.names.values() for name in names] or [labels.columns["value"]]
    held = {canonical(str(cell)) for name in named for cell in frame[name].dropna().unique()}
    return [
        f"--value {word}: no cell of a label column is '{word}'"
        for word in choices.values
        if canonical(word) not in held
    ]

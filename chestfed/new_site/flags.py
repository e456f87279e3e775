"""Flags that would end up in no key of the YAML: an error, because the user would take them as followed."""

from __future__ import annotations

from chestfed.core.errors import ConfigError
from chestfed.new_site.work import NONE, Work
from chestfed.sites.reader import canonical
from chestfed.sites.spreadsheet.term_table import VALUE


def refuse_idle(work: Work) -> None:
    """Stop at flags that the site that was found has no use for.

    Raises `ConfigError` with every such flag and what to do instead.
    """
    choices, layout, headers = work.choices, work.layout, work.layout == "dicom"
    columns = {what for what, name in choices.columns.items() if name != NONE}
    idle = []
    if headers:
        asked = sorted(set(choices.columns) - {"findings"})
        idle += [f"--{what}-column: without a table it is the DICOM element for it" for what in asked]
        named = ("layout", "delimiter", "encoding", "sheet", "header_row", "raters")
        idle += [f"--{key.replace('_', '-')}: there is no table" for key in named if getattr(choices, key) is not None]
    elif "reader" not in work.columns:
        why = "it needs one row per image and annotator (--layout readers), or per finding and annotator"
        if layout == "long":
            why = "it needs the column of the annotator (--reader-column)"
        idle += [f"--reader-column: layout '{layout}' has none; {why}"] if "reader" in columns else []
        idle += [f"--raters: the table has no annotators; {why}"] if choices.raters is not None else []
    if not work.terms and "findings" in columns:
        idle.append(f"--findings-column: layout '{layout}' takes columns of labels")
    if layout != "long" and "value" in columns and not headers:
        idle.append(f"--value-column: only layout 'long' has one, and this is '{layout}'")
    if "separator" not in work.keys and choices.separator is not None:
        idle.append(f"--separator: layout '{layout}' has none")
    for disease, names in choices.labels.items() if not work.terms else ():
        strange = [name for name in names if name not in work.names.get(disease, [])]
        idle += [f"--label {disease}={name}: no free column is called '{name}'" for name in strange]
    idle += [*_idle_values(work), *_idle_words(work)]
    if idle:
        raise ConfigError("options that would have no effect:\n" + "\n".join(f"  {text}" for text in idle))


def _idle_values(work: Work) -> list[str]:
    """What `--value` explains and no cell of a label column holds."""
    words = work.choices.words.get(VALUE, {})
    if work.terms and "value" not in work.columns:
        text = "enter what a term means in the column MEANING of the mapping table"
        return [f"--value {word}: {text}" for word in words]
    named = [work.columns["value"]] if work.terms else [name for names in work.names.values() for name in names]
    held = {canonical(str(cell)) for name in named for cell in work.frame[name].dropna().unique()}
    strange = [word for word in words if canonical(word) not in held]
    return [f"--value {word}: no cell of a label column is '{word}'" for word in strange]


def _idle_words(work: Work) -> list[str]:
    """What `--word` explains and no cell of its column holds."""
    idle = []
    for what, words in work.choices.words.items():
        if what == VALUE:
            continue
        column = work.columns.get(what)
        held = set() if column is None else set(work.frame[column].dropna().str.strip().str.lower())
        where = f"a column of the {what}" if column is None else f"the column of the {what}, '{column}',"
        idle += [f"--word {what}:{word}: no cell of {where} is '{word}'" for word in words if word not in held]
    return idle

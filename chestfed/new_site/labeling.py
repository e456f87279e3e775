"""What is found out about the labels, and what the cells of a label column mean."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pandas as pd

from chestfed.core.diseases import TITLES
from chestfed.new_site import lexicon
from chestfed.new_site.choosing import NONE, Choices
from chestfed.new_site.columns.found import unknown_words
from chestfed.new_site.diseases import disease_of
from chestfed.sites.reader import canonical
from chestfed.sites.spreadsheet.term_table import TermRow

#: More different cells than this are not values of a label.
MOST_VALUES: Final = 12
MEANINGS: Final = ("positive", "negative", "uncertain", "blank")


@dataclass
class Labels:
    """The label side of a site's YAML, with the evidence per disease and key.

    `names` maps each disease to its columns, none where `terms`, the mapping table, says what it is called.
    """

    layout: str
    names: dict[str, list[str]] = field(default_factory=dict)
    evidence: dict[str, str] = field(default_factory=dict)
    columns: dict[str, str] = field(default_factory=dict)
    keys: dict[str, Any] = field(default_factory=dict)
    terms: tuple[TermRow, ...] = ()
    uncertain: str = "missing"
    blank: str = "missing"
    raters: str | None = None
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Values:
    """Canonical cells by meaning with their counts; `strange` are those without one."""

    known: Mapping[str, Counter[str]]
    strange: Counter[str]

    def number(self, meaning: str) -> int:
        """How many cells mean this."""
        return sum(self.known[meaning].values())


def values_of(cells: pd.Series, choices: Choices) -> Values:
    """What the cells of a column mean, counted; words that the flags explain come first."""
    counts: Counter[str] = Counter()
    for word, number in cells.dropna().value_counts().head(MOST_VALUES * 20).items():
        counts[canonical(str(word))] += int(number)
    said = {canonical(word): meaning for word, meaning in choices.values.items()}
    table = {**lexicon.VALUES, **({"-": "negative"} if "+" in counts else {}), **said}
    known: dict[str, Counter[str]] = {meaning: Counter() for meaning in MEANINGS}
    strange: Counter[str] = Counter()
    for word, number in counts.items():
        (known[table[word]] if word in table else strange)[word] += number
    return Values(known, strange)


def are_values(values: Values) -> bool:
    """Whether all are known, and some are positive."""
    return not values.strange and values.number("positive") > 0


def strange_values(cells: pd.Series, disease: str, values: Values) -> str:
    """What to do about unknown values of a column; the index of `cells` is the row in the file."""
    shown = unknown_words(cells.dropna().map(canonical), [word for word, _ in values.strange.most_common()])
    return (
        f"column '{cells.name}' ({disease}): unknown values: {shown}. Say what each means with --value WORD=MEANING "
        f"(positive, negative, uncertain, blank), or leave it out with --label {disease}={NONE}"
    )


def nothing_found(frame: pd.DataFrame, free: Sequence[str], choices: Choices) -> str:
    """Why there is nothing to learn from, and what could help."""
    scores = [name for name in free if disease_of(name) is not None and frame[name].nunique() > MOST_VALUES]
    if scores:
        return (
            f"labels: {', '.join(scores)}: called like diseases, but each holds more than {MOST_VALUES} different "
            "values, as scores or reports do. Turn them into words such as yes and no first"
        )
    like = [name for name in free if are_values(values_of(frame[name], choices))]
    listed = f" Columns that look like labels: {', '.join(like)}." if like else f" The columns are: {', '.join(free)}."
    return (
        f"labels: no column is called like a disease ({', '.join(TITLES)}), and none holds terms for one.{listed} Name "
        "a column of labels with --label cardiomegaly=COLUMN, or a column of findings in words with --findings-column"
    )


def doubts(number: int, kind: str) -> str:
    """Why uncertain labels count as they do."""
    if not number:
        return f"no {kind} are uncertain"
    return f"a guess: {number:,} {kind} are uncertain; positive or negative may suit you better (--uncertain)"

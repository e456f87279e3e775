"""Labels in words: which column holds them, which terms mean which disease, no finding, or nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pandas as pd

from chestfed.core.diseases import TITLES
from chestfed.core.errors import ConfigError
from chestfed.new_site.choosing import NONE, Choices, Chooser, named_column
from chestfed.new_site.columns import SHOWN_FROM, Found, called, count
from chestfed.new_site.labelling import (
    MEANINGS,
    Labels,
    Values,
    are_values,
    doubts,
    refuse_strange,
    values_of,
)
from chestfed.new_site.open_terms import Settled, settled
from chestfed.new_site.terms import TermColumn, look_at_terms
from chestfed.sites.findings import canonical
from chestfed.sites.spreadsheet.config import TableFormat
from chestfed.sites.terms import normal

#: Share of the cells of a column of findings that must say something that is known, if it is called like one, or not.
_TELLING, _TELLING_UNNAMED = 0.2, 0.5
#: From this share of denied terms on, a disease that is not named is not taken as absent.
_OFTEN_DENIED: Final = 0.2
#: What a flag says of a term -> what the term is.
_SAID: Final[Mapping[str, str]] = {"negative": "healthy", "blank": "other", "uncertain": "open"}


@dataclass(frozen=True)
class TermColumns:
    """The column of findings, and the others that hold findings."""

    best: TermColumn
    others: tuple[str, ...]


def term_column(
    frame: pd.DataFrame, free: Sequence[str], choices: Choices, chooser: Chooser, has_columns: bool
) -> TermColumns | None:
    """The column of findings, and the others that hold some; None if there is none.

    Raises
    ------
    ConfigError
        If it is not certain which, or nothing is known in the one that a flag names.
    """
    flag, named = "--findings-column", choices.columns.get("findings")
    separators = {} if choices.separator is None else {"separators": (choices.separator,)}
    said = _said(choices)
    if named == NONE:
        return None
    looked = [look_at_terms(frame[name], sample=True, said=said, **separators) for name in free]
    terms = [found for found in looked if found is not None and found.diseases]
    likely = called("findings", free)
    least = {t.column: _TELLING if t.column in likely or t.lists else _TELLING_UNNAMED for t in terms}
    good = [t for t in terms if t.share >= least[t.column]]
    if named is not None:
        column = named_column(named, list(map(str, frame)), flag)
    elif good:
        best = max(good, key=lambda t: (len(t.diseases), t.share))
        rivals = [t.column for t in good if len(t.diseases) == len(best.diseases) and t.share > 0.8 * best.share]
        among = [name for name in rivals if name in likely] if len(rivals) > 1 else rivals
        if len(among) != 1 and not has_columns:
            why = f"{', '.join(rivals)} all hold known findings"
            column = chooser.choose("findings column", flag, None, rivals, why)
        else:
            column = among[0] if len(among) == 1 else best.column
    elif terms and not has_columns:
        shown = "; ".join(f"{t.column}: {count(t.telling, t.cells)} have a known term" for t in terms)
        weak = [t.column for t in terms]
        column = chooser.choose("findings column", flag, None, weak, f"too few known terms ({shown})")
    else:
        return None
    found = look_at_terms(frame[column], sample=False, said=said, **separators)
    if found is None or not found.diseases:
        raise ConfigError(_no_term(frame[column], choices))
    return TermColumns(found, tuple(t.column for t in good if t.column != column))


def _said(choices: Choices) -> dict[str, str]:
    """What flags say of terms, for `read_term`."""
    meant = {normal(word): _SAID[meaning] for word, meaning in choices.values.items() if meaning in _SAID}
    return meant | {normal(name): disease for disease, names in choices.labels.items() for name in names}


def _no_term(cells: pd.Series, choices: Choices) -> str:
    often = cells.dropna().map(lambda cell: normal(str(cell))).value_counts()
    shown = [f"'{word}' ({number:,})" for word, number in often.head(10).items() if number >= SHOWN_FROM]
    listed = f" It holds {', '.join(shown)}." if shown else ""
    cut = "" if choices.separator else ", and what separates findings with --separator"
    return (
        f"findings column '{cells.name}': no term means a disease that is known here, or no finding.{listed} Say which "
        f"mean one with --label DISEASE=TERM{cut}"
    )


def by_terms(
    frame: pd.DataFrame, terms: TermColumn, layout: str, choices: Choices, chooser: Chooser, found: Found
) -> Labels:
    """The terms of each disease, and of none; with layout long the column of values too.

    Raises
    ------
    ConfigError
        If no term means a disease, or the terms of a cell cannot be read one by one.
    """
    if layout == "long":  # a cell is one term there
        whole = look_at_terms(frame[terms.column], (), sample=False, said=_said(choices))
        if whole is None:
            raise ConfigError(_no_term(frame[terms.column], choices))
        terms = whole
    if terms.sentences:
        raise ConfigError(
            f"findings column '{terms.column}': {count(terms.sentences, terms.cells)} are sentences, in which a denial "
            "or doubt may reach over several terms ('no a, b', 'possible a/b') or follows them ('a, absent'): cut into "
            "terms they could be wrong labels. Rewrite these cells as lists of findings, each with its own denial, "
            "what is there first, or cut with | or ;, or name another --separator. Reports need a labeller first"
        )
    labels = Labels(layout)
    role = "finding" if layout == "long" else "findings"
    labels.columns[role] = terms.column
    values = _find_value(frame, layout, terms.column, choices, chooser, found, labels) if layout == "long" else None
    denied_in = set() if values is None else _denied_by_value(frame, terms.column, labels.columns["value"], values)
    read = settled(terms, [d for d, names in choices.labels.items() if not names], denied_in, chooser)
    known = sum(number for term, number in read.counts.items() if term.known)
    told = f"{count(known, sum(read.counts.values()), 'terms')} are known, in {count(terms.telling, terms.cells)}"
    labels.evidence[role] = told
    _name_terms(labels, read)
    _name_unseen(labels, list(map(str, frame)), choices)
    if not labels.names:
        raise ConfigError(_no_term(frame[terms.column], choices))
    if terms.separator is not None and layout in ("delimited", "dicom"):
        labels.keys["separator"] = terms.separator
        labels.evidence["separator"] = "as said" if choices.separator else "cuts the cells into most known terms"
    if values is not None:
        labels.keys["values"] = {meaning: sorted(values.known[meaning]) for meaning in MEANINGS}
    _policies(labels, read, values, choices, empty=int(frame[terms.column].isna().sum()))
    return labels


def _name_terms(labels: Labels, read: Settled) -> None:
    """The terms of each disease, of no finding, those that say nothing, and those that are not understood."""
    by_word: Counter[str] = Counter()
    hows: dict[str, str] = {}
    for term, number in read.counts.items():
        by_word[term.word] += number
        hows[term.word] = term.how or "as said"
    for disease in TITLES:
        names = {term.word for term in read.counts if disease in term.diseases}
        if names:
            labels.names[disease] = sorted(names, key=lambda word: (-by_word[word], word))
            labels.evidence[disease] = _how_often(labels.names[disease], by_word, hows)
    for key, kind in (("no_finding", "healthy"), ("others", "other")):
        told = sorted({term.word for term in read.counts if term.kind == kind})
        if told:
            labels.keys[key] = told
            labels.evidence[key] = f"{sum(by_word[word] for word in told):,} cells"
    if "others" in labels.keys:
        shown = sorted(labels.keys["others"], key=lambda word: (-by_word[word], word))
        listed = ", ".join(f"{word} ({by_word[word]:,})" for word in shown[:20])
        more = f", and {len(shown) - 20:,} more" if len(shown) > 20 else ""
        labels.notes.append(f"findings that have nothing to do with the diseases known here: {listed}{more}")
    if read.unlabelled:
        labels.keys["unlabelled"] = list(read.unlabelled)
        labels.evidence["unlabelled"] = "not understood: beside them a disease that is not named is missing"
    labels.notes += read.notes
    for key, used in read.prefixes.items():
        default = TableFormat.model_fields[key].default
        if not used <= set(default):
            labels.keys[key] = [*default, *sorted(used - set(default))]
            labels.evidence[key] = f"the usual ones, and {', '.join(sorted(used - set(default)))}"


def _name_unseen(labels: Labels, columns: Sequence[str], choices: Choices) -> None:
    """The terms that a flag says and no cell holds: written, and told."""
    for disease, said in choices.labels.items():
        unseen = [name for name in map(normal, said) if name not in labels.names.get(disease, [])]
        unseen = [name for name in unseen if name not in map(normal, columns)]
        if unseen:
            labels.names[disease] = [*labels.names.get(disease, []), *unseen]
            labels.evidence[disease] = "; ".join(filter(None, [labels.evidence.get(disease), "as said: 0 cells"]))
            labels.notes.append(f"--label {disease}: no cell holds the term {', '.join(unseen)}")


def _how_often(names: Sequence[str], by_word: Mapping[str, int], hows: Mapping[str, str]) -> str:
    """Why, and in how many cells: of many names, by reason."""
    if len(names) <= 5:
        return "; ".join(f"{hows[name]}: {by_word[name]:,} cells" for name in names)
    cells: Counter[str] = Counter()
    for name in names:
        cells[hows[name]] += by_word[name]
    terms = Counter(hows[name] for name in names)
    return "; ".join(f"{how}: {terms[how]:,} terms, {number:,} cells" for how, number in cells.most_common())


def _policies(labels: Labels, read: Settled, values: Values | None, choices: Choices, *, empty: int) -> None:
    """What uncertain and blank labels count as; `empty` rows have no finding."""
    mentioned = [(term, number) for term, number in read.counts.items() if term.kind == "disease"]
    doubted = sum(number for term, number in mentioned if term.doubted)
    denied = sum(number for term, number in mentioned if term.denied)
    if values is not None:
        denied, doubted = values.number("negative"), doubted + values.number("uncertain")
    labels.uncertain = choices.uncertain or "missing"
    labels.evidence["uncertain"] = "as said" if choices.uncertain else doubts(doubted, "terms")
    total = sum(number for _, number in mentioned)
    unread = [(term, number) for term, number in read.counts.items() if term.kind == "open"]
    often = denied >= _OFTEN_DENIED * max(1, total)
    share = f"{count(denied, total, 'mentions of a disease')} deny it"
    if choices.blank is not None:
        labels.blank, labels.evidence["blank"] = choices.blank, "as said"
    elif unread or often:
        labels.blank = "missing"
        terms = f"{len(unread):,} terms in {sum(number for _, number in unread):,} cells are not understood"
        labels.evidence["blank"] = f"{terms if unread else share}, so that one not named is not known"
    else:
        labels.blank = "negative"
        labels.evidence["blank"] = (
            f"a guess: only what is there is named ({share}), so that one not named is absent (--blank missing if not)"
        )
        but = f", but in the {empty:,} rows whose cell is empty, which say nothing" if empty else ""
        labels.notes.append(f"a disease that is not named is taken as absent{but} (--blank missing if that is wrong)")
    if unread and choices.blank is None:
        labels.notes.append(
            "a disease that is not named is missing, and negative only beside a term of no finding or where it is "
            "denied. If cells name all that is there, say --blank negative: beside what is not understood it stays "
            "missing"
        )


def _denied_by_value(frame: pd.DataFrame, finding: str, value: str, values: Values) -> set[str]:
    """The terms, in `normal` form, that some row denies."""
    cells = frame[[finding, value]].dropna()
    no = cells[value].map(lambda cell: canonical(str(cell)) in values.known["negative"]).to_numpy(dtype=bool)
    return {normal(str(cell)) for cell in cells.loc[no, finding].unique()}


def _find_value(
    frame: pd.DataFrame,
    layout: str,
    finding: str,
    choices: Choices,
    chooser: Chooser,
    found: Found,
    labels: Labels,
) -> Values | None:
    """What is said of the finding of a row (long); None if a finding that has a row is there."""
    flag, said = "--value-column", choices.columns.get("value")
    if said == NONE:
        return None
    if said is not None:
        column, why = named_column(said, list(map(str, frame)), flag), "as said"
    else:
        free = [str(n) for n in frame if n != finding and n not in found.columns.values()]
        looked = {name: values_of(frame[name], choices) for name in free if frame[name].notna().any()}
        fitting = [name for name, values in looked.items() if are_values(values) and values.number("negative")]
        if not fitting:
            return None
        likely = called("value", fitting)
        why = "holds yes and no"
        guess = likely[0] if len(likely) == 1 else None
        column = chooser.choose("value column", flag, guess, [*fitting, NONE], f"{', '.join(fitting)} {why}")
        if column == NONE:
            return None
    values = values_of(frame[column], choices)
    refuse_strange(frame[column], "the finding", values)
    labels.columns["value"] = column
    told = ", ".join(f"{values.number(meaning):,} {meaning}" for meaning in MEANINGS if values.number(meaning))
    labels.evidence["value"] = f"{why}: {told}"
    return values

"""Labels in words: which terms mean which disease, no finding, or nothing, and what is said of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Final

import pandas as pd

from chestfed.diseases import TITLES
from chestfed.errors import ConfigError
from chestfed.new_site import words
from chestfed.new_site.choosing import NONE, Choices, Chooser, named_column
from chestfed.new_site.columns import SHOWN_FROM, Found, called, count
from chestfed.new_site.labelling import (
    MEANINGS,
    Labels,
    Values,
    are_values,
    doubts,
    nothing_found,
    refuse_strange,
    values_of,
)
from chestfed.new_site.terms import Term, TermColumn, look_at_terms
from chestfed.sites.table_config import TableFormat

_MOST_OTHERS: Final = 60
#: Share of the cells of a column of findings that must say something that is known, if it is called like one, or not.
_TELLING, _TELLING_UNNAMED = 0.2, 0.5
#: From this share of denied terms on, a disease that is not named is not taken as absent.
_OFTEN_DENIED: Final = 0.2


def term_column(
    frame: pd.DataFrame, free: Sequence[str], choices: Choices, chooser: Chooser, has_columns: bool
) -> TermColumn | None:
    """The column of findings; None if there is none."""
    flag, said = "--findings-column", choices.columns.get("findings")
    separators = {} if choices.separator is None else {"separators": (choices.separator,)}
    if said == NONE:
        return None
    if said is not None:
        column = named_column(said, list(map(str, frame)), flag)
    else:
        looked = [look_at_terms(frame[name], sample=True, **separators) for name in free]
        terms = [found for found in looked if found is not None and found.diseases]
        named = called("findings", free)
        least = {t.column: _TELLING if t.column in named or t.lists else _TELLING_UNNAMED for t in terms}
        good = [t for t in terms if t.share >= least[t.column]]
        if not good:
            if terms and not has_columns:
                shown = "; ".join(f"{t.column}: {count(t.telling, t.cells)} have a known term" for t in terms)
                weak = [t.column for t in terms]
                column = chooser.choose("findings column", flag, None, weak, f"too few known terms ({shown})")
            else:
                return None
        else:
            best = max(good, key=lambda t: (len(t.diseases), t.share))
            rivals = [t.column for t in good if len(t.diseases) == len(best.diseases) and t.share > 0.8 * best.share]
            likely = [name for name in rivals if name in named] if len(rivals) > 1 else rivals
            if len(likely) != 1 and not has_columns:
                why = f"{', '.join(rivals)} all hold known findings"
                column = chooser.choose("findings column", flag, None, rivals, why)
            else:
                column = likely[0] if len(likely) == 1 else best.column
    return look_at_terms(frame[column], sample=False, **separators)


def by_terms(
    frame: pd.DataFrame,
    image: pd.Series,
    terms: TermColumn,
    layout: str,
    choices: Choices,
    chooser: Chooser,
    found: Found,
) -> Labels:
    """The terms of each disease, and of none; with layout long the column of values too."""
    labels = Labels(layout)
    labels.columns["finding" if layout == "long" else "findings"] = terms.column
    known = sum(number for term, number in terms.counts.items() if term.known)
    told = f"{count(known, sum(terms.counts.values()), 'terms')} are known, in {count(terms.telling, terms.cells)}"
    labels.evidence["finding" if layout == "long" else "findings"] = told
    _name_terms(labels, terms, choices)
    if not labels.names:
        raise ConfigError(nothing_found(frame, list(map(str, frame)), choices))
    if terms.separator is not None and layout in ("delimited", "dicom"):
        labels.keys["separator"] = terms.separator
        labels.evidence["separator"] = "as said" if choices.separator else "cuts the cells into most known terms"
    mentioned = [(term, number) for term, number in terms.counts.items() if term.match is not None]
    denied = sum(number for term, number in mentioned if term.denied)
    doubted = sum(number for term, number in mentioned if term.doubted)
    values = _find_value(frame, layout, terms.column, choices, chooser, found, labels) if layout == "long" else None
    negatives = denied
    if values is not None:
        labels.keys["values"] = {meaning: sorted(values.known[meaning]) for meaning in MEANINGS}
        negatives, doubted = values.number("negative"), doubted + values.number("uncertain")
    labels.uncertain = choices.uncertain or "missing"
    labels.evidence["uncertain"] = "as said" if choices.uncertain else doubts(doubted, "terms")
    total = sum(number for _, number in mentioned)
    often = negatives >= _OFTEN_DENIED * max(1, total)
    labels.blank = choices.blank or ("missing" if often else "negative")
    share = f"{count(negatives, total, 'mentions of a disease')} deny it"
    labels.evidence["blank"] = (
        "as said"
        if choices.blank
        else f"{share}, so that one not named is not known"
        if often
        else f"a guess: only what is there is named ({share}), so that one not named is absent (--blank missing if not)"
    )
    if not often and choices.blank is None:
        labels.notes.append("a disease that is not named is taken as absent (--blank missing if that is wrong)")
    return labels


def _name_terms(labels: Labels, terms: TermColumn, choices: Choices) -> None:
    """The terms of each disease, of no finding, and those that say nothing."""
    by_word: Counter[str] = Counter()
    for term, number in terms.counts.items():
        by_word[term.word] += number
    said = {_word(name): disease for disease, names in choices.labels.items() for name in names}
    meaning = {term.word: _meaning(term, said, choices.labels) for term in terms.counts}
    for disease in TITLES:
        names = sorted((w for w, what in meaning.items() if what == disease), key=lambda w: -by_word[w])
        names += [word for word, what in said.items() if what == disease and word not in names]
        if names:
            labels.names[disease] = names
            labels.evidence[disease] = _how_often(names, by_word, terms, said)
    healthy = sorted(word for word, what in meaning.items() if what == "healthy")
    if healthy:
        labels.keys["no_finding"] = healthy
        labels.evidence["no_finding"] = f"{sum(by_word[word] for word in healthy):,} cells"
    _set_aside(labels, [word for word, what in meaning.items() if what is None], by_word)
    for key, used in (
        ("negations", {t.denied for t in terms.counts if t.denied}),
        ("uncertain_prefixes", {t.doubted for t in terms.counts if t.doubted and t.doubted not in words.DOUBT_SIGNS}),
    ):
        default = TableFormat.model_fields[key].default
        if not used <= set(default):
            labels.keys[key] = [*default, *sorted(used - set(default))]
            labels.evidence[key] = f"the usual ones, and {', '.join(sorted(used - set(default)))}"


def _word(name: str) -> str:
    return " ".join(name.lower().split())


def _meaning(term: Term, said: Mapping[str, str], settled: Collection[str]) -> str | None:
    if term.word in said:
        return said[term.word]
    if term.healthy:
        return "healthy"
    disease = term.match.disease if term.match is not None else None
    return None if disease in settled else disease


def _how_often(names: Sequence[str], by_word: Counter[str], terms: TermColumn, said: Mapping[str, str]) -> str:
    hows = {term.word: term.match.how for term in terms.counts if term.match is not None}
    return "; ".join(
        f"{'as said' if name in said else hows.get(name, 'as said')}: {by_word[name]:,} cells" for name in names
    )


def _set_aside(labels: Labels, others: Sequence[str], by_word: Counter[str]) -> None:
    """The terms that mean no disease: by name if all of them are frequent, otherwise all at once."""
    if not others:
        return
    frequent = sorted((word for word in others if by_word[word] >= SHOWN_FROM), key=lambda word: -by_word[word])
    rare = len(others) - len(frequent)
    if rare or len(others) > _MOST_OTHERS:
        labels.keys["others"] = "any"
        hidden = f", and {rare:,} that stand in fewer than {SHOWN_FROM} cells and are not shown" if rare else ""
        labels.evidence["others"] = f"{len(others):,} terms mean no disease known here"
    else:
        labels.keys["others"], hidden = sorted(frequent), ""
        labels.evidence["others"] = f"{sum(by_word[word] for word in others):,} cells"
    shown = ", ".join(f"{word} ({by_word[word]:,})" for word in frequent[:20])
    labels.notes.append(
        f"terms that mean no disease known here, and count as saying nothing: {shown or 'rare ones'}{hidden}"
    )


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

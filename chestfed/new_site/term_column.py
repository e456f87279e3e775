"""Labels in words: which column holds them, how its cells are cut into terms, and a first mapping table."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

import numpy as np
import pandas as pd

from chestfed.core.console import plural
from chestfed.core.diseases import DISEASES, in_order
from chestfed.core.errors import ConfigError
from chestfed.new_site import lexicon
from chestfed.new_site.diseases import Suggestion, diseases_in, suggest, suggest_value
from chestfed.new_site.labels import (
    by_columns,
    find_reader,
    label_columns,
    lost_to_formulas,
    meanings_of,
    nothing_found,
    policies,
    values_of,
)
from chestfed.new_site.work import NONE, SAID, Choices, Work, called, count, terms_file
from chestfed.sites.reader import NEGATIVE, POSITIVE, UNCERTAIN
from chestfed.sites.spreadsheet.term_labels import cut
from chestfed.sites.spreadsheet.term_table import LEXICON, LOOSE_SEPARATORS, TERM, YES, TermRow
from chestfed.sites.terms import IGNORED, Meaning, listed, normal, parse_meaning

_FLAG: Final = "--findings-column"
_FIRM_SEPARATORS: Final = ("|", ";")
#: Different cells of a column that are looked at to see whether it is one of findings.
_SAMPLE: Final = 1000
#: Share of the cells that must have a known term, if the column is called like findings, or not.
_TELLING, _TELLING_UNNAMED = 0.2, 0.5
#: Share of the cells that must hold a list.
_LISTS: Final = 0.95
#: More different terms than this are sentences.
_MANY: Final = 2000


@dataclass(frozen=True)
class TermColumn:
    """A column of findings: `telling` cells have a term of the lexicon, `lists` if cells hold lists."""

    column: str
    lists: bool
    separator: str | None
    cells: int
    telling: int
    score: float = field(repr=False)
    diseases: frozenset[str]
    others: tuple[str, ...] = ()

    @property
    def share(self) -> float:
        """Share of the cells with a known term."""
        return self.telling / self.cells if self.cells else 0.0


def find_labels(work: Work, *, headers: bool = False, formulas: Sequence[str] = ()) -> None:
    """The layout and what belongs to it; `headers` if the columns are elements of DICOM headers.

    `formulas` are the columns with formulas, which are empty here.

    Raises `ConfigError` if no disease is found, or the layout or its columns are uncertain and nobody can be asked.
    """
    onehot = {} if headers else label_columns(work)
    terms = find_term_column(work, [name for name in work.free if name not in onehot], has_columns=bool(onehot))
    rows_per_image = work.image.dropna().value_counts()
    several = bool(rows_per_image.gt(1).any())
    usual = several and bool(rows_per_image.gt(1).mean() > 0.5 or called("reader", work.free))
    named = work.choices.columns.get("findings") not in (None, NONE)
    layout = "dicom" if headers else work.choices.layout or _layout({} if named else onehot, terms, several=usual)
    if layout in ("onehot", "readers"):
        work.layout = layout
        by_columns(work, onehot)
        if layout == "onehot" and several:
            work.notes.append(
                f"images with more than one row: {rows_per_image.gt(1).sum():,}. Remove duplicate rows or, if several "
                f"annotators labeled them, use --layout readers"
            )
        if terms is not None:
            _tell_unused(work, [terms.column, *terms.others], f"{_FLAG} NAME selects one of them")
    elif layout is None or terms is None:
        lost = "".join(f". {text}" for text in lost_to_formulas(work, formulas))
        raise ConfigError(nothing_found(work) + lost)
    else:
        work.layout = "long" if layout == "delimited" and several and work.choices.layout is None else layout
        by_terms(work, terms)
        _tell_unused(work, terms.others, f"{_FLAG} NAME selects another column")
        _tell_unused(work, list(onehot), "--layout onehot uses them")
    work.notes += lost_to_formulas(work, formulas)


def _tell_unused(work: Work, columns: Sequence[str], way: str) -> None:
    """That columns with findings are not taken."""
    if columns:
        listed, verb = ", ".join(f"'{name}'" for name in columns), "holds" if len(columns) == 1 else "hold"
        work.notes.append(f"{listed} {verb} findings too: not used ({way})")


def _layout(onehot: dict[str, str], terms: TermColumn | None, *, several: bool) -> str | None:
    """The one that covers more diseases; columns if both cover as many."""
    of_columns = len(set(onehot.values()))
    if terms is None or (of_columns and of_columns >= len(terms.diseases)):
        return None if not of_columns else "readers" if several else "onehot"
    return "list" if terms.lists else "delimited"


def find_term_column(work: Work, free: Sequence[str], *, has_columns: bool) -> TermColumn | None:
    """The column of findings, with the others that hold some; None if there is none.

    Raises `ConfigError` if it is uncertain which, or its cells cannot be cut as a flag says.
    """
    column = work.said("findings")
    if column == NONE:
        return None
    frame, likely = work.frame, called("findings", free)
    looked = [look_at(frame[name], work.choices, called_so=name in likely, sample=True) for name in free]
    terms = [found for found in looked if found is not None and found.diseases]
    good = [t for t in terms if t.share >= (_TELLING if t.column in likely or t.lists else _TELLING_UNNAMED)]
    if column is None and good:
        best = max(good, key=lambda t: (len(t.diseases), t.share))
        rivals = [t.column for t in good if len(t.diseases) == len(best.diseases) and t.share > 0.8 * best.share]
        among = [name for name in rivals if name in likely] if len(rivals) > 1 else rivals
        column = among[0] if len(among) == 1 else best.column
        if len(among) != 1 and not has_columns:
            why = f"{', '.join(rivals)} all contain known findings"
            column = work.choose("findings column", _FLAG, None, rivals, why)
    elif column is None and (terms or likely) and not has_columns:
        shown = "; ".join(f"{t.column}: {count(t.telling, t.cells)} have a known term" for t in terms)
        weak = list(dict.fromkeys([*(t.column for t in terms), *likely]))
        column = work.choose("findings column", _FLAG, None, weak, f"too few known terms ({shown or 'none'})")
    if column is None:
        return None
    found = look_at(frame[column], work.choices, called_so=True, sample=False)
    if found is None:
        raise ConfigError(f"{_FLAG} {column}: the column is empty")
    return replace(found, others=tuple(t.column for t in good if t.column != column))


def look_at(cells: pd.Series, choices: Choices, *, called_so: bool, sample: bool) -> TermColumn | None:
    """The column as one of findings, cut so that most terms are known; None if it is empty.

    Cells are cut at `,`, `/`, `+` and `&` only if none of them denies or doubts anything: `no edema, effusion` has to
    stay one term.
    """
    counted = cells.dropna().value_counts()
    counted = counted.head(_SAMPLE) if sample else counted
    if counted.empty:
        return None
    pairs, total = [(str(cell), int(number)) for cell, number in counted.items()], int(counted.sum())
    said = {normal(term) for names in choices.labels.values() for term in names}

    def way(separator: str | None, parts: Callable[[str], list[str]], *, lists: bool = False) -> TermColumn:
        """Cut like this. A term that merely contains a name counts in columns that are called like findings."""
        telling, score, diseases = 0, 0.0, set[str]()
        for cell, number in pairs:
            known = False
            for term in (normal(text) for text in parts(cell) if text.strip()):
                found = suggest(term)
                counts = term in said or found.exact or (called_so and found.meaning is not None)
                known = known or (counts and found.meaning is not IGNORED)
                score += number * (1 if term in said or found.exact else 0.5 if counts else -0.25)
                diseases |= diseases_in([found.meaning]) if counts else set()
            telling += number if known else 0
        return TermColumn(str(cells.name), lists, separator, total, telling, score, frozenset(diseases))

    held = sum(number for cell, number in pairs if listed(cell) is not None)
    if held >= _LISTS * total and any(cell.startswith("[") for cell, _ in pairs):
        return way(None, lambda cell: listed(cell) or [], lists=True)
    ways = [way(None, lambda cell: [cell])]
    for separator in (*_FIRM_SEPARATORS, *LOOSE_SEPARATORS) if choices.separator is None else (choices.separator,):
        having = [(cell, number) for cell, number in pairs if separator in cell]
        if not having and choices.separator is None:
            continue
        turning = sum(number for cell, number in having if _turns(cell.split(separator)))
        if separator in LOOSE_SEPARATORS and turning:
            if choices.separator is None or sample:
                continue
            shown = count(turning, sum(number for _, number in having), "cells with it")
            raise ConfigError(
                f"--separator {separator}: {shown} negate or doubt something, and the negation may extend beyond "
                f"it ('no edema, effusion'). Omit --separator, so that each cell is one term of the mapping "
                f"table; or export the findings with | or ; between them"
            )
        ways.append(way(separator, partial(str.split, sep=separator)))
    if choices.separator is not None and not sample:
        return ways[-1]
    return max(ways, key=lambda way: (way.score, way.separator is None))


def _turns(terms: Sequence[str]) -> bool:
    """Whether one of the terms may reverse, deny or doubt what it names, or what another one does."""
    parts = [term.strip() for term in terms if term.strip()]
    meanings = [found for part in parts if (found := suggest(normal(part)).meaning) is not None]
    if any(code != POSITIVE for meaning in meanings for code in meaning.findings.values()):
        return True
    return any(not lexicon.is_clear(part) or lexicon.TURNING & set(lexicon.plain(part).split()) for part in parts)


def by_terms(work: Work, terms: TermColumn) -> None:
    """The mapping table of the column's terms, and the keys that go with it.

    Raises `ConfigError` if a flag names a term that no cell holds.
    """
    role = "finding" if work.layout == "long" else "findings"
    work.take(role, terms.column, f"{count(terms.telling, terms.cells)} have a term of the lexicon")
    value = _find_value(work) if work.layout == "long" else None
    if value is not None:
        work.take("value", value, "yes or no")
    cells, separator = work.frame[terms.column], terms.separator
    if work.layout in ("delimited", "dicom"):
        separator = separator or _unused(cells)
        work.keys["separator"] = separator
        why = (
            "splits the cells into the most known terms"
            if terms.separator
            else "does not occur, so each cell is a term"
        )
        work.evidence["separator"] = SAID if work.choices.separator else why
    if work.layout == "long":
        find_reader(work, [terms.column, *([] if value is None else [value])])
    codes, parts = cut(cells, work.layout, separator or "|", None if value is None else work.frame[value])
    number_of = np.bincount(codes, minlength=len(parts))
    counts: Counter[str] = Counter()
    for cell, number in zip(parts, number_of.tolist(), strict=True):
        counts.update(dict.fromkeys(cell or ([""] if cell is not None else []), number))
    said = None if value is None else meanings_of(work, [values_of(work, value).words])
    work.terms = tuple(_rows(+counts, work, said))
    _diseases(work)
    names = {row.term for row in work.terms if row.meant is None and row.term}
    held = sum(int(n) for cell, n in zip(parts, number_of, strict=True) if cell and not names.isdisjoint(cell))
    _describe(work, len(names), count(held, int(number_of.sum()), "rows"))


def _unused(cells: pd.Series) -> str:
    """A separator that no cell holds."""
    return next(sign for sign in ("|", ";", "||", "|||") if not cells.str.contains(sign, regex=False, na=False).any())


def _rows(counts: Counter[str], work: Work, values: Mapping[str, str] | None) -> list[TermRow]:
    """The terms' rows of the mapping table, the most frequent first; earlier confirmed rows stay.

    `values` say what the value behind the `=` of a term means.
    """
    choices = work.choices
    said = {normal(term): disease for disease, terms in choices.labels.items() for term in terms}
    dropped = {disease for disease, terms in choices.labels.items() if not terms}
    earlier = {row.term: row for row in choices.terms if row.kind == TERM}
    rows = []
    for term, number in sorted(counts.items(), key=lambda pair: (-pair[1], pair[0])):
        found = _suggested(term, values)
        meaning = None if found.meaning is None else _without(found.meaning, dropped)
        row = TermRow(term, number, "" if meaning is None else str(meaning), found.why)
        old = earlier.get(term)
        if term in said:
            row = replace(row, meaning=said[term], why=SAID, confirmed=YES)
        elif old is not None and old.meaning:
            row = replace(row, meaning=str(_without(parse_meaning(old.meaning), dropped)), confirmed=old.confirmed)
        elif found.exact:
            row = replace(row, meaning=row.suggestion, confirmed=LEXICON)
        rows.append(row)
    return [*rows, *(replace(row, rows=0) for row in earlier.values() if row.confirmed and row.term not in counts)]


def _suggested(term: str, values: Mapping[str, str] | None) -> Suggestion:
    if values is None or not term:
        return suggest(term)
    finding, _, value = term.rpartition(" =")
    return suggest_value(finding.strip(), values.get(value.strip()))


def _without(meaning: Meaning, dropped: set[str]) -> Meaning:
    kept = {disease: code for disease, code in meaning.findings.items() if disease not in dropped}
    return meaning if len(kept) == len(meaning.findings) else Meaning(kept)


def _diseases(work: Work) -> None:
    """The diseases that the terms mention; the five if there is none yet, for a person to find."""
    labels, terms = work.choices.labels, work.terms
    held = {row.term for row in terms if row.rows}
    for disease, term in ((disease, normal(name)) for disease, names in labels.items() for name in names):
        if term not in held:
            close = difflib.get_close_matches(term, held, n=1, cutoff=0.7)
            hint = " (one is spelled almost like it)" if close else ""
            raise ConfigError(f"--label {disease}: the findings have no term '{term}'{hint}")
    of_terms = (row.meaning or row.suggestion for row in terms)
    mentioned = diseases_in(parse_meaning(text) for text in of_terms if text)
    mentioned |= {disease for row in terms for disease in suggest(row.term).about}
    mentioned -= {disease for disease, names in labels.items() if not names}
    work.names = {disease: [] for disease in in_order(sorted(mentioned) or DISEASES)}
    for disease in work.names:
        about = [
            (row.rows, row.meant.findings[disease]) for row in terms if row.meant and disease in row.meant.findings
        ]
        told = [
            f"{sum(rows for rows, said in about if said == code):,} {name}"
            for name, code in (("positive", POSITIVE), ("negative", NEGATIVE), ("uncertain", UNCERTAIN))
            if any(said == code for _, said in about)
        ]
        work.evidence[disease] = (
            f"{plural(len(about), 'term')}: {', '.join(told)}" if about else "no confirmed term yet"
        )


def _describe(work: Work, waiting: int, rows: str) -> None:
    """The policies, and what is left for a person to do: `waiting` terms in `rows`."""
    if waiting:
        work.notes.append(
            f"{count(waiting, len(work.terms), 'terms')}, in {rows}, wait for a person: write MEANING and yes into "
            f"{terms_file(work.name)}. Until then a disease that is not mentioned beside them is missing"
        )
    if len(work.terms) > _MANY:
        work.notes.append(f"{len(work.terms):,} different terms look like sentences: reports need a labeler first")
    doubted = sum(row.rows for row in work.terms if row.meant and UNCERTAIN in row.meant.findings.values())
    why = "a disease that no term mentions is unknown (--blank negative if the cells name everything present)"
    policies(work, doubted, "term", "missing", why)


def _find_value(work: Work) -> str | None:
    """The column that says whether the finding of a row is present; None if every finding with a row is."""
    said = work.said("value")
    if said is not None:
        return None if said == NONE else said
    looked = {name: values_of(work, name) for name in work.free if work.frame[name].notna().any()}
    fitting = [name for name, values in looked.items() if values.only and values.number("negative")]
    if not fitting:
        doubtful = [name for name, values in looked.items() if values.doubts]
        why = (
            f"{', '.join(doubtful)} holds words of doubt, such as possible, which may belong to the finding of the row"
        )
        column = work.choose("value column", "--value-column", None, [*doubtful, NONE], why) if doubtful else NONE
        return None if column == NONE else column
    likely, why = called("value", fitting), f"{', '.join(fitting)} holds yes and no"
    guess = likely[0] if len(likely) == 1 else None
    column = work.choose("value column", "--value-column", guess, [*fitting, NONE], why)
    return None if column == NONE else column

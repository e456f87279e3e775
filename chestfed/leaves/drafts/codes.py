"""The code book of a proposal: what each value means, from the book, the lexicon, or open; and how open cells count."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import repeat
from typing import Final

import numpy as np
import pandas as pd

from chestfed.core.errors import ConfigError
from chestfed.data.sites import lexicon
from chestfed.data.sites.lexicon import name_unit, name_view, plain, suggest
from chestfed.data.sites.reader import ages
from chestfed.data.sites.tables.codebook import (
    AGE,
    EMPTY,
    FINDING,
    KEEP,
    LABEL,
    LEXICON,
    MISSING,
    Code,
    normalize_value,
)
from chestfed.data.sites.tables.melt import PERCENT
from chestfed.data.sites.terms import NORMAL, Meaning, listed, parse_meaning
from chestfed.leaves.drafts.proposal import NONE, VIEWS, Proposal, option

_NUMBER: Final = re.compile(r"[+-]?\d+(?:[.,]\d+)?%?")
#: A value is shown if so many rows have it: of fewer, it may be a name.
SHOWN_FROM: Final = 3
#: So many proposed meanings are offered together.
_TOGETHER: Final = 6
#: Meanings that values of a kind may have, the likeliest first where nothing is proposed.
_MEANINGS: Final = {
    LABEL: (MISSING, "uncertain", "negative", "positive"),
    "view": ("lateral", "pa", "ap", "frontal", "other"),
    "split": ("train", "valid", "test"),
    "sex": ("F", "M", "unknown"),
    KEEP: ("keep", "drop"),
}
#: More different values than this are not words of a view, a split or a sex.
MOST_WORDS: Final = 30
#: (proposal, evidence, whether the lexicon is certain)
_Guess = tuple[str, str, bool]


def add_codes(
    proposal: Proposal, column: str, kind: str, counts: Mapping[str, int], guess: Callable[[str], _Guess]
) -> list[Code]:
    """Add the rows of the book for these values of a column (empty: of all columns of the kind)."""
    rows = []
    for value, number in sorted(counts.items(), key=lambda pair: (-pair[1], pair[0])):
        meaning, evidence, certain = guess(value)
        row = Code(column, kind, value, number, meaning, evidence)
        earlier = proposal.answers.get_code(column, kind, value)
        if earlier is not None:
            row = replace(row, meaning=earlier.meaning, confirmed=earlier.confirmed)
        elif certain and meaning:
            row = replace(row, meaning=meaning, confirmed=LEXICON)
        rows.append(row)
    proposal.codes += rows
    return rows


def ask_codes(proposal: Proposal, what: str, key: str, rows: Sequence[Code], *others: str) -> None:
    """Note what is open of the rows; `others` are options that settle it too."""
    waiting = [row for row in rows if not row.is_known]
    if not waiting:
        return
    shown = [row for row in waiting if row.rows >= SHOWN_FROM][:8]
    text = ", ".join(
        f"'{row.value or EMPTY}' ({row.rows:,}{f', {row.proposal}?' if row.proposal else ''})" for row in shown
    )
    more = len(waiting) - len(shown)
    rare = f"{', and ' if shown else ''}{more} in fewer than {SHOWN_FROM} rows, in the label map"
    values = text + (rare if more else "")
    first = next((row for row in shown if not row.proposal), shown[0] if shown else None)
    examples = []
    if first is not None:
        together = len(shown) == len(waiting) <= _TOGETHER and sum(not row.proposal for row in shown) < 2
        offered, rest = (shown, "") if together else ([first], " ...")
        for word in [first.proposal] if first.proposal else _MEANINGS.get(first.kind, ("MEANING",)):
            meanings = [row.proposal or word for row in offered]
            examples.append(offer_codes(key, [row.value for row in offered], meanings) + rest)
    proposal.ask(f"{what}: what do these values mean? {values}", *examples, *others)


def count_values(cells: pd.Series, kind: str) -> dict[str, int]:
    """Count the cells of each value, in the form in which values are compared."""
    counts: dict[str, int] = {}
    for cell, number in cells.dropna().value_counts().items():
        value = normalize_value(kind, str(cell))
        counts[value] = counts.get(value, 0) + int(number)
    return counts


def count_with_empty(cells: pd.Series) -> dict[str, int]:
    """Count the cells of each value in a column of few values; the empty cell is one."""
    empty = int(cells.isna().sum())
    return {**count_values(cells, KEEP), **({"": empty} if empty else {})}


def list_frequent(counts: Mapping[str, int]) -> list[str]:
    """The values that may be shown, the most frequent first."""
    pairs = sorted((-number, value) for value, number in counts.items() if number >= SHOWN_FROM or not value)
    return [value for _, value in pairs]


def offer_codes(key: str, values: Sequence[str], meanings: Sequence[str]) -> str:
    """The options that say what these values mean."""
    pairs = zip(values, meanings, strict=True)
    return " ".join(option("--code", f"{key}:{value or EMPTY}={meaning}") for value, meaning in pairs)


def propose_words(proposal: Proposal, role: str, column: str, evidence: str) -> None:
    """Note a column of views, splits or sexes, and the codes of its words."""
    cells = proposal.select_counted(column)
    counts = count_values(cells, role)
    if role == "split" and (empty := int(cells.isna().sum())):
        counts[""] = empty
    if len(counts) > MOST_WORDS:
        raise ConfigError(f"--column {role}={column}: {len(counts):,} different values are not words for a {role}")
    guess = guess_words(role, column, counts)
    rows = add_codes(proposal, "", role, counts, guess)
    spread: dict[str, int] = {}
    for row in rows:
        spread[row.meaning or "open"] = spread.get(row.meaning or "open", 0) + row.rows
    shown = ", ".join(f"{number:,} {meaning}" for meaning, number in spread.items())
    proposal.take(role, column, f"{evidence}: {shown}{proposal.name_counted(column)}")
    ask_codes(proposal, f"column '{column}' ({role})", role, rows, option("--column", f"{role}={NONE}"))
    if role == "view":
        counted = "images" if column in proposal.elements else "rows"
        leave_out_views(proposal, proposal.frame[column], rows, proposal.select_counted(column).index, counted)


def leave_out_views(
    proposal: Proposal, cells: pd.Series, rows: Sequence[Code], counted: pd.Index, counted_as: str
) -> None:
    """Note the rows of views that the site does not use, by the codes of these cells; open ones count as used.

    The cells at `counted` are those of one row of the file, or of one image, each.
    """
    views = proposal.answers.keys.get("views", VIEWS)
    default = str(proposal.table.get("default_view", "unknown"))
    known = {row.value: default if row.meaning == MISSING else row.meaning for row in rows}
    meanings = cells.map(partial(normalize_value, "view"), na_action="ignore").map(known).fillna(default)
    left_out = meanings.ne("") & ~meanings.isin([*views]) if views != "all" else pd.Series(False, cells.index)
    proposal.unused = frozenset(cells.index[left_out])
    if lost := int((left_out & meanings.eq("unknown"))[counted].sum()):
        proposal.first.append(
            f"{lost:,} of {len(counted):,} {counted_as} have no known view and are left out, because they may be "
            "lateral (to keep them, add unknown to views in the YAML)"
        )


def names_split(header: str) -> str:
    """The split that a column's name contains, as `Testdatensatz` does; empty for none, and for `valid`."""
    words = {word: part for word, part in lexicon.WORDS["split"].items() if len(word) > 3 and part != "valid"}
    return next((part for word, part in words.items() if word in plain(header)), "")


def guess_words(role: str, column: str, counts: Iterable[str]) -> Callable[[str], _Guess]:
    """The meaning of a word in a column of views, splits or sexes that has these words."""
    words, values = lexicon.WORDS[role], set(counts)
    letters = {word for word in values if len(word) == 1}
    letters_known: dict[str, str] = {}
    if role == "sex" and letters <= {"w", "m"}:
        letters_known = {"w": "F"}
    unsure = {"h": "M", "v": "M", "w": "F"} if role == "sex" else {}
    unsafe = role == "sex" and bool(letters - {"f", "m", "w"})  # m beside h is mujer
    header = plain(column)
    if role == "split":
        part = next((words[word] for word in header.split() if word in words), names_split(column))
        if part:
            unsure = dict.fromkeys(("1", "true", "yes", "y", "x"), part)
            unsure |= dict.fromkeys(("0", "false", "no", "n", ""), "train" if part != "train" else "test")
        unsure |= {"development": "train", "dev": "valid"}

    def guess(value: str) -> _Guess:
        meaning = letters_known.get(value) or words.get(plain(value)) or (name_view(value) if role == "view" else None)
        if value in lexicon.MISSING:
            return MISSING, "an empty cell", True
        if meaning is not None and not (unsafe and len(value) == 1):
            return meaning, "a known word", True
        return unsure.get(value, ""), "" if value not in unsure else "perhaps", False

    return guess


def propose_ages(proposal: Proposal, column: str, evidence: str) -> bool:
    """Propose a column of ages and codes for its other cells; False if too few cells are ages or have a code."""
    cells = proposal.select_counted(column).dropna().str.strip()
    unit = name_unit(column)
    years = ages(cells, unit)
    known = {value: code for value in count_values(cells, AGE) if (code := proposal.answers.get_code("", AGE, value))}
    coded = cells.map(partial(normalize_value, AGE)).map(
        {value: np.nan if code.meaning == MISSING else float(code.meaning) for value, code in known.items()}
    )
    has_code = cells.map(partial(normalize_value, AGE)).isin({*known}).to_numpy()
    bad = cells[np.isnan(years) | has_code]
    years = np.where(has_code, coded, years)
    if np.isnan(years).all() or (np.isnan(years) & ~has_code).mean() > 0.25:
        return False
    rows = add_codes(
        proposal,
        "",
        AGE,
        count_values(bad, AGE),
        lambda value: (MISSING, "an empty cell", True) if value in lexicon.MISSING else ("", "not an age", False),
    )
    shown = f"{np.isfinite(years).sum():,} ages{f' in {unit}' if unit else ''}"
    shown += f", {np.nanmin(years):.0f} to {np.nanmax(years):.0f} years"
    proposal.take("age", column, f"{evidence}: {shown}{proposal.name_counted(column)}")
    ask_codes(proposal, f"column '{column}' (age), years or missing", "age", rows, option("--column", f"age={NONE}"))
    return True


def propose_labels(proposal: Proposal, columns: Sequence[str], rows_by_column: dict[str, list[Code]]) -> None:
    """The codes of label columns: one for all columns whose numbers are written alike, else by column."""
    counts = {name: count_values(proposal.select_counted(name), LABEL) for name in columns}
    numbers = {name: {value for value in counts[name] if _NUMBER.fullmatch(value)} for name in columns}
    if "threshold" in proposal.table:
        counts = {name: {v: n for v, n in counts[name].items() if not PERCENT.fullmatch(v)} for name in columns}
        numbers = {name: set() for name in columns}
    answers = [code for code in proposal.answers.codes if code.is_known]
    answered = {code.value for code in answers if code.kind == LABEL and not code.column}
    separately = {(code.column, code.value) for code in answers if code.column}
    odd = any(values - {"0", "1"} or values & answered for values in numbers.values())
    alike = len({"0" in values for values in numbers.values() if values}) <= 1
    merged: dict[str, int] = {}
    beside_empty = bool(proposal.frame[[*columns]].isna().any(axis=None))

    def guess(value: str) -> _Guess:
        if value in lexicon.NO_ANSWER:
            return MISSING, "no answer" + (", beside empty cells" if beside_empty else ""), beside_empty
        return guess_label(value)

    for name in columns:
        separate = {}
        for value, number in counts[name].items():
            if (name, value) in separately:
                separate[value] = number
            elif value in numbers[name] and not odd:
                continue  # plain 0 and 1
            elif value in numbers[name] and not alike:
                separate[value] = number
            else:
                merged[value] = merged.get(value, 0) + number
        if separate:
            rows_by_column[name] = add_codes(proposal, name, LABEL, separate, guess)
            ask_codes(proposal, f"column '{name}'", name, rows_by_column[name])
    rows_by_column[""] = add_codes(proposal, "", LABEL, merged, guess)
    ask_codes(proposal, "label columns", "labels", rows_by_column[""])


def _guess_number(value: str) -> _Guess:
    meaning = lexicon.MAYBE_VALUES.get(value, "")
    return meaning, "a number" if _NUMBER.fullmatch(value) else "perhaps" if meaning else "unknown", False


def guess_label(value: str) -> _Guess:
    """The meaning of a value in a label column."""
    meaning = lexicon.VALUES.get(value)
    return (meaning, "a known word", True) if meaning is not None else _guess_number(value)


def propose_findings(proposal: Proposal, counts: Mapping[str, int], column: str) -> list[Code]:
    """The codes of the findings in words."""
    dropped = {disease for disease, names in proposal.answers.labels.items() if not names}

    def guess(value: str) -> _Guess:
        if not value:
            return MISSING, "an empty cell", False
        suggestion = suggest(value)
        if suggestion.meaning is None:
            return "", suggestion.why, False
        findings = {name: code for name, code in suggestion.meaning.findings.items() if name not in dropped}
        changed = len(findings) < len(suggestion.meaning.findings)
        return str(Meaning(findings) if changed else suggestion.meaning), suggestion.why, suggestion.certain

    rows = add_codes(proposal, "", FINDING, counts, guess)
    proposal.evidence["codes"] = (
        f"{sum(row.is_known for row in rows):,} of {len(rows):,} terms of '{column}' have a meaning"
    )
    if partial := [row for row in rows if row.proposal and not row.is_known and lexicon.list_unread(row.value)]:
        text = f"{len(partial):,} proposed meanings in the label map leave out words that are not understood"
        proposal.first.append(f"{text}: its column 'evidence' lists them")
    ask_codes(proposal, f"findings in '{column}'", "findings", rows, option("--set", "other_terms=missing"))
    return rows


def is_normal(row: Code) -> bool:
    """Whether a term means that nothing is found."""
    return (row.meaning or row.proposal) == str(NORMAL)


def count_findings(
    proposal: Proposal,
    rows: Sequence[Code],
    cells: pd.Series | None,
    separator: str | None,
    lists: bool,
    says: pd.Series | None = None,
) -> dict[str, Counter[str]]:
    """Disease -> how many images have each finding by the meanings proposed so far; blank: not mentioned.

    `says` is whether the finding of each row is positive, ..., where a column tells it; open: not known yet.
    """
    meanings = {row.value: parse_meaning(row.meaning or row.proposal) for row in rows if row.meaning or row.proposal}
    names = {1: "positive", 0: "negative", -1: "uncertain"}
    diseases = [disease for disease in proposal.diseases if disease not in proposal.constant]
    total = {disease: Counter[str]() for disease in diseases}
    if cells is None:
        return {}
    findings: dict[object, list[tuple[str, str]]] = defaultdict(list)
    used = ~cells.index.isin(proposal.unused)
    words_said = repeat("positive") if says is None else says
    for image, cell, word, is_used in zip(proposal.image, cells, words_said, used, strict=False):
        if is_used and isinstance(cell, str):
            parts = listed(cell) or [] if lists else cell.split(separator) if separator else [cell]
            findings[image] += [(normalize_value("finding", part), word) for part in parts]
    for terms in findings.values():
        known = [(meanings[term], word) for term, word in terms if term in meanings]
        healthy = any(meaning.healthy and word == "positive" for meaning, word in known)
        for disease in diseases:
            words = {
                names[int(meaning.findings[disease])] if word == "positive" else word
                for meaning, word in known
                if disease in meaning.findings
            }
            order = ("positive", "uncertain", "open", "negative")
            total[disease][next((word for word in order if word in words), "negative" if healthy else "blank")] += 1
    return total


def ask_policies(proposal: Proposal, total: dict[str, Counter[str]], blank: str) -> None:
    """Note how uncertain and blank labels count: the user's answers, else questions where it changes something."""
    answers, site = proposal.answers, proposal.site
    site["uncertain"], site["blank"] = answers.uncertain or "missing", answers.blank or "missing"
    labels = [code for code in proposal.codes if code.kind in ("label", "finding")]
    doubts = sum(code.rows for code in labels if "uncertain" in (code.meaning or code.proposal))
    if doubts and answers.uncertain is None:
        proposal.ask(
            f"uncertain: {doubts:,} labels are uncertain; how do they count?",
            "--uncertain missing",
            "--uncertain positive",
            "--uncertain negative",
        )
    blanks = {disease: number for disease, number in total.items() if 0 < number["blank"] < number.total()}
    normal = any(is_normal(code) for code in proposal.codes if code.kind == "finding")
    if (
        blanks or (not total and proposal.columns.get("finding") and "value" not in proposal.columns)
    ) and answers.blank is None:
        counts = "; ".join(
            f"{disease} {number['positive']:,}/{number['negative']:,} or {number['positive']:,}/"
            f"{number['negative'] + number['blank']:,}"
            for disease, number in blanks.items()
            if not number["open"]
        )
        counts = f"positives/negatives would be {counts}" if counts else "what is positive is not known yet"
        proposed = (
            "negative"
            if normal and not any(number["negative"] and number["uncertain"] for number in total.values())
            else ""
        )
        hint = " (proposal: negative, as the built-in reader of such lists)" if proposed else ""
        proposal.ask(
            f"blank: {blank} says nothing; missing or negative? {counts}{hint}",
            "--blank negative",
            "--blank missing",
        )
    _ask_one_class(proposal, total)


def _ask_one_class(proposal: Proposal, total: dict[str, Counter[str]]) -> None:
    """Ask about diseases without a positive or a negative image, once everything else is settled."""
    answers, site = proposal.answers, proposal.site
    if any(not code.is_known for code in proposal.codes):
        return
    for disease, number in total.items():
        negatives = number["negative"] + (number["blank"] if site["blank"] == "negative" else 0)
        is_settled = answers.blank is not None or not number["blank"]
        if is_settled and disease not in answers.keys.get("one_class", []) and not (number["positive"] and negatives):
            lacking = "negative" if number["positive"] else "positive"
            proposal.ask(
                f"labels: {disease} has no {lacking} image",
                option("--set", f"one_class=[{disease}]"),
                option("--label", f"{disease}=none"),
                *(["--blank negative"] if number["blank"] else []),
            )

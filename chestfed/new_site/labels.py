"""How a table says which image has which disease: its layout, the columns and values of the labels, the annotators."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pandas as pd

from chestfed.core.console import plural
from chestfed.core.diseases import DISEASES, in_order
from chestfed.core.errors import ConfigError
from chestfed.new_site import lexicon
from chestfed.new_site.diseases import disease_of
from chestfed.new_site.work import NONE, SAID, UnknownWordsError, Work, called, hint, unknown_words
from chestfed.sites.reader import canonical
from chestfed.sites.spreadsheet.term_table import VALUE, WORD_MEANINGS

MEANINGS: Final = WORD_MEANINGS[VALUE]
#: More different cells than this are not values of a label.
_MOST_VALUES: Final = 12
#: Letters that say yes where no other word does.
_LONE: Final = frozenset("xtsj")
#: More different annotators than this are something else, such as coordinates.
_MOST_READERS: Final = 50


@dataclass(frozen=True)
class Values:
    """Canonical cells by meaning with their counts; `strange` are those without one."""

    known: Mapping[str, Counter[str]]
    strange: Counter[str]

    @property
    def words(self) -> set[str]:
        """All different cells."""
        return {*self.strange, *(word for cells in self.known.values() for word in cells)}

    def number(self, meaning: str) -> int:
        """How many cells mean this."""
        return sum(self.known[meaning].values())

    @property
    def doubts(self) -> bool:
        """Whether some word of few says that something is in doubt."""
        words = {*self.known["uncertain"], *self.strange}
        return len(words) <= _MOST_VALUES and any(word in lexicon.DOUBTS for word in words)

    @property
    def only(self) -> bool:
        """Whether all are known, and some are positive."""
        return not self.strange and self.number("positive") > 0


def values_of(work: Work, column: str, beside: Iterable[Collection[str]] = ()) -> Values:
    """What the cells of a column mean, counted; `beside` are the words of the other label columns."""
    counts: Counter[str] = Counter()
    for word, number in work.frame[column].dropna().value_counts().head(_MOST_VALUES * 20).items():
        counts[canonical(str(word))] += int(number)
    table = meanings_of(work, [counts, *beside])
    known: dict[str, Counter[str]] = {meaning: Counter() for meaning in MEANINGS}
    strange: Counter[str] = Counter()
    for word, number in counts.items():
        (known[table[word]] if word in table else strange)[word] += number
    return Values(known, strange)


def meanings_of(work: Work, columns: Iterable[Collection[str]]) -> dict[str, str]:
    """What each known word means in label columns with these words; those that the flags explain come first.

    A letter that says yes alone may mean something else beside another yes: x not assessed, s suspected.
    """
    table = dict(lexicon.VALUES)
    for words in columns:
        table |= {"-": "negative"} if "+" in words else {}
        yes = [word for word in words if lexicon.VALUES.get(word) == "positive"]
        for letter in _LONE.intersection(yes):
            if any(not word.startswith(letter) for word in yes):
                table.pop(letter, None)
    return {**table, **work.meanings(VALUE)}


def label_columns(work: Work) -> dict[str, str]:
    """Column -> the disease that it is about, of those that hold values; the flags' first."""
    named = work.choices.labels
    found = {name: disease for disease, names in named.items() for name in names if name in work.free}
    for name in work.free:
        match = disease_of(name)
        if name in found or match is None or match.disease in named or not work.frame[name].notna().any():
            continue
        values = values_of(work, name)  # whether they are known is looked at later, so that unknown ones are reported
        if len(values.words) <= _MOST_VALUES:
            found[name] = match.disease
    return found


def by_columns(work: Work, columns: Mapping[str, str]) -> None:
    """The columns and values of each disease; with layout readers the annotator's column too."""
    if not columns:
        raise ConfigError(nothing_found(work))
    if work.layout == "readers":
        find_reader(work, columns)
    words = [values_of(work, name).words for name in columns]
    values = {name: values_of(work, name, words) for name in columns}
    for disease in in_order(columns.values()):
        work.names[disease] = [name for name, of in columns.items() if of == disease]
        work.evidence[disease] = "; ".join(_told(work, name, disease, values[name]) for name in work.names[disease])
    total = {meaning: sum((found.known[meaning] for found in values.values()), Counter()) for meaning in MEANINGS}
    number = {meaning: sum(cells.values()) for meaning, cells in total.items()}
    known = [(word, cells, meaning) for meaning in MEANINGS for word, cells in total[meaning].most_common()]
    unknown = sum((found.strange for found in values.values()), Counter[str]()).most_common()
    rows = [work.row(VALUE, word, cells, meaning) for word, cells, meaning in known]
    hints = lexicon.VALUES
    work.words[VALUE] = rows + [work.row(VALUE, word, cells, None, hint(word, hints)) for word, cells in unknown]
    blank, why = "missing", f"{number['negative']:,} cells say no, so an empty one says nothing"
    if not number["negative"]:
        blank, why = "negative", "a guess: no cell says no, so an empty one must (--blank missing if not)"
    policies(work, number["uncertain"], "cell", blank, why)
    if not number["negative"] and work.choices.blank is None:
        work.notes.append("no cell says no: an empty one counts as negative (--blank missing if that is wrong)")
    for disease, names in work.names.items():
        if work.blank == "missing" and not sum(values[name].number("negative") for name in names):
            work.notes.append(
                f"{', '.join(names)} ({disease}) never says no, and empty cells count as missing, so there is no "
                f"negative. Use --blank negative, or --label {disease}={NONE}"
            )
        if len(names) == 1 and disease not in work.choices.labels and _is_part(names[0]):
            work.notes.append(
                f"'{names[0]}' is the only column of {disease}: where it says no, {disease} counts as absent, although "
                f"another kind or side of it may be there (--label {disease}={NONE} if so)"
            )
    left = {name: values_of(work, name) for name in work.free if name not in columns}
    if doubtful := [name for name, found in left.items() if found.doubts]:
        work.notes.append(
            f"{', '.join(doubtful)}: words of doubt, such as possible, that are not used: a finding that is only "
            f"possible counts as its label says. If it should be uncertain, write the doubt into the label's cell"
        )
    for name, found in left.items():
        match = disease_of(name)
        if match is not None and match.disease not in work.names and len(found.strange) > _MOST_VALUES:
            work.notes.append(
                f"'{name}' is named like {match.disease}, but has more than {_MOST_VALUES} different values, like "
                f"scores: not used. Turn them into words such as yes and no first"
            )
    others = [name for name, found in left.items() if found.only and not found.doubts]
    if others:
        work.notes.append(f"label columns of other diseases, not used: {', '.join(others)}")


def _is_part(name: str) -> bool:
    """Whether a column is named like one kind, place or degree of a disease."""
    match = disease_of(name)
    return match is not None and (match.kind or not lexicon.QUALIFIERS.isdisjoint(lexicon.plain(name).split()))


def _told(work: Work, name: str, disease: str, values: Values) -> str:
    """What a column says of a disease; unknown values are noted among the stops."""
    cells = work.frame[name]
    if values.strange:
        shown = unknown_words(cells.dropna().map(canonical), [word for word, _ in values.strange.most_common()])
        work.stops.append(
            f"column '{name}' ({disease}): unknown values: {shown}. Enter what each means in the mapping "
            f"table, or with --value WORD=MEANING ({', '.join(MEANINGS)}); or omit the column with "
            f"--label {disease}={NONE}"
        )
    match = disease_of(name)
    how = SAID if disease in work.choices.labels or match is None else match.why
    empty = int(cells.isna().sum()) + values.number("blank")
    shown = ", ".join(f"{values.number(meaning):,} {meaning}" for meaning in MEANINGS[:3] if values.number(meaning))
    return f"{how}: {shown or 'all empty'}" + (f", {empty:,} empty" if empty else "")


def policies(work: Work, doubts: int, kind: str, blank: str, why: str) -> None:
    """How uncertain and blank labels count: by the flags, else by guesses that are asked for.

    Raises `ConfigError` with everything that must be settled first.
    """
    if work.stops:
        raise UnknownWordsError("\n".join(work.stops), work.table_rows)
    choices = work.choices
    number = f"{plural(doubts, kind)} {'is' if doubts == 1 else 'are'} uncertain"
    doubted = f"a guess: {number}; positive or negative may suit you better (--uncertain)"
    for key, said, guess, because, meanings in (
        ("uncertain", choices.uncertain, "missing", doubted if doubts else f"no {kind}s are uncertain", MEANINGS[:2]),
        ("blank", choices.blank, blank, why, ("negative",)),
    ):
        work.evidence[key] = because if said is None else SAID
        what = f"{key} labels" if key == "uncertain" else "blanks"
        value = said or work.choose(f"{what} count as", f"--{key}", guess, [*meanings, "missing"], because)
        setattr(work, key, value)


def nothing_found(work: Work) -> str:
    """Why there is nothing to learn from, and what could help."""
    free = [name for name in work.all_columns if name not in work.columns.values()]
    scores = [name for name in free if disease_of(name) is not None and work.frame[name].nunique() > _MOST_VALUES]
    if scores:
        return (
            f"labels: {', '.join(scores)}: named like diseases, but each has more than {_MOST_VALUES} different "
            f"values, like scores or reports. Turn them into words such as yes and no first"
        )
    like = [name for name in free if values_of(work, name).only]
    listed = f" Columns that look like labels: {', '.join(like)}." if like else f" The columns are: {', '.join(free)}."
    return (
        f"labels: no column is named like a disease ({', '.join(DISEASES)}, ...), and none contains terms for "
        f"one.{listed} Name "
        "a column of labels with --label cardiomegaly=COLUMN, or a column of findings in words with --findings-column"
    )


def find_reader(work: Work, labels: Collection[str]) -> None:
    """The annotator of each row, if images have several rows; `labels` are the columns that hold labels.

    In a long table images have several rows in any case, so that a column must be called like an annotator, or have as
    many values for each image, to be taken or asked about.
    """
    frame, image, flag, long = work.frame, work.image, "--reader-column", work.layout == "long"
    column, why = work.said("reader"), SAID
    if column is None:
        free = [name for name in work.free if name not in labels]
        fitting = [name for name in free if (_varies if long else _one_row_each)(frame[name], image)]
        likely = called("reader", fitting)
        if long and not likely:
            maybe = [name for name in fitting if not _depends_on(frame[name], frame[list(labels)])]
            fitting = [name for name in maybe if _as_many(frame[name], image)]
            work.notes += [
                f"'{name}' has several values for one image: if they are annotators, use {flag} {name} to count "
                f"their votes; otherwise a finding of any row counts"
                for name in maybe
                if name not in fitting
            ]
            if not fitting:
                return
        why = f"images have {int(image.notna().sum()) / max(1, image.nunique()):.1f} rows each"
        why += ", and no column has the name of an annotator" if not likely else ""
        guess = likely[0] if len(likely) == 1 else None
        column = work.choose("annotator column", flag, guess, [*fitting, NONE] if long else fitting, why)
    if column == NONE:
        if not long:
            raise ConfigError(f"{flag} {NONE}: layout 'readers' needs the annotator of each row")
        return
    per_image = float(frame[column].groupby(image).nunique().median())
    work.take("reader", column, f"{why}; {frame[column].nunique():,} annotators, {per_image:g} per image")
    work.keys["raters"] = work.choices.raters or ("majority" if per_image >= 3 else "any")
    guessed = f"a guess, from {per_image:g} annotators per image"
    work.evidence["raters"] = SAID if work.choices.raters else guessed


def _one_row_each(cells: pd.Series, image: pd.Series) -> bool:
    """Filled, few different ones, and no image with two rows of one annotator."""
    if cells.isna().any() or cells.nunique() > max(2, len(cells) // 2):
        return False
    return not pd.DataFrame({"image": image, "reader": cells}).duplicated().any()


def _varies(cells: pd.Series, image: pd.Series) -> bool:
    """Filled, with a few different ones, and several of them for some images."""
    few = cells.notna().all() and 2 <= cells.nunique() <= _MOST_READERS
    return bool(few and cells.groupby(image).nunique().gt(1).any())


def _as_many(cells: pd.Series, image: pd.Series) -> bool:
    """Whether all images have as many values, which are those of other images too."""
    return bool(cells.groupby(image).nunique().nunique() == 1 and 2 * cells.nunique() <= image.nunique())


def _depends_on(cells: pd.Series, others: pd.DataFrame) -> bool:
    """Whether the cell of some other column tells this one, as the name of a finding does its number."""
    return any(cells.groupby(others[name]).nunique().max() <= 1 for name in others)


def lost_to_formulas(work: Work, columns: Sequence[str]) -> list[str]:
    """The diseases that only a column of formulas is called like."""
    lost: dict[str, list[str]] = {}
    for column in columns:
        match = disease_of(column)
        if match is not None and match.disease not in work.names:
            lost.setdefault(match.disease, []).append(f"'{column}'")
    return [
        f"{disease} is not read, because {', '.join(names)} contains formulas: paste that column as values and "
        f"export again"
        for disease, names in lost.items()
    ]

"""Terms that are not understood: asked for where somebody answers, else missing, and never silently negative."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from chestfed.core.diseases import TITLES
from chestfed.new_site import words
from chestfed.new_site.choosing import Chooser
from chestfed.new_site.columns import SHOWN_FROM
from chestfed.new_site.phrases import about, of_known_words, read_phrase
from chestfed.new_site.term_words import DENY
from chestfed.new_site.terms import Term, TermColumn
from chestfed.sites.findings import NEGATIVE, POSITIVE, UNCERTAIN
from chestfed.sites.spreadsheet.config import REST, TableFormat
from chestfed.sites.spreadsheet.labels import grammar_of

_MOST_ASKED: Final = 20
_MOST_LISTED: Final = 60
_NOTHING, _MISSING = "nothing", "missing"


@dataclass(frozen=True)
class Settled:
    """The terms with their final meanings and numbers of cells, and how the site's YAML tells them.

    `unlabelled` are the terms beside which what is not named is missing; `prefixes` are the words that deny and doubt,
    by the key of the YAML.
    """

    counts: Counter[Term]
    unlabelled: tuple[str, ...]
    prefixes: Mapping[str, set[str]]
    notes: list[str] = field(default_factory=list)


def settled(terms: TermColumn, dropped: Collection[str], denied_by_value: Collection[str], chooser: Chooser) -> Settled:
    """The terms as they are to be written; what the YAML would read otherwise than it is meant becomes open.

    `dropped` are diseases that are not to be labelled. `denied_by_value` are terms that a column of values denies: of
    these, a part of a disease tells nothing of the whole.
    """
    counts: Counter[Term] = Counter()
    for term, number in terms.counts.items():
        counts[_without_dropped(_not_in_part(term, denied_by_value), dropped)] += number
    asked = _asked(counts, dropped, chooser)
    counts = _of(counts, lambda term: asked.get(term, term))
    unclear = {term.text for term in counts if term.kind == "open"}
    counts = _of(counts, lambda term: _open(term) if term.word in unclear else term)
    unread = Counter({term.text: number for term, number in counts.items() if term.kind == "open"})
    shown = [text for text, number in unread.most_common() if _may_be_shown(text, number)]
    prefixes = {
        "negations": {term.denied for term in counts if term.denied},
        "uncertain_prefixes": {term.doubted for term in counts if term.doubted} - set(words.DOUBT_SIGNS),
    }
    listed = [REST] if len(shown) < len(unread) or len(shown) > _MOST_LISTED else shown
    unlabelled = (*listed, *_misread(counts, prefixes, listed))
    return Settled(counts, unlabelled, prefixes, _notes(unread, shown))


def _of(counts: Counter[Term], change: Callable[[Term], Term]) -> Counter[Term]:
    changed: Counter[Term] = Counter()
    for term, number in counts.items():
        changed[change(term)] += number
    return changed


def _open(term: Term) -> Term:
    return Term(term.text, term.text, "open")


def _without_dropped(term: Term, dropped: Collection[str]) -> Term:
    kept = tuple(disease for disease in term.diseases if disease not in dropped)
    return term if kept == term.diseases else replace(term, diseases=kept, kind="disease" if kept else "other")


def _not_in_part(term: Term, denied: Collection[str]) -> Term:
    phrase = read_phrase(term.word) if term.kind == "disease" and term.text in denied else None
    return _open(term) if phrase is not None and not phrase.whole else term


def _may_be_shown(text: str, number: int) -> bool:
    """Frequent, or of words that are all known: then it is no name of a person."""
    return number >= SHOWN_FROM or (bool(about(text)) and of_known_words(text))


def _asked(counts: Counter[Term], dropped: Collection[str], chooser: Chooser) -> dict[Term, Term]:
    """What is answered for the open terms that hold a word of a disease, the most frequent ones."""
    answers: dict[Term, Term] = {}
    for term, number in counts.most_common():
        likely = [disease for disease in about(term.text) if disease not in dropped]
        denies = not DENY.isdisjoint(words.plain(term.text).split())  # no answer says that something is not there
        asks = term.kind == "open" and likely and not denies and _may_be_shown(term.text, number)
        if not asks or len(answers) == _MOST_ASKED:
            continue
        answers[term] = term
        why = (
            f"stands in {number:,} cells, holds a word of {', '.join(likely)}, and is not understood. Name the "
            f"disease that it says is there; {_NOTHING}: it has nothing to do with any; {_MISSING}: beside it what is "
            "not named is missing"
        )
        rest = [disease for disease in TITLES if disease not in likely and disease not in dropped]
        flag = "--label DISEASE=TERM, --value TERM=blank"
        answer = chooser.choose(f"'{term.text}'", flag, _MISSING, [*likely, *rest, _NOTHING, _MISSING], why)
        if answer == _NOTHING:
            answers[term] = replace(term, kind="other")
        elif answer != _MISSING:
            answers[term] = replace(term, kind="disease", diseases=(answer,), how="as said")
    return answers


def _misread(counts: Counter[Term], prefixes: Mapping[str, set[str]], unlabelled: Sequence[str]) -> list[str]:
    """The terms that the YAML would read otherwise than they are meant: those are named as they stand."""
    names = {name: [term.word for term in counts if name in term.diseases] for name in TITLES}
    defaults = {key: TableFormat.model_fields[key].default for key in prefixes}
    table = TableFormat.model_validate(
        {
            "layout": "delimited",
            "columns": {"image": "image", "patient": "image", "findings": "findings"},
            "no_finding": _words_of(counts, "healthy"),
            "others": _words_of(counts, "other"),
            "unlabelled": list(unlabelled),
            **{key: [*defaults[key], *used] for key, used in prefixes.items()},
        }
    )
    grammar = grammar_of(names, table)
    silent = grammar.findings | grammar.no_finding | grammar.silent
    wrong = []
    for term in counts:
        said = grammar.read(term.text)
        code = UNCERTAIN if term.doubted else NEGATIVE if term.denied else POSITIVE
        if term.kind == "open":
            if said is None or said[0] in silent:
                wrong.append(term.text)
        elif said != (term.word, code):
            wrong.append(term.text)
    return wrong


def _words_of(counts: Iterable[Term], kind: str) -> list[str]:
    return sorted({term.word for term in counts if term.kind == kind})


def _notes(unread: Counter[str], shown: Sequence[str]) -> list[str]:
    """What is said of open terms: of those with a word of a disease, and of the others."""
    notes = []
    for text, those in (
        ("terms that hold a word of a disease and are not understood", {term for term in unread if about(term)}),
        ("terms that are not known here", {term for term in unread if not about(term)}),
    ):
        named = [term for term in shown if term in those]
        parts = [f"{term} ({unread[term]:,})" for term in named[:_MOST_ASKED]]
        if len(named) > _MOST_ASKED:
            parts.append(f"{len(named) - _MOST_ASKED:,} more")
        if len(those) > len(named):
            parts.append(f"{len(those) - len(named):,} that stand in fewer than {SHOWN_FROM} cells and are not shown")
        if parts:
            notes.append(
                f"{text}: {', '.join(parts)}. Beside them a disease that is not named is missing. Say what they mean "
                "with --label DISEASE=TERM, or --value TERM=blank for what has nothing to do with a disease"
            )
    return notes

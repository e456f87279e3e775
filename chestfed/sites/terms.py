"""What the terms of a findings cell mean, and what several of them say together."""

from __future__ import annotations

import ast
import difflib
import json
import re
import unicodedata
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from chestfed.core.diseases import TITLES, check_name, check_spelling
from chestfed.sites.reader import BLANK, NEGATIVE, POSITIVE, STRENGTH, UNCERTAIN, UNLABELLED

#: A longer cell is not a list of findings.
_LONGEST: Final = 20_000
_STRING: Final = re.compile(r"""u?(?:'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*")""")
#: Items are apart by a comma or by blanks: Python would join `'a' 'b'` to one string.
_LIST: Final = re.compile(rf"\[\s*(?:{_STRING.pattern}(?:\s*,\s*|\s+|(?=\])))*\]")
_STATES: Final = {"": POSITIVE, "absent": NEGATIVE, "uncertain": UNCERTAIN}
_FORMS: Final = "DISEASE, DISEASE absent, DISEASE uncertain (several joined by ';'), normal, ignore or missing"


def normal(term: str) -> str:
    """A term in lower case with single spaces, its accents composed as spreadsheet programs save them."""
    return unicodedata.normalize("NFC", " ".join(term.lower().split()))


def listed(cell: str) -> list[str] | None:
    """The strings of a Python or JSON list, or of numpy's print of one (no commas); None if the cell is anything else.

    A list within the list is refused, quoted or not. Nothing is executed.
    """
    if len(cell) > _LONGEST:
        return None
    try:
        items = json.loads(cell)
    except (ValueError, RecursionError):
        if not _LIST.fullmatch(cell.strip()):
            return None
        try:
            items = [ast.literal_eval(item) for item in _STRING.findall(cell)]
        except (ValueError, SyntaxError):  # a bad escape
            return None
    flat = isinstance(items, list) and all(
        isinstance(item, str) and not item.lstrip().startswith("[") for item in items
    )
    return items if flat else None


@dataclass(frozen=True)
class Meaning:
    """What one term says."""

    findings: Mapping[str, np.int8]  #: disease -> raw finding, of the diseases that the term mentions
    healthy: bool = False  #: every disease that is not mentioned beside it is negative
    understood: bool = True  #: if not, every disease that is not mentioned beside it is missing

    def __str__(self) -> str:
        if not self.findings:
            return "normal" if self.healthy else "ignore" if self.understood else "missing"
        names = {int(code): state for state, code in _STATES.items()}
        return "; ".join(f"{disease} {names[int(code)]}".strip() for disease, code in self.findings.items())


NORMAL: Final = Meaning({}, healthy=True)
IGNORED: Final = Meaning({})
MISSING: Final = Meaning({}, understood=False)
_WORDS: Final = {"normal": NORMAL, "ignore": IGNORED, "missing": MISSING}


def parse_meaning(text: str, declared: Collection[str] | None = None) -> Meaning:
    """The meaning that a person wrote: `edema`, `edema absent; mass uncertain`, `normal`, `ignore`, `missing`.

    With `declared`, the diseases of a site, a name that is nearly a known one or one of them is a mistake.

    Raises `ValueError` if it is anything else.
    """
    words = normal(text)
    if words in _WORDS:
        return _WORDS[words]
    findings: dict[str, np.int8] = {}
    for part in words.split(";"):
        name, state = part.strip(), ""
        for ending in ("absent", "uncertain"):
            if name.endswith(f" {ending}"):
                name, state = name.removesuffix(ending).strip(), ending
        spelled = name.replace(" ", "_")
        disease = spelled if spelled in (*TITLES, *(declared or ())) else name
        try:
            check_name(disease) if declared is None else check_spelling(disease, [*declared, *_WORDS])
        except ValueError:  # without the text, which may be a patient's
            close = difflib.get_close_matches(spelled, [*TITLES, *(declared or ()), *_WORDS], n=1, cutoff=0.6)
            hint = f"; did you mean '{close[0]}'?" if close else ""
            raise ValueError(f"unknown meaning; expected {_FORMS}{hint}") from None
        if disease in findings:
            raise ValueError(f"mentions {disease} more than once")
        findings[disease] = _STATES[state]
    return Meaning(findings)


@dataclass(frozen=True)
class Said:
    """What is said of an image: a raw finding per disease, whether it was called normal, whether it contradicts itself.

    `denies` tells whether a single disease is denied, rather than all of them by `normal`.
    """

    findings: Mapping[str, np.int8]
    healthy: bool = False
    denies: bool = False
    contradictory: bool = False


def together(meanings: Iterable[Meaning], diseases: Sequence[str], named: Collection[str]) -> Said:
    """What several terms say together.

    A disease that no term mentions is blank; unlabeled without any term, or beside one that is not understood;
    negative beside a term that means normal. `named` are the diseases that some term of the site can report as
    present: any other is never blank but unlabeled, because the site does not record it.
    """
    terms = list(meanings)
    healthy = any(term.healthy for term in terms)
    unread = not terms or not all(term.understood for term in terms)
    findings, denies, contradictory = {}, False, False
    for disease in diseases:
        codes = [term.findings[disease] for term in terms if disease in term.findings]
        rest = UNLABELLED if unread else NEGATIVE if healthy else BLANK if disease in named else UNLABELLED
        findings[disease] = max(codes, key=lambda code: STRENGTH[int(code)], default=rest)
        present = any(code != NEGATIVE for code in codes)
        denied = any(code == NEGATIVE for code in codes)
        denies = denies or denied
        contradictory = contradictory or (present and (denied or healthy))
    return Said(findings, healthy and not unread, denies, contradictory)

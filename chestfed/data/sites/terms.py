"""Meaning of a finding in words: diseases that it reports, denies or doubts."""

from __future__ import annotations

import ast
import json
import re
import unicodedata
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from chestfed.core.diseases import TITLES, check_name, check_spelling
from chestfed.core.errors import nearest
from chestfed.data.sites.reader import NEGATIVE, POSITIVE, UNCERTAIN

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
    """Meaning of one term."""

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
            close = nearest(spelled, [*TITLES, *(declared or ()), *_WORDS])
            hint = f"; did you mean '{close}'?" if close else ""
            raise ValueError(f"unknown meaning; expected {_FORMS}{hint}") from None
        if disease in findings:
            raise ValueError(f"mentions {disease} more than once")
        findings[disease] = _STATES[state]
    return Meaning(findings)

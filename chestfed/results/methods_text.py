"""A paragraph on the statistics for a paper, with its references, made from what was really computed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from chestfed._version import __version__
from chestfed.evaluation.comparison import ADVICE
from chestfed.evaluation.intervals.methods import METHODS, Intervals
from chestfed.results.frames import list_records
from chestfed.results.sentences import describe_test, list_references

_AREA = (
    "J. A. Hanley, B. J. McNeil: The meaning and use of the area under a receiver operating characteristic (ROC) "
    "curve. Radiology 143 (1982) 29-36"
)
_HOLM = (
    "S. Holm: A simple sequentially rejective multiple test procedure. Scandinavian Journal of Statistics 6 (1979) "
    "65-70"
)

#: A sentence and what it cites.
Sentence = tuple[str, Sequence[str]]


@dataclass(frozen=True)
class MethodsText:
    """The paragraph, and its references in the order of their numbers."""

    paragraph: str
    references: tuple[str, ...]

    def __str__(self) -> str:
        """As Markdown."""
        return "\n".join([self.paragraph, "", *(f"{n}. {one}." for n, one in enumerate(self.references, 1)), ""])


def number_references(sentences: Sequence[Sentence]) -> MethodsText:
    """The sentences with numbers for what they cite."""
    every = tuple(dict.fromkeys(one for _, cited in sentences for one in cited))
    shown = [
        sentence + (f" [{', '.join(str(every.index(one) + 1) for one in cited)}]." if cited else ".")
        for sentence, cited in sentences
    ]
    return MethodsText(" ".join(shown), every)


def describe_aucs(what: str, patients: int, diseases: int, how: Intervals) -> list[Sentence]:
    """What was scored, as `202 images (frontal-image, valid split)`, and how the AUCs' intervals were made."""
    method = METHODS[how.method]
    mean = ", and its mean over the diseases with images of both classes" if diseases > 1 else ""
    computed = "we computed the area under the ROC curve (AUC) of each disease, ties counted as one half"
    sentences: list[Sentence] = [(f"On {what} of {patients:,} patients {computed}{mean}", [_AREA])]
    if not method.resampled or how.resamples:
        drawn = f" ({how.resamples:,} resamples, seed {how.seed})" if method.resampled else ""
        sentences.append((f"Intervals are at {method.about}{drawn}", method.references))
        sentences.append(("They are about the choice of test patients, for the models as trained", ()))
    return sentences


def describe_differences(differences: pd.DataFrame) -> list[Sentence]:
    """How models were compared, and what was corrected."""
    rows = list_records(differences)
    seeds = list(json.loads(rows[-1]["of_seeds"] or "{}"))
    trained = f" (training seeds {', '.join(seeds)})" if seeds else ""
    models = ", ".join(dict.fromkeys(row["model"] for row in rows))
    how = describe_test(differences).replace(ADVICE, "")  # that is for the reader of the page
    what = f"Models were compared on the same images, {models} against {rows[0]['reference']}{trained}: 95%, {how}"
    sentences: list[Sentence] = [(what, list_references(differences))]
    if count := sum(row["p"] is not None for row in rows if row["disease"] != "mean"):
        corrected = f"P values are two-sided; the {count} of single diseases were corrected by Holm's method"
        rest = "those of the means among themselves; the intervals were not corrected"
        sentences.append((f"{corrected}, {rest}", [_HOLM]))
    return sentences


def name_program() -> Sentence:
    """The program."""
    return f"Computed with chestfed {__version__}", ()

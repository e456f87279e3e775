"""A paragraph on the statistics for a paper, with its references, made from what was really computed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from chestfed._version import __version__
from chestfed.evaluation.comparison import ADVICE
from chestfed.evaluation.intervals.methods import METHODS, Intervals
from chestfed.results.significance import Significance

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


def methods_text(sentences: Sequence[Sentence]) -> MethodsText:
    """The sentences with numbers for what they cite."""
    every = tuple(dict.fromkeys(one for _, cited in sentences for one in cited))
    shown = [
        sentence + (f" [{', '.join(str(every.index(one) + 1) for one in cited)}]." if cited else ".")
        for sentence, cited in sentences
    ]
    return MethodsText(" ".join(shown), every)


def of_aucs(what: str, patients: int, diseases: int, how: Intervals) -> list[Sentence]:
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


def of_differences(found: Significance) -> list[Sentence]:
    """How models were compared, and what was corrected."""
    seeds = f" (training seeds {', '.join(map(str, found.trained))})" if len(found.trained) > 1 else ""
    what = f"{', '.join(found.others)} against {found.reference}{seeds}"
    how = found.method.replace(ADVICE, "")  # that is for the reader of the page
    told: list[Sentence] = [(f"Models were compared on the same images, {what}: 95%, {how}", found.references)]
    if number := sum(one.p is not None for comparison in found.comparisons for one in comparison[:-1]):
        corrected = f"P values are two-sided; the {number} of single diseases were corrected by Holm's method"
        told.append((f"{corrected}, those of the means among themselves; the intervals were not corrected", [_HOLM]))
    return told


def computed_with() -> Sentence:
    """The program."""
    return f"Computed with chestfed {__version__}", ()

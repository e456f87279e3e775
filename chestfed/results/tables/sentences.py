"""Sentences on results: what a test is about, warnings, and a paragraph for a paper. The answer is in `answer`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pandas as pd

from chestfed._version import __version__
from chestfed.core.diseases import format_title
from chestfed.results.evaluation.intervals.methods import METHODS, Intervals
from chestfed.results.evaluation.labeled import LEAST_PATIENTS
from chestfed.results.evaluation.splits import SPLITS_REFERENCE
from chestfed.results.evaluation.training_seeds import REFERENCES
from chestfed.results.tables.frames import Results, group_rows, list_difference_rows, read_seeds
from chestfed.results.tables.grid import number
from chestfed.results.tables.presentations import find_presentation

#: The meaning of intervals and p values over training seeds, and of their correction.
OVER_SEEDS: Final = (
    "over test patients and training seeds: variance components of Obuchowski and Rockette, seeds as readers"
)
#: The same over splits of the patients.
OVER_SPLITS: Final = (
    "over test patients, training seeds and splits: variance components of Obuchowski and Rockette, with Nadeau and "
    "Bengio's correction for splits that train on each other's test patients"
)
HOLM: Final = "Holm: p corrected over all diseases and rows, the means among themselves; the interval is not corrected."
#: Stands before the answer of a quick study.
QUICK: Final = (
    "QUICK: few images and few steps, which many methods share. It shows that everything runs and that something is "
    "learned; run it without --quick for figures and for all of the pipeline's alternatives."
)
#: The AUC of a score without information.
_CHANCE: Final = 0.5


def describe_test(differences: pd.DataFrame) -> str:
    """The meaning of intervals and p values, and why there is no p value; a sentence for each kind."""
    means = [row for row in list_difference_rows(differences) if row["disease"] == "mean"]
    name = means[0]["interval_method"]
    how = METHODS[name].of_difference
    if all(row["p"] is None for row in means):
        how = how.partition("; p ")[0]  # there are no p values to describe
    kinds = [
        (OVER_SPLITS if row["splits"] else OVER_SEEDS) if row["of_seeds"] else f"over test patients ({name}): {how}"
        for row in means
    ]
    untested = [f"no p value: {row['reason']}" for row in means if row["difference"] is not None and row["p"] is None]
    return "; ".join(dict.fromkeys([*kinds, *untested]))


def list_references(differences: pd.DataFrame) -> tuple[str, ...]:
    """References of the intervals and p values."""
    over_seeds = {bool(row["of_seeds"]) for row in list_difference_rows(differences) if row["disease"] == "mean"}
    patients = METHODS[differences["interval_method"].iloc[0]].references
    if differences["splits"].notna().any():
        return (*REFERENCES, SPLITS_REFERENCE)
    return (*(REFERENCES if True in over_seeds else ()), *(patients if False in over_seeds else ()))


def list_compared(results: Results, view: str) -> list[str]:
    """The models that are compared with the first at some hospital, in their order."""
    compared = set(results.gains(view)["model"])
    return [model for model in results.view(view)["model"].unique() if model in compared]


def describe_origins(results: Results) -> str:
    """Which hospitals, and test images, are synthetic and which real; empty where all are of one origin."""
    origins = (results.about.get("origins") or {}).items()
    return "; ".join(f"{origin}: {', '.join(names)}" for origin, names in origins)


def describe_quick(results: Results) -> str:
    """Say that a study was a quick one; empty if it was not."""
    return QUICK if results.about.get("quick") else ""


def state_common_models(results: Results, view: str) -> str:
    """Which models are not scored with the clients' own, although these have some; a sentence, or empty."""
    models: dict[str, dict[str, None]] = {}
    for row in results.list_estimates(view, disease="mean"):
        if row["scored_with"]:
            who = (
                f"{row['model']} at {row['place']}"
                if row["place"] and not results.by_k
                else row["place"] or row["model"]
            )
            models.setdefault(row["scored_with"], {})[who] = None
    texts = [f"{', '.join(names)}: scored with {what}" for what, names in models.items()]
    return f"{'; '.join(texts)}, because the test images belong to no client." if texts else ""


def describe_chance(results: Results) -> str:
    """Which models order the images of a hospital they were trained at no better than chance; empty if none does.

    Diseases are named if their interval is below one half.
    """
    own, below = find_presentation(results), []
    view = own.name if own else "hospitals" if len(results.view("hospitals")) else "study"
    if view == "study" and results.about.get("held_out"):
        return ""
    for *diseases, mean in group_rows(results.list_estimates(view, takes_part=True), "place", "model"):
        if mean["auc"] is None or mean["auc"] > _CHANCE:
            continue
        clear = [format_title(row["disease"]) for row in diseases if row["high"] is not None and row["high"] < _CHANCE]
        names = f" ({', '.join(clear)}: 95% interval below 0.5)" if clear else ""
        model = own.model.format(mean["model"]) if own else mean["model"]
        below.append(f"{model}{' at ' * bool(mean['place'])}{mean['place']} {number(mean['auc'])}{names}")
    if not below:
        return ""
    return (
        "The mean AUC is not above 0.5 on held-out patients of a hospital that the model was trained at. Labels may be "
        "reversed, or training was too short, diverged or collapsed to one score for all images (a smaller or a larger "
        f"step may help): {'; '.join(below)}."
    )


# ---- a paragraph for a paper -----------------------------------------------------------------------------------------

_AREA = (
    "J. A. Hanley, B. J. McNeil: The meaning and use of the area under a receiver operating characteristic (ROC) "
    "curve. Radiology 143 (1982) 29-36"
)
_HOLM_REFERENCE = (
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
        return "\n".join(
            [self.paragraph, "", *(f"{n}. {reference}." for n, reference in enumerate(self.references, 1)), ""]
        )


def number_references(sentences: Sequence[Sentence]) -> MethodsText:
    """The sentences with numbers for what they cite."""
    every = tuple(dict.fromkeys(reference for _, cited in sentences for reference in cited))
    shown = [
        sentence + (f" [{', '.join(str(every.index(reference) + 1) for reference in cited)}]." if cited else ".")
        for sentence, cited in sentences
    ]
    return MethodsText(" ".join(shown), every)


def describe_scoring(what: str, patients: int, diseases: int, how: Intervals) -> list[Sentence]:
    """Describe what was scored, as `202 images (frontal-image, valid split)`, and how intervals were made.

    `patients`: their number; 0 where it is not known whose the images are.
    """
    method = METHODS[how.method]
    least = f"at least {LEAST_PATIENTS} patients with and {LEAST_PATIENTS} without"
    mean = f", and its mean over the diseases with {least}" if diseases > 1 else ""
    computed = "we computed the area under the ROC curve (AUC) of each disease, ties counted as one half"
    whose = f" of {patients:,} patients" if patients else ""
    sentences: list[Sentence] = [(f"On {what}{whose} {computed}{mean}", [_AREA])]
    if not method.resampled or how.resamples:
        drawn = f" ({how.resamples:,} resamples, seed {how.seed})" if method.resampled else ""
        sentences.append((f"Intervals are at {method.about}{drawn}", method.references))
        sentences.append(("They are about the choice of test patients, for the models as trained", ()))
    return sentences


def describe_comparison(differences: pd.DataFrame) -> list[Sentence]:
    """Describe how models were compared, and what was corrected."""
    rows = list_difference_rows(differences)
    seeds = list(read_seeds(rows[-1]))
    trained = f" (training seeds {', '.join(seeds)})" if seeds else ""
    models = ", ".join(dict.fromkeys(row["model"] for row in rows))
    how = describe_test(differences)
    what = f"Models were compared on the same images, {models} against {rows[0]['reference']}{trained}: 95%, {how}"
    sentences: list[Sentence] = [(what, list_references(differences))]
    if count := sum(row["p"] is not None for row in rows if row["disease"] != "mean"):
        corrected = f"P values are two-sided; the {count} of single diseases were corrected by Holm's method"
        rest = "those of the means among themselves; the intervals were not corrected"
        sentences.append((f"{corrected}, {rest}", [_HOLM_REFERENCE]))
    return sentences


def name_program() -> Sentence:
    """The program."""
    return f"Computed with chestfed {__version__}", ()

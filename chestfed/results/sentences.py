"""Sentences on results: verdicts, what a test is about, what it could show, warnings, and a paragraph for a paper."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

import pandas as pd

from chestfed._version import __version__
from chestfed.core.console import plural
from chestfed.core.diseases import title_of
from chestfed.evaluation.comparison import ADVICE
from chestfed.evaluation.intervals.interval import Interval
from chestfed.evaluation.intervals.methods import METHODS, Intervals
from chestfed.evaluation.training_seeds import ENOUGH_SEEDS, MOST_SEEDS, POWER, REFERENCES
from chestfed.results.collect import Results
from chestfed.results.frames import list_records
from chestfed.results.grid import number, p_value, pair, signed

#: A row of a frame.
Record = dict[str, Any]
#: The meaning of intervals and p values over training seeds, and of their correction.
OVER_SEEDS: Final = (
    "over test patients and training seeds: variance components of Obuchowski and Rockette, seeds as readers"
)
HOLM: Final = "Holm: p corrected over all diseases and rows, the means among themselves; the interval is not corrected."
#: The AUC of a score without information.
_CHANCE: Final = 0.5


def group_rows(frame: pd.DataFrame, *columns: str) -> list[list[Record]]:
    """The records of a frame, those with the same values of consecutive columns together."""
    return [list(rows) for _, rows in groupby(list_records(frame), lambda row: [row[name] for name in columns])]


def state_verdict(differences: pd.DataFrame) -> str:
    """The last model against the first in two sentences; empty without a difference of their means."""
    mean = next(iter(list_records(differences)[-1:]), None)
    if mean is None or mean["difference"] is None:
        return ""
    seeds = list(json.loads(mean["of_seeds"]).values()) if mean["of_seeds"] else []
    direction = "higher" if mean["difference"] > 0 else "lower"
    apart = f"{abs(mean['difference']):.3f} {direction} than" if mean["difference"] else "the same as"
    chances = "test patients and training seeds" if seeds else "test patients"
    about = []
    if mean["low"] is not None:
        about.append(f"95% interval over {chances} {pair(Interval(mean['low'], mean['high']), 3, signed)}")
    about += [] if mean["p"] is None else [f"p {p_value(mean['p'])}"]
    brackets = f" ({', '.join(about)})" if about else ""
    sentence = f"With {mean['model']} the mean AUC is {apart} with {mean['reference']}{brackets}"
    if seeds:
        higher = sum(one is not None and one > 0 for one in seeds)
        rest = f"{sentence[0].lower()}{sentence[1:]}; it is higher in {higher} of {len(seeds)} seeds"
        sentence = f"Over {len(seeds)} training seeds: {rest}"
    resolution = f" {text}" if (text := describe_resolution(differences)) else ""
    if mean["p"] is None:
        return f"{sentence}. {mean['reason'][:1].upper()}{mean['reason'][1:]}.{resolution}"
    single = [row for row in list_records(differences) if row["disease"] != "mean" and row["p_holm"] is not None]
    clear = [row["difference"] for row in single if row["p_holm"] < 0.05]
    higher = sum(difference > 0 for difference in clear)
    which = f"{len(clear)} ({higher} higher, {len(clear) - higher} lower)" if clear else "none"
    return (
        f"{sentence}. Of {plural(len(single), 'comparison')} of single diseases, {which} "
        f"{'has' if len(clear) <= 1 else 'have'} a corrected p below 0.05.{resolution}"
    )


def describe_resolution(differences: pd.DataFrame) -> str:
    """The smallest difference that these patients and seeds could show, and with few seeds what this one needs."""
    mean = next(iter(list_records(differences)[-1:]), None)
    if mean is None or mean["detectable"] is None:
        return ""
    seeds, power = len(json.loads(mean["of_seeds"] or "{}")), f"with a power of {POWER:.0%}"
    if not 1 < seeds < ENOUGH_SEEDS:
        given = f"{plural(mean['images'], 'test image')} of {plural(mean['patients'], 'patient')}"
        given += f" and {seeds} training seeds" if seeds else ", for these two models,"
        return (
            f"With {given} a difference of the mean AUC is detected {power} if it is {mean['detectable']:.3f} or more."
        )
    few = plural(seeds, "training seed")
    if mean["detectable"] > max(mean["auc_reference"], 1 - mean["auc_reference"]):
        text = f"With {few} no difference of the mean AUC, however large, is detected {power}"
    else:
        text = f"With {few} a difference of the mean AUC is detected {power} if it is {mean['detectable']:.3f} or more"
    size = f"one of {abs(mean['difference']):.3f}, as here, needs"
    if mean["seeds_needed"] is None:
        return f"{text}; {size} more test patients: not even {MOST_SEEDS:,} seeds would show it."
    return f"{text}; {size} {mean['seeds_needed']:,} seeds."


def describe_test(differences: pd.DataFrame) -> str:
    """The meaning of intervals and p values, and why there is no p value; a sentence for each kind."""
    means = [row for row in list_records(differences) if row["disease"] == "mean"]
    name = means[0]["interval_method"]
    how = METHODS[name].of_difference
    if all(row["p"] is None for row in means):
        how = how.partition("; p ")[0]  # what is said of p values would be about none
    kinds = [OVER_SEEDS if row["of_seeds"] else f"over test patients ({name}): {how}" for row in means]
    untested = [f"no p value: {row['reason']}" for row in means if row["difference"] is not None and row["p"] is None]
    return "; ".join(dict.fromkeys([*kinds, *untested]))


def list_references(differences: pd.DataFrame) -> tuple[str, ...]:
    """References of the intervals and p values."""
    over_seeds = {bool(row["of_seeds"]) for row in list_records(differences) if row["disease"] == "mean"}
    patients = METHODS[differences["interval_method"].iloc[0]].references
    return (*(REFERENCES if True in over_seeds else ()), *(patients if False in over_seeds else ()))


def list_compared(results: Results, view: str) -> list[str]:
    """The models that are compared with the first at some hospital, in their order."""
    compared = set(results.gains(view)["model"])
    return [model for model in results.view(view)["model"].unique() if model in compared]


def state_gains(results: Results, view: str) -> str:
    """Who gains, in a sentence for each compared model; empty without a comparison."""
    texts = []
    for model in list_compared(results, view):
        gains = list_records(results.gains(view, disease="mean", model=model).dropna(subset="difference"))
        if not gains:
            continue
        gained = sum(row["difference"] > 0 for row in gains)
        clear = [row for row in gains if row["low"] is not None]
        above = ", ".join(row["hospital"] for row in clear if row["low"] > 0) or "none"
        below = ", ".join(row["hospital"] for row in clear if row["high"] < 0) or "none"
        texts.append(
            f"On each hospital's own held-out patients, the mean AUC with {model} is higher than with "
            f"{gains[0]['reference']} at {gained} of {len(gains)} hospitals; the 95% interval is above 0 at {above} "
            f"and below 0 at {below}."
        )
    gate = state_gate(results) if view == "alternatives" else ""
    return " ".join(filter(None, [*texts, state_spread(results, view), gate]))


def state_spread(results: Results, view: str) -> str:
    """How unequal the hospitals of a view are: the worst, the spread, and how many lose against the first model."""
    texts = []
    for model in dict.fromkeys(results.view(view)["model"]):
        rows = list_records(results.view(view, disease="mean", model=model, takes_part=True).dropna(subset="auc"))
        if len(rows) < 2:
            continue
        worst, best = (choose(rows, key=lambda row: row["auc"]) for choose in (min, max))
        interval = "" if worst["low"] is None else f" [{number(worst['low'])}, {number(worst['high'])}]"
        gains = list_records(results.gains(view, disease="mean", model=model).dropna(subset="difference"))
        lose = sum(row["difference"] < 0 for row in gains)
        losing = f", lower than with {gains[0]['reference']} at {lose} of {len(gains)}" if gains else ""
        spread = f"from {number(worst['auc'])}{interval} at {worst['hospital']} to {number(best['auc'])}"
        texts.append(f"{model} {spread} at {best['hospital']}, spread {number(best['auc'] - worst['auc'])}{losing}")
    return f"Worst and best hospital: {'; '.join(texts)}." if texts else ""


def state_gate(results: Results) -> str:
    """What the gate chose at each hospital, and what it costs against the other models; empty without a gate."""
    texts = []
    for hospital, counts in results.about.get("gate", {}).items():
        own = list_records(results.gains("alternatives", disease="mean", hospital=hospital, model="gate"))
        others = list_records(results.gains("gate", disease="mean", hospital=hospital))
        costs = [f"{_signed_interval(row)} minus {row['reference']}" for row in (*own, *others)]
        total = sum(counts.values())
        chosen = ", ".join(f"{name} ({count} of {total})" for name, count in counts.items())
        best = max((row for row in (*own, *others)), key=lambda row: row["auc_reference"] or 0, default=None)
        text = "" if best is None else f"; the best model there without a gate is {best['reference']}"
        texts.append(f"At {hospital} the gate chose {chosen}: {', '.join(costs)}{text}.")
    return " ".join(texts)


def _signed_interval(row: Record) -> str:
    interval = "" if row["low"] is None else f" [{signed(row['low'])}, {signed(row['high'])}]"
    return f"{signed(row['difference'])}{interval}"


def describe_chance(results: Results) -> str:
    """Which models order the images of a hospital they were trained at worse than chance; empty if none does.

    Diseases are named if their interval is below one half.
    """
    view = next((name for name in ("held_out", "hospitals") if len(results.view(name))), "study")
    below = []
    if view == "study" and results.about.get("held_out"):
        return ""
    for *diseases, mean in group_rows(results.view(view, takes_part=True), "hospital", "model"):
        if mean["auc"] is None or mean["auc"] >= _CHANCE:
            continue
        clear = [title_of(row["disease"]) for row in diseases if row["high"] is not None and row["high"] < _CHANCE]
        names = f" ({', '.join(clear)}: 95% interval below 0.5)" if clear else ""
        place = f"{' held out,' if view == 'held_out' else ''} at {mean['hospital']}" if mean["hospital"] else ""
        below.append(f"{mean['model']}{place} {number(mean['auc'])}{names}")
    if not below:
        return ""
    return (
        "The mean AUC is below 0.5 on held-out patients of a hospital that the model was trained at. Labels may be "
        f"reversed, or training diverged or was too short: {'; '.join(below)}."
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
        return "\n".join([self.paragraph, "", *(f"{n}. {one}." for n, one in enumerate(self.references, 1)), ""])


def number_references(sentences: Sequence[Sentence]) -> MethodsText:
    """The sentences with numbers for what they cite."""
    every = tuple(dict.fromkeys(one for _, cited in sentences for one in cited))
    shown = [
        sentence + (f" [{', '.join(str(every.index(one) + 1) for one in cited)}]." if cited else ".")
        for sentence, cited in sentences
    ]
    return MethodsText(" ".join(shown), every)


def describe_scoring(what: str, patients: int, diseases: int, how: Intervals) -> list[Sentence]:
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


def describe_comparison(differences: pd.DataFrame) -> list[Sentence]:
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
        sentences.append((f"{corrected}, {rest}", [_HOLM_REFERENCE]))
    return sentences


def name_program() -> Sentence:
    """The program."""
    return f"Computed with chestfed {__version__}", ()

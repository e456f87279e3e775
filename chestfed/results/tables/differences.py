"""Paired comparison of finished models on the same test images, from their stored predictions.

A study compares its other K with its smallest; `chestfed compare` compares any runs and evaluations with the first of
them, by the same function. What a p value is about depends on the models: trained with the same two or more seeds, on
test patients and training seeds; finished models of elsewhere, on test patients. Models of one training seed have
intervals and no p value.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count
from numbers import Integral
from pathlib import Path
from typing import Any, get_args

import pandas as pd

from chestfed.core.errors import ConfigError
from chestfed.core.manifest import short_digest
from chestfed.core.provenance import Origin
from chestfed.results.evaluation.comparison import ONE_SEED, Difference, compare
from chestfed.results.evaluation.estimates import as_csv
from chestfed.results.evaluation.intervals import DEFAULT, MethodName
from chestfed.results.evaluation.intervals.methods import METHODS
from chestfed.results.evaluation.splits import SPLITS_REFERENCE
from chestfed.results.evaluation.training_seeds import REFERENCES
from chestfed.results.tables.frames import make_differences, name_run
from chestfed.results.tables.predictions import Predictions, align_splits


def check_choice(value: object, choices: Sequence[str | None], key: str) -> None:
    """Refuse a value that is not one of the choices with a `ConfigError`."""
    if not isinstance(value, str | None) or value not in choices:
        names = ", ".join(choice for choice in choices if choice is not None)
        raise ConfigError(f"{key}={value!r}: choose one of {names}", kind="unknown choice", key=key)


def check_choices(interval: object, resamples: object) -> None:
    """Refuse an unknown method of intervals, or an invalid number of resamples, with a `ConfigError`."""
    check_choice(interval, get_args(MethodName), "interval")
    if not isinstance(resamples, Integral) or isinstance(resamples, bool) or resamples < 0:
        raise ConfigError(
            f"resamples={resamples!r}: give a whole number from 0 up", kind="not a count", key="resamples"
        )


def compare_with_first(
    models: Sequence[Predictions], resamples: int = 2000, interval: MethodName = DEFAULT
) -> pd.DataFrame:
    """Every model minus the first, over the diseases that all have, as differences of the view `study`.

    Raises `ConfigError` if the images, their labels or patients differ, or no disease is common, or a choice is not
    one.
    """
    return make_differences(list_differences(models, resamples, interval))


def list_differences(
    models: Sequence[Predictions],
    resamples: int,
    interval: MethodName = DEFAULT,
    *,
    view: str = "study",
    hospital: str = "",
) -> list[dict[str, Any]]:
    """The rows of `compare_with_first`, for a view and a hospital, without Holm's correction."""
    check_choices(interval, resamples)
    if len(models) < 2:
        raise ConfigError("a comparison needs at least two models; with --group-seeds, of different settings")
    reference = models[0]
    splits = len(reference.tests)
    diseases = [disease for disease in reference.diseases if all(disease in model.diseases for model in models)]
    if not diseases:
        every = "; ".join(", ".join(model.diseases) for model in models)
        raise ConfigError(f"the runs have no disease in common: {every}")
    names = _make_unique([model.name for model in models])
    origins = [model.origin for model in models if model.origin is not None]
    head = {
        "view": view,
        "data": str(Origin.together(origins)) if origins else "unknown",
        "reference": names[0],
        **{f"reference_{column}": value for column, value in reference.about.items()},
        "hospital": hospital,
        "protocol": reference.protocol,
        **dict(zip(("images", "patients"), reference.counts, strict=True)),
        "seeds_reference": len(reference.frames) // splits,
        "splits": splits if splits > 1 else None,
        "interval_method": interval,
    }
    rows: list[dict[str, Any]] = []
    for model, name in zip(models[1:], names[1:], strict=True):
        if model.protocol and reference.protocol and model.protocol != reference.protocol:
            raise ConfigError(f"{names[0]} was scored as {reference.protocol}, {name} as {model.protocol}")
        aligned = align_splits(reference, replace(model, name=name), diseases)
        scored = reference.scored(diseases), aligned.scored(diseases)
        untested = _explain_missing_test(reference.runs, model.runs)
        try:
            # Of several K the last is the answer; which method is the best is known when all are compared.
            advise = view == "study" and (model is models[-1] or model.about.get("k") == reference.about.get("k"))
            differences = compare(*scored, resamples, untested=untested, interval=interval, advise=advise)
        except ValueError as error:
            text = f"{names[0]} and {name}: {error}. Are labels and their policy the same?"
            raise ConfigError(text, kind="other labels") from None
        about = head | {**model.about, "model": name, "seeds_model": len(model.frames) // splits}
        runs = [name_run(seed, split if splits > 1 else None) for split, seed in reference.runs]
        if splits > 1:
            differences = tuple(_count_images(difference, reference) for difference in differences)
        rows += (about | row for row in _list_rows(differences, runs, interval, reference.counts[0], splits))
    return rows


def name_folder(differences: pd.DataFrame, out: Path) -> Path:
    """The folder that `chestfed compare` writes to, named by the content."""
    data = differences["data"].iloc[0]
    prefix = "" if data == "unknown" else Origin(data).prefix
    return out / f"{prefix}paired-{short_digest(as_csv(differences))}"


def _count_images(difference: Difference, tested: Predictions) -> Difference:
    """With the counts of images that some splits may share."""
    if difference.disease not in tested.diseases:
        return difference
    counts = tested.count_classes(difference.disease)
    positives, negatives, missing = (counts[name] for name in ("positives", "negatives", "missing"))
    return replace(difference, positives=positives, negatives=negatives, missing=missing)


def _list_rows(
    differences: Sequence[Difference], runs: Sequence[str], interval: MethodName, images: int, splits: int
) -> Iterator[dict[str, Any]]:
    for difference in differences:
        low, high = difference.interval or (None, None)
        labeled = (
            images
            if difference.positives is None or difference.negatives is None
            else difference.positives + difference.negatives
        )
        references = REFERENCES if difference.of_seeds else METHODS[interval].references
        references = [SPLITS_REFERENCE] if splits > 1 else references
        yield {
            **vars(difference),
            "low": low,
            "high": high,
            "n": labeled,
            "turns_without": ", ".join(difference.turns_without),
            "interval_reference": references[0],
            "of_seeds": json.dumps(dict(zip(runs, difference.of_seeds, strict=True))) if difference.of_seeds else "",
        }


def _explain_missing_test(a: Sequence[tuple[int, int]], b: Sequence[tuple[int, int]]) -> str:
    """Why models of these splits and training seeds (none: finished models) have no p value; empty if they have one."""
    if not (a or b) or (len(a) < 2 and len(b) < 2 and not (a and b)):
        return ""
    if len(a) == 1 and len(b) == 1:
        return ONE_SEED
    return "" if list(a) == list(b) else "no test: not the same training seeds; train both with the same"


def _make_unique(names: Sequence[str]) -> list[str]:
    """Names made different by a number where they are the same."""
    result: list[str] = []
    for name in names:
        numbered = (name if n == 1 else f"{name} ({n})" for n in count(1))
        result.append(next(candidate for candidate in numbered if candidate not in result))
    return result

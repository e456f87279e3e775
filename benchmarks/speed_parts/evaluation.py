"""Bootstrap and all that an evaluation says, on test sets of CheXpert's size and of 67,000 images."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import numpy as np

from benchmarks.speed_parts.pairs import paired
from chestfed.core.randomness import numpy_stream
from chestfed.results.evaluation.intervals.bootstrap import jointly_resampled_aucs, resampled_aucs
from chestfed.results.evaluation.intervals.methods import Intervals
from chestfed.results.evaluation.labeled import Scored
from chestfed.results.evaluation.summary import summarize

DISEASES, RESAMPLES = 5, 2000
LOOPED = 20  # resamples of the loop beside it


def measure() -> dict[str, Any]:
    """2000 resamples of patients on 202 images, beside a loop of scikit-learn's function; then of 67,000 images.

    "separate" is one draw of patients per disease, "joint" one for all of them; "summary" is everything that
    `chestfed evaluate` says, with both, the other numbers and three columns of subgroups. Scores are random, 10% of the
    labels positive; 67,000 images are one per patient, which means the most draws, and three.
    """
    small = _drawn(202, 200)
    loop = paired(
        {"separate": _separate(small, LOOPED), "roc_auc_score, looped": partial(_looped, small)},
        count=LOOPED,
        unit="resample of 202 images",
    )
    found: dict[str, Any] = {"beside scikit-learn": loop}
    for images, patients in ((202, 200), (67_000, 67_000), (67_000, 22_333)):
        scored = _drawn(images, patients)
        rng = numpy_stream(0, "groups", images)
        groups = {name: rng.integers(0, values, images) for name, values in (("sex", 2), ("age", 4), ("view", 2))}
        work = {
            "separate": _separate(scored, RESAMPLES),
            "joint": partial(jointly_resampled_aucs, scored.scores, scored.labels, scored.patients, RESAMPLES, 0),
            "summary": partial(summarize, scored, "frontal-image", Intervals(resamples=RESAMPLES), groups),
        }
        seconds = {}
        for name, run in work.items():
            begin = time.process_time()
            run()
            seconds[name] = round(time.process_time() - begin, 2)
        found[f"{images} images of {patients} patients, seconds of the processor"] = seconds
    return found


def _drawn(images: int, patients: int) -> Scored:
    rng = numpy_stream(0, "bootstrap speed", images, patients)
    labels = (rng.random((images, DISEASES)) < 0.1).astype(float)
    scores = 1 / (1 + np.exp(-rng.normal(size=(images, DISEASES)) - labels))
    return Scored(scores, labels, np.arange(images) % patients, [f"disease {j}" for j in range(DISEASES)])


def _separate(scored: Scored, resamples: int) -> partial[Any]:
    return partial(resampled_aucs, scored.scores, scored.labels, scored.patients, resamples, 0)


def _looped(scored: Scored) -> list[float]:
    """The bootstrap that is written first: patients drawn, rows gathered, scikit-learn's AUC, disease by disease."""
    from sklearn.metrics import roc_auc_score

    rng, aucs = np.random.default_rng(0), []
    rows_of = [np.flatnonzero(scored.patients == patient) for patient in range(int(scored.patients.max()) + 1)]
    for _ in range(LOOPED):
        for disease in range(DISEASES):
            drawn = rng.integers(0, len(rows_of), len(rows_of))
            rows = np.concatenate([rows_of[patient] for patient in drawn])
            aucs.append(float(roc_auc_score(scored.labels[rows, disease], scored.scores[rows, disease])))
    return aucs

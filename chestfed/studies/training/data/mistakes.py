"""Test images that the model of the largest K misjudges, for the study's page: `mistakes.npz` in the folder of that K.

A false negative is a positive image below the threshold at a specificity of 90%, a false positive a negative image
above it. Of each disease the worst few are there, as small images without names:

    pixels       uint8 [m, 96, 96], or [m, 96, 96, 3]
    disease      the place of the disease in the study, int64 [m]
    positive     its label, bool [m]
    below        the share of the labeled test images with a lower score, float64 [m]
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from chestfed.data.images.batches import Images
from chestfed.results.evaluation.metrics import sensitivity_at_specificity
from chestfed.results.tables.run_folder import MISTAKES
from chestfed.studies.training.client_summary import SIDE, save_arrays, shrink, unwrap_features
from chestfed.studies.training.data.clients import TestSet

#: Images per disease and kind of mistake.
SHOWN = 3


def write_mistakes(folder: Path, test: TestSet, scores: np.ndarray) -> None:
    """Write `mistakes.npz` for probabilities `[n, J]` of the test images."""
    rows, diseases = list[int](), list[int]()
    positives, below = list[bool](), list[float]()
    for place, column in enumerate(test.attach_scores(scores).columns()):
        point = sensitivity_at_specificity(column)
        if point is None:
            continue
        labeled = np.flatnonzero(~np.isnan(test.labels[:, place]))
        for positive in (True, False):
            order = np.argsort(column.score if positive else -column.score, kind="stable")
            wrong = (column.positive == positive) & ((column.score < point.threshold) == positive)
            for row in order[wrong[order]][:SHOWN]:
                rows.append(int(labeled[row]))
                diseases.append(place)
                positives.append(positive)
                below.append(float((column.score < column.score[row]).mean()))
    arrays = {
        "pixels": _read_small(test.images, rows),
        "disease": np.array(diseases, np.int64),
        "positive": np.array(positives, bool),
        "below": np.array(below, np.float64),
    }
    save_arrays(folder / MISTAKES, arrays)


def _read_small(images: Images, rows: Sequence[int]) -> np.ndarray:
    images = unwrap_features(images)
    small = [shrink(images.read([row])[0]) for row in rows]
    return np.stack(small) if small else np.zeros((0, SIDE, SIDE), np.uint8)

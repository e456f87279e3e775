"""Evaluation protocols by name: which rows of a site table are scored, and what one unit is.

| protocol        | scored                                                  | one unit                          |
|-----------------|---------------------------------------------------------|-----------------------------------|
| `frontal-image` | frontal images                                          | an image                          |
| `all-image`     | every image that the site's YAML keeps                  | an image                          |
| `study-max`     | every image that the site's YAML keeps                  | a study: the largest of its scores |
| `study-mean`    | every image that the site's YAML keeps                  | a study: the mean of its scores   |

On CheXpert's validation set `frontal-image` is 202 images of 200 patients, the source paper's most likely choice; its
competition scored studies by the largest score of their views.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, get_args

import numpy as np
import pandas as pd

from chestfed.results.evaluation.labeled import number_names

#: The views that count as frontal.
FRONTAL: Final = ("pa", "ap", "frontal")

#: Protocols with the image as unit: those that a study may use.
ImageProtocol = Literal["frontal-image", "all-image"]
Protocol = Literal["frontal-image", "all-image", "study-max", "study-mean"]

PROTOCOLS: Final[tuple[Protocol, ...]] = get_args(Protocol)

#: Way to the AUC where images of several hospitals are scored.
OverHospitals = Literal["mean", "pooled"]


@dataclass(frozen=True)
class Units:
    """Units of evaluation: scores and labels `[m, J]`, and for each unit the row of its first image, int `[m]`.

    `of_row` `[n]` is the unit that each image belongs to.
    """

    scores: np.ndarray
    labels: np.ndarray
    first: np.ndarray
    of_row: np.ndarray


def list_views(protocol: Protocol) -> tuple[str, ...] | None:
    """Views that a protocol keeps; None keeps all."""
    return FRONTAL if protocol == "frontal-image" else None


def name_unit(protocol: Protocol) -> Literal["image", "study"]:
    """Name one unit."""
    return "study" if protocol.startswith("study") else "image"


def describe_hospitals(count: int, over: OverHospitals) -> str:
    """Describe an AUC over images of so many hospitals, to follow the name of a protocol; empty for one."""
    if count < 2:
        return ""
    return f", mean of the AUCs of {count} hospitals" if over == "mean" else f", images of {count} hospitals pooled"


def units(protocol: Protocol, scores: np.ndarray, labels: np.ndarray, studies: np.ndarray) -> Units:
    """The images, or their studies in the order of their first images.

    A study is positive for a disease if one of its images is, negative if one is negative and none positive, and
    missing if all are missing.

    Scores and labels are `[n, J]`, labels in {0, 1, NaN}; `studies` `[n]` any values that identify a study.
    """
    if name_unit(protocol) == "image":
        rows = np.arange(len(scores))
        return Units(scores, labels, rows, rows)
    of_row = number_names(studies)
    by_study = [pd.DataFrame(part.astype(np.float64)).groupby(of_row) for part in (scores, labels)]
    together = by_study[0].max() if protocol == "study-max" else by_study[0].mean()
    first = np.unique(of_row, return_index=True)[1]
    return Units(
        together.to_numpy().astype(scores.dtype), by_study[1].max().to_numpy().astype(labels.dtype), first, of_row
    )

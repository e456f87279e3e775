"""Several annotators of one image, combined into one finding."""

from __future__ import annotations

from typing import Final

import numpy as np

from chestfed.sites.reader import BLANK, NEGATIVE, POSITIVE, UNCERTAIN, UNLABELLED

#: Rules other than the name of one reader.
RULES: Final = ("any", "majority", "all")


def agreed(votes: np.ndarray, image: np.ndarray, images: int, rule: str) -> np.ndarray:
    """One finding int8 `[images]` from votes int8 `[v]` on the images at places int `[v]`.

    `majority` is more than half of those who assessed the disease, `all` every one; any other rule is `any`.
    If positive votes suffice only together with uncertain ones, the finding is uncertain. An image without votes
    is unlabeled.
    """

    def count(chosen: np.ndarray) -> np.ndarray:
        return np.bincount(image[chosen], minlength=images)

    total, positive = count(votes != BLANK), count(votes == POSITIVE)
    possible = positive + count(votes == UNCERTAIN)
    said = np.where(_enough(possible, total, rule), UNCERTAIN, NEGATIVE)
    said = np.where(_enough(positive, total, rule), POSITIVE, said)
    asked = np.bincount(image, minlength=images) > 0
    return np.where(total > 0, said, np.where(asked, BLANK, UNLABELLED)).astype(np.int8)


def _enough(count: np.ndarray, total: np.ndarray, rule: str) -> np.ndarray:
    return {"majority": 2 * count > total, "all": count == total}.get(rule, count > 0)

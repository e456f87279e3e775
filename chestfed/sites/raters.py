"""Several annotators of one image, combined into one finding."""

from __future__ import annotations

from typing import Final

import numpy as np

from chestfed.sites.reader import BLANK, NEGATIVE, POSITIVE, UNCERTAIN, UNLABELLED

#: Rules other than the name of one reader.
RULES: Final = ("any", "majority", "all")


def agreed(votes: np.ndarray, image: np.ndarray, images: int, rule: str, *, silent: bool = False) -> np.ndarray:
    """One finding int8 `[images]` from votes int8 `[v]` on the images at places int `[v]`.

    `majority` is more than half of the annotators, `all` every one; any other rule is `any`. If positive votes suffice
    only together with uncertain ones, the finding is uncertain. An image without votes is unlabeled.

    A blank vote means that the disease was not assessed, and does not count. With `silent` it means that it was not
    mentioned, and counts: where only blank (or unlabeled) votes could make the image positive it is blank (unlabeled).
    """

    def count(*codes: np.int8) -> np.ndarray:
        return np.bincount(image[np.isin(votes, codes)], minlength=images)

    total = count(POSITIVE, NEGATIVE, UNCERTAIN, *((BLANK, UNLABELLED) if silent else ()))
    said = np.full(images, NEGATIVE)
    ways = [(BLANK, (UNCERTAIN, BLANK, UNLABELLED)), (UNLABELLED, (UNCERTAIN, UNLABELLED))] if silent else []
    for code, others in (*ways, (UNCERTAIN, (UNCERTAIN,)), (POSITIVE, ())):
        said = np.where(_enough(count(POSITIVE, *others), total, rule), code, said)
    asked = np.bincount(image, minlength=images) > 0
    return np.where(total > 0, said, np.where(asked, BLANK, UNLABELLED)).astype(np.int8)


def _enough(count: np.ndarray, total: np.ndarray, rule: str) -> np.ndarray:
    return {"majority": 2 * count > total, "all": count == total}.get(rule, count > 0)

"""Whether a film is stored as a negative, or lying, from the picture itself: it is compared with a mean film.

The mean film is that of the NIH Clinical Center's pictures in ChestX-ray8 (Wang et al., CVPR 2017), which are free to
use with attribution; `tests/campaigns/test_real_images.py` makes it and measures how often it is right.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Final

import cv2
import numpy as np

#: Below this correlation, of either sign, the picture does not tell.
UNSURE: Final = 0.1
#: A film is taken to be turned if another side up correlates at least so well, and by so much better.
_LIKE_A_FILM: Final = 0.3
_LIKE_A_NEGATIVE: Final = 0.4
_CLEARLY: Final = 0.1
_SIDE: Final = 32
_FRAMED: Final = 256  # side of the image in which a frame is searched
_FLAT: Final = 8  # gray levels
MEAN_FILM: Final = Path(__file__).with_name("mean_film.png")


def polarity(gray: np.ndarray) -> float:
    """Correlation with the mean film of gray levels uint8 `[h, w]`: above 0 if air is dark, below 0 for a negative.

    It tells of frontal films; of a picture of one gray level it is 0.
    """
    film = standardize_polarity(gray)
    return float((film * mean_film()).sum())


def compare_turns(gray: np.ndarray) -> np.ndarray:
    """Correlations `[4]` with the mean film of a picture turned by 0 to 3 quarters, counterclockwise."""
    film, mean = standardize_polarity(gray), mean_film()
    return np.array([(film * np.rot90(mean, -turn)).sum() for turn in range(4)])


def find_turn(gray: np.ndarray) -> int:
    """Quarter turns counterclockwise after which a frontal film with dark air stands upright, as far as it is clear.

    0 if it stands upright, or the picture does not tell. A mirrored film is not told from another.
    """
    scores = compare_turns(gray)
    best = int(scores.argmax())
    others = np.delete(scores, best).max()
    return best if scores[best] >= _LIKE_A_FILM and scores[best] - others >= _CLEARLY else 0


def looks_negative(gray: np.ndarray) -> bool:
    """Whether a frontal film, whichever side is up, is clearly more like a negative than like a film with dark air."""
    scores = compare_turns(gray)
    return bool(-scores.min() >= _LIKE_A_NEGATIVE and -scores.min() - scores.max() >= _CLEARLY)


def standardize_polarity(gray: np.ndarray) -> np.ndarray:
    """Inside of a frame, as float `[32, 32]` with mean 0 and norm 1; zeros for a picture of one gray level."""
    small = _remove_frame(_remove_frame(cv2.resize(gray, (_FRAMED, _FRAMED), interpolation=cv2.INTER_AREA)).T).T
    square = cv2.resize(np.ascontiguousarray(small), (_SIDE, _SIDE), interpolation=cv2.INTER_AREA).astype(np.float64)
    square -= square.mean()
    return square / (np.linalg.norm(square) or 1.0)


def _remove_frame(gray: np.ndarray) -> np.ndarray:
    """Without the outer rows of one gray level, except a marker: they are black or white in negatives too."""
    low, high = np.percentile(gray, (5, 95), axis=1)
    lines = np.flatnonzero(high - low > _FLAT)
    return gray[lines[0] : lines[-1] + 1] if len(lines) else gray


@functools.cache
def mean_film() -> np.ndarray:
    """The mean film as float `[32, 32]` with mean 0 and norm 1."""
    from PIL import Image

    with Image.open(MEAN_FILM) as picture:
        return standardize_polarity(np.asarray(picture))

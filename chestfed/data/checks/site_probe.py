"""Site probe: how well a linear model on small images names the hospital that an image is from.

What a network can tell at a glance it can use in place of the disease, if the hospitals differ in prevalence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from chestfed.core.errors import ConfigError
from chestfed.core.randomness import numpy_stream

#: Pixels of a small image's side.
SIDE: Final = 24
#: Images of a hospital that are probed at most; parts of the patients, each named by a model of the others.
MOST_IMAGES: Final = 1000
_FOLDS: Final = 5
#: Inverse strength of the model's L2 penalty, for standardized pixels.
_C: Final = 0.01


@dataclass(frozen=True, eq=False)
class SiteProbe:
    """Accuracy with which hospitals are named, on patients that the model has not seen."""

    images: Mapping[str, int]  #: per hospital
    recall: Mapping[str, float]  #: share of a hospital's images that are named right
    probabilities: np.ndarray  #: float64 `[n, hospitals]`, in the order of the images

    @property
    def accuracy(self) -> float:
        """Balanced accuracy: the mean recall."""
        return float(np.mean(list(self.recall.values())))

    @property
    def chance(self) -> float:
        return 1 / len(self.recall)

    def describe(self) -> str:
        """One sentence."""
        each = ", ".join(f"{name} {share:.2f} of {self.images[name]:,}" for name, share in self.recall.items())
        return (
            f"A linear model on images of {SIDE} x {SIDE} pixels names the hospital with a balanced accuracy of "
            f"{self.accuracy:.3f} (chance {self.chance:.3f}) for patients that it has not seen: {each}"
        )


def shrink(pixels: np.ndarray) -> np.ndarray:
    """An image uint8 `[h, w]` or `[h, w, 3]` as gray float32 `[SIDE * SIDE]`, by area."""
    import cv2

    gray = pixels if pixels.ndim == 2 else pixels.mean(axis=2).astype(np.uint8)
    return cv2.resize(gray, (SIDE, SIDE), interpolation=cv2.INTER_AREA).astype(np.float32).ravel()


def draw_rows(count: int, most: int, name: str) -> np.ndarray:
    """At most so many of a hospital's rows, int, sorted."""
    return np.sort(numpy_stream(0, "site probe", name).permutation(count)[:most])


def probe_sites(images: Mapping[str, np.ndarray], patients: Mapping[str, Sequence[str] | np.ndarray]) -> SiteProbe:
    """Multinomial logistic regression on standardized pixels, each fifth of the patients named by the other four.

    `images` are small ones of each hospital, float32 `[n, SIDE * SIDE]`, hospitals weigh the same. Raises `ConfigError`
    with fewer than two hospitals, or fewer than two patients at one.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedGroupKFold, cross_val_predict
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    names = list(images)
    people = {name: len(set(patients[name])) for name in names}
    if len(names) < 2 or min(people.values()) < 2:
        text = ", ".join(f"{name} {count}" for name, count in people.items())
        raise ConfigError(
            f"a site probe needs two hospitals of two patients each; patients: {text}", kind="too few sites"
        )
    hospital = np.repeat(np.arange(len(names)), [len(images[name]) for name in names])
    person = np.array([f"{place} {name}" for place, site in enumerate(names) for name in patients[site]])
    model = make_pipeline(StandardScaler(), LogisticRegression(C=_C, class_weight="balanced", max_iter=500))
    parts = StratifiedGroupKFold(min(_FOLDS, *people.values()), shuffle=True, random_state=0)
    pixels = np.concatenate([images[name] for name in names])
    shares = cross_val_predict(model, pixels, hospital, groups=person, cv=parts, method="predict_proba")
    named = shares.argmax(axis=1) == hospital
    recall = {name: float(named[hospital == place].mean()) for place, name in enumerate(names)}
    return SiteProbe({name: len(images[name]) for name in names}, recall, shares)

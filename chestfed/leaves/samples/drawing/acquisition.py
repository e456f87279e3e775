"""From attenuation to gray: the X-ray machine, the detector and the processing of a hospital."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Literal

import cv2
import numpy as np

from chestfed.leaves.samples.frame import Frame

#: Rows of the working grid for which `Look.noise` holds.
GRID: Final = 256


@dataclass(frozen=True)
class Look:
    """Look of a hospital's pictures. Pairs are mean and deviation from picture to picture."""

    shape: tuple[int, int]  #: stored height and width in pixels
    field: tuple[float, float]  #: height in cm that the detector sees
    scatter: tuple[float, float]  #: scattered radiation by primary, behind the mean chest: it flattens the contrast
    noise: float  #: deviation of the exposure behind the mean chest, as a share of it
    blur: float  #: unsharpness in cm
    black: tuple[float, float]  #: gray (0..1) of the lungs' darkest part
    white: tuple[float, float]  #: gray of the densest part
    gamma: tuple[float, float]
    edges: float  #: strength of the manufacturer's edge enhancement
    tilt: float  #: deviation in radians of the body's axis from the detector's
    collimated: float  #: share of pictures with a border that the collimator left unexposed
    marker: Literal["letter", "box", "disc", "dot"]  #: shape of the side marker
    portable_word: str  #: burned into AP pictures; empty for none
    portable_share: float = 1.0  #: share of AP pictures that carry it
    rows: int = GRID  #: of the working grid: nothing that is drawn is finer

    def halve(self) -> Look:
        """Machine like this one with a detector of half as many rows and columns."""
        height, width = self.shape
        return replace(self, shape=(height // 2, width // 2), rows=self.rows // 2)


def detector(look: Look, rng: np.random.Generator) -> Frame:
    """Where the patient stands before the detector, on the working grid."""
    height = look.rows
    width = round(height * look.shape[1] / look.shape[0])
    field = float(np.clip(rng.normal(*look.field), 30, 46))
    scale = height / field
    origin = (width / 2 + scale * rng.normal(0, 0.8), height * 0.5 + scale * rng.normal(0.3, 0.8))
    return Frame(height, width, scale, origin, rng.normal(0, look.tilt))


def expose(optical: np.ndarray, frame: Frame, look: Look, rng: np.random.Generator, *, portable: bool) -> np.ndarray:
    """From line integrals to the picture as the hospital stores it, float32 `[height, width]` in 0..1, air dark."""
    primary = np.exp(-frame.blur(optical, look.blur))
    coarse = optical[::3, ::3]
    mean = float(np.exp(-np.median(coarse[coarse > 0.7])))
    scatter = max(0.0, rng.normal(*look.scatter))
    # Scatter comes from the body alone; where the beam meets the detector freely it would be blinding.
    intensity = primary + scatter * frame.blur(np.minimum(primary, 4 * mean), 3.5)
    dose = look.noise * (look.rows / GRID) * float(rng.lognormal(0, 0.2))  # a larger pixel is hit by more photons
    grain = rng.standard_normal(intensity.shape, dtype=np.float32)
    intensity += dose * np.sqrt(mean * intensity) * grain
    logarithm = -np.log(np.maximum(intensity, 0.02 * mean))
    gray = _developed(logarithm, look, frame, rng)
    gray = cv2.resize(gray, look.shape[::-1], interpolation=cv2.INTER_CUBIC)
    _collimate(gray, look, rng)
    _mark(gray, look, rng, portable=portable)
    return np.clip(gray, 0, 1, out=gray)


def _developed(logarithm: np.ndarray, look: Look, frame: Frame, rng: np.random.Generator) -> np.ndarray:
    """Gray levels by the automatic window of the machine: the lungs to `black`, the middle to `white`."""
    rows, columns = logarithm.shape
    middle = logarithm[rows // 8 : -rows // 8 : 3, columns // 5 : -columns // 5 : 3]
    low, high = (float(level) for level in np.percentile(middle, (3, 97)))
    black, white = rng.normal(*look.black), rng.normal(*look.white)
    gray = black + (white - black) / max(high - low, 0.2) * (logarithm - low)
    if look.edges:
        gray += look.edges * (gray - frame.blur(gray, 0.7))
    gamma = look.gamma[0] * float(np.exp(rng.normal(0, look.gamma[1])))
    # By table, which is faster. A soft shoulder: values denser than the window still differ.
    levels = np.linspace(0, 1.5, 4096)
    levels = np.where(levels > 0.85, 0.85 + 0.15 * np.tanh((levels - 0.85) / 0.15), levels) ** gamma
    places = np.clip(gray * (4095 / 1.5), 0, 4095).astype(np.int32)
    return levels.astype(np.float32)[places]


def _collimate(gray: np.ndarray, look: Look, rng: np.random.Generator) -> None:
    """Blacken what lies outside the collimator, a rectangle that is a little askew."""
    chosen = rng.random() < look.collimated
    height, width = gray.shape
    margins = rng.uniform(0.0, 0.075, 4) * (rng.random(4) < 0.6)
    slant = rng.normal(0, 0.008, 4)
    if not chosen:
        return
    left, top, right, bottom = margins
    corners = np.array(
        [
            (left, top + slant[0]),
            (1 - right, top + slant[1]),
            (1 - right + slant[2], 1 - bottom),
            (left + slant[3], 1 - bottom),
        ]
    )
    mask = np.zeros(gray.shape, np.uint8)
    cv2.fillConvexPoly(mask, np.rint(corners * (width, height)).astype(np.int32), 255, cv2.LINE_AA)
    gray *= np.maximum(cv2.blur(mask, (3, 3)).astype(np.float32) / 255, 0.03)


def _mark(gray: np.ndarray, look: Look, rng: np.random.Generator, *, portable: bool) -> None:
    """Burn in the side marker, and the word for pictures from a portable machine."""
    height, width = gray.shape
    size = height / 400 * rng.uniform(0.55, 0.8)
    left_side = rng.random() < 0.5
    spot = (int(width * rng.uniform(0.86, 0.93)), int(height * rng.uniform(0.05, 0.2)))
    if not left_side:
        spot = (width - spot[0] - int(12 * size), spot[1])
    worded = rng.random() < look.portable_share
    # The word stands in the other corner than the letter.
    word_at = (int(width * (rng.uniform(0.02, 0.1) + (0 if left_side else 0.6))), int(height * rng.uniform(0.05, 0.1)))
    # Two layers, for drawing text takes 8 bits: what is blackened, and what is lit.
    plate, ink = np.zeros((2, height, width), np.uint8)
    _draw_letter(plate, ink, look.marker, "L" if left_side else "R", spot, size)
    if look.portable_word and portable and worded:
        cv2.putText(ink, look.portable_word, word_at, cv2.FONT_HERSHEY_SIMPLEX, 0.7 * size, 250, 1, cv2.LINE_AA)
    gray *= 1 - plate.astype(np.float32) * (0.96 / 255)
    np.maximum(gray, ink.astype(np.float32) / 255, out=gray)


def _draw_letter(
    plate: np.ndarray, ink: np.ndarray, marker: str, letter: str, spot: tuple[int, int], size: float
) -> None:
    """The letter with what this hospital puts around it: a box, a disc, a lead dot, or nothing."""
    half = int(13 * size)
    middle = (spot[0] + int(10 * size), spot[1] - int(10 * size))
    if marker == "box":
        corners = (middle[0] - half - 3, middle[1] - half - 3), (middle[0] + half + 3, middle[1] + half + 3)
        cv2.rectangle(plate, *corners, 255, -1)
        cv2.rectangle(ink, *corners, 250, 1)
    elif marker == "disc":
        cv2.circle(plate, middle, half + 5, 255, -1, cv2.LINE_AA)
        cv2.circle(ink, middle, half + 5, 250, 1, cv2.LINE_AA)
    elif marker == "dot":
        cv2.circle(ink, (middle[0], middle[1] + 2 * half), max(2, half // 3), 250, -1, cv2.LINE_AA)
    cv2.putText(ink, letter, spot, cv2.FONT_HERSHEY_SIMPLEX, size, 250, max(1, round(2 * size)), cv2.LINE_AA)

"""The phantom's anatomy: a frontal chest as a map of attenuation, drawn from smooth shapes.

Coordinates: x from -1 (the patient's right, at the picture's left) to 1, y from -1 (top) to 1. A map is float32
`[size, size]`; larger is denser, so brighter in a radiograph.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

#: Side of the square that phantoms are drawn on, before they are brought to a hospital's resolution.
SIZE = 256


@dataclass(frozen=True)
class Body:
    """One patient's geometry; every field is a length in the picture's units unless said otherwise."""

    width: float
    lung_width: float
    lung_top: float
    diaphragm_right: float
    diaphragm_left: float
    heart_ratio: float  # cardiothoracic ratio: heart's width over the chest's inner width
    heart_y: float
    shift: float  # mediastinum, to the patient's left
    rib_spacing: float
    rib_phase: float
    rib_strength: float
    tilt: float
    fat: float
    breast: float
    vessel_seed: int


@cache
def grid() -> tuple[np.ndarray, np.ndarray]:
    """X and y of every pixel, float32 `[size, size]`."""
    line = np.linspace(-1, 1, SIZE, dtype=np.float32)
    return np.broadcast_to(line, (SIZE, SIZE)), np.broadcast_to(line[:, None], (SIZE, SIZE))


def draw_body(rng: np.random.Generator, *, female: bool, age: float) -> Body:
    """A healthy patient's geometry."""
    inspiration = rng.normal(0, 0.035)
    return Body(
        width=float(np.clip(rng.normal(0.88, 0.05), 0.75, 0.98)),
        lung_width=float(np.clip(rng.normal(0.60, 0.03), 0.52, 0.68)),
        lung_top=float(rng.normal(-0.78, 0.03)),
        diaphragm_right=float(np.clip(0.42 + inspiration + rng.normal(0, 0.02), 0.3, 0.55)),
        diaphragm_left=float(np.clip(0.47 + inspiration + rng.normal(0, 0.02), 0.34, 0.6)),
        heart_ratio=float(np.clip(rng.normal(0.445 + 0.0004 * (age - 50), 0.025), 0.37, 0.50)),
        heart_y=float(rng.normal(0.2, 0.03)),
        shift=float(rng.normal(0, 0.012)),
        rib_spacing=float(np.clip(rng.normal(0.165, 0.012), 0.13, 0.2)),
        rib_phase=float(rng.random()),
        rib_strength=float(rng.uniform(0.05, 0.1)),
        tilt=float(rng.normal(0, 0.02)),
        fat=float(np.clip(rng.normal(0.5, 0.15), 0.1, 0.9)),
        breast=float(rng.uniform(0.03, 0.1)) if female else 0.0,
        vessel_seed=int(rng.integers(2**31)),
    )


def soft(edge: np.ndarray, width: float) -> np.ndarray:
    """1 where `edge` is positive, 0 where it is negative, with a border of this width."""
    return 0.5 + 0.5 * np.tanh(edge * np.float32(0.5 / width))


def lungs(body: Body) -> tuple[np.ndarray, np.ndarray]:
    """Masks of the patient's right and left lung, float32 in 0..1."""
    x, y = grid()
    masks = []
    for side, base in ((-1, body.diaphragm_right), (1, body.diaphragm_left)):
        u = side * (x - body.shift * 0.4) - body.tilt * y * side
        middle = 0.06 + body.lung_width * 0.52
        half = body.lung_width * 0.50 * np.clip(0.62 + 0.52 * (y - body.lung_top), 0.3, 1.0)
        outer = half - np.abs(u - middle * np.clip(0.72 + 0.35 * (y - body.lung_top), 0.6, 1.06))
        dome = (
            base + 1.2 * (u - middle * 0.85) ** 2 - 0.02
        )  # the diaphragm: highest near the middle, angles at both ends
        masks.append(
            (soft(outer, 0.018) * soft(y - body.lung_top - 0.3 * (u - 0.25) ** 2, 0.02) * soft(dome - y, 0.012)).astype(
                np.float32
            )
        )
    return masks[0], masks[1]


def smooth_noise(rng: np.random.Generator, cells: int) -> np.ndarray:
    """Smooth random field, float32 `[size, size]`, mean 0, deviation about 1; `cells` waves across."""
    import cv2

    coarse = rng.standard_normal((cells, cells)).astype(np.float32)
    return cv2.resize(coarse, (SIZE, SIZE), interpolation=cv2.INTER_CUBIC)


def render_healthy(body: Body, right: np.ndarray, left: np.ndarray) -> np.ndarray:
    """Attenuation of the healthy chest, float32 `[size, size]`, about 0 to 1.2."""
    x, y = grid()
    lung = right + left
    trunk = soft(body.width - np.abs(x) * (1 + 0.12 * np.clip(-y, 0, 1)), 0.03) * soft(
        y + 1.05 - 0.25 * (1 - x**2), 0.08
    )
    picture = trunk * (0.52 + 0.16 * body.fat * (0.6 + 0.4 * y))
    picture = picture - 0.44 * lung
    below = soft(y - np.where(x < 0, body.diaphragm_right, body.diaphragm_left) - 0.06, 0.05)
    picture += 0.12 * below * trunk * (1 - lung)

    middle = x - body.shift - body.tilt * y
    picture += 0.13 * soft(0.09 - np.abs(middle), 0.02)  # spine and great vessels
    picture += 0.02 * np.sin(2 * np.pi * y / 0.16) * soft(0.09 - np.abs(middle), 0.02)  # vertebrae
    picture += (
        0.17 * soft(0.15 + 0.05 * (y + 0.5) - np.abs(middle - 0.02), 0.03) * soft(-y + 0.35, 0.1) * soft(y + 0.75, 0.1)
    )
    picture += 0.25 * heart(body) * np.clip(lung + 0.25, 0, 1)

    # Ribs: all pairs at once, as waves that run down towards the outside.
    wave = (y + 0.28 * np.abs(x) ** 1.6 - 0.18 * np.abs(x)) / body.rib_spacing + body.rib_phase
    distance = np.abs(wave - np.round(wave))
    cage = soft(body.lung_width * 1.15 + 0.05 - np.abs(x), 0.03) * soft(0.75 - y, 0.05) * soft(np.abs(x) - 0.08, 0.02)
    picture += body.rib_strength * np.exp(-((distance / 0.17) ** 2)) * cage
    front = (y - 0.42 * np.abs(x) ** 1.3) / (body.rib_spacing * 1.25) + body.rib_phase * 1.7
    distance = np.abs(front - np.round(front))
    picture += 0.45 * body.rib_strength * np.exp(-((distance / 0.15) ** 2)) * cage * soft(np.abs(x) - 0.25, 0.05)
    clavicle = np.abs(y - body.lung_top - 0.14 + 0.16 * np.abs(x))
    picture += 0.12 * np.exp(-((clavicle / 0.028) ** 2)) * soft(0.75 - np.abs(x), 0.05) * soft(np.abs(x) - 0.07, 0.02)
    if body.breast:
        bump = np.exp(-(((np.abs(x) - 0.42) / 0.24) ** 2) - ((y - 0.28) / 0.2) ** 2)
        picture += body.breast * bump
    picture += vessels(body) * lung
    return picture.astype(np.float32)


def heart(body: Body) -> np.ndarray:
    """Mask of the heart: two thirds to the patient's left."""
    x, y = grid()
    half = body.heart_ratio * body.lung_width * 1.06
    centre = body.shift + half * 0.30
    u, v = (x - centre), (y - body.heart_y)
    turned = u + 0.25 * v
    ellipse = 1 - (turned / half) ** 2 - (v / (half * 1.02 + 0.04)) ** 2
    return soft(ellipse, 0.10).astype(np.float32)


def vessels(body: Body) -> np.ndarray:
    """Vascular texture that fades from the hila outwards."""
    x, y = grid()
    rng = np.random.default_rng(body.vessel_seed)
    fine = np.abs(smooth_noise(rng, 26)) * 0.030 + np.abs(smooth_noise(rng, 14)) * 0.030
    hila = np.exp(-(((np.abs(x) - 0.17) / 0.16) ** 2) - ((y + 0.02) / 0.25) ** 2)
    return fine * (0.5 + 1.3 * hila) + 0.07 * hila

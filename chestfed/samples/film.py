"""Draw one film: anatomy, signs and acquisition together."""

from __future__ import annotations

import numpy as np

from chestfed.randomness import numpy_stream
from chestfed.samples.acquisition import Device, expose
from chestfed.samples.anatomy import draw_body, grid, lungs, render_healthy, smooth_noise, soft
from chestfed.samples.patients import Film
from chestfed.samples.signs import add_density, change_body


def draw_film(film: Film, device: Device, seed: int, hospital: str) -> np.ndarray:
    """Grey values float32 `[height, width]` in 0..1. The body is the patient's, the rest is this film's."""
    own = numpy_stream(seed, "samples", hospital, "body", film.patient.number)
    rng = numpy_stream(seed, "samples", hospital, "film", film.patient.number, film.study, film.number)
    if film.view == "lateral":
        return expose(_lateral(rng), device, rng, portable=False)
    body = draw_body(own, female=film.patient.female, age=film.patient.age)
    body = change_body(body, film.severity, film.sides)
    right, left = lungs(body)
    picture = render_healthy(body, right, left)
    picture = add_density(picture, body, right, left, film.severity, film.sides, rng)
    return expose(picture, device, rng, portable=film.view == "ap")


def _lateral(rng: np.random.Generator) -> np.ndarray:
    """A chest from the side: spine behind, heart in front, two diaphragms. Shows no disease."""
    x, y = grid()
    trunk = soft(0.72 - np.abs(x), 0.04) * soft(y + 0.95, 0.06)
    base = 0.35 + rng.normal(0, 0.03)
    lung = soft(0.5 - np.abs(x + 0.02), 0.05) * soft(y + 0.7, 0.06) * soft(base + 0.3 * x - y, 0.015)
    spine = soft(0.10 - np.abs(x - 0.50 - 0.08 * np.cos(2 * y)), 0.02)
    heart = soft(1 - ((x + 0.24) / 0.27) ** 2 - ((y - 0.14) / 0.3) ** 2, 0.1)
    ribs = np.exp(-(((np.sin((y + 0.5 * x) / 0.045)) / 0.4) ** 2))
    picture = trunk * 0.62 - 0.38 * lung + 0.18 * spine + 0.22 * heart * trunk + 0.04 * ribs * trunk
    return (picture + 0.02 * smooth_noise(rng, 24) * lung).astype(np.float32)

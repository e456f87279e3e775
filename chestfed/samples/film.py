"""Draw one film: body, diseases and acquisition together."""

from __future__ import annotations

import numpy as np

from chestfed.core.randomness import numpy_stream
from chestfed.samples.acquisition import Look, detector, expose
from chestfed.samples.anatomy import draw_body
from chestfed.samples.lateral import lateral_attenuation
from chestfed.samples.patients import Film
from chestfed.samples.phantom import draw_chest


def draw_film(film: Film, look: Look, seed: int, hospital: str) -> np.ndarray:
    """Gray values float32 `[height, width]` in 0..1. The body is the patient's, all else this film's."""
    own = numpy_stream(seed, "samples", hospital, "body", film.patient.number)
    body = draw_body(own, female=film.patient.female, age=film.patient.age)
    rng = numpy_stream(seed, "samples", hospital, "film", film.patient.number, film.study, film.number)
    frame = detector(look, rng)
    if film.view == "lateral":
        optical = lateral_attenuation(body, film.severity, frame, rng)
    else:
        optical = draw_chest(film, body, frame, rng).attenuation()
    return expose(optical, frame, look, rng, portable=film.view == "ap")

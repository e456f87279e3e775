"""One image from its description: body, pose, signs of disease, and what else may be there."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from chestfed.core.diseases import DISEASES
from chestfed.core.randomness import numpy_stream
from chestfed.leaves.samples.drawing import signs
from chestfed.leaves.samples.drawing.acquisition import Look, detector, expose
from chestfed.leaves.samples.drawing.anatomy import LEFT, RIGHT, Body, Chest, build_chest, draw_body
from chestfed.leaves.samples.drawing.lateral import lateral_attenuation
from chestfed.leaves.samples.frame import Frame
from chestfed.leaves.samples.patients import Film


def draw_film(film: Film, look: Look, seed: int, hospital: str) -> np.ndarray:
    """Gray values float32 `[height, width]` in 0..1. The body is the patient's, all else this film's."""
    body_rng = numpy_stream(seed, "samples", hospital, "body", film.patient.number)
    body = draw_body(body_rng, female=film.patient.female, age=film.patient.age)
    rng = numpy_stream(seed, "samples", hospital, "film", film.patient.number, film.study, film.number)
    frame = detector(look, rng)
    if film.view == "lateral":
        optical = lateral_attenuation(body, film.severity, frame, rng)
    else:
        optical = draw_chest(film, body, frame, rng).attenuation()
    return expose(optical, frame, look, rng, portable=film.view == "ap")


def draw_chest(film: Film, body: Body, frame: Frame, rng: np.random.Generator) -> Chest:
    """The frontal chest of a film with its diseases; what is drawn for one does not depend on the others."""
    streams = dict(zip((*DISEASES, "other"), rng.spawn(len(DISEASES) + 1), strict=True))
    side = {disease: RIGHT if streams[disease].random() < 0.5 else LEFT for disease in DISEASES}
    both = streams["pleural_effusion"].random() < 0.35
    lying = rng.uniform(0.15, 0.9) if film.view == "ap" else 0.0
    severity = film.severity
    body = _pose_body(body, film.view == "ap", rng)
    if severity["cardiomegaly"]:
        body = signs.enlarge_heart(body, severity["cardiomegaly"])
    if severity["atelectasis"]:
        body = signs.lose_volume(body, severity["atelectasis"], side["atelectasis"])

    redistributed = 0.1 + 0.5 * severity["edema"] if severity["edema"] else 0.0
    chest = build_chest(body, frame, upper_vessels=0.6 + 0.15 * lying + redistributed)
    if severity["edema"]:
        signs.flood_interstitium(chest, severity["edema"], streams["edema"])
    if severity["consolidation"]:
        signs.consolidate(chest, severity["consolidation"], side["consolidation"], streams["consolidation"])
    if severity["atelectasis"]:
        signs.collapse_base(chest, severity["atelectasis"], side["atelectasis"], streams["atelectasis"])
    if fluid := severity["pleural_effusion"]:
        signs.pour_effusion(chest, fluid, side["pleural_effusion"], 0.5 * lying, streams["pleural_effusion"])
        if both:
            signs.pour_effusion(chest, 0.5 * fluid, -side["pleural_effusion"], 0.5 * lying, streams["pleural_effusion"])
    if film.nodule:
        _add_nodule(chest, streams["other"])
    if film.devices:
        _add_devices(chest, streams["other"])
    return chest


def _pose_body(body: Body, portable: bool, rng: np.random.Generator) -> Body:
    """Draw the depth of breath and the rotation; in an AP picture the heart is nearer the tube, so larger."""
    breath = rng.normal(-0.9 if portable else 0.0, 0.7)
    return replace(
        body,
        dome=(body.dome[0] + breath, body.dome[1] + breath),
        heart_ratio=body.heart_ratio * (1.05 if portable else 1.0) + rng.normal(0, 0.008),
        rotation=rng.normal(0, 0.55 if portable else 0.3),
    )


def _add_nodule(chest: Chest, rng: np.random.Generator) -> None:
    """A round dense spot in a lung, 0.8 to 2.4 cm: none of the five diseases."""
    body = chest.body
    x, y = chest.frame.xy
    side = RIGHT if rng.random() < 0.5 else LEFT
    center = (side * body.half_width * rng.uniform(0.35, 0.8), rng.uniform(-0.6 * body.apex, 0.6 * body.dome[0]))
    across, along = (x - center[0]), (y - center[1])
    ball = np.sqrt(np.maximum(1 - (across * across + along * along) * rng.uniform(0.7, 6.0), 0))
    chest.fill(0.5 * ball * chest.lung(side))


def _add_devices(chest: Chest, rng: np.random.Generator) -> None:
    """A venous line, electrodes with their leads, or a pacemaker; counted as bone."""
    body = chest.body
    drawn: list[tuple[np.ndarray, float, float]] = []
    line, electrodes, pacemaker = rng.random(3) < (0.6, 0.55, 0.2)
    side = RIGHT if rng.random() < 0.7 else LEFT
    if line or not (electrodes or pacemaker):
        tip = (-2.0 + rng.normal(0, 0.3), rng.uniform(-2.0, 3.0))
        path = [(side * 6.5, -body.apex - 2), (side * 4.5, -body.apex + 3), (-1.8, -7.0), tip]
        drawn.append((np.array([path]), 0.2, 0.4))
    if electrodes:
        spots = rng.uniform((-0.9 * body.half_width, -10), (0.9 * body.half_width, 9), (3, 2))
        away = np.stack([rng.choice((-26.0, 26.0), 3), spots[:, 1] + rng.normal(-3, 5, 3)], axis=1)
        bend = 0.6 * spots + 0.4 * away + rng.normal(0, 1.5, (3, 2))
        drawn.append((np.stack([spots, bend, away], axis=1), 0.12, 0.3))
        drawn.append((np.stack([spots - 0.18, spots + 0.18], axis=1), 0.9, 0.5))
    if pacemaker:
        middle, height = 0.72 * body.half_width, -0.62 * body.apex
        box = np.array([(middle - 0.8, height), (middle + 0.8, height)])
        lead = np.array([[box[0], (3.0, -9.0), (-1.5, -6.0), (-1.0, 3.0), (3.0, 6.5)]])
        drawn += [(box[None], 3.2, 1.0), (lead, 0.16, 0.6)]
    chest.bone += 3.0 * chest.frame.lines(drawn, 0.05)

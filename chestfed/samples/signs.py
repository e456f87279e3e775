"""The five diseases as their radiological signs. A severity of 0 changes nothing, 1 is unmistakable.

Some signs change the geometry before the chest is drawn (`change_body`), the others add density to it (`add_density`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from chestfed.samples.anatomy import Body, grid, smooth_noise, soft

#: side (-1 right, 1 left) of the one-sided diseases, drawn once per patient
Sides = Mapping[str, int]


def change_body(body: Body, severity: Mapping[str, float], sides: Sides) -> Body:
    """Cardiomegaly widens the heart; atelectasis raises a diaphragm and draws the mediastinum to its side."""
    ratio = body.heart_ratio
    if severity["cardiomegaly"]:
        ratio = max(ratio, 0.47) + 0.03 + 0.18 * severity["cardiomegaly"]
    lost, side = severity["atelectasis"], sides["atelectasis"]
    rise = 0.05 + 0.16 * lost if lost else 0.0
    return replace(
        body,
        heart_ratio=ratio,
        shift=body.shift + 0.06 * lost * side,
        diaphragm_right=body.diaphragm_right - (rise if side < 0 else 0),
        diaphragm_left=body.diaphragm_left - (rise if side > 0 else 0),
    )


def add_density(
    picture: np.ndarray,
    body: Body,
    right: np.ndarray,
    left: np.ndarray,
    severity: Mapping[str, float],
    sides: Sides,
    rng: np.random.Generator,
) -> np.ndarray:
    """The picture with the signs of edema, consolidation, atelectasis and effusion."""
    lung = {-1: right, 1: left}
    if severity["edema"]:
        picture = picture + _edema(body, right + left, severity["edema"], rng)
    if severity["consolidation"]:
        side = sides["consolidation"]
        picture = picture + _consolidation(lung[side], side, severity["consolidation"], rng)
    if severity["atelectasis"]:
        side = sides["atelectasis"]
        picture = picture + _atelectasis(body, lung[side], side, severity["atelectasis"], rng)
    if severity["pleural_effusion"]:
        side = sides["pleural_effusion"]
        for where, share in ((side, 1.0), (-side, sides["effusion_other"] / 100)):
            if share:
                picture = _effusion(picture, body, where, severity["pleural_effusion"] * share)
    return picture


def _edema(body: Body, lung: np.ndarray, severity: float, rng: np.random.Generator) -> np.ndarray:
    """Perihilar haze on both sides (bat wing), fuller upper vessels, Kerley B lines at the lateral bases."""
    x, y = grid()
    wings = np.exp(-(((np.abs(x) - 0.26) / 0.24) ** 2) - ((y - 0.0) / 0.36) ** 2)
    mottled = 1 + 0.35 * smooth_noise(rng, 12)
    haze = (0.03 + 0.14 * severity) * wings * np.clip(mottled, 0.2, 2)
    upper = 0.10 * severity * np.abs(smooth_noise(rng, 22)) * soft(-y - 0.1, 0.1)
    edge = body.lung_width * 1.0
    lines = np.zeros_like(lung)
    for _ in range(int(4 + 8 * severity)):
        side = rng.choice([-1, 1])
        level = rng.uniform(0.12, 0.40)
        near = np.exp(-(((y - level) / 0.007) ** 2)) * soft(side * x - edge + rng.uniform(0.07, 0.14), 0.015)
        lines += 0.09 * near
    return lung * (haze + upper + lines * (0.5 + severity))


def _consolidation(lung: np.ndarray, side: int, severity: float, rng: np.random.Generator) -> np.ndarray:
    """A focal fluffy opacity in one lung, with air bronchograms as dark branches in it."""
    x, y = grid()
    centre_x, centre_y = side * rng.uniform(0.24, 0.46), rng.uniform(-0.45, 0.25)
    radius = rng.uniform(0.15, 0.22) + 0.08 * severity
    angle = rng.uniform(0, np.pi)
    u, v = x - centre_x, y - centre_y
    along, across = u * np.cos(angle) + v * np.sin(angle), -u * np.sin(angle) + v * np.cos(angle)
    ragged = 0.28 * smooth_noise(rng, 16)
    focus = soft(1 - (along / radius) ** 2 - (across / (radius * 0.75)) ** 2 + ragged, 0.22)
    branches = np.exp(-((np.sin(9 * along + 4 * across) / 0.25) ** 2)) * np.exp(-((across / 0.1) ** 2))
    return lung * focus * (0.22 + 0.30 * severity) * (1 - 0.25 * branches)


def _atelectasis(body: Body, lung: np.ndarray, side: int, severity: float, rng: np.random.Generator) -> np.ndarray:
    """Plate-like lines above the raised diaphragm, and crowded density at the base."""
    x, y = grid()
    base = body.diaphragm_right if side < 0 else body.diaphragm_left
    density = np.zeros_like(lung)
    for _ in range(int(rng.integers(1, 3)) + int(severity > 0.5)):
        level, slope = base - rng.uniform(0.06, 0.22), rng.uniform(-0.25, 0.25)
        centre = side * rng.uniform(0.26, 0.42)
        distance = y - level - slope * (x - centre)
        length = rng.uniform(0.13, 0.22)
        density += np.exp(-((distance / 0.02) ** 2)) * soft(length - np.abs(x - centre), 0.03)
    crowded = np.exp(-(((y - base) / 0.10) ** 2))
    return lung * ((0.20 + 0.22 * severity) * density + (0.08 + 0.16 * severity) * crowded)


def _effusion(picture: np.ndarray, body: Body, side: int, severity: float) -> np.ndarray:
    """Fluid that fills the costophrenic angle with a meniscus rising along the lateral wall."""
    x, y = grid()
    base = body.diaphragm_right if side < 0 else body.diaphragm_left
    wall = body.lung_width + 0.06
    level = base + 0.10 - 0.38 * severity
    climb = (0.12 + 0.22 * severity) * np.exp(-np.clip(wall - side * x, 0, None) / 0.10)
    fluid = soft(y - level + climb, 0.018) * soft(side * x - 0.05, 0.03) * soft(wall + 0.02 - side * x, 0.03)
    fluid = fluid * soft(body.diaphragm_left + 0.30 - y, 0.05)
    dense = np.maximum(picture, 0.62)
    return picture + fluid * np.clip(0.75 + severity * 0.25, 0, 1) * (dense - picture)

"""The five diseases as their radiological signs, each graded by a severity from 0 (absent) to 1 (plain).

Two of them change the body (a larger heart; a lung that has lost volume), and all but the first put something where
there was air. Each sign says where a reader looks for it.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from chestfed.leaves.samples.drawing.anatomy import LEFT, RIGHT, Body, Chest


def enlarge_heart(body: Body, severity: float) -> Body:
    """Cardiomegaly: the cardiothoracic ratio grows by 0.06 to 0.23; the mildest overlap large healthy hearts."""
    ratio = min(body.heart_ratio + 0.06 + 0.17 * severity, 0.74)
    return replace(body, heart_ratio=ratio, heart_tilt=body.heart_tilt - 0.15 * severity)


def lose_volume(body: Body, severity: float, side: int) -> Body:
    """Atelectasis, first half: the hemidiaphragm of that side stands higher, the mediastinum moves towards it."""
    raised = 0.7 + 2.6 * severity
    dome = (body.dome[0] - raised * (side == RIGHT), body.dome[1] - raised * (side == LEFT))
    return replace(body, dome=dome, shift=body.shift + side * (0.2 + 0.9 * severity))


def collapse_base(chest: Chest, severity: float, side: int, rng: np.random.Generator) -> None:
    """Atelectasis, second half: dense lines and plates, nearly level, above the diaphragm of that side."""
    body, frame = chest.body, chest.frame
    dome = body.get_dome_depth(side)
    plates = []
    for _ in range(1 + rng.binomial(3, 0.25 + 0.5 * severity)):
        center = np.array([side * body.half_width * rng.uniform(0.42, 0.72), dome - rng.uniform(0.7, 4.2)])
        tilt, half = rng.normal(0.0, 0.22), 0.5 * rng.uniform(3.5, 5.0 + 3.0 * severity)
        reach = half * np.array([math.cos(tilt), math.sin(tilt)])
        path = center + np.stack([-reach, (0.0, rng.normal(0, 0.25)), reach])
        plates.append((path[None], rng.uniform(0.3, 0.5 + 0.5 * severity), rng.uniform(0.7, 1.0)))
    x, y = frame.coarse.xy
    across, along = (x - side * 0.5 * body.half_width) * (1 / 4.2), (y - dome) * (1 / 2.4)
    crowded = np.exp(-(across * across) - along * along)
    opacity = (0.35 + 0.40 * severity) * frame.lines(plates, 0.12)
    opacity += (0.12 + 0.38 * severity) * frame.enlarged(crowded)
    chest.fill(opacity * chest.lung(side))


def flood_interstitium(chest: Chest, severity: float, rng: np.random.Generator) -> None:
    """Edema: haze around both hila in the shape of a bat's wings, and Kerley B lines at the lower rims.

    The vessels of the upper lobes widen too; that is settled when the chest is built.
    """
    coarse = chest.frame.coarse
    x, y = coarse.xy
    across = (np.abs(x) - (4.0 + 1.4 * severity)) * (1 / (2.8 + 2.0 * severity))
    along = (y - 0.6) * (1 / (4.2 + 2.0 * severity))
    wings = np.exp(-(across * across) - along * along)
    lobes = np.where(x < 0, rng.uniform(0.8, 1.1), rng.uniform(0.8, 1.1)).astype(np.float32)
    grains = np.clip(1 + 0.28 * coarse.clouds(rng, 1.8), 0.3, 1.7)
    haze = (0.02 + 0.06 * severity + (0.13 + 0.36 * severity) * wings * lobes) * grains
    lines = (0.16 + 0.30 * severity) * _kerley_lines(chest, severity, rng)
    chest.fill((chest.frame.enlarged(haze) + lines) * (chest.right + chest.left))


def _kerley_lines(chest: Chest, severity: float, rng: np.random.Generator) -> np.ndarray:
    """Short level lines that reach the pleura at the bases, 0..1."""
    body = chest.body
    paths = []
    for side in (RIGHT, LEFT):
        for level in np.arange(body.get_dome_depth(side) - 5.0, body.get_dome_depth(side) + 2.0, 0.75):
            if rng.random() < 0.35 + 0.6 * severity:
                outer, length = side * (body.half_width - 0.15), rng.uniform(1.0, 1.9)
                heights = level + rng.normal(0, 0.12, 2)
                paths.append([(outer, heights[0]), (outer - side * length, heights[1])])
    return chest.frame.lines([(np.array(paths), 0.12, 0.8)] if paths else [], 0.06)


def consolidate(chest: Chest, severity: float, side: int, rng: np.random.Generator) -> None:
    """Consolidation: one fluffy opacity within a lobe, crossed by bronchi that still hold air."""
    body, frame = chest.body, chest.frame.coarse
    upper = rng.random() < 0.35
    height = -rng.uniform(0.35, 0.6) * body.apex if upper else rng.uniform(0.2, 0.6) * body.get_dome_depth(side)
    center = np.array([side * body.half_width * rng.uniform(0.5, 0.7), height])
    size, stretch = 2.9 + 2.2 * severity, rng.uniform(0.8, 1.25)
    x, y = frame.xy
    across, along = (x - center[0].item()) * (1 / (size * stretch)), (y - height) * (stretch / size)
    fluff = np.clip(1.3 - np.sqrt(across * across + along * along) + 0.20 * frame.clouds(rng, 1.6), 0, 1)
    ends = center + rng.normal(0, 0.45 * size, (3, 2))
    bronchi = np.stack([0.55 * np.array([side * 3.4, -1.0]) + 0.45 * ends, ends], axis=1)
    air = frame.lines([(bronchi, 0.32, 1.0)], 0.1)
    opacity = (0.42 + 0.46 * severity) * fluff * (1 - 0.55 * air)
    chest.fill(chest.frame.enlarged(opacity) * chest.lung(side))


def pour_effusion(chest: Chest, severity: float, side: int, lying: float, rng: np.random.Generator) -> None:
    """Pleural effusion: fluid in the costophrenic angle, its surface a meniscus that climbs the chest wall.

    `lying` (0 erect, 1 supine): the fluid then layers behind the lung, and a veil takes the place of the level.
    """
    body, frame = chest.body, chest.frame.coarse
    x, y = frame.xy
    dome = body.get_dome_depth(side)
    level = dome + 2.6 - (1.8 + 7.0 * severity)
    depth = np.maximum(body.half_width - side * x, 0)
    climb = (1.2 + 2.6 * severity) * np.exp(depth * (-1 / (1.5 + 1.8 * severity)))
    surface = y - level + climb + 0.12 * frame.clouds(rng, 2.5)
    below = 0.5 + 0.5 * np.tanh(surface * (1.1 / (0.35 + 1.1 * lying)))
    veil = lying * (0.06 + 0.22 * severity) * np.clip((y + 0.8 * body.apex) * (1 / (dome + 0.8 * body.apex)), 0, 1)
    share = np.maximum((0.92 - 0.25 * lying) * below, veil)
    chest.fill(chest.frame.enlarged(share) * chest.lung(side))

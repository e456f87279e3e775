"""The healthy frontal chest: one person's measures, and the maps of what the rays pass through.

A chest is three maps: how much air replaces soft tissue along a ray, how much soft tissue there is, and how much bone.
The signs of disease change these maps, not gray levels, so that a sign is as visible as the rest of the chest and the
exposure let it be. Lengths are centimetres.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from chestfed.leaves.samples.frame import Frame, smooth

RIGHT, LEFT = -1, 1
#: Attenuation per cm, roughly that of water and of spongy bone at 60 to 70 keV.
SOFT, BONE = 0.19, 0.42
#: Share of a lung's depth that is air.
_AERATION: Final = 0.74
#: Height of the hila below the origin.
_HILUM: Final = {RIGHT: -0.6, LEFT: -1.6}


@dataclass(frozen=True)
class Body:
    """One person's chest; diseases change it by `dataclasses.replace`.

    `half_width` is half the inner width of the thorax where it is widest, `apex` the height of the lungs' tips above
    the hila, `dome` the depth of the right and left dome of the diaphragm below them, `depth` the way from front to
    back. `heart_ratio` is the cardiothoracic ratio, `heart_tilt` the angle of its axis. `knob` and `gas` are radii
    (aortic arch, gas bubble of the stomach), `breast` a thickness, `ribs` the distance of two ribs. `shift` moves the
    mediastinum towards the patient's left, `rotation` all that lies in front. `seed` is that of vessels.
    """

    half_width: float
    apex: float
    dome: tuple[float, float]
    depth: float
    fat: float
    heart_ratio: float
    heart_tilt: float
    knob: float
    scoliosis: float
    breast: float
    ribs: float
    gas: float
    seed: int
    shift: float = 0.0
    rotation: float = 0.0

    def get_dome_depth(self, side: int) -> float:
        """Depth of that side's dome."""
        return self.dome[0] if side == RIGHT else self.dome[1]


@dataclass
class Chest:
    """The maps of one exposure, float32 `[height, width]`; the signs change them in place.

    `air`, `soft` and `bone` are thicknesses in cm, `soft` before the lungs' air is taken off. `right` and `left` are
    the lung fields, 0..1.
    """

    frame: Frame
    body: Body
    air: np.ndarray
    soft: np.ndarray
    bone: np.ndarray
    right: np.ndarray
    left: np.ndarray

    def lung(self, side: int) -> np.ndarray:
        """The lung field of that side."""
        return self.right if side == RIGHT else self.left

    def fill(self, share: np.ndarray) -> None:
        """Replace that share (0..1) of the lungs' air by tissue or fluid."""
        self.air *= 1 - np.clip(share, 0, 1)

    def attenuation(self) -> np.ndarray:
        """The line integral along each ray, float32."""
        return SOFT * np.maximum(self.soft - self.air, 0) + (BONE - SOFT) * self.bone


def draw_body(rng: np.random.Generator, *, female: bool, age: float) -> Body:
    """A healthy person of that sex and age."""
    dome = rng.normal(9.0, 0.8)
    return Body(
        half_width=rng.normal(11.9 if female else 13.0, 0.7),
        apex=rng.normal(12.3 if female else 13.2, 0.6),
        dome=(dome, dome + rng.normal(0.8, 0.35)),
        depth=rng.normal(20.0 if female else 21.5, 1.6),
        fat=min(max(rng.lognormal(0.75, 0.45), 0.6), 6.0),
        heart_ratio=min(max(rng.normal(0.445 + 0.0004 * (age - 50), 0.022), 0.38), 0.495),
        heart_tilt=rng.normal(0.62, 0.1),
        knob=rng.normal(1.5 + 0.006 * (age - 50), 0.2),
        scoliosis=rng.normal(0.0, 0.4),
        breast=min(max(rng.normal(2.2, 1.0), 0.3), 4.5) if female else 0.0,
        ribs=rng.normal(2.25, 0.12),
        gas=rng.uniform(1.2, 2.6) if rng.random() < 0.7 else 0.0,
        seed=int(rng.integers(1 << 62)),
    )


def build_chest(body: Body, frame: Frame, upper_vessels: float = 0.6) -> Chest:
    """The chest of a body. `upper_vessels` is the width of the upper lobes' vessels by that of the lower ones'."""
    rng = np.random.default_rng(body.seed)
    right, left = (frame.polygon(lung_outline(body, side)) for side in (RIGHT, LEFT))
    field = right + left
    coarse = frame.coarse  # what has no fine detail is drawn on a quarter of the pixels
    depth = np.sqrt(np.clip((frame.blur(field, 2.0)[::2, ::2] - 0.3) / 0.55, 0, 1))
    air = field * frame.enlarged(_AERATION * 0.68 * body.depth * depth * (1 - _draw_mediastinum(body, coarse)))
    air -= np.minimum(air, _draw_vessels(body, frame, rng, upper_vessels))
    soft = _draw_trunk(body, coarse) - _draw_windpipe(body, coarse)
    if body.gas:
        soft -= _draw_gas_bubble(body, coarse, rng)
    np.maximum(soft, 0.0, out=soft)
    bone = _draw_shoulders(body, coarse) + _draw_spine(body, coarse)
    bone *= np.minimum(0.25 * soft, 1)
    return Chest(frame, body, air, frame.enlarged(soft), frame.enlarged(bone) + _draw_ribs(body, frame), right, left)


def lung_outline(body: Body, side: int) -> np.ndarray:
    """A closed smooth outline `[n, 2]` of a lung field, sharp in the costophrenic angle."""
    wide, high, dome = body.half_width, body.apex, body.get_dome_depth(side)
    angle = max(dome + 3.6, 0.5 * (dome + 3.6) + 0.5 * (body.dome[0] + 4.4))
    anchors = np.array(
        [
            (0.36 * wide, -high),
            (0.62 * wide, -0.9 * high),
            (0.84 * wide, -0.52 * high),
            (0.955 * wide, 0.0),
            (1.0 * wide, 0.45 * dome),
            (0.995 * wide, 0.9 * dome),
            (0.97 * wide, angle),
            (0.965 * wide, angle),
            (0.80 * wide, dome + 1.3),
            (0.50 * wide, dome),
            (0.24 * wide, dome + 0.5),
            (0.10 * wide, dome + 1.4),
            (0.08 * wide, 0.2 * dome),
            (0.12 * wide, -0.5 * high),
            (0.19 * wide, -0.88 * high),
        ]
    )
    return smooth(anchors * (side, 1), closed=True)


def heart(body: Body, frame: Frame) -> np.ndarray:
    """The heart's share of the chest's depth, 0..1: an ellipse as wide as the cardiothoracic ratio says."""
    x, y = frame.xy
    half = body.heart_ratio * body.half_width
    cos, sin, slim = math.cos(body.heart_tilt), math.sin(body.heart_tilt), 0.78
    long = half / math.hypot(cos, slim * sin)
    right, down = x - (0.30 * half + body.shift + body.rotation), y - (body.dome[1] - 0.60 * half)
    along = (right * cos + down * sin) * (1 / long)
    across = (down * cos - right * sin) * (1 / (slim * long))
    return np.sqrt(np.sqrt(np.maximum(1 - along * along - across * across, 0)))


def _draw_trunk(body: Body, frame: Frame) -> np.ndarray:
    """Soft tissue of neck, shoulders, trunk, arms and breasts."""
    x, y = frame.xy
    wall, top = body.half_width + 1.4 + body.fat, -body.apex
    heights = np.array([top - 9, top - 4.0, top - 1.8, top + 0.8, top + 4.5, top + 8, 2, 12, 30])
    widths = np.array([5.6, 6.0, 9.0, wall + 4.0, wall + 6.0, wall + 2.2, wall, wall, wall + 0.8])
    depths = np.array([0.6, 0.6, 0.62, 0.72, 0.86, 0.95, 1.0, 1.05, 1.1]) * body.depth + 0.8 * body.fat
    ratio = np.abs(x) / np.interp(y, heights, widths).astype(np.float32)
    soft = np.interp(y, heights, depths).astype(np.float32) * np.sqrt(np.maximum(1 - ratio * ratio * ratio, 0))
    arms = np.array([[(side * (wall + 3.5), top + 4.0), (side * (wall + 6.5), 24.0)] for side in (RIGHT, LEFT)])
    soft = np.maximum(soft, 8.0 * frame.lines([(arms, 6.5, 1.0)], 0.6))
    if body.breast:
        side = 0.56 * body.half_width
        across = (np.abs(x - body.rotation) - side) * (1 / (0.47 * body.half_width))
        along = (y - 0.62 * body.dome[0]) * (1 / 5.6)
        bulge = np.sqrt(np.maximum(1 - across * across - along * along, 0))
        soft += body.breast * bulge * np.minimum(0.25 * soft, 1)
    return soft


def _draw_mediastinum(body: Body, frame: Frame) -> np.ndarray:
    """Share of the lungs' depth that heart, great vessels and hila take, 0..1."""
    x, y = frame.xy
    shift = body.shift + body.rotation
    free = 1 - 0.97 * heart(body, frame)
    right = [(-2.4, 14), (-2.6, 3), (-2.7, -1), (-2.5, -6), (-2.0, -10), (-1.8, -22)]
    left = [(1.8, -22), (1.9, -9), (2.5, -4), (3.0, -2), (2.8, 2), (2.5, 14)]
    outline = np.array(right + left)
    outline[:, 0] += shift * np.interp(outline[:, 1], [-20, -8, 14], [0.2, 0.8, 1.0])
    free *= 1 - 0.96 * frame.polygon(outline, 0.3)
    off = (x - (1.55 + shift)), (y + 6.0) * 0.9
    free *= 1 - 0.9 * np.clip(1.6 - 1.6 / body.knob**2 * (off[0] * off[0] + off[1] * off[1]), 0, 1)
    for side in (RIGHT, LEFT):
        off = (x - (side * 3.5 + shift)) * (1 / 1.6), (y - _HILUM[side]) * (1 / 2.1)
        free *= 1 - 0.32 * np.exp(-(off[0] * off[0]) - off[1] * off[1])
    return 1 - free


def _draw_vessels(body: Body, frame: Frame, rng: np.random.Generator, upper: float) -> np.ndarray:
    """Vessels that branch twice on their way from the hila, cm of soft tissue."""
    fan = np.tile(np.linspace(-1.35, 1.35, 9), 2) + rng.normal(0, 0.08, 18)
    side = np.repeat([RIGHT, LEFT], 9)
    height = np.where(side == RIGHT, _HILUM[RIGHT], _HILUM[LEFT])
    start = np.stack([side * 2.6 + body.shift, height], axis=1)
    going_up, length, width = fan < 0, np.full(18, 5.5), 0.42
    groups = []
    for _ in range(3):
        count = len(fan)
        bend = fan + rng.normal(0, 0.15, count)
        middle = start + 0.5 * length[:, None] * np.stack([side * np.cos(fan), np.sin(fan)], axis=1)
        end = middle + 0.5 * length[:, None] * np.stack([side * np.cos(bend), np.sin(bend)], axis=1)
        paths = np.stack([start, middle, end], axis=1)
        for above, factor in ((True, upper), (False, 1.0)):
            groups.append((paths[going_up == above], factor * width, min(1.0, 0.22 + 1.5 * factor * width)))
        turn = np.tile([-1.0, 1.0], count) * rng.uniform(0.15, 0.5, 2 * count)
        fan = np.repeat(bend, 2) + turn
        start, side, going_up = np.repeat(end, 2, axis=0), np.repeat(side, 2), np.repeat(going_up, 2)
        length, width = np.repeat(length, 2) * rng.uniform(0.6, 0.8, 2 * count), 0.64 * width
    return 2.2 * frame.lines(groups, 0.12)


def _draw_windpipe(body: Body, frame: Frame) -> np.ndarray:
    """Air of trachea and main bronchi, cm."""
    carina = (0.3 + body.shift, -5.2)
    trachea = np.array([[(0.0, -body.apex - 9), (0.1 + 0.3 * body.shift, -12), carina]])
    bronchi = np.array([[carina, (side * 3.0 + body.shift, -2.6)] for side in (RIGHT, LEFT)])
    return 2.0 * frame.lines([(trachea, 1.6, 1.0), (bronchi, 1.1, 0.55)], 0.15)


def _draw_gas_bubble(body: Body, frame: Frame, rng: np.random.Generator) -> np.ndarray:
    x, y = frame.xy
    across = (x - (0.5 * body.half_width + rng.normal(0, 0.6))) * (1 / (1.3 * body.gas))
    along = (y - (body.dome[1] + 1.0 + body.gas)) * (1 / body.gas)
    return 1.5 * body.gas * np.sqrt(np.maximum(1 - across * across - along * along, 0))


def _draw_ribs(body: Body, frame: Frame) -> np.ndarray:
    """Eleven pairs of ribs behind, seven in front, cm of bone."""
    level = -body.apex - 0.6 + body.ribs * np.arange(11)
    back_across, back_down = [0.10, 0.25, 0.5, 0.75, 0.93, 1.0], [0.0, -0.45, 0.1, 1.3, 2.9, 4.1]
    front_across, front_down = [1.0, 0.93, 0.72, 0.5, 0.36], [4.1, 5.4, 7.2, 8.3, 8.7]
    back = _make_curves(_measure_inner_width(body, level + 3.0), level, back_across, back_down)
    front = _make_curves(_measure_inner_width(body, level + 5.0), level, front_across, front_down)[1:8]
    both = [np.concatenate([paths, paths * (-1, 1)]) for paths in (back, front)]
    both[1] = both[1] + (body.rotation, 0)
    return 1.15 * _draw_tubes(frame, both[0], 0.85) + 0.7 * _draw_tubes(frame, both[1], 0.95)


def _make_curves(wide: np.ndarray, level: np.ndarray, across: list[float], down: list[float]) -> np.ndarray:
    """One smooth path per level, `[levels, points, 2]`."""
    anchors = np.stack([wide[:, None] * np.array(across), level[:, None] + np.array(down)], axis=-1)
    return smooth(anchors, steps=4)


def _draw_tubes(frame: Frame, paths: np.ndarray, width: float) -> np.ndarray:
    """Hollow bones: a dense rim around a spongy middle."""
    return frame.lines([(paths, width, 1.0), (paths, 0.5 * width, 0.6)], 0.09)


def _measure_inner_width(body: Body, height: np.ndarray) -> np.ndarray:
    """Half the inner width of the thorax at these heights."""
    heights = [-body.apex - 1, -0.9 * body.apex, -0.52 * body.apex, 0.0, 0.45 * body.dome[0], 30]
    return np.interp(height, heights, body.half_width * np.array([0.4, 0.62, 0.85, 0.955, 1.0, 1.0])) + 0.2


def _draw_shoulders(body: Body, frame: Frame) -> np.ndarray:
    """Collarbones, shoulder blades and upper arms, cm of bone."""
    wide, top, fat = body.half_width, -body.apex, body.fat
    collar = np.array([(1.7, 2.6), (0.3 * wide, 1.9), (0.62 * wide, 1.2), (0.95 * wide, 0.6), (1.25 * wide, 1.2)])
    blade = np.array([(0.86, 1.5), (1.22, 2.0), (1.3, 4.5), (1.02, 12.5), (0.93, 12.0), (0.95, 6.0)])
    arm = np.array([(wide + 5.0 + 0.8 * fat, 3.6), (wide + 7.0 + fat, 16), (wide + 8.0 + fat, 34)])
    sides = np.array([(RIGHT, 1), (LEFT, 1)])[:, None, :]
    collars = smooth(collar * sides + (body.rotation, top), steps=4)
    total = _draw_tubes(frame, collars, 1.05)
    for outline in blade * (wide, 1) * sides + (0, top):
        total += 0.4 * frame.polygon(outline, 0.25)
    return total + 1.8 * frame.lines([(arm * sides + (0, top), 2.4, 1.0)], 0.25)


def _draw_spine(body: Body, frame: Frame) -> np.ndarray:
    """Vertebrae with the discs between them and the spinous processes, cm of bone."""
    x, y = frame.xy
    off = x - body.scoliosis * np.sin(0.16 * y)
    disc = 0.5 + 0.5 * np.cos((2 * math.pi / body.ribs) * y)
    column = np.clip(3.6 - 2.1 * np.abs(off), 0, 1)
    return column * (1.9 - 0.8 * disc * disc) + 0.6 * np.exp(-9 * off * off) * (1 - disc)

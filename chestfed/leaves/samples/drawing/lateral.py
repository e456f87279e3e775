"""The lateral phantom: simpler than the frontal one, for lateral views are a few and the study leaves them out."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from chestfed.leaves.samples.drawing.anatomy import BONE, SOFT, Body
from chestfed.leaves.samples.frame import Frame, smooth


def lateral_attenuation(
    body: Body, severity: Mapping[str, float], frame: Frame, rng: np.random.Generator
) -> np.ndarray:
    """Line integrals float32 `[height, width]`, the patient looking to the left; x is 0 amid the chest."""
    x, y = frame.xy
    half = 0.5 * body.depth
    dome = 0.5 * sum(body.dome) - 1.8 * severity["atelectasis"]
    heights = np.array([-body.apex - 9, -body.apex - 3, -body.apex + 1, -4, 8, 30])
    widths = np.interp(y, heights, [5.5, 6.0, 0.75 * half + 1, half + 1, half + 1.5, half + 2]).astype(np.float32)
    across = 2.1 * body.half_width
    soft = across * np.sqrt(np.maximum(1 - (np.abs(x) / (widths + 0.6 * body.fat)) ** 3, 0))

    lung = frame.polygon(_draw_outline(body, half, dome))
    air = 0.72 * across * 0.72 * lung * np.clip((frame.blur(lung, 1.6) - 0.3) / 0.5, 0, 1) ** 0.6
    large = body.heart_ratio + 0.12 * severity["cardiomegaly"]
    radius = 0.78 * large * body.half_width
    heart = ((x + 0.35 * half) / radius) ** 2 + ((y - dome + 0.8 * radius) / (1.15 * radius)) ** 2
    air *= 1 - 0.6 * np.maximum(1 - heart, 0) ** 0.33
    haze = 0.35 * severity["edema"] * np.exp(-(x**2 + y**2) / 30) * np.clip(1 + 0.3 * frame.clouds(rng, 1.2), 0, 2)
    spot = (rng.uniform(-0.5, 0.6) * half, rng.uniform(-0.3, 0.6) * dome)
    patch = np.clip(1.2 - np.hypot(x - spot[0], y - spot[1]) / 3.2 + 0.2 * frame.clouds(rng, 1.1), 0, 1)
    level = dome + 3.2 - 6.0 * severity["pleural_effusion"]
    fluid = severity["pleural_effusion"] > 0
    climb = 3.0 * np.exp(-np.maximum(half - x, 0) / 2.5)
    air *= 1 - 0.85 * fluid / (1 + np.exp(np.clip(-5 * (y - level + climb), -30, 30)))
    air *= 1 - np.clip(haze + 0.6 * severity["consolidation"] * patch, 0, 0.95)

    spine = smooth(
        np.array([(0.5 * half, -30), (0.62 * half, -12), (0.86 * half, -2), (0.8 * half, 9), (0.6 * half, 30)])
    )
    bone = (
        2.2 * frame.lines([(spine[None], 3.0, 1.0)], 0.3) * (0.8 + 0.2 * np.cos(y * np.float32(2 * np.pi / body.ribs)))
    )
    rib = np.array([(0.75 * half, 0.0), (0.3 * half, 2.5), (-0.4 * half, 5.5), (-0.9 * half, 6.0)])
    tops = np.stack([np.zeros(10), -body.apex + body.ribs * np.arange(10)], axis=1)[:, None, :]
    bone += 0.7 * frame.lines([(smooth(rib + tops), 0.8, 1.0)], 0.1)
    bone *= np.minimum(soft / 4, 1)
    return SOFT * np.maximum(soft - air, 0) + (BONE - SOFT) * bone


def _draw_outline(body: Body, half: float, dome: float) -> np.ndarray:
    """Both lungs seen from the side."""
    anchors = np.array(
        [
            (0.05 * half, -body.apex),
            (0.55 * half, -0.8 * body.apex),
            (0.85 * half, -2.0),
            (0.93 * half, 0.7 * dome),
            (0.9 * half, dome + 4.5),
            (0.86 * half, dome + 4.5),
            (0.45 * half, dome + 1.2),
            (-0.2 * half, dome),
            (-0.75 * half, dome + 1.0),
            (-0.85 * half, 0.5 * dome),
            (-0.72 * half, -0.4 * body.apex),
            (-0.35 * half, -0.85 * body.apex),
        ]
    )
    return smooth(anchors, closed=True)

"""From attenuation to a stored picture: exposure, contrast, blur, noise, collimation, markers, resolution."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from chestfed.samples.anatomy import SIZE, grid, soft


@dataclass(frozen=True)
class Device:
    """How a hospital takes pictures.

    `exposure` and `contrast` act on the grey values (offset, factor), `gamma` bends them, `blur` is a radius in pixels
    of the phantom, `noise` a deviation in grey values of 0..1, `collimation` the chance of a black border, `marker` the
    letters burned in, `height` and `width` the picture's size.
    """

    height: int
    width: int
    exposure: float
    contrast: float
    gamma: float
    blur: float
    noise: float
    collimation: float
    marker: str
    portable_marker: str = ""


def expose(attenuation: np.ndarray, device: Device, rng: np.random.Generator, *, portable: bool) -> np.ndarray:
    """Grey values float32 `[height, width]` in 0..1, bone bright."""
    import cv2

    grey = attenuation
    if portable:  # the heart nearer to the tube, a shorter distance: magnified and hazier
        matrix = cv2.getRotationMatrix2D((SIZE / 2, SIZE / 2), float(rng.normal(0, 2.5)), 1.05)
        grey = cv2.warpAffine(grey, matrix, (SIZE, SIZE), flags=cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
    blur = device.blur + (0.4 if portable else 0)
    if blur > 0:
        grey = cv2.GaussianBlur(grey, (0, 0), blur)
    factor = device.contrast * float(np.exp(rng.normal(0, 0.07)))
    grey = (grey - 0.45) * factor + 0.45 + device.exposure + float(rng.normal(0, 0.03))
    grey = np.clip(grey, 0.001, 1.3) ** (device.gamma * float(np.exp(rng.normal(0, 0.06))))
    if rng.random() < device.collimation:
        grey = grey * _field(rng)
    picture = cv2.resize(grey.astype(np.float32), (device.width, device.height), interpolation=cv2.INTER_LINEAR)
    noise = rng.standard_normal(picture.shape, dtype=np.float32)
    picture += device.noise * noise * np.sqrt(np.clip(picture, 0.05, 1))
    _burn_in(picture, device, rng, portable=portable)
    return np.clip(picture, 0, 1)


def _field(rng: np.random.Generator) -> np.ndarray:
    """The collimated field: 1 inside, nearly 0 outside."""
    x, y = grid()
    left, right, top, bottom = rng.uniform(0.86, 1.02, 4)
    inside = soft(x + left, 0.006) * soft(right - x, 0.006) * soft(y + top, 0.006) * soft(bottom - y, 0.006)
    return 0.04 + 0.96 * inside


def _burn_in(picture: np.ndarray, device: Device, rng: np.random.Generator, *, portable: bool) -> None:
    """Side marker and, for portable films, its label: letters, never a name or number."""
    import cv2

    height, width = picture.shape
    scale = height / 420
    ink = np.zeros(picture.shape, np.uint8)
    corner = (int(width * rng.uniform(0.84, 0.9)), int(height * rng.uniform(0.08, 0.16)))
    cv2.putText(ink, device.marker, corner, cv2.FONT_HERSHEY_SIMPLEX, scale, 255, max(1, round(2 * scale)))
    if portable and device.portable_marker:
        corner = (int(width * 0.03), int(height * rng.uniform(0.05, 0.1)))
        cv2.putText(ink, device.portable_marker, corner, cv2.FONT_HERSHEY_PLAIN, scale, 240, max(1, round(scale)))
    np.maximum(picture, ink.astype(np.float32) / 270, out=picture)

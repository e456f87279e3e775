"""What was measured on the 684 images of NIH's sample (`chestfed datasets get nih_sample`): `pytest -m campaign`.

`$CHESTFED_DATA` holds chestxray8_sample/images. No file name is stored.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from PIL import Image

from chestfed.data.images.decode import decode, decode_stored
from chestfed.data.images.decoding.polarity import MEAN_FILM, UNSURE, standardize_polarity
from chestfed.data.images.levels import Levels, Stored
from chestfed.data.images.preprocess import Preprocess
from tests.data.images.test_decode import dicom, save

pytestmark = [pytest.mark.campaign, pytest.mark.real_data]
Save = Callable[[str, Any], None]
OF = 684


@pytest.fixture(scope="module")
def files() -> list[Path]:
    """All images, by name."""
    folder = Path(os.environ.get("CHESTFED_DATA", "/nowhere")) / "chestxray8_sample" / "images"
    files = sorted(folder.glob("*.png"))
    if len(files) != OF:
        pytest.skip(f"set CHESTFED_DATA to the folder that holds chestxray8_sample/ with {OF} images")
    return files


# ---- stored negatives: docs/images.md --------------------------------------------------------------------------------

FRAMES = {"no frame": (0.0, 0), "black frame": (0.15, 0), "white frame": (0.15, 255)}


def test_the_mean_image_tells_negatives(files: list[Path], save_figures: Save) -> None:
    """The mean of each half of the patients judges the other half; that of the first half is the one shipped."""
    images = [decode_stored(file).gray for file in files]
    patients = [file.name.split("_")[0] for file in files]
    first = np.isin(patients, sorted(set(patients))[::2])
    means = [
        np.mean([standardize_polarity(images[row]) for row in np.flatnonzero(half)], axis=0) for half in (first, ~first)
    ]
    low, high = means[0].min(), means[0].max()
    shipped = np.asarray(Image.open(MEAN_FILM), float)
    np.testing.assert_allclose((means[0] - low) / (high - low) * 255, shipped, atol=1)
    figures = {}
    for name, (share, gray) in FRAMES.items():
        scores = np.zeros(len(images))
        for row, image in enumerate(images):
            framed = np.pad(image, [(round(share * side),) * 2 for side in image.shape], constant_values=gray)
            mean = means[1 if first[row] else 0]
            scores[row] = (standardize_polarity(framed) * mean / np.linalg.norm(mean)).sum()
        figures[name] = {"right": int((scores >= UNSURE).sum()), "wrong": int((scores <= -UNSURE).sum())}
    save_figures("polarity", figures)
    assert figures["no frame"] == {"right": 683, "wrong": 0}


# ---- gray levels: docs/images.md -------------------------------------------------------------------------------------

POLICIES: tuple[Levels, ...] = ("window", "stored", "percentiles")
SIDE = 320


def test_gray_levels_under_each_policy(files: list[Path], tmp_path: Path, save_figures: Save) -> None:
    """Mean |difference| of gray levels from the square of the 8-bit PNG under `window`: mean and worst of 120 images.

    A DICOM file has twice the image's range, the image's range as its window, and a marker above it; half are
    MONOCHROME1. LibAUC resizes by OpenCV's bilinear interpolation without antialiasing, TorchXRayVision by an
    antialiased bilinear or an area interpolation.
    """
    differences: dict[str, list[float]] = {}
    for number, place in enumerate(np.linspace(0, len(files) - 1, 120).astype(int)):
        image = decode(files[place])
        squares = make_squares(image, tmp_path, inverted=number % 2 == 1)
        squares["LibAUC"] = cv2.resize(image, (SIDE, SIDE), interpolation=cv2.INTER_LINEAR)
        bilinear = Image.fromarray(image).resize((SIDE, SIDE), Image.Resampling.BILINEAR)
        squares["TorchXRayVision, bilinear"] = np.asarray(bilinear)
        squares["TorchXRayVision, area"] = cv2.resize(image, (SIDE, SIDE), interpolation=cv2.INTER_AREA)
        for name, square in squares.items():
            apart = np.abs(square.astype(float) - squares["8-bit PNG, window"]).mean()
            differences.setdefault(name, []).append(float(apart))
    save_figures(
        "gray_levels", {name: [round(np.mean(each), 2), round(max(each), 2)] for name, each in differences.items()}
    )
    assert max(differences["DICOM, window"]) < 0.3
    assert max(differences["16-bit PNG, window"]) < 0.05


def make_squares(image: np.ndarray, folder: Path, *, inverted: bool) -> dict[str, np.ndarray]:
    """The square of each kind of file under each policy."""
    Image.fromarray(image).save(folder / "8-bit PNG", "PNG", compress_level=1)
    Image.fromarray(image.astype(np.uint16) * 257).save(folder / "16-bit PNG", "PNG", compress_level=1)
    low, width = 1024, 2048
    stored = np.rint(low + image * (width / 255)).astype(np.uint16)
    stored[4:24, 4:12] = 4095
    kind = "MONOCHROME1" if inverted else "MONOCHROME2"
    window = {"WindowCenter": low + width // 2, "WindowWidth": width}
    save(dicom(4095 - stored if inverted else stored, PhotometricInterpretation=kind, **window), folder / "DICOM")
    return {
        f"{name}, {levels}": Preprocess(levels=levels).apply(decode(folder / name, Stored(bits=16), levels))
        for name, levels in product(("8-bit PNG", "16-bit PNG", "DICOM"), POLICIES)
    }

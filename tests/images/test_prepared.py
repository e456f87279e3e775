"""From a file to the square: large JPEGs are decoded at part of their size, and nothing else changes by it."""

from __future__ import annotations

import io
from pathlib import Path

import cv2
import numpy as np
import pytest
from PIL import Image

from chestfed.core.errors import ImageError
from chestfed.images.decode import decode, decode_stored, prepared
from chestfed.images.levels import Stored
from chestfed.images.preprocess import Preprocess
from tests.cases import assert_refused, each

SMALL = Preprocess(size=64)


def film(height: int, width: int) -> np.ndarray:
    """As smooth and as noisy as a film, with letters."""
    rng = np.random.default_rng(0)
    smooth = cv2.resize(rng.random((12, 10), np.float32), (width, height), interpolation=cv2.INTER_CUBIC)
    gray = ((smooth + rng.normal(0, 0.015, smooth.shape)).clip(0, 1) * 255).astype(np.uint8)
    return cv2.putText(gray, "PORTABLE L", (10, height // 8), 0, height / 400, 255, 2)


def as_jpeg(gray: np.ndarray, path: Path, **more: object) -> Path:
    Image.fromarray(gray).save(path, "JPEG", quality=92, **more)
    return path


@each("fit", ["stretch", "pad"])
@each(
    ("height", "width", "times"),
    [(451, 509, 4), (509, 450, 4), (227, 250, 2), (223, 500, 1), (905, 1000, 8), (50, 500, 1)],
)
def test_a_reduced_jpeg_is_near_the_whole(tmp_path: Path, height: int, width: int, times: int, fit: str) -> None:
    path, preprocess = as_jpeg(film(height, width), tmp_path / "a.jpg"), SMALL.model_copy(update={"fit": fit})
    assert decode_stored(path, least=preprocess.least).gray.shape == (-(-height // times), -(-width // times))
    found, _ = prepared(path, Stored(), preprocess)
    apart = np.abs(found.astype(int) - preprocess.apply(decode(path)))
    assert apart.mean() < (0.5 if times > 1 else 1e-9)
    assert apart.max() <= 40  # at the letters' edges
    inverted, _ = prepared(path, Stored(inverted=True), SMALL)
    assert found.mean() == pytest.approx(255 - inverted.mean(), abs=1) or fit == "pad"


@each("save", [{"progressive": True}, {"exif": True}, {"color": True}])
def test_progressive_and_turned_jpegs_too(tmp_path: Path, save: dict[str, bool]) -> None:
    gray = film(451, 509)
    exif = Image.Exif()
    exif[0x0112] = 6 if save.get("exif") else 1
    picture = np.stack([gray] * 3, axis=-1) if save.get("color") else gray
    path = as_jpeg(picture, tmp_path / "a.jpg", progressive=save.get("progressive", False), exif=exif)
    found, _ = prepared(path, Stored(), SMALL)
    apart = np.abs(found.astype(int) - SMALL.apply(decode(path)))
    assert apart.mean() < (0 if save.get("exif") else 0.5) + 1e-9


def test_percentiles_are_of_the_whole(tmp_path: Path) -> None:
    path, preprocess = as_jpeg(film(451, 509), tmp_path / "a.jpg"), Preprocess(size=64, levels="percentiles")
    np.testing.assert_array_equal(
        prepared(path, Stored(), preprocess)[0], preprocess.apply(decode(path, levels="percentiles"))
    )


@each("share", [0.3, 0.6, 0.9, 0.999])
@each("progressive", [False, True])
def test_a_cut_reduced_jpeg_is_refused(tmp_path: Path, share: float, progressive: bool) -> None:
    data = as_jpeg(film(451, 509), tmp_path / "a.jpg", progressive=progressive).read_bytes()
    (tmp_path / "bad").write_bytes(data[: int(share * len(data))])
    with assert_refused(ImageError, "damaged"):
        prepared(tmp_path / "bad", Stored(), SMALL)


def test_a_jpeg_digest_ignores_metadata(
    tmp_path: Path,
) -> None:
    gray = film(451, 509)
    _, name = prepared(as_jpeg(gray, tmp_path / "a.jpg"), Stored(), SMALL)
    described = as_jpeg(gray, tmp_path / "b.jpg", comment=b"another", dpi=(300, 300))
    for size in (64, 320):
        assert prepared(described, Stored(), Preprocess(size=size))[1] == name
    gray[200:240, 200:240] += 9
    assert prepared(as_jpeg(gray, tmp_path / "c.jpg"), Stored(), SMALL)[1] != name
    again = io.BytesIO()
    Image.fromarray(gray).save(again, "JPEG", quality=91)
    (tmp_path / "d.jpg").write_bytes(again.getvalue())
    assert prepared(tmp_path / "d.jpg", Stored(), SMALL)[1] != name

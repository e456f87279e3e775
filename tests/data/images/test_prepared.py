"""From a file to the square: large JPEGs are decoded at part of their size, and nothing else changes by it."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from PIL import Image

from chestfed.core.errors import ImageError
from chestfed.data.images.decode import decode, decode_stored, prepare_image
from chestfed.data.images.levels import Stored
from chestfed.data.images.preprocess import Preprocess
from chestfed.leaves.samples.layouts import make_dicom
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
    pixels, _ = prepare_image(path, Stored(), preprocess)
    apart = np.abs(pixels.astype(int) - preprocess.apply(decode(path)))
    assert apart.mean() < (0.5 if times > 1 else 1e-9)
    assert apart.max() <= 40  # at the letters' edges
    inverted, _ = prepare_image(path, Stored(inverted=True), SMALL)
    assert pixels.mean() == pytest.approx(255 - inverted.mean(), abs=1) or fit == "pad"


@each("save", [{"progressive": True}, {"exif": True}, {"color": True}])
def test_progressive_and_turned_jpegs_too(tmp_path: Path, save: dict[str, bool]) -> None:
    gray = film(451, 509)
    exif = Image.Exif()
    exif[0x0112] = 6 if save.get("exif") else 1
    picture = np.stack([gray] * 3, axis=-1) if save.get("color") else gray
    path = as_jpeg(picture, tmp_path / "a.jpg", progressive=save.get("progressive", False), exif=exif)
    pixels, _ = prepare_image(path, Stored(), SMALL)
    apart = np.abs(pixels.astype(int) - SMALL.apply(decode(path)))
    assert apart.mean() < (0 if save.get("exif") else 0.5) + 1e-9


def as_dicom(gray: np.ndarray, path: Path, bits: int = 12, **elements: Any) -> Path:
    """A lossless JPEG 2000 in DICOM, with a window."""
    from pydicom.uid import JPEG2000Lossless

    dataset = make_dicom(gray.astype(np.uint16) << (bits - 8), bits)
    dataset.WindowCenter, dataset.WindowWidth, dataset.Modality = str(1 << bits - 1), str(1 << bits), "DX"
    for keyword, value in elements.items():
        setattr(dataset, keyword, value)
    dataset.compress(JPEG2000Lossless, encoding_plugin="pylibjpeg", generate_instance_uid=False)
    dataset.save_as(path, enforce_file_format=True)
    return path


@pytest.mark.slow
@each("fit", ["stretch", "pad"])
@each("bits", [10, 12, 16])
@each(("height", "width", "times"), [(452, 507, 4), (911, 1000, 8), (453, 509, 2), (50, 500, 1)])
def test_reduced_jpeg_2000_is_near(tmp_path: Path, height: int, width: int, times: int, bits: int, fit: str) -> None:
    path, preprocess = as_dicom(film(height, width), tmp_path / "a", bits), SMALL.model_copy(update={"fit": fit})
    assert decode_stored(path, least=preprocess.least).gray.shape == (-(-height // times), -(-width // times))
    square, _ = prepare_image(path, Stored(), preprocess)
    apart = np.abs(square.astype(int) - preprocess.apply(decode(path)))
    assert apart.mean() < (0.8 if times > 1 else 1e-9)
    assert apart.max() <= 50  # at the letters' edges


@each(
    "elements",
    [
        {"PatientOrientation": ["R", "F"]},
        {"PixelPaddingValue": 0},
        {"PixelSpacing": [0.2, 0.1]},
        {"PatientOrientation": ["P", "F"]},
    ],
)
def test_whole_jpeg_2000_where_it_matters(tmp_path: Path, elements: dict[str, Any]) -> None:
    path = as_dicom(film(452, 508), tmp_path / "a", **elements)
    whole = "PatientOrientation" in elements and elements["PatientOrientation"] == ["P", "F"]
    reduced = decode_stored(path, least=SMALL.least).gray.shape != decode(path).shape
    assert reduced is whole  # upright already


def test_jpeg_2000_has_one_name(tmp_path: Path) -> None:
    path = as_dicom(film(452, 508), tmp_path / "a")
    names = {prepare_image(path, Stored(), Preprocess(size=size))[1] for size in (64, 320)}
    names.add(prepare_image(as_dicom(film(452, 508), tmp_path / "b", PatientSex="F"), Stored(), SMALL)[1])
    assert len(names) == 1
    assert prepare_image(as_dicom(film(453, 508), tmp_path / "c"), Stored(), SMALL)[1] not in names


def test_percentiles_are_of_the_whole(tmp_path: Path) -> None:
    path, preprocess = as_jpeg(film(451, 509), tmp_path / "a.jpg"), Preprocess(size=64, levels="percentiles")
    np.testing.assert_array_equal(
        prepare_image(path, Stored(), preprocess)[0], preprocess.apply(decode(path, levels="percentiles"))
    )


@each("share", [0.3, 0.6, 0.9, 0.999])
@each("progressive", [False, True])
def test_a_cut_reduced_jpeg_is_refused(tmp_path: Path, share: float, progressive: bool) -> None:
    data = as_jpeg(film(451, 509), tmp_path / "a.jpg", progressive=progressive).read_bytes()
    (tmp_path / "bad").write_bytes(data[: int(share * len(data))])
    with assert_refused(ImageError, "damaged"):
        prepare_image(tmp_path / "bad", Stored(), SMALL)


def test_a_jpeg_digest_ignores_metadata(
    tmp_path: Path,
) -> None:
    gray = film(451, 509)
    _, name = prepare_image(as_jpeg(gray, tmp_path / "a.jpg"), Stored(), SMALL)
    described = as_jpeg(gray, tmp_path / "b.jpg", comment=b"another", dpi=(300, 300))
    for size in (64, 320):
        assert prepare_image(described, Stored(), Preprocess(size=size))[1] == name
    gray[200:240, 200:240] += 9
    assert prepare_image(as_jpeg(gray, tmp_path / "c.jpg"), Stored(), SMALL)[1] != name
    again = io.BytesIO()
    Image.fromarray(gray).save(again, "JPEG", quality=91)
    (tmp_path / "d.jpg").write_bytes(again.getvalue())
    assert prepare_image(tmp_path / "d.jpg", Stored(), SMALL)[1] != name

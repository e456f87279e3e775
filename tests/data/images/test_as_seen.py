"""A DICOM film is shown as a person would see it: false windows, signs, orientations and shutters are not followed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from pydicom.dataset import Dataset

from chestfed.core.errors import ImageError, UnsuitableImage
from chestfed.data.images.decode import decode, decode_stored
from chestfed.data.images.decoding.dicom_levels import WindowUse
from chestfed.data.images.decoding.polarity import MEAN_FILM, find_turn
from tests.cases import assert_refused, each
from tests.data.images.test_decode import dicom, save

MEAN = np.asarray(Image.open(MEAN_FILM).resize((192, 240), Image.Resampling.BICUBIC), float)
#: A film `[240, 192]`, 0 to 1, on a ground that keeps it from black and white.
FILM = 0.02 + 0.96 * (MEAN - MEAN.min()) / (MEAN.max() - MEAN.min())
GRAY = np.rint(FILM * 255)
FULL = {"WindowCenter": "2047.5", "WindowWidth": "4096"}


def store(film: np.ndarray, largest: int = 4095) -> np.ndarray:
    return np.rint(film * largest).astype(np.uint16)


def lut(entries: np.ndarray, bits: int) -> Dataset:
    item = Dataset()
    item.LUTDescriptor = [len(entries), 0, bits]
    item["LUTDescriptor"].VR = "US"
    item.add_new("LUTData", "OW", entries.astype("<u2").tobytes())
    return item


def read(dataset: Dataset, folder: Path) -> np.ndarray:
    return decode(save(dataset, folder / "a.dcm")).astype(float)


@each(
    ("largest", "center", "width"),
    [(4095, 128, 256), (65_535, 2048, 4096), (4095, 32_768, 65_536), (65_535, 128, 256), (255, 32_768, 65_536)],
)
def test_window_of_other_bits_is_not_used(tmp_path: Path, largest: int, center: int, width: int) -> None:
    bits = largest.bit_length()
    window = {"WindowCenter": str(center), "WindowWidth": str(width)}
    film = dicom(store(FILM, largest), BitsStored=bits, HighBit=bits - 1, **window)
    assert np.corrcoef(read(film, tmp_path).ravel(), GRAY.ravel())[0, 1] > 0.98
    assert decode_stored(tmp_path / "a.dcm").window == WindowUse.UNUSABLE


@each(("largest", "bits"), [(4095, 16), (65_520, 12), (4095, 12), (65_535, 16), (255, 8)])
def test_lut_of_other_bits_shows_the_film(tmp_path: Path, largest: int, bits: int) -> None:
    film = dicom(store(FILM), VOILUTSequence=[lut(np.linspace(0, largest, 4096), bits)])
    assert np.abs(read(film, tmp_path) - GRAY).mean() <= 1


def test_window_replaces_a_lut_without_data(tmp_path: Path) -> None:
    item = lut(np.arange(4096), 12)
    del item.LUTData
    assert np.abs(read(dicom(store(FILM), VOILUTSequence=[item], **FULL), tmp_path) - GRAY).mean() <= 1


@each("sign", [1, -1])
@each("photometric", ["MONOCHROME1", "MONOCHROME2"])
@each("negative", [False, True])
def test_sign_counts_where_the_film_agrees(tmp_path: Path, sign: int, photometric: str, negative: bool) -> None:
    """What is displayed as a negative is one if the sign says so too; a false sign changes nothing."""
    shown = 1 - FILM if negative else FILM
    stored = store(1 - shown if photometric == "MONOCHROME1" else shown)
    film = dicom(stored, PhotometricInterpretation=photometric, PixelIntensityRelationshipSign=sign, **FULL)
    air_is_bright = (sign == 1) == (photometric == "MONOCHROME2")
    expected = 255 - GRAY if negative and not air_is_bright else GRAY
    assert np.abs(read(film, tmp_path) - expected).mean() <= 1


@each("orientation", [["H", "L"], ["F", "L"], ["L", "H"]])
def test_orientation_yields_to_the_film(tmp_path: Path, orientation: list[str]) -> None:
    upright = dicom(store(FILM), PatientOrientation=orientation, **FULL)
    assert np.abs(read(upright, tmp_path) - GRAY).mean() <= 1
    decoded = decode_stored(tmp_path / "a.dcm")
    assert (decoded.turned, decoded.misoriented) == (False, True)


@each("turn", [1, 2, 3])
def test_true_orientation_turns_the_film(tmp_path: Path, turn: int) -> None:
    direction = {1: ["F", "R"], 2: ["R", "H"], 3: ["H", "L"]}[turn]
    film = dicom(store(np.rot90(FILM, turn)), PatientOrientation=direction, **FULL)
    assert np.abs(read(film, tmp_path) - GRAY).mean() <= 1
    assert (find_turn(GRAY.astype(np.uint8)), find_turn(np.rot90(GRAY, turn).astype(np.uint8))) == (0, 4 - turn)


SHUTTERS = {
    "RECTANGULAR": {
        "ShutterUpperHorizontalEdge": 21,
        "ShutterLowerHorizontalEdge": 220,
        "ShutterLeftVerticalEdge": 11,
        "ShutterRightVerticalEdge": 182,
    },
    "CIRCULAR": {"CenterOfCircularShutter": [120, 96], "RadiusOfCircularShutter": 80},
    "POLYGONAL": {"VerticesOfThePolygonalShutter": [21, 11, 21, 182, 220, 182, 220, 11]},
}


@each("shape", [*SHUTTERS])
@each("window", [FULL, {}])
def test_shutter_is_black_and_without_range(tmp_path: Path, shape: str, window: dict[str, str]) -> None:
    rows, columns = np.ogrid[1:241, 1:193]
    inside = (rows >= 21) & (rows <= 220) & (columns >= 11) & (columns <= 182)
    if shape == "CIRCULAR":
        inside = (rows - 120) ** 2 + (columns - 96) ** 2 <= 80**2
    covered = dicom(np.where(inside, store(FILM), 4095), ShutterShape=shape, **SHUTTERS[shape], **window)
    gray = read(covered, tmp_path)
    assert not gray[~inside].any()
    if window:
        assert np.abs(gray - GRAY)[inside].mean() <= 1
    else:
        assert np.ptp(np.percentile(gray[inside], (1, 99))) > 200


def test_shutter_that_hides_all_is_ignored(tmp_path: Path) -> None:
    edges = dict(SHUTTERS["RECTANGULAR"], ShutterRightVerticalEdge=12)
    assert np.abs(read(dicom(store(FILM), ShutterShape="RECTANGULAR", **edges, **FULL), tmp_path) - GRAY).mean() <= 1


def test_padding_of_the_wrong_sign_is_padding(tmp_path: Path) -> None:
    stored = np.rint(FILM * 4095).astype(np.int16)
    stored[:30] = -2000
    film = dicom(stored, PixelRepresentation=1, BitsStored=16, HighBit=15, PixelData=stored.tobytes())
    film.add_new("PixelPaddingValue", "US", 63_536)
    gray = read(film, tmp_path)
    assert not gray[:30].any()
    assert np.ptp(gray[30:]) > 250


@each(
    "element",
    [{"RescaleIntercept": "-1000"}, {"RescaleSlope": "2"}, {"RescaleIntercept": "-1000", "RescaleSlope": "0"}],
)
def test_half_a_rescale_is_applied(tmp_path: Path, element: dict[str, str]) -> None:
    low, slope = float(element.get("RescaleIntercept", 0)), float(element.get("RescaleSlope", 1)) or 1
    window = {"WindowCenter": str(low + 2047.5 * slope), "WindowWidth": str(4096 * slope)}
    assert np.abs(read(dicom(store(FILM), **element, **window), tmp_path) - GRAY).mean() <= 1


def test_decimal_commas_are_read(tmp_path: Path) -> None:
    film = save(dicom(store(FILM), WindowCenter="2040.5", WindowWidth="4080.25"), tmp_path / "a.dcm")
    point = decode(film)
    film.write_bytes(film.read_bytes().replace(b"2040.5", b"2040,5").replace(b"4080.25", b"4080,25"))
    np.testing.assert_array_equal(decode(film), point)


def test_missing_preamble_is_named(tmp_path: Path) -> None:
    whole = save(dicom(store(FILM), **FULL), tmp_path / "a.dcm").read_bytes()
    (tmp_path / "b.dcm").write_bytes(whole[132:])
    with assert_refused(ImageError, "unsupported"):
        decode(tmp_path / "b.dcm")


@each("part", ["PORT CHEST", "THORAX AP", "CHEST_PA", "CHEST", "chest 2 views"])
def test_chest_with_an_addition_is_read(tmp_path: Path, part: str) -> None:
    assert np.abs(read(dicom(store(FILM), BodyPartExamined=part, **FULL), tmp_path) - GRAY).mean() <= 1


@each("part", ["CHEST ABDOMEN", "LUNG", "DOE", "PELVIS CHEST"])
def test_other_parts_stay_refused(tmp_path: Path, part: str) -> None:
    with pytest.raises(UnsuitableImage) as caught:
        read(dicom(store(FILM), BodyPartExamined=part, **FULL), tmp_path)
    assert "DOE" not in str(caught.value)

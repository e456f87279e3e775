"""A DICOM file is decoded as a viewer displays it: each variant equals the film as PNG; other kinds are refused."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from pydicom.dataset import Dataset
from pydicom.encaps import encapsulate
from pydicom.uid import JPEG2000Lossless, JPEGBaseline8Bit, RLELossless

from chestfed.core.errors import ImageError, UnsuitableImage
from chestfed.data.images.decode import decode, decode_stored
from chestfed.data.images.levels import Stored
from tests.cases import assert_refused, each
from tests.data.images.test_decode import dicom, save

COARSE = np.random.default_rng(5).random((6, 5), np.float32)
#: A smooth film `[120, 96]`, 0 to 1, which no turn and no mirror maps to itself.
SHOWN = np.asarray(Image.fromarray(COARSE).resize((96, 120), Image.Resampling.BICUBIC)).clip(0.02, 0.98)
FULL = {"WindowCenter": "2048", "WindowWidth": "4096"}


def store_levels(shown: np.ndarray) -> np.ndarray:
    return np.rint(shown * 4095).astype(np.uint16)


def gray_color(form: str = "RGB", planar: int = 0, colored: bool = False) -> Dataset:
    """A secondary capture with three channels of 8 bits."""
    channels = np.dstack([np.rint(SHOWN * 255).astype(np.uint8)] * 3)
    if colored:
        channels[:20, :, 0] = 255
    order = (2, 0, 1) if planar else (0, 1, 2)
    dataset = dicom(SHOWN, SamplesPerPixel=3, PhotometricInterpretation=form, PlanarConfiguration=planar)
    dataset.BitsAllocated, dataset.BitsStored, dataset.HighBit = 8, 8, 7
    dataset.PixelData = channels.transpose(order).tobytes()
    dataset["PixelData"].VR = "OB"
    return dataset


def assert_shows_film(dataset: Dataset, folder: Path, policy: Stored = Stored()) -> None:
    """At most one gray level from the film as PNG, on average."""
    Image.fromarray(np.rint(SHOWN * 255).astype(np.uint8)).save(folder / "a.png")
    expected = decode(folder / "a.png").astype(int)
    gray = decode(save(dataset, folder / "a.dcm"), policy)
    assert gray.shape == expected.shape
    assert np.abs(gray - expected).mean() <= 1


@each(
    ("photometric", "shape", "inverted"),
    [
        ("MONOCHROME2", None, False),
        ("MONOCHROME2", "IDENTITY", False),
        ("MONOCHROME2", "INVERSE", True),
        ("MONOCHROME1", None, True),
        ("MONOCHROME1", "INVERSE", True),
        ("MONOCHROME1", "IDENTITY", True),
    ],
)
@each("window", [{}, {"WindowCenter": "2048", "WindowWidth": "4096"}])
def test_inversion_is_applied_once(
    tmp_path: Path, photometric: str, shape: str | None, inverted: bool, window: dict[str, str]
) -> None:
    elements = {
        **window,
        "PhotometricInterpretation": photometric,
        **({"PresentationLUTShape": shape} if shape else {}),
    }
    film = dicom(store_levels(1 - SHOWN if inverted else SHOWN), **elements)
    if window:
        assert_shows_film(film, tmp_path)
    else:
        gray = decode(save(film, tmp_path / "a.dcm"))
        assert np.corrcoef(gray.ravel(), SHOWN.ravel())[0, 1] > 0.99


@each("function", ["LINEAR", "LINEAR_EXACT", "SIGMOID"])
def test_window_functions_show_the_film(tmp_path: Path, function: str) -> None:
    values = {
        "LINEAR": (SHOWN - 0.5) * 1599 + 1999.5,
        "LINEAR_EXACT": (SHOWN - 0.5) * 1600 + 2000,
        "SIGMOID": 2000 - 400 * np.log(1 / SHOWN - 1),
    }[function]
    window = {"WindowCenter": ["2000", "9"], "WindowWidth": ["1600", "9"], "VOILUTFunction": function}
    rescale = {"RescaleSlope": "0.5", "RescaleIntercept": "-1000"}
    film = dicom(np.rint((values + 1000) / 0.5), BitsStored=16, HighBit=15, **window, **rescale)
    assert_shows_film(film, tmp_path)


def test_unknown_window_function_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ImageError):
        decode(save(dicom(store_levels(SHOWN), VOILUTFunction="GAMMA", **FULL), tmp_path / "a.dcm"))


@each(
    ("orientation", "stored"),
    [
        (["L", "F"], SHOWN),
        (["LH", "FL"], SHOWN),
        ("", SHOWN),
        (["R", "F"], SHOWN[:, ::-1]),
        (["L", "H"], SHOWN[::-1]),
        (["R", "H"], SHOWN[::-1, ::-1]),
        (["F", "L"], SHOWN.T),
        (["F", "R"], np.rot90(SHOWN)),
        (["H", "L"], np.rot90(SHOWN, -1)),
        (["H", "R"], SHOWN[::-1, ::-1].T),
        (["A", "F"], SHOWN),
        (["P", "F"], SHOWN),
        (["F", "A"], np.rot90(SHOWN)),
        (["A", "H"], SHOWN[::-1, ::-1]),
    ],
)
def test_films_are_turned_by_orientation(tmp_path: Path, orientation: str | list[str], stored: np.ndarray) -> None:
    film = dicom(store_levels(stored), PatientOrientation=orientation, **FULL)
    assert_shows_film(film, tmp_path)
    assert decode_stored(tmp_path / "a.dcm").turned == (stored is not SHOWN)


@each("orientation", [["L", "P"], ["H", "F"], ["L"], ["CR", "CD"], ["L", "DOE"], ["L", "F", "F"]])
def test_other_orientations_are_refused(tmp_path: Path, orientation: list[str]) -> None:
    with pytest.raises(ImageError) as caught:
        decode(save(dicom(store_levels(SHOWN), PatientOrientation=orientation, **FULL), tmp_path / "a.dcm"))
    assert "DOE" not in str(caught.value)


@each(
    ("rows", "columns", "elements"),
    [
        (2, 1, {"PixelAspectRatio": [2, 1]}),
        (1, 2, {"PixelAspectRatio": [1, 2]}),
        (2, 1, {"PixelSpacing": [0.2, 0.1]}),
        (1, 3, {"ImagerPixelSpacing": [0.1, 0.3], "PixelSpacing": None}),
        (1, 1, {"PixelSpacing": [0.1, 0.1], "PixelAspectRatio": [2, 1]}),
        (1, 1, {"PixelSpacing": [0.1391, 0.139], "ImagerPixelSpacing": [0, 0]}),
    ],
)
def test_pixels_are_made_square(tmp_path: Path, rows: int, columns: int, elements: dict[str, list[float]]) -> None:
    height, width = SHOWN.shape
    coarse = SHOWN.reshape(height // rows, rows, width // columns, columns).mean(axis=(1, 3))
    assert_shows_film(dicom(store_levels(coarse), **FULL, **elements), tmp_path)


def test_implausible_pixel_aspect_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ImageError):
        decode(save(dicom(store_levels(SHOWN), PixelAspectRatio=[5, 1], **FULL), tmp_path / "a.dcm"))


@each(("planar", "syntax"), [(0, None), (1, None), (0, RLELossless), (0, JPEG2000Lossless)])
def test_gray_color_file_is_read_as_gray(tmp_path: Path, planar: int, syntax: str | None) -> None:
    film = gray_color(planar=planar)
    if syntax is not None:
        film.compress(syntax, encoding_plugin="pylibjpeg")
    assert_shows_film(film, tmp_path)


def test_gray_color_jpeg_is_read_as_gray(tmp_path: Path) -> None:
    film, stream = gray_color("YBR_FULL_422"), BytesIO()
    Image.fromarray(np.rint(SHOWN * 255).astype(np.uint8)).convert("RGB").save(stream, "JPEG", quality=95)
    film.file_meta.TransferSyntaxUID = JPEGBaseline8Bit
    film.PixelData = encapsulate([stream.getvalue()])
    assert_shows_film(film, tmp_path)


def test_real_color_is_refused(tmp_path: Path) -> None:
    with assert_refused(ImageError, "color"):
        decode(save(gray_color(colored=True), tmp_path / "a.dcm"))


@each(
    ("elements", "accepting"),
    [
        ({"PresentationIntentType": "FOR PROCESSING"}, Stored(for_processing=True)),
        ({"BodyPartExamined": "ABDOMEN"}, Stored(body_parts=("CHEST", "abdomen"))),
        ({"BodyPartExamined": "T_SPINE"}, Stored(body_parts=("TSPINE",))),
        ({"BodyPartExamined": "DOE"}, Stored(body_parts=None)),
        ({"Modality": "CT"}, None),
        ({"Modality": "MR"}, None),
    ],
)
def test_other_kinds_need_a_word_of_the_site(
    tmp_path: Path, elements: dict[str, str], accepting: Stored | None
) -> None:
    film = dicom(store_levels(SHOWN), **FULL, **elements)
    with pytest.raises(UnsuitableImage) as caught:
        decode(save(film, tmp_path / "a.dcm"))
    assert "DOE" not in str(caught.value)
    if accepting is not None:
        assert_shows_film(film, tmp_path, accepting)


@each(
    "elements",
    [
        {"BodyPartExamined": "CHEST"},
        {"BodyPartExamined": "THORAX", "Modality": "RG"},
        {"BodyPartExamined": "", "Modality": "OT", "PresentationIntentType": "FOR PRESENTATION"},
        {"Modality": "DR"},
    ],
)
def test_chest_films_are_read(tmp_path: Path, elements: dict[str, str]) -> None:
    assert_shows_film(dicom(store_levels(SHOWN), **FULL, **elements), tmp_path)

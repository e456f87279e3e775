"""Decoding: gray levels as documented, whatever the file."""

from __future__ import annotations

from pathlib import Path

import cv2
import imagecodecs
import numpy as np
import pydicom
import pytest
from PIL import Image, ImageOps
from pydicom.data import get_testdata_file
from pydicom.dataset import Dataset
from pydicom.encaps import encapsulate, get_frame
from pydicom.uid import (
    ExplicitVRBigEndian,
    JPEG2000Lossless,
    JPEGExtended12Bit,
    JPEGLossless,
    JPEGLosslessSV1,
    JPEGLSLossless,
    RLELossless,
)

from chestfed.core.errors import ImageError
from chestfed.data.images.decode import decode
from chestfed.data.images.decoding import dicom_pixels
from chestfed.data.images.decoding.compressed import refuse_missing_end
from chestfed.data.images.decoding.polarity import MEAN_FILM
from chestfed.data.images.levels import Stored
from chestfed.data.images.preprocess import Preprocess
from chestfed.leaves.samples.layouts import make_dicom
from tests.cases import assert_refused, each

RAMP = np.linspace(0, 1, 64 * 48, dtype=np.float32).reshape(64, 48)


def dicom(stored: np.ndarray, **elements: object) -> Dataset:
    dataset = make_dicom(stored, uid="1.2.3")
    for name, value in {"PatientName": "Doe^Jane", "PatientID": "4711", **elements}.items():
        setattr(dataset, name, value)
    return dataset


def save(dataset: Dataset, path: Path) -> Path:
    dataset.save_as(path, enforce_file_format=True)
    return path


@each("mode", ["L", "RGB", "RGBA", "P", "LA"])
@each("suffix", [".png", ".jpg"])
def test_8_bit_pictures_keep_their_levels(tmp_path: Path, mode: str, suffix: str) -> None:
    if suffix == ".jpg" and mode not in ("L", "RGB"):
        return
    gray = (RAMP * 255).astype(np.uint8)
    Image.fromarray(gray).convert(mode).save(tmp_path / f"a{suffix}", quality=100)
    pixels = decode(tmp_path / f"a{suffix}")
    assert pixels.dtype == np.uint8
    assert np.abs(pixels.astype(int) - gray).max() <= (2 if suffix == ".jpg" else 0)


@each(("bits", "largest"), [(None, 65_535), (16, 65_535), (16, 900), (12, 4095), (12, 900), (9, 511)])
def test_16_bit_png_keeps_its_range(tmp_path: Path, bits: int | None, largest: int) -> None:
    stored = (RAMP * largest).astype(np.uint16)
    Image.fromarray(stored).save(tmp_path / "a.png")
    pixels = decode(tmp_path / "a.png", Stored(bits=bits))
    assert np.abs(pixels - stored * (255 / (2 ** (bits or 16) - 1))).max() <= 0.51
    np.testing.assert_array_equal(decode(tmp_path / "a.png", Stored(inverted=True, bits=bits)), 255 - pixels)


@each(("bits", "largest"), [(None, 4095), (None, 32_767), (None, 0), (12, 4096), (9, 65_535)])
def test_16_bit_png_of_other_bits_is_refused(tmp_path: Path, bits: int | None, largest: int) -> None:
    Image.fromarray((RAMP * largest).astype(np.uint16)).save(tmp_path / "a.png")
    with assert_refused(ImageError, "unknown bits"):
        decode(tmp_path / "a.png", Stored(bits=bits))


def test_dark_16_bit_png_in_color_is_refused(tmp_path: Path) -> None:
    for largest in (65_535, 4095):
        gray = (RAMP * largest).astype(np.uint16)
        for channels in (3, 4):
            cv2.imwrite(str(tmp_path / f"{channels}.png"), np.dstack([gray] * channels))
            if largest == 65_535:
                assert np.abs(decode(tmp_path / f"{channels}.png") - RAMP * 255).max() <= 1
            else:
                with assert_refused(ImageError, "color"):
                    decode(tmp_path / f"{channels}.png", Stored(bits=12))


@each("largest", [255, 4095, 65_535])
@each("dicom_file", [False, True])
def test_percentiles_stretch_files_alike(tmp_path: Path, largest: int, dicom_file: bool) -> None:
    stored = (RAMP**2 * largest).astype(np.uint8 if largest == 255 else np.uint16)
    if dicom_file:
        save(dicom(stored, WindowCenter="90", WindowWidth="20", BitsStored=16, HighBit=15), tmp_path / "a")
    else:
        Image.fromarray(stored).save(tmp_path / "a", "PNG")
    low, high = np.percentile(stored, [0.5, 99.5])
    expected = np.clip((stored.astype(float) - low) / (high - low), 0, 1) * 255
    assert np.abs(decode(tmp_path / "a", levels="percentiles") - expected).max() <= 0.51


@each("signed", [0, 1])
@each("slope", ["1", "-0.5"])
def test_stored_takes_the_whole_range(tmp_path: Path, signed: int, slope: str) -> None:
    stored = (RAMP * 4095).astype(np.int16) - 2048 * signed
    elements = {"RescaleSlope": slope, "RescaleIntercept": "-70", "WindowCenter": "90", "WindowWidth": "20"}
    plain = dicom(stored, PixelRepresentation=signed, PixelData=stored.tobytes(), **elements)
    pixels = decode(save(plain, tmp_path / "a.dcm"), levels="stored")
    expected = (RAMP if slope == "1" else 1 - RAMP) * 255
    assert np.abs(pixels - expected).max() <= 1.01


def test_the_content_tells_the_kind(tmp_path: Path) -> None:
    Image.fromarray((RAMP * 255).astype(np.uint8)).save(tmp_path / "a.png")
    (tmp_path / "a.png").rename(tmp_path / "a.jpg")
    assert decode(tmp_path / "a.jpg").shape == RAMP.shape


def test_dicom_is_rescaled_then_windowed(tmp_path: Path) -> None:
    stored = (RAMP * 4095).astype(np.uint16)
    elements = {"RescaleSlope": "2", "RescaleIntercept": "-1000", "WindowCenter": "3000", "WindowWidth": "6000"}
    pixels = decode(save(dicom(stored, **elements), tmp_path / "a.dcm"))
    expected = np.clip(stored * 2.0 - 1000, 0, 6000) / 6000 * 255
    assert np.abs(pixels - expected).max() <= 1
    inverted = decode(save(dicom(stored, PhotometricInterpretation="MONOCHROME1", **elements), tmp_path / "b.dcm"))
    np.testing.assert_array_equal(inverted, 255 - pixels)


def test_without_a_window_percentiles_count(tmp_path: Path) -> None:
    stored = (200 + RAMP * 3000).astype(np.uint16)
    stored[:4] = 0
    plain = dicom(stored, PhotometricInterpretation="MONOCHROME1")
    plain.add_new("PixelPaddingValue", "US", 0)
    pixels = decode(save(plain, tmp_path / "a.dcm"))
    assert not pixels[:4].any()
    assert pixels[5].mean() > pixels[-1].mean()


@each("photometric", ["MONOCHROME1", "MONOCHROME2"])
@each("window", [{}, {"WindowCenter": "2000", "WindowWidth": "5000"}])
def test_padding_counts_for_no_range(tmp_path: Path, photometric: str, window: dict[str, str]) -> None:
    """A frame of padding far below the anatomy must not squeeze its gray levels."""
    anatomy = (2000 + RAMP * 1500).astype(np.uint16)
    padded = np.zeros((64, 72), np.uint16)
    padded[:, 12:60] = anatomy
    padded[:, 70:] = 5
    plain = dicom(padded, PhotometricInterpretation=photometric, **window)
    plain.add_new("PixelPaddingValue", "US", 0)
    plain.add_new("PixelPaddingRangeLimit", "US", 5)
    pixels = decode(save(plain, tmp_path / "a.dcm"))
    alone = decode(save(dicom(anatomy, PhotometricInterpretation=photometric, **window), tmp_path / "b.dcm"))
    np.testing.assert_array_equal(pixels[:, 12:60], alone)
    assert not pixels[:, :12].any()
    assert not pixels[:, 60:].any()


@each(
    "window",
    [
        {"WindowCenter": "2000", "WindowWidth": "0"},
        {"WindowCenter": "2000", "WindowWidth": "-500"},
        {"WindowCenter": ["2000", "1000"], "WindowWidth": ["0", "500"]},
        {"WindowCenter": "30000", "WindowWidth": "400"},
        {"WindowCenter": "-9000", "WindowWidth": "400"},
        {"WindowCenter": "2000"},
    ],
)
def test_an_implausible_window_is_ignored(tmp_path: Path, window: dict[str, str | list[str]]) -> None:
    stored = (RAMP * 4095).astype(np.uint16)
    expected = decode(save(dicom(stored), tmp_path / "plain.dcm"))
    np.testing.assert_array_equal(decode(save(dicom(stored, **window), tmp_path / "a.dcm")), expected)
    assert expected.std() > 50


def test_an_exact_window_may_be_below_1(tmp_path: Path) -> None:
    stored = (RAMP * 4095).astype(np.uint16)
    window = {"RescaleSlope": "0.0001", "RescaleIntercept": "0", "WindowCenter": "0.2", "WindowWidth": "0.2"}
    pixels = decode(save(dicom(stored, VOILUTFunction="LINEAR_EXACT", **window), tmp_path / "a.dcm"))
    expected = np.clip((stored * 0.0001 - 0.1) / 0.2, 0, 1) * 255
    assert np.abs(pixels - expected).max() <= 1


def test_upper_bits_are_refused(tmp_path: Path) -> None:
    stored = (RAMP * 4095).astype(np.uint16)
    window = {"WindowCenter": "2047", "WindowWidth": "4096"}
    plain = decode(save(dicom(stored, **window), tmp_path / "a.dcm"))
    with assert_refused(ImageError, "unsupported"):
        decode(save(dicom(stored << 4, HighBit=15, **window), tmp_path / "b.dcm"))
    for signed in (0, 1):
        swapped = dicom(stored, PixelRepresentation=signed, PixelData=(stored - 2048 * signed).astype(">u2").tobytes())
        swapped.file_meta.TransferSyntaxUID = ExplicitVRBigEndian
        swapped.WindowCenter, swapped.WindowWidth = 2047 - 2048 * signed, 4096
        swapped.save_as(tmp_path / "c.dcm", enforce_file_format=True, implicit_vr=False, little_endian=False)
        np.testing.assert_array_equal(decode(tmp_path / "c.dcm"), plain)


@pytest.mark.parametrize(
    ("syntax", "encoder"),
    [(RLELossless, "pylibjpeg"), (JPEG2000Lossless, "pylibjpeg"), (JPEGLSLossless, "pyjpegls")],
)
def test_compressed_dicom_has_equal_pixels(tmp_path: Path, syntax: str, encoder: str) -> None:
    stored = (RAMP * 4095).astype(np.uint16)
    plain = decode(save(dicom(stored, WindowCenter="2047", WindowWidth="4096"), tmp_path / "a.dcm"))
    packed = dicom(stored, WindowCenter="2047", WindowWidth="4096")
    packed.compress(syntax, encoding_plugin=encoder)
    np.testing.assert_array_equal(decode(save(packed, tmp_path / "b.dcm")), plain)


@each("signed", [0, 1])
@each("syntax", [JPEGLosslessSV1, JPEGLossless])
def test_lossless_jpeg_has_equal_pixels(tmp_path: Path, syntax: str, signed: int) -> None:
    stored = (RAMP * 4095).astype(np.uint16)
    form = {"PixelRepresentation": signed, "WindowCenter": 2047 - 2048 * signed, "WindowWidth": "4096"}
    values = (stored.astype(int) - 2048 * signed).astype(np.int16)
    plain = decode(save(dicom(stored, **form, PixelData=values.tobytes()), tmp_path / "a.dcm"))
    packed = dicom(stored, **form)
    packed.file_meta.TransferSyntaxUID = syntax
    packed.PixelData = encapsulate([imagecodecs.ljpeg_encode(values.view(np.uint16) & 0xFFF, bitspersample=12)])
    np.testing.assert_array_equal(decode(save(packed, tmp_path / "b.dcm")), plain)


def test_lossy_jpeg_of_12_bits_is_near(tmp_path: Path) -> None:
    stored = (RAMP * 4095).astype(np.uint16)
    plain = decode(save(dicom(stored, WindowCenter="2047", WindowWidth="4096"), tmp_path / "a.dcm"))
    packed = dicom(stored, WindowCenter="2047", WindowWidth="4096")
    packed.file_meta.TransferSyntaxUID = JPEGExtended12Bit
    stream = imagecodecs.jpeg8_encode(stored, level=98, bitspersample=12)
    packed.PixelData = encapsulate([stream])
    gray = decode(save(packed, tmp_path / "b.dcm"))
    assert np.abs(gray.astype(int) - plain.astype(int)).max() <= 2
    packed.PixelData = encapsulate([stream[: len(stream) // 2] + b"\xff\xd9"])
    with assert_refused(ImageError, "damaged"):
        decode(save(packed, tmp_path / "c.dcm"))


def test_every_jpeg_of_pydicom_is_decoded() -> None:
    for name in ("JPEG-lossy.dcm", "JPGExtended.dcm", "MR_small_jpeg_ls_lossless.dcm", "SC_rgb_jpeg_gdcm.dcm"):
        dataset = pydicom.dcmread(str(get_testdata_file(name, download=False)))
        pixels = dicom_pixels._read_pixels(dataset)
        assert pixels.shape[:2] == (dataset.Rows, dataset.Columns)
    reference = pydicom.dcmread(str(get_testdata_file("MR_small.dcm", download=False))).pixel_array
    packed = pydicom.dcmread(str(get_testdata_file("MR_small_jpeg_ls_lossless.dcm", download=False)))
    np.testing.assert_array_equal(dicom_pixels._read_pixels(packed), reference)


def test_jpeg_ls_without_its_end_is_refused(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    packed = dicom(rng.integers(0, 4096, (96, 96), np.uint16), WindowCenter="2047", WindowWidth="4096")
    packed.compress(JPEGLSLossless, encoding_plugin="pyjpegls")
    stream = get_frame(packed.PixelData, 0, number_of_frames=1)
    for _ in range(20):
        place = int(rng.integers(40, len(stream) // 2))
        for damaged in (stream[:place], stream[:place] + b"\xff\xd9"):
            packed.PixelData = encapsulate([damaged])
            with pytest.raises(ImageError):
                decode(save(packed, tmp_path / "a.dcm"))


@each("name", ["JPEG-lossy.dcm", "JPGExtended.dcm", "MR_small_jpeg_ls_lossless.dcm"])
def test_jpeg_that_is_cut_short_is_refused(name: str) -> None:
    path = get_testdata_file(name, download=False)
    assert isinstance(path, str)
    stream = get_frame(pydicom.dcmread(path).PixelData, 0, number_of_frames=1)
    refuse_missing_end(stream)
    for share in (0.1, 0.5, 0.99):
        with assert_refused(ImageError, kind="damaged"):
            refuse_missing_end(stream[: int(share * len(stream))])


@each("signed", [0, 1])
@each("bits", [8, 16])
def test_run_lengths_of_signed_values(tmp_path: Path, bits: int, signed: int) -> None:
    used = bits - 3
    stored = (RAMP * ((1 << used) - 1)).astype(f"u{bits // 8}")
    dirty = (stored | (5 << used)).astype(stored.dtype)
    form = {"BitsAllocated": bits, "BitsStored": used, "HighBit": used - 1, "PixelRepresentation": signed}
    plain, packed = dicom(stored, **form, PixelData=stored.tobytes()), dicom(stored, **form, PixelData=dirty.tobytes())
    plain["PixelData"].VR = packed["PixelData"].VR = "OB" if bits == 8 else "OW"
    packed.compress(RLELossless, encoding_plugin="pylibjpeg", generate_instance_uid=False)
    gray = decode(save(packed, tmp_path / "b.dcm"), levels="stored")
    np.testing.assert_array_equal(gray, decode(save(plain, tmp_path / "a.dcm"), levels="stored"))
    assert len(np.unique(gray)) == min(256, 1 << used)


def test_png_and_dicom_give_the_same_picture(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    for _ in range(6):  # smooth films that do not use the whole range, seen through windows of their own
        coarse = rng.random((9, 8), np.float32)
        shown = np.asarray(Image.fromarray(coarse).resize((480, 512), Image.Resampling.BICUBIC)).clip(0, 1)
        shown = rng.uniform(0, 0.2) + shown * rng.uniform(0.5, 0.8)
        low, width = rng.integers(200, 1200), int(rng.integers(900, 2600))
        Image.fromarray(np.rint(shown * 255).astype(np.uint8)).save(tmp_path / "8.png")
        Image.fromarray(np.rint(shown * 65_535).astype(np.uint16)).save(tmp_path / "16.png")
        stored = np.rint(low + shown * width).astype(np.uint16)
        stored[::50, 5] = 4095  # a marker above the window
        window = {"WindowCenter": str(low + width // 2), "WindowWidth": str(width)}
        save(dicom(stored, **window), tmp_path / "a.dcm")
        window["WindowCenter"] = str(4096 - low - width // 2)  # the middle of a window lies between two values
        save(dicom(4095 - stored, PhotometricInterpretation="MONOCHROME1", **window), tmp_path / "b.dcm")
        squares = [
            Preprocess().apply(decode(tmp_path / name, Stored(bits=16))).astype(int)
            for name in ("8.png", "16.png", "a.dcm", "b.dcm")
        ]
        assert max(np.abs(square - squares[0]).mean() for square in squares) < 0.6


@each("function", ["LINEAR", "LINEAR_EXACT", "SIGMOID"])
def test_a_window_shows_its_own_range(tmp_path: Path, function: str) -> None:
    stored = (1000 + RAMP * 2000).astype(np.uint16)
    window = {"WindowCenter": "2000", "WindowWidth": "4000", "VOILUTFunction": function}
    pixels = decode(save(dicom(stored, **window), tmp_path / "a.dcm"))
    x = stored.astype(float)
    expected = {
        "LINEAR": (x - 1999.5) / 3999 + 0.5,
        "LINEAR_EXACT": (x - 2000) / 4000 + 0.5,
        "SIGMOID": 1 / (1 + np.exp(-4 * (x - 2000) / 4000)),
    }[function]
    assert np.abs(pixels - expected * 255).max() <= 0.51


@each("bits", [8, 10])
@each("first", [0, (1 << 16) - 1024])
def test_a_voi_table_has_its_range(tmp_path: Path, bits: int, first: int) -> None:
    """Its first value may lie below zero, and be written as if it had no sign."""
    stored, step = (RAMP * 4095).astype(np.uint16), 2 << 12 - bits
    item = Dataset()
    item.add_new((0x0028, 0x3002), "US", [4096, first, bits])
    item.add_new((0x0028, 0x3006), "US", (np.arange(4096) // step).tolist())
    elements = {"RescaleSlope": "1", "RescaleIntercept": "-1024"} if first else {}
    pixels = decode(save(dicom(stored, VOILUTSequence=[item], **elements), tmp_path / "a.dcm"))
    assert np.abs(pixels - (stored // step) * (255 / (2**bits - 1))).max() <= 0.51


@each("orientation", range(1, 10))
@each("suffix", [".jpg", ".png"])
def test_exifs_orientation_is_applied(tmp_path: Path, orientation: int, suffix: str) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    picture = Image.fromarray((RAMP * 255).astype(np.uint8))
    picture.save(tmp_path / f"a{suffix}", exif=exif, quality=95)
    with Image.open(tmp_path / f"a{suffix}") as saved:
        expected = np.asarray(ImageOps.exif_transpose(saved))
    np.testing.assert_array_equal(decode(tmp_path / f"a{suffix}"), expected)


def test_a_picture_decides_on_its_polarity(tmp_path: Path) -> None:
    with Image.open(MEAN_FILM) as mean:
        film = np.asarray(mean.resize((400, 300), Image.Resampling.BICUBIC))
    frame = [(20, 20), (30, 30)]
    for number, shown in enumerate(
        [film, 255 - film, np.pad(255 - film, frame), np.pad(film, frame, constant_values=255)]
    ):
        Image.fromarray(shown).save(tmp_path / f"{number}.png")
        expected = 255 - shown if number in (1, 2) else shown
        for column in (False, True):
            by_picture = Stored(inverted=column, by_picture=True)
            np.testing.assert_array_equal(decode(tmp_path / f"{number}.png", by_picture), expected)
            pixels = decode(tmp_path / f"{number}.png", Stored(inverted=column))
            np.testing.assert_array_equal(pixels, 255 - shown if column else shown)
    noise = np.random.default_rng(0).integers(0, 256, (64, 64)).astype(np.uint8)
    Image.fromarray(noise).save(tmp_path / "noise.png")  # does not tell: the column decides
    for column in (False, True):
        noise_pixels = decode(tmp_path / "noise.png", Stored(inverted=column, by_picture=True))
        np.testing.assert_array_equal(noise_pixels, 255 - noise if column else noise)
    save(dicom((255 - film).astype(np.uint16) * 16, WindowCenter="2040", WindowWidth="4080"), tmp_path / "a.dcm")
    for stored in (Stored(), Stored(inverted=True), Stored(by_picture=True)):
        assert np.abs(decode(tmp_path / "a.dcm", stored).astype(int) - (255 - film)).max() <= 1

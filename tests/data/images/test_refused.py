"""Files that are not one whole gray radiograph are refused with a reason; real files of several kinds are read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pydicom
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from pydicom.data import get_testdata_file
from pydicom.uid import (
    DeflatedExplicitVRLittleEndian,
    JPEG2000Lossless,
    RLELossless,
)

from chestfed.core.errors import ImageError
from chestfed.data.images.decode import decode
from chestfed.data.images.decoding import compressed
from tests.cases import assert_refused, each
from tests.data.images.test_decode import RAMP, dicom, save


def real_file(name: str) -> Path:
    """One of pydicom's own test files."""
    path = get_testdata_file(name, download=False)
    assert isinstance(path, str)
    return Path(path)


@each(
    ("name", "kind"),
    [
        ("rtplan.dcm", "no pixels"),
        ("rtstruct.dcm", "unsupported"),  # its preamble is missing
        ("rtdose.dcm", "several images"),
        ("SC_rgb_rle.dcm", "color"),
        ("examples_palette.dcm", "color"),
        ("MR_truncated.dcm", "other modality"),
        ("no_meta.dcm", "not an image"),
    ],
)
def test_awkward_real_files_are_refused(name: str, kind: str) -> None:
    with assert_refused(ImageError, kind):
        decode(real_file(name))


@each(
    "name",
    [
        "CT_small.dcm",
        "MR_small.dcm",
        "MR_small_RLE.dcm",
        "JPEG2000.dcm",
        "MR_small_jpeg_ls_lossless.dcm",
        "MR_small_jp2klossless.dcm",
    ],
)
def test_real_transfer_syntaxes_are_read(tmp_path: Path, name: str) -> None:
    dataset = pydicom.dcmread(real_file(name))
    dataset.Modality, dataset.BodyPartExamined = "DX", "CHEST"
    dataset.save_as(tmp_path / "a.dcm")
    gray = decode(tmp_path / "a.dcm")
    assert gray.dtype == np.uint8
    assert gray.std() > 5


def test_dicom_without_a_syntax_is_refused(tmp_path: Path) -> None:
    path = save(dicom((RAMP * 4095).astype(np.uint16)), tmp_path / "a.dcm")
    data = pydicom.dcmread(path)
    del data.PixelData
    with assert_refused(ImageError, "damaged") as caught:
        decode(save(data, tmp_path / "b.dcm"))
    assert "Doe" not in str(caught.value)
    assert "4711" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "kind"),
    [(b"", "empty"), (b"hello world" * 50, "not an image"), (b"\x89PNG\r\n\x1a\n" + b"x" * 200, "damaged")],
)
def test_other_files_are_refused(tmp_path: Path, content: bytes, kind: str) -> None:
    (tmp_path / "a.png").write_bytes(content)
    with assert_refused(ImageError, kind):
        decode(tmp_path / "a.png")


def test_a_jpeg_of_12_bits_is_refused(tmp_path: Path) -> None:
    Image.new("L", (32, 32)).save(tmp_path / "a.jpg")
    data = bytearray((tmp_path / "a.jpg").read_bytes())
    data[data.index(b"\xff\xc0") + 4] = 12
    (tmp_path / "a.jpg").write_bytes(data)
    with assert_refused(ImageError, "unsupported"):
        decode(tmp_path / "a.jpg")


def test_a_missing_file_is_not_a_damaged_one(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        decode(tmp_path / "a.png")


def test_a_huge_image_is_refused_unread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Image.fromarray((RAMP * 255).astype(np.uint8)).save(tmp_path / "a.png")
    monkeypatch.setattr(compressed, "MAX_PIXELS", 1000)
    with assert_refused(ImageError, "too large"):
        decode(tmp_path / "a.png")


def a_file(kind: str, folder: Path) -> Path:
    path = folder / kind
    if kind == "dicom":
        packed = dicom((RAMP * 4095).astype(np.uint16))
        packed.compress(RLELossless, encoding_plugin="pylibjpeg")
        return save(packed, path)
    picture = (RAMP * 65535).astype(np.uint16) if kind == "png" else (RAMP * 255).astype(np.uint8)
    Image.fromarray(picture).save(path, "PNG" if kind == "png" else "JPEG")
    return path


@given(st.sampled_from(["png", "jpeg", "dicom"]), st.floats(0, 1), st.integers(0, 255), st.booleans())
def test_altered_files_give_pixels_or_reason(tmp_path: Path, kind: str, where: float, value: int, cut: bool) -> None:
    data = bytearray(a_file(kind, tmp_path).read_bytes())
    place = int(where * (len(data) - 1))
    if cut:
        del data[place:]
    else:
        data[place] = value
    (tmp_path / "bad").write_bytes(bytes(data))
    try:
        gray = decode(tmp_path / "bad")
    except ImageError:
        return
    assert (gray.ndim, gray.dtype) == (2, np.uint8)


def test_a_decoder_panic_is_a_damaged_file(tmp_path: Path) -> None:
    """The RLE plugin panics, past `Exception`, when a segment's offset is wrong."""
    data = bytearray(a_file("dicom", tmp_path).read_bytes())
    data[data.index(b"\x02\x00\x00\x00\x40\x00\x00\x00") + 8] = 0xFF
    (tmp_path / "bad").write_bytes(bytes(data))
    with assert_refused(ImageError, "damaged"):
        decode(tmp_path / "bad")


@each("kind", ["png", "jpeg", "dicom"])
@each("share", [0.3, 0.6, 0.9])
def test_a_truncated_file_is_refused(tmp_path: Path, kind: str, share: float) -> None:
    data = a_file(kind, tmp_path).read_bytes()
    (tmp_path / "bad").write_bytes(data[: int(share * len(data))])
    with pytest.raises(ImageError):
        decode(tmp_path / "bad")


@each("syntax", [None, RLELossless, JPEG2000Lossless, DeflatedExplicitVRLittleEndian])
def test_a_dicom_file_cut_short_is_refused(tmp_path: Path, syntax: str | None) -> None:
    noise = np.random.default_rng(1).integers(0, 4095, RAMP.shape).astype(np.uint16)
    dataset = dicom(noise)
    if syntax == DeflatedExplicitVRLittleEndian:
        dataset.file_meta.TransferSyntaxUID = syntax
    elif syntax is not None:
        dataset.compress(syntax, encoding_plugin="pylibjpeg")
    data = save(dataset, tmp_path / "whole").read_bytes()
    (tmp_path / "cut").write_bytes(data[: len(data) * 2 // 3])
    with assert_refused(ImageError, "damaged"):
        decode(tmp_path / "cut")


def test_dicom_of_float_pixels_is_refused(tmp_path: Path) -> None:
    wide = dicom(
        np.zeros((64, 48), np.uint16), BitsAllocated=32, BitsStored=32, HighBit=31, PixelData=bytes(64 * 48 * 4)
    )
    with assert_refused(ImageError, "unsupported"):
        decode(save(wide, tmp_path / "a.dcm"))


@each("kind", ["APNG", "MPO", "GIF", "TIFF", "WebP"])
def test_several_pictures_are_refused(tmp_path: Path, kind: str) -> None:
    pictures = [Image.fromarray((RAMP * level).astype(np.uint8)) for level in (200, 250)]
    saved = "PNG" if kind == "APNG" else kind
    pictures[0].save(tmp_path / "a.png", saved, save_all=True, append_images=pictures[1:])
    with assert_refused(ImageError, "several images" if kind in ("APNG", "MPO") else "not an image"):
        decode(tmp_path / "a.png")

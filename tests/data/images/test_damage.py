"""A damaged picture is refused; no other picture is read in its place."""

from __future__ import annotations

import io
import random
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
import pytest
from PIL import Image
from pydicom.encaps import encapsulate
from pydicom.uid import JPEGBaseline8Bit

from chestfed.core.errors import ImageError
from chestfed.data.collections.pixels import FilePixels
from chestfed.data.images.decode import decode, decode_stored
from tests.cases import assert_refused, each
from tests.data.images.test_decode import dicom, save

FLIPS = 150


def film(kind: str) -> bytes:
    """A small file with the smooth shades of a film."""
    rows, columns = np.mgrid[0:48, 0:40] / 48
    gray = (rows + columns + 0.3 * np.sin(9 * rows * columns)) / 2.3
    values = (gray * 65_535).astype(np.uint16) if "16" in kind else (gray * 255).astype(np.uint8)
    if "RGB" in kind:
        values = np.stack([values] * 3, axis=-1)
    if kind == "interlaced":
        return interlaced(values)
    if "PNG" in kind:  # OpenCV writes 16 bits per color
        return cv2.imencode(".png", values)[1].tobytes()
    out = io.BytesIO()
    Image.fromarray(values).save(out, "JPEG", quality=90, progressive="progressive" in kind)
    return out.getvalue()


def interlaced(gray: np.ndarray) -> bytes:
    """An Adam7 PNG, which none of the libraries writes."""
    passes = [(0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1)]
    parts = [gray[top::down, left::right] for top, left, down, right in passes]
    data = b"".join(b"\0" + row.tobytes() for part in parts for row in part)
    header = struct.pack(">2I5B", gray.shape[1], gray.shape[0], 8, 0, 0, 0, 1)
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(data)), (b"IEND", b"")]
    framed = (
        struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
        for kind, content in chunks
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(framed)


def read_in_collection(path: Path) -> np.ndarray:
    return FilePixels(path.parent, (path.name,)).read(0)


@each("read", [decode, read_in_collection])
@each("kind", ["PNG", "16-bit PNG", "RGB PNG", "16-bit RGB PNG", "interlaced"])
def test_a_flipped_bit_of_a_png_is_refused(tmp_path: Path, kind: str, read: Callable[[Path], np.ndarray]) -> None:
    data, draw = film(kind), random.Random(1)
    (tmp_path / "whole").write_bytes(data)
    whole = read(tmp_path / "whole")
    for _ in range(FLIPS):
        place = draw.randrange(8 * len(data))
        flipped = bytearray(data)
        flipped[place // 8] ^= 1 << place % 8
        (tmp_path / "bad").write_bytes(flipped)
        try:
            pixels = read(tmp_path / "bad")
        except ImageError:
            continue
        np.testing.assert_array_equal(pixels, whole, err_msg=f"bit {place}")


def test_a_png_without_its_end_is_refused(tmp_path: Path) -> None:
    data = film("PNG")
    for cut in range(1, 30):
        (tmp_path / "bad").write_bytes(data[:-cut])
        with assert_refused(ImageError, "damaged"):
            decode(tmp_path / "bad")


@each("kind", ["JPEG", "progressive JPEG"])
@each("least", [None, 16])
def test_a_jpeg_reporting_damage_is_refused(tmp_path: Path, kind: str, least: int | None) -> None:
    data = film(kind)
    half = len(data) * 2 // 3
    for name, bad in {
        "ends early": data[:half] + b"\xff\xd9",
        "lost bytes": data[:half] + bytes(40) + data[half + 40 :],
        "without an end": data[:-2],
    }.items():
        (tmp_path / name).write_bytes(bad)
        with assert_refused(ImageError, "damaged"):
            decode_stored(tmp_path / name, least=least)


def test_a_damaged_jpeg_in_dicom_is_refused(tmp_path: Path) -> None:
    data = film("JPEG")
    for stream in (data, data[: len(data) * 2 // 3] + b"\xff\xd9"):
        dataset = dicom(np.zeros((48, 40)), BitsAllocated=8, BitsStored=8, HighBit=7, PixelData=encapsulate([stream]))
        dataset.file_meta.TransferSyntaxUID = JPEGBaseline8Bit
        save(dataset, tmp_path / str(len(stream)))
    assert decode(tmp_path / str(len(data))).shape == (48, 40)
    with assert_refused(ImageError, "damaged"):
        decode(tmp_path / str(len(stream)))


@each("options", [{}, {"progressive": True}, {"subsampling": 0}, {"keep_rgb": True}, {"restart_marker_rows": 1}])
@each("least", [None, 200, 100, 50, 25])
@each("colored", [False, True])
def test_a_jpeg_has_pillows_pixels(tmp_path: Path, options: dict[str, bool], least: int | None, colored: bool) -> None:
    gray = np.asarray(Image.open(io.BytesIO(film("PNG"))).resize((239, 217)))
    values = np.dstack([gray, 255 - gray, gray // 2]) if colored else gray
    Image.fromarray(values).save(tmp_path / "a.jpg", **options)
    with Image.open(tmp_path / "a.jpg") as image:
        drafted = image.draft("L", image.size if least is None else (least, least))
        assert drafted is not None
        result = decode_stored(tmp_path / "a.jpg", least=least)
        np.testing.assert_array_equal(result.gray, np.asarray(image.convert("L")))
        assert result.extent == pytest.approx(drafted[1][:1:-1])


@each("orientation", range(1, 9))
def test_a_jpeg_is_turned_as_its_exif_says(tmp_path: Path, orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    with Image.open(io.BytesIO(film("PNG"))) as image:
        image.save(tmp_path / "a.png", exif=exif)
        image.save(tmp_path / "a.jpg", exif=exif, quality=100)
    apart = decode(tmp_path / "a.jpg").astype(int) - decode(tmp_path / "a.png")
    assert np.abs(apart).max() <= 2

"""Images in memory and images decoded from files."""

from __future__ import annotations

import errno
import io
import struct
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps

from chestfed.core.errors import ImageError
from chestfed.public_datasets import collection as pixels
from chestfed.public_datasets.collection import ArrayPixels, FilePixels
from tests.public_datasets.pictures import distinct, quarters, save_jpeg


def test_an_array_gives_gray_and_color_images_as_they_are() -> None:
    color = np.stack([distinct(number, 4, 6) for number in range(3)])
    assert len(ArrayPixels(color)) == 3
    np.testing.assert_array_equal(ArrayPixels(color).read(2), distinct(2, 4, 6))
    np.testing.assert_array_equal(ArrayPixels(color[..., 0]).read(1), distinct(1, 4, 6)[..., 0])


def test_changing_an_image_that_was_read_leaves_the_collection_alone() -> None:
    stored = ArrayPixels(np.zeros((1, 2, 2), np.uint8))
    stored.read(0)[:] = 9
    assert stored.read(0).max() == 0


def test_a_view_of_other_strides_is_read_as_a_contiguous_image() -> None:
    image = ArrayPixels(np.zeros((1, 3, 4, 6), np.uint8).transpose(0, 2, 3, 1)).read(0)
    assert image.shape == (4, 6, 3)
    assert image.flags.c_contiguous


@pytest.mark.parametrize("images", [np.zeros((2, 4, 4), np.float32), np.zeros((2, 4, 4, 4), np.uint8), np.zeros(3)])
def test_arrays_of_another_kind_are_refused(images: np.ndarray) -> None:
    with pytest.raises(ValueError, match="expected uint8"):
        ArrayPixels(images)


def test_a_png_file_is_read_exactly(tmp_path: Path) -> None:
    Image.fromarray(distinct(3, 5, 9)).save(tmp_path / "a.png")
    np.testing.assert_array_equal(FilePixels(tmp_path, ["a.png"]).read(0), distinct(3, 5, 9))


def test_a_jpeg_file_keeps_orientation_and_order_of_the_colors(tmp_path: Path) -> None:
    save_jpeg(tmp_path / "a.jpg", quarters())
    image = FilePixels(tmp_path, ["a.jpg"]).read(0)
    assert image.shape == (32, 48, 3)
    assert image.dtype == np.uint8
    assert image.flags.writeable
    assert np.abs(image.astype(int) - quarters()).max() <= 3


def test_gray_palette_and_cmyk_files_are_read_as_rgb(tmp_path: Path) -> None:
    picture = Image.fromarray(quarters())
    picture.convert("L").save(tmp_path / "gray.jpg")
    picture.convert("P").save(tmp_path / "palette.png")
    picture.convert("CMYK").save(tmp_path / "cmyk.jpg", quality=100)
    stored = FilePixels(tmp_path, ["gray.jpg", "palette.png", "cmyk.jpg"])
    assert [stored.read(row).shape for row in range(3)] == [(32, 48, 3)] * 3
    assert np.abs(stored.read(1)[0, 0].astype(int) - [255, 0, 0]).max() <= 60
    assert np.abs(stored.read(2)[0, 0].astype(int) - [255, 0, 0]).max() <= 10


def test_the_exif_orientation_turns_the_image(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned clockwise by a quarter
    save_jpeg(tmp_path / "a.jpg", quarters(), exif=exif.tobytes())
    image = FilePixels(tmp_path, ["a.jpg"]).read(0)
    assert np.abs(image.astype(int) - np.rot90(quarters(), -1)).max() <= 3


def test_damaged_exif_data_does_not_lose_the_image(tmp_path: Path) -> None:
    save_jpeg(tmp_path / "a.jpg", quarters(), exif=b"Exif\0\0II*\0\xff\xff\xff\xff")
    assert FilePixels(tmp_path, ["a.jpg"]).read(0).shape == (32, 48, 3)


def test_exif_data_that_cannot_be_read_says_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(image: Image.Image) -> None:
        raise struct.error("unpack requires a buffer of 4 bytes")

    save_jpeg(tmp_path / "a.jpg", quarters())
    monkeypatch.setattr(ImageOps, "exif_transpose", fail)
    assert FilePixels(tmp_path, ["a.jpg"]).read(0).shape == (32, 48, 3)


def damaged_files() -> dict[str, bytes]:
    """Contents that cannot be decoded."""
    buffer = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (64, 64, 3), dtype=np.uint8)).save(buffer, "JPEG")
    whole = buffer.getvalue()
    return {"empty": b"", "cut off": whole[: len(whole) // 2], "header only": whole[:20], "text": b"not an image"}


@pytest.mark.parametrize("kind", list(damaged_files()))
def test_a_damaged_file_is_an_image_error_that_names_the_file(tmp_path: Path, kind: str) -> None:
    (tmp_path / "n01").mkdir()
    (tmp_path / "n01" / "a.jpg").write_bytes(damaged_files()[kind])
    with pytest.raises(ImageError, match=r"^n01/a\.jpg: damaged, cut off or not an image"):
        FilePixels(tmp_path, ["n01/a.jpg"]).read(0)


def test_a_missing_file_is_an_image_error(tmp_path: Path) -> None:
    with pytest.raises(ImageError, match=r"^a\.jpg: no such file$"):
        FilePixels(tmp_path, ["a.jpg"]).read(0)


def test_a_folder_in_place_of_a_file_is_an_image_error(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").mkdir()
    with pytest.raises(ImageError, match=r"^a\.jpg: "):
        FilePixels(tmp_path, ["a.jpg"]).read(0)


@pytest.mark.parametrize("error", [OSError(errno.EIO, "Input/output error"), MemoryError()])
def test_a_failing_disk_and_a_lack_of_memory_say_nothing_of_an_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def failing(*_: object, **__: object) -> None:
        raise error

    (tmp_path / "a.jpg").write_bytes(b"")
    monkeypatch.setattr("PIL.Image.open", failing)
    with pytest.raises(type(error)):
        FilePixels(tmp_path, ["a.jpg"]).read(0)


def test_an_image_of_too_many_pixels_is_refused_before_it_is_decoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_jpeg(tmp_path / "a.jpg", quarters())
    monkeypatch.setattr(pixels, "MAX_PIXELS", 32 * 48 - 1)
    with pytest.raises(ImageError, match=r"a\.jpg: 48x32 pixels: more than 1,535"):
        FilePixels(tmp_path, ["a.jpg"]).read(0)


def test_a_decompression_bomb_is_an_image_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_jpeg(tmp_path / "a.jpg", quarters())
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    with pytest.raises(ImageError, match=r"a\.jpg: .*DecompressionBombError"):
        FilePixels(tmp_path, ["a.jpg"]).read(0)

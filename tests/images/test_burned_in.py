"""The look for burned-in letters: words, markers, and what is neither."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont
from pydicom.uid import DeflatedExplicitVRLittleEndian

from chestfed.core.errors import ImageError
from chestfed.images.burned_in import Box, burned_in, declared
from tests.cases import each
from tests.images.test_decode import RAMP, dicom, save
from tests.inspection.planted import deflated_bomb

SIDE = 600


def chest(seed: int = 0) -> np.ndarray:
    """Soft shadows, ribs, a cable and some noise: nothing that is a letter."""
    rng = np.random.default_rng(seed)
    gray = cv2.resize(rng.random((6, 6), dtype=np.float32) * 120 + 40, (SIDE, SIDE), interpolation=cv2.INTER_CUBIC)
    for rib in range(8):
        middle = (SIDE // 2, 60 + 55 * rib)
        cv2.ellipse(gray, middle, (220, 60), 0, 200, 340, float(140 + rng.integers(40)), 12, cv2.LINE_AA)
    cv2.ellipse(gray, (250, 300), (160, 220), 20, 0, 200, 230.0, 3, cv2.LINE_AA)
    noisy = cv2.GaussianBlur(gray, (0, 0), 1.2) + rng.normal(0, 3, gray.shape)
    return np.clip(noisy, 0, 255).astype(np.uint8)


def written(picture: np.ndarray, words: str, at: tuple[int, int], size: int, gray: int = 255) -> np.ndarray:
    image = Image.fromarray(picture)
    ImageDraw.Draw(image).text(at, words, fill=gray, font=ImageFont.load_default(size=size))
    return np.asarray(image)


@each("seed", range(4))
def test_ribs_and_a_cable_are_no_text(seed: int) -> None:
    found = burned_in(chest(seed))
    assert found.kind != "text"
    assert found.score < 3


@each("size", [14, 22, 40])
@each("gray", [255, 0])
def test_a_name_is_text_and_its_place_is_told(size: int, gray: int) -> None:
    found = burned_in(written(chest(), "DOE JANE 4711", (40, 520), size, gray))
    assert found.kind == "text"
    assert found.score >= 4
    assert any(abs(box.top - 520) < size and 30 <= box.left < 40 + 8 * size for box in found.boxes)


def test_text_that_runs_upwards_is_seen_too() -> None:
    turned = np.ascontiguousarray(written(chest(), "DOE JANE 4711", (40, 520), 22).T[::-1])
    found = burned_in(turned)
    assert found.kind == "text"
    assert all(box.height > box.width for box in found.boxes)


def test_letters_are_found_in_large_pictures_where_they_are_in_small_ones() -> None:
    small = written(chest(), "DOE JANE 4711", (40, 520), 22)
    large = cv2.resize(small, (3 * SIDE, 3 * SIDE), interpolation=cv2.INTER_CUBIC)
    found = burned_in(large)
    assert found.kind == "text"
    assert any(abs(box.top - 3 * 525) < 60 for box in found.boxes)


def test_a_single_letter_near_the_border_is_a_marker() -> None:
    shadow = np.tile(np.linspace(20, 120, SIDE).astype(np.uint8), (SIDE, 1))
    assert burned_in(shadow).kind == "none"
    found = burned_in(written(shadow, "L", (540, 40), 44))
    assert found.kind == "marker"
    assert found.boxes[0].left == pytest.approx(545, abs=12)
    assert burned_in(written(shadow, "L", (290, 290), 44)).kind == "none"


@pytest.mark.parametrize("shape", [(16, 16), (20, 900), (3, 5)])
def test_pictures_of_any_shape_can_be_looked_at(shape: tuple[int, int]) -> None:
    assert burned_in(np.zeros(shape, np.uint8)).kind == "none"
    noise = np.random.default_rng(1).integers(0, 255, shape, dtype=np.uint8)
    assert burned_in(noise).kind in ("none", "marker", "text")


def test_what_is_no_gray_picture_is_refused() -> None:
    for wrong in (np.zeros((4, 4, 3), np.uint8), np.zeros((4, 4), np.float32)):
        with pytest.raises(ValueError, match="uint8"):
            burned_in(wrong)


@each(("word", "meaning"), [("YES", True), ("NO", False), ("", None), (None, None)])
def test_the_senders_word_and_overlays_are_told(tmp_path: Path, word: str | None, meaning: bool | None) -> None:
    elements = {} if word is None else {"BurnedInAnnotation": word}
    source = dicom((RAMP * 4095).astype(np.uint16), **elements)
    for group in (0x6000, 0x6004):
        source.add_new((group, 0x0010), "US", 64)
        source.add_new((group, 0x0022), "LO", "Doe^Jane")
    assert declared(save(source, tmp_path / "a.dcm")) == (meaning, 2)


def test_other_files_declare_nothing_and_damaged_ones_are_refused_without_their_words(tmp_path: Path) -> None:
    Image.fromarray(chest()).save(tmp_path / "a.png")
    assert declared(tmp_path / "a.png") is None
    source = dicom((RAMP * 4095).astype(np.uint16))
    source.file_meta.TransferSyntaxUID = DeflatedExplicitVRLittleEndian
    content = save(source, tmp_path / "b.dcm").read_bytes()
    (tmp_path / "b.dcm").write_bytes(content[:-300] + b"Doe^Jane" * 20)
    with pytest.raises(ImageError, match=r"^damaged or unsupported DICOM file: [a-z ,:]+ \([\w.]+\)$"):
        declared(tmp_path / "b.dcm")


def test_boxes_turn_by_swapping_rows_and_columns() -> None:
    assert Box(1, 2, 3, 4).turned() == Box(2, 1, 4, 3)


def test_a_deflated_header_that_is_a_bomb_is_refused_unread(tmp_path: Path) -> None:
    deflated_bomb(tmp_path / "a.dcm")
    with pytest.raises(ImageError, match="refused without"):
        declared(tmp_path / "a.dcm")

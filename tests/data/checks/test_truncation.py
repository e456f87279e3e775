"""A file that is cut at any place is unreadable, or still gives every pixel."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from pydicom.uid import DeflatedExplicitVRLittleEndian

from chestfed.data.checks.facts import ImageFacts, look_at
from chestfed.data.images.levels import Stored
from tests.cases import each
from tests.data.checks.planted import SYNTAXES, compressed, dicom, picture, save

KINDS = ("PNG", "16-bit PNG", "JPEG", "progressive JPEG", "DICOM", "deflated DICOM", *SYNTAXES)


def whole(kind: str, path: Path) -> Path:
    pixels = picture(1)
    if kind == "16-bit PNG":
        Image.fromarray(pixels.astype(np.uint16) * 257).save(path, "PNG")
    elif kind.endswith("PNG"):
        Image.fromarray(pixels).save(path, "PNG")
    elif kind.endswith("JPEG"):
        Image.fromarray(pixels).save(path, "JPEG", progressive=kind.startswith("progressive"))
    elif kind in SYNTAXES:
        save(compressed(SYNTAXES[kind], pixels), path)
    else:
        dataset = dicom(pixels)
        if kind.startswith("deflated"):
            dataset.file_meta.TransferSyntaxUID = DeflatedExplicitVRLittleEndian
        save(dataset, path)
    return path


@pytest.mark.slow
@each("kind", KINDS)
@given(where=st.floats(0, 1, exclude_max=True))
def test_cut_file_is_refused_or_the_same(tmp_path: Path, kind: str, where: float) -> None:
    """Cut in the padding of a DICOM file, a file loses no pixel and counts as fine."""
    data = whole(kind, tmp_path / "whole").read_bytes()
    reference = look_at(tmp_path / "whole", Stored())
    assert reference.error == ""
    (tmp_path / "cut").write_bytes(data[: int(where * len(data))])
    facts = look_at(tmp_path / "cut", Stored())
    assert facts.error or facts.digest == reference.digest


@pytest.mark.slow
@each("kind", KINDS)
def test_every_early_cut_is_found(tmp_path: Path, kind: str) -> None:
    data = whole(kind, tmp_path / "whole").read_bytes()
    for length in range(len(data) - 40, 0, -max(1, len(data) // 60)):
        (tmp_path / "cut").write_bytes(data[:length])
        assert look_at(tmp_path / "cut", Stored()).error, length


@given(kind=st.sampled_from(KINDS), where=st.floats(0, 1, exclude_max=True), value=st.integers(0, 255))
def test_altered_byte_never_stops_check(tmp_path: Path, kind: str, where: float, value: int) -> None:
    data = bytearray(whole(kind, tmp_path / "whole").read_bytes())
    data[int(where * len(data))] = value
    (tmp_path / "bad").write_bytes(bytes(data))
    assert isinstance(look_at(tmp_path / "bad", Stored()), ImageFacts)

"""What is told of one image file."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydicom.uid import DeflatedExplicitVRLittleEndian

from chestfed.data.checks import facts
from chestfed.data.checks.facts import look_at
from chestfed.data.images.levels import Stored
from tests.data.checks.planted import deflated_bomb, dicom, picture, save


def test_deflated_file_is_described(tmp_path: Path) -> None:
    plain, packed = dicom(picture(0)), dicom(picture(0))
    packed.file_meta.TransferSyntaxUID = DeflatedExplicitVRLittleEndian
    save(plain, tmp_path / "plain")
    save(packed, tmp_path / "packed")
    first, second = (look_at(tmp_path / name, Stored()) for name in ("plain", "packed"))
    assert second.bits > 0
    for name in ("bits", "mode", "width", "height", "digest"):
        assert getattr(first, name) == getattr(second, name)


@pytest.mark.slow
def test_bad_deflated_header_is_not_inflated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deflated_bomb(tmp_path / "bomb")
    monkeypatch.setattr(facts.dicom_tags, "read", lambda *_: pytest.fail("it was inflated"))
    header = look_at(tmp_path / "bomb", Stored())
    assert "refused without" in header.error
    assert header.syntax == "Deflated Explicit VR Little Endian"

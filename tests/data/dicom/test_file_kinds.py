"""What a file beside the images is said to be."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chestfed.data.dicom.file_kinds import DICOM, PICTURE, UNKNOWN, detect_kind, format_kinds, mark_strangers
from tests.data.sites.own_tables import save_dicom

CONTENTS = {
    "report": (b"%PDF-1.4\n%junk", "PDF"),
    "export.xlsx": (b"PK\x03\x04rest", "archive or Office file"),
    "Thumbs.db": (b"\xd0\xcf\x11\xe0", "old Office file or Thumbs.db"),
    "README": (b"", "text"),
    "AUTORUN.INF": (b"", "text"),
    "LIESMICH": ("Größe\r\n".encode("latin-1"), "text"),
    "LISEZMOI": ("Müller".encode("utf-16"), "text"),
    "viewer.exe": (b"MZ\0\0", "program or part of one"),
    "a/.DS_Store": (b"\0\0\0\1Bud1", "hidden file"),
    "._IM0001.dcm": (b"\0\5\26\7", "hidden file"),
    ".trash/1.dcm": (b"", "hidden file"),
    "logo.gif": (b"GIF89a", "picture of another format"),
    "film": (b"\x89PNG\r\n\x1a\n", PICTURE),
    "film.png": (b"", PICTURE),
    "empty": (b"", UNKNOWN),
    "empty.dcm": (b"", UNKNOWN),
    "page.dcm": (b"<html>not found</html>", UNKNOWN),
    "1.2.840.10008.5": (bytes(200), UNKNOWN),
}


@pytest.mark.parametrize("name", CONTENTS)
def test_a_kind_is_in_the_bytes_and_the_name(tmp_path: Path, name: str) -> None:
    content, kind = CONTENTS[name]
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_bytes(content)
    assert detect_kind(tmp_path, name) == kind


STORAGE = "1.2.840.10008.5.1.4.1.1"


@pytest.mark.parametrize(
    ("uid", "kind"),
    [
        ("1.2.840.10008.1.3.10", "DICOMDIR"),
        (f"{STORAGE}.88.11", "structured report"),
        (f"{STORAGE}.88.59", "key object selection"),
        (f"{STORAGE}.88.67", "dose report"),
        (f"{STORAGE}.11.1", "presentation state"),
        (f"{STORAGE}.104.1", "document in DICOM"),
        (f"{STORAGE}.9.1.1", "waveform"),
        (f"{STORAGE}.66", "raw data, registration or segmentation"),
        (f"{STORAGE}.481.3", "radiotherapy object"),
        (f"{STORAGE}.1", DICOM),
        (f"{STORAGE}.1.1", DICOM),
        (f"{STORAGE}.7", DICOM),
        (f"{STORAGE}.12.1", DICOM),
    ],
)
def test_objects_without_pixels_by_class(tmp_path: Path, uid: str, kind: str) -> None:
    save_dicom(tmp_path / "IM0", SOPClassUID=uid)
    assert detect_kind(tmp_path, "IM0") == kind


@pytest.mark.skipif(os.name != "posix", reason="other systems have no pipes among files")
def test_pipes_and_broken_links_do_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "IM0")
    (tmp_path / "IM1").symlink_to(tmp_path / "nowhere")
    assert {detect_kind(tmp_path, name) for name in ("IM0", "IM1")} == {"broken link, pipe or device"}


@given(content=st.binary(max_size=300))
def test_zeros_before_a_film_are_not_text(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    folder = tmp_path_factory.mktemp("films")
    (folder / "IM0").write_bytes(bytes(8) + content)
    assert detect_kind(folder, "IM0") == UNKNOWN


def test_an_unusual_ending_is_not_an_image() -> None:
    names = ["1.img", "2.img", "3.cache", "4", "5.dcm"]
    kinds = [DICOM, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN]
    result = mark_strangers(names, kinds)
    assert result == [DICOM, UNKNOWN, "file of an unusual ending", UNKNOWN, UNKNOWN]
    assert format_kinds(["text", "PDF", "text"]) == "text 2, PDF 1"

"""Folders as picture archives and systems leave them: films beside all kinds of other files."""

from __future__ import annotations

from pathlib import Path

import pytest

from chestfed.core.errors import ConfigError, SiteError
from chestfed.inspection import check_site
from chestfed.sites import load_site_config
from tests.new_site.hospitals import bring, chestfed, draft, everything_said, keys, opened, rows
from tests.sites.own_tables import save_dicom
from tests.sites.small_sites import column

ASIDE = "DICOMDIR 1, PDF 1, dose report 1, hidden file 1, old Office file or Thumbs.db 1, text 1"


def export(folder: Path, number: int = 6) -> None:
    """Films without an ending, as a CD holds them."""
    for n in range(number):
        path = folder / f"images/PAT{n // 2}/IM{n}"
        finding = ("Edema\\Effusion", "Normal", "possible atelectasis")[n % 3]
        save_dicom(path, PatientID=f"Zappa{n // 2}", StudyDescription=finding, ViewPosition="PA")


def litter(folder: Path) -> None:
    """What lies beside them."""
    images = folder / "images"
    save_dicom(images / "DICOMDIR", SOPClassUID="1.2.840.10008.1.3.10", PatientID="", StudyDescription="")
    save_dicom(images / "PAT0/SR0", SOPClassUID="1.2.840.10008.5.1.4.1.1.88.67", StudyDescription="Dose")
    (images / "LIESMICH").write_bytes(b"%PDF-1.4")
    (images / "PAT0/._IM0").write_bytes(b"\0\5\26\7")
    (images / "PAT1/Thumbs.db").write_bytes(b"\xd0\xcf\x11\xe0")
    (images / "AUTORUN.INF").write_text("[autorun]")


def test_other_files_beside_films_without_an_ending_are_set_aside_and_counted(tmp_path: Path) -> None:
    export(tmp_path)
    litter(tmp_path)
    made = draft(tmp_path, None)
    assert f"files that are not images are skipped: {ASIDE}" in made.notes
    table = opened(tmp_path, made)
    assert column(table, "image") == [f"PAT{n // 2}/IM{n}" for n in range(6)]
    report = check_site(load_site_config(tmp_path / "st-anne.yaml"), tmp_path, images=False)
    (told,) = [problem for problem in report.warnings if problem.kind == "files that are not images"]
    assert told.message == f"6 files are not DICOM images and are skipped: {ASIDE}"
    assert report.passed


def test_other_files_beside_the_images_of_a_table_are_not_counted_as_images(tmp_path: Path) -> None:
    export(tmp_path, 12)
    litter(tmp_path)
    table = [{**row, "File": f"IM{n}"} for n, row in enumerate(rows())]
    bring(tmp_path, table, [])
    made = draft(tmp_path)
    assert "12 images in images (12 without extension), 12 rows" in made.text
    assert not [note for note in made.notes if "not named by any row" in note]
    assert f"files that are not images are skipped: {ASIDE}" in made.notes


def test_pictures_without_a_header_beside_films_are_left_out_and_said(tmp_path: Path) -> None:
    export(tmp_path)
    (tmp_path / "images/viewer.png").touch()
    made = draft(tmp_path, None)
    assert "1 PNG or JPEG files have no header, and are left out" in made.notes
    assert len(opened(tmp_path, made).frame) == 6


def test_a_folder_of_other_files_alone_says_what_is_in_it(tmp_path: Path) -> None:
    (tmp_path / "images/PAT1").mkdir(parents=True)
    litter(tmp_path)
    with pytest.raises(ConfigError, match="no PNG, JPEG or DICOM file in this folder or below it; found: DICOMDIR 1, "):
        draft(tmp_path, None)


@pytest.mark.parametrize("content", [b"", bytes(300)])
def test_what_may_be_a_damaged_film_stops_and_only_the_check_names_it(tmp_path: Path, content: bytes) -> None:
    export(tmp_path)
    (tmp_path / "images/Moon Unit").mkdir()
    (tmp_path / "images/Moon Unit/IM9").write_bytes(content)
    made = draft(tmp_path, None)
    assert any("1 DICOM files cannot be read" in note for note in made.notes)
    with pytest.raises(SiteError, match=r"DICOM files:1: is.*\n.*`chestfed site check` names it") as caught:
        opened(tmp_path, made)
    report = check_site(load_site_config(tmp_path / "st-anne.yaml"), tmp_path, images=False)
    (told,) = report.errors
    assert told.message.startswith("Moon Unit/IM9: is ")
    assert len(report.looked.survey.table.frame) == 6
    assert "Moon" not in everything_said(made) + str(caught.value)


def test_the_next_commands_can_be_pasted_whatever_the_folder_is_called(tmp_path: Path) -> None:
    export(tmp_path)
    out = tmp_path / "my sites"
    place = ["--images", tmp_path / "images", "--data", tmp_path, "--out", out]
    said = chestfed("site", "new", "st-anne", "--yes", *place)
    assert f"chestfed site check '{out}/st-anne.yaml' --data {tmp_path}\n" in said
    assert f"chestfed study --add-site '{out}/st-anne.yaml' --data {tmp_path}\n" in said
    assert keys(draft(tmp_path, None))["label_files"] == {"images": ["**/*"]}

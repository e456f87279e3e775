"""Tables that name images by their headers, as exports of information systems do: what is made of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from chestfed.core.errors import ConfigError, SiteError
from tests.new_site.hospitals import LABELS, bring, chestfed, draft, everything_said, keys, opened
from tests.sites.own_tables import save_dicom
from tests.sites.small_sites import column

PLACES = range(12)


def films(folder: Path) -> None:
    """Two images, frontal and lateral, of each of six studies; two studies of each patient."""
    for n in PLACES:
        study = n // 2
        told = {"AccessionNumber": f"{study:07d}", "StudyInstanceUID": f"1.9.{study}", "SOPInstanceUID": f"1.2.{n}"}
        view, patient = ("LL" if n % 2 else "PA"), f"Zappa{study // 2}"
        save_dicom(folder / f"images/{patient}/IM{n}", ViewPosition=view, PatientID=patient, PatientSex="F", **told)


def table(name: str, cells: list[str], **more: Any) -> list[dict[str, object]]:
    return [
        {name: cell, **more, **{label: (n + place) % 2 for place, label in enumerate(LABELS)}}
        for n, cell in enumerate(cells)
    ]


def test_a_table_by_accession_number_gives_its_labels_to_all_images_of_the_study(tmp_path: Path) -> None:
    films(tmp_path)
    bring(tmp_path, table("Order", [f"{n:07d}" for n in range(6)]), [])
    made = draft(tmp_path)
    site = keys(made)["table"]
    told = {"patient": "PatientID", "study": "StudyInstanceUID", "view": "ViewPosition", "sex": "PatientSex"}
    assert site["columns"] == {"image": "Order", **told}
    assert site["images"]["header"] == "AccessionNumber"
    assert sorted(site["images"]["elements"]) == sorted(told.values())
    assert "up to 2 images have the same 'Order' and share its row" in made.notes
    found = opened(tmp_path, made)
    assert column(found, "image") == [f"images/Zappa{n // 4}/IM{n}" for n in PLACES if n % 2 == 0]
    assert column(found, "cardiomegaly") == [0, 1, 0, 1, 0, 1]
    assert "Zappa" not in everything_said(made)


@pytest.mark.parametrize(
    ("element", "cells"),
    [
        ("SOPInstanceUID", [f"1.2.{n}" for n in PLACES]),
        ("StudyInstanceUID", [f"1.9.{n}" for n in range(6)]),
    ],
)
def test_uids_are_found_whatever_their_column_is_called(tmp_path: Path, element: str, cells: list[str]) -> None:
    films(tmp_path)
    bring(tmp_path, table("Key", cells), [])
    made = draft(tmp_path)
    assert keys(made)["table"]["images"]["header"] == element
    assert len(opened(tmp_path, made).frame) == 6


def test_the_narrowest_element_that_fits_is_taken_and_columns_of_the_table_win_over_headers(tmp_path: Path) -> None:
    films(tmp_path)
    rows = table("Film", [f"1.2.{n}" for n in PLACES])
    rows = [
        {"StudyInstanceUID": f"1.9.{n // 2}", "Patient": f"p{n // 4}", "Projection": "AP", **row}
        for n, row in enumerate(rows)
    ]
    bring(tmp_path, rows, [])
    site = keys(draft(tmp_path))["table"]
    assert (site["images"]["header"], site["columns"]["image"]) == ("SOPInstanceUID", "Film")
    assert (site["columns"]["patient"], site["columns"]["view"]) == ("Patient", "Projection")
    assert site["images"]["elements"] == ["PatientSex"]


def test_rows_without_an_image_are_counted_and_the_yaml_key_is_named(tmp_path: Path) -> None:
    films(tmp_path)
    bring(tmp_path, table("Film", [*(f"1.2.{n}" for n in PLACES), "1.2.99"]), [])
    made = draft(tmp_path)
    assert any(note.startswith("1 rows are in no header") and "unmatched: drop" in note for note in made.notes)


def test_a_table_whose_cells_are_in_no_header_is_refused(tmp_path: Path) -> None:
    films(tmp_path)
    bring(tmp_path, table("Film", [f"x{n}" for n in PLACES]), [])
    with pytest.raises(
        ConfigError, match=r"no column has cells that name the 12 images.* Nor are its cells the SOPInst"
    ):
        draft(tmp_path)


def test_cells_of_which_too_few_are_in_headers_are_a_question(tmp_path: Path) -> None:
    films(tmp_path)
    bring(tmp_path, table("Film", [f"1.2.{n}" for n in range(24)]), [])
    with pytest.raises(ConfigError, match=r"too few cells are found in the headers of the images: Film \(50%\)"):
        draft(tmp_path)
    assert keys(draft(tmp_path, columns={"image": "Film"}))["table"]["images"]["header"] == "SOPInstanceUID"


def numbered(folder: Path, columns: dict[str, list[object]], numbers: list[str]) -> None:
    """An image of each accession number, its place as PatientID; a table with these columns, a row for each image."""
    for n, number in enumerate(numbers):
        uids = {"StudyInstanceUID": f"1.9.{n}", "SOPInstanceUID": f"1.2.{n}"}
        save_dicom(folder / f"images/f{n}", AccessionNumber=number, PatientID=f"Zappa{n}", ViewPosition="PA", **uids)
    rows = table("Patient", [f"Zappa{n}" for n in range(len(numbers))])
    made = [{**{name: cells[n] for name, cells in columns.items()}, **row} for n, row in enumerate(rows)]
    bring(folder, made, [])


MIXED = [(n * 5 + 3) % 12 + 1 for n in PLACES]
ROWS = [n + 1 for n in PLACES]


@pytest.mark.parametrize("other", ["Nr", "Age", "#", "Severity", "Room"])
def test_small_accession_numbers_are_those_of_the_column_that_is_called_so(tmp_path: Path, other: str) -> None:
    numbered(tmp_path, {other: [*ROWS], "Accession": [*MIXED]}, list(map(str, MIXED)))
    made = draft(tmp_path)
    assert keys(made)["table"]["columns"]["image"] == "Accession"
    found = opened(tmp_path, made)
    assert dict(zip(column(found, "image"), column(found, "cardiomegaly"), strict=True)) == {
        f"images/f{n}": n % 2 for n in PLACES
    }


@pytest.mark.parametrize("name", ["Nr", "Age", "Severity", "Order"])
def test_small_numbers_of_a_column_that_is_not_called_like_a_study_are_a_question(tmp_path: Path, name: str) -> None:
    numbered(tmp_path, {name: [*ROWS], "Accession": [f"ACC{n}" for n in PLACES]}, list(map(str, MIXED)))
    with pytest.raises(ConfigError, match=rf"possibly by chance.*{name} \(100%\)") as caught:
        draft(tmp_path)
    assert f"Candidates: {name}, " in str(caught.value)
    assert "Choose with --image-column" in str(caught.value)
    assert keys(draft(tmp_path, columns={"image": name}))["table"]["columns"]["image"] == name


@pytest.mark.parametrize(
    ("first", "second", "taken"),
    [("Prior", "Accession", "Accession"), ("Prior", "Order", None), ("Study", "Accession", None)],
)
def test_of_long_numbers_that_lead_to_different_images_the_name_decides_or_nobody(
    tmp_path: Path, first: str, second: str, taken: str | None
) -> None:
    long = [f"{number:08d}" for number in MIXED]
    numbered(tmp_path, {first: [*sorted(long)], second: [*long]}, long)
    if taken is not None:
        assert keys(draft(tmp_path))["table"]["columns"]["image"] == taken
        return
    with pytest.raises(ConfigError, match=r"of different images: .*Choose with --image-column") as caught:
        draft(tmp_path)
    assert f"Candidates: {first}, {second}" in str(caught.value)


def test_a_small_number_called_like_a_study_does_not_outweigh_uids_that_say_otherwise(tmp_path: Path) -> None:
    uids = [f"1.2.{n}" if n < 8 else f"1.2.{n}00" for n in PLACES]
    numbered(tmp_path, {"Study ID": [*ROWS], "Key": [*uids]}, list(map(str, MIXED)))
    with pytest.raises(ConfigError, match="of different images"):
        draft(tmp_path)


def test_rows_of_another_patient_than_their_image_are_noted_by_row_and_do_not_open(tmp_path: Path) -> None:
    films(tmp_path)
    rows = table("Order", [f"{n:07d}" for n in range(6)])
    slipped = [{"PatientID": f"Zappa{(n + 1) % 6 // 2}", **row} for n, row in enumerate(rows)]
    bring(tmp_path, slipped, [])
    made = draft(tmp_path)
    (note,) = [note for note in made.notes if "is not the PatientID" in note]
    assert note.startswith("'PatientID' is not the PatientID in the header of the image that 'Order' leads to")
    assert "3 of 6 rows (rows 3, 5, 7)" in note
    assert "Zappa" not in everything_said(made)
    with pytest.raises(SiteError, match=r"another patient \(3\)") as caught:
        opened(tmp_path, made)
    assert "Zappa" not in str(caught.value)


def test_headers_leave_no_value_in_yaml_output_or_cache(tmp_path: Path) -> None:
    films(tmp_path)
    bring(tmp_path, table("Order", [f"{n:07d}" for n in range(6)]), [])
    place = ["--images", tmp_path / "images", "--labels", tmp_path / "labels.csv", "--out", tmp_path / "out"]
    said = chestfed("site", "new", "st-anne", "--yes", *place)
    said += (tmp_path / "out/st-anne.yaml").read_text(encoding="utf-8")
    assert "Loaded 6 images of 3 patients" in said
    assert not [value for value in ("Zappa", "0000003", "1.2.3", "1.9.3") if value in said]


@pytest.mark.parametrize("dicom", [True, False])
def test_where_nothing_names_an_image_columns_without_a_name_point_to_another_header(
    tmp_path: Path, dicom: bool
) -> None:
    if dicom:
        films(tmp_path)
    rows = [",Patient,Findings,,Oedema", "File,,Heart,Fluid,", *(f"x{n},p{n},0,1,0" for n in PLACES)]
    bring(tmp_path, [{"File": "a"}], [] if dicom else ["b.png"])
    (tmp_path / "labels.csv").write_text("\n".join(rows))
    with pytest.raises(
        ConfigError, match=r"no column has cells that name the .* \(2 of 5 columns have no name in row 1"
    ):
        draft(tmp_path)
    (tmp_path / "labels.csv").write_text("\n".join(["File,Patient,Heart,Fluid,Oedema", *rows[2:]]))
    with pytest.raises(ConfigError, match="no column has cells that name the") as caught:
        draft(tmp_path)
    assert "header-row" not in str(caught.value)

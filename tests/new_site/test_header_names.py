"""Tables that name images by their headers, as exports of information systems do: what is made of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from chestfed.errors import ConfigError
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
    assert "up to 2 images have one 'Order': they share what its row says" in made.notes
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
    assert any(note.startswith("1 rows are found in no header") and "unmatched: drop" in note for note in made.notes)


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


def test_headers_leave_no_value_in_yaml_output_or_cache(tmp_path: Path) -> None:
    films(tmp_path)
    bring(tmp_path, table("Order", [f"{n:07d}" for n in range(6)]), [])
    place = ["--images", tmp_path / "images", "--labels", tmp_path / "labels.csv", "--out", tmp_path / "out"]
    said = chestfed("site", "new", "st-anne", "--yes", *place)
    said += (tmp_path / "out/st-anne.yaml").read_text(encoding="utf-8")
    assert "it opens: 6 images of 3 patients" in said
    assert not [value for value in ("Zappa", "0000003", "1.2.3", "1.9.3") if value in said]

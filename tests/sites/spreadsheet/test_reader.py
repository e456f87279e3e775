"""The reader for a hospital's own table: five shapes of spreadsheet, DICOM headers, and every mistake by name."""

from __future__ import annotations

import codecs
import gzip
import json
import os
import random
import sys
from pathlib import Path
from typing import Any

import numpy as np
import openpyxl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chestfed.core.errors import ConfigError, SiteError
from chestfed.sites import load_site_config, open_site
from chestfed.sites.opening import survey_site
from chestfed.sites.reader import SPLITS, VIEWS
from chestfed.sites.spreadsheet import dicom_headers
from tests.cases import each
from tests.sites.own_tables import (
    COLUMNS,
    NAMES,
    config,
    labels,
    meanings,
    onehot,
    open_table,
    person,
    problems,
    save_dicom,
    save_rows,
)
from tests.sites.small_sites import column

ONEHOT: dict[str, Any] = {"layout": "onehot"}
TERMS: dict[str, Any] = {
    "layout": "delimited",
    "columns": {**COLUMNS, "findings": "Findings"},
    "terms": meanings(),
}
LIST: dict[str, Any] = {**TERMS, "layout": "list"}
LONG: dict[str, Any] = {"layout": "long", "columns": {**COLUMNS, "finding": "Finding"}, "terms": meanings()}
#: With a column of values a term is a finding and its value.
VALUED: dict[str, Any] = {
    **LONG,
    "columns": {**COLUMNS, "finding": "Finding", "value": "Value"},
    "terms": {
        "Edema = 1": "edema",
        "Effusion = 0": "pleural_effusion absent",
        "Consolidation = -1": "consolidation uncertain",
        "Atelectasis =": "ignore",
        "Normal = 1": "normal",
        "Normal = 0": "missing",
    },
}
READERS: dict[str, Any] = {"layout": "readers", "columns": {**COLUMNS, "reader": "Reader"}}
DICOM: dict[str, Any] = {
    "layout": "dicom",
    "columns": {
        "patient": "PatientID",
        "study": "StudyInstanceUID",
        "view": "ViewPosition",
        "sex": "PatientSex",
        "age": "PatientAge",
        "findings": "ImageComments",
    },
    "terms": meanings(),
}
IMAGES = {"images": ["**/*.dcm"]}
ROOTED: dict[str, Any] = {**ONEHOT, "images": {"path": "{patient}/{image}", "roots": ["a", "b"]}}
#: Stands in cells that must not come out again.
SECRET = "Jane Doe"


# Five shapes of spreadsheet, each a real file that ends in a checked table.


def test_a_onehot_csv_with_bom_becomes_a_table(tmp_path: Path) -> None:
    rows = [
        onehot(1, "1", "0", "-1", "", "1.0", Sex="female", Age="058Y"),
        onehot(2, "yes", "No", "uncertain", "TRUE", "false", Projection="LAT", Set="val", Sex="", Age=""),
        onehot(3, Projection="", Set="test", Sex="unknown", Age="11M", **{"Pulmonary Edema": "1"}),
    ]
    save_rows(tmp_path / "site" / "labels.csv", rows, encoding="utf-8-sig")
    assert (tmp_path / "site" / "labels.csv").read_bytes().startswith(codecs.BOM_UTF8)
    table = open_table(tmp_path, {**ONEHOT, "words": {"view": {"Lat": "lateral"}}}, None)
    assert labels(table) == [[1, 0, None, None, 1], [1, 0, None, 1, 0], [0, 1, 0, 0, 0]]
    assert column(table, "view") == ["pa", "lateral", "unknown"]
    assert column(table, "split") == ["train", "valid", "test"]
    assert column(table, "sex") == ["F", None, None]
    assert column(table, "age") == [58, None, 0]
    assert column(table, "image") == ["1.png", "2.png", "3.png"]
    assert column(table, "study") == column(table, "patient") == ["p1", "p2", "p3"]
    assert column(table, "row") == [2, 3, 4]


def test_a_delimited_tsv_with_denials_becomes_a_table(tmp_path: Path) -> None:
    cells = [
        "Cardiomegaly|no edema|possible consolidation|effusion?",
        "Normal",
        "without cardiomegaly | EDEMA",
        "",
        "cannot exclude pulmonary  edema|Negative for Effusion",
    ]
    rows = [person(place, Findings=cell) for place, cell in enumerate(cells)]
    table = open_table(tmp_path, TERMS, rows, "labels.tsv", uncertain="positive")
    assert labels(table) == [
        [1, 0, 1, None, 1],
        [0, 0, 0, 0, 0],
        [0, 1, None, None, None],
        [None] * 5,
        [None, 1, None, None, 0],
    ]
    table = open_table(tmp_path, TERMS, None, "labels.tsv", uncertain="negative", blank="negative")
    assert labels(table) == [[1, 0, 0, 0, 0], [0] * 5, [0, 1, 0, 0, 0], [None] * 5, [0] * 5]


@pytest.mark.parametrize("real", [False, True], ids=["strings", "parquet lists"])
def test_a_parquet_of_lists_becomes_a_table(tmp_path: Path, real: bool) -> None:
    cells = [["Edema", "Effusion"], [" cardiomegaly ", "no Edema", ""], ["Normal"], []]
    texts: list[object] = [repr(cells[0]), json.dumps(cells[1]), *map(repr, cells[2:])]
    rows = [
        person(place, MRN=100 + place, Age=63.0, Findings=cell) for place, cell in enumerate(cells if real else texts)
    ]
    table = open_table(tmp_path, LIST, rows, "labels.parquet")
    assert labels(table) == [[None, 1, None, None, 1], [1, 0, None, None, None], [0] * 5, [None] * 5]
    assert column(table, "patient") == ["100", "101", "102", "103"]
    assert column(table, "age") == [63.0] * 4


def test_a_long_csv_gz_becomes_a_table(tmp_path: Path) -> None:
    rows = [
        person(1, Finding="Edema"),
        person(2, Finding="Normal"),
        person(1, Finding="no Effusion", Sex=""),
        person(3, Finding=""),
        person(1, Finding="Edema"),
    ]
    table = open_table(tmp_path, LONG, rows, "labels.csv.gz")
    assert gzip.decompress((tmp_path / "site" / "labels.csv.gz").read_bytes()).startswith(b"File,")
    assert column(table, "image") == ["1.png", "2.png", "3.png"]
    assert labels(table) == [[None, 1, None, None, 0], [0] * 5, [None] * 5]
    assert column(table, "row") == [2, 3, 5]


def test_a_long_table_may_have_values(tmp_path: Path) -> None:
    rows = [
        person(1, Finding="Edema", Value="1"),
        person(1, Finding="Effusion", Value="0"),
        person(1, Finding="Consolidation", Value="-1"),
        person(1, Finding="Atelectasis", Value=""),
        person(2, Finding="Normal", Value="1"),
        person(3, Finding="Normal", Value="0"),
    ]
    table = open_table(tmp_path, VALUED, rows, uncertain="positive")
    assert labels(table) == [[None, 1, 1, None, 0], [0] * 5, [None] * 5]


VOTES = {
    "any": [[1, 0, None, 1, 0], [1, 0, 0, 0, 0]],
    "majority": [[1, 0, None, 0, 0], [1, 0, 0, 0, 0]],
    "all": [[0, 0, 0, 0, 0], [1, 0, 0, 0, 0]],
    "Meyer": [[1, 0, None, 1, 0], [None] * 5],
}


@each("rule", VOTES)
def test_a_per_reader_xlsx_is_joined_by_votes(tmp_path: Path, rule: str) -> None:
    rows = [
        onehot(1, 1, 0, -1, 1, 0, Reader="Meyer", Age=63, MRN=17),
        onehot(1, 1, 0, -1, 0, 0, Reader="Mueller", Age=63, MRN=17),
        onehot(2, True, False, 0.0, 0, None, Reader="Mueller", Age=None, MRN=18),
        onehot(1, 0, 0, 0, 0, 0, Reader="Schmidt", Age=63, MRN=17),
    ]
    for row in rows:
        row["Pulmonary Edema"] = None
    rows[2]["Effusion"] = 0
    table = open_table(tmp_path, {**READERS, "raters": rule}, rows, "labels.xlsx")
    assert labels(table) == VOTES[rule]
    assert column(table, "patient") == ["17", "18"]
    assert column(table, "age") == [63, None]
    assert column(table, "row") == [2, 4]


def test_positive_and_uncertain_votes_together_are_uncertain(tmp_path: Path) -> None:
    rows = [onehot(1, *cells, Reader=f"R{place}") for place, cells in enumerate(["10000", "u0000", "00000"])]
    table = {**READERS, "values": {"uncertain": ["u"]}, "raters": "majority"}
    assert labels(open_table(tmp_path, table, rows, uncertain="positive"))[0][0] == 1
    assert labels(open_table(tmp_path, table, rows, uncertain="negative"))[0][0] == 0


def test_labels_are_read_from_dicom_headers(tmp_path: Path) -> None:
    told = {"StudyInstanceUID": "1.2.9", "ViewPosition": "PA", "PatientSex": "F", "PatientAge": "063Y"}
    save_dicom(tmp_path / "site/a/1.dcm", **told, ImageComments="Edema|no effusion")
    save_dicom(tmp_path / "site/b/2.dcm", PatientID="4712", ImageComments="Normal")
    save_dicom(tmp_path / "site/b/3.dcm", PatientID="4713", ViewPosition="", PatientSex="O")
    (tmp_path / "site/notes.txt").write_text("not an image")
    table = open_table(tmp_path, DICOM, None, label_files=IMAGES)
    assert labels(table) == [[None, 1, None, None, 0], [0] * 5, [None] * 5]
    assert column(table, "image") == ["a/1.dcm", "b/2.dcm", "b/3.dcm"]
    assert column(table, "patient") == ["4711", "4712", "4713"]
    assert column(table, "study") == ["1.2.9", "4712", "4713"]
    assert column(table, "view") == ["pa", "unknown", "unknown"]
    assert (column(table, "sex"), column(table, "age")) == (["F", None, None], [63, None, None])


def test_many_headers_are_read_by_several_processes_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(12):
        save_dicom(tmp_path / f"site/{number:02d}.dcm", PatientID=str(number), ImageComments="Edema")
    site = config(tmp_path, DICOM, label_files=IMAGES)
    alone = open_site(site, tmp_path)
    monkeypatch.setattr(dicom_headers, "_SMALL_JOB", 4)
    counts: list[tuple[int, int]] = []
    together = survey_site(site, tmp_path, progress=lambda done, total: counts.append((done, total))).table
    assert together.frame.equals(alone.frame)
    assert counts == [(number, 12) for number in range(1, 13)]


def test_headers_that_cannot_be_read_are_numbered_and_not_named(tmp_path: Path) -> None:
    save_dicom(tmp_path / f"site/{SECRET}/1.dcm", ImageComments=f"Edema|{SECRET}")
    (tmp_path / f"site/{SECRET}/2.dcm").write_bytes(b"nothing")
    with pytest.raises(SiteError) as caught:
        open_table(tmp_path, DICOM, None, label_files=IMAGES)
    found = {(problem.kind, problem.file, problem.row) for problem in caught.value.problems}
    assert found == {("unreadable header", "DICOM files", 2), ("unknown finding", "DICOM files", 1)}
    assert SECRET not in str(caught.value)


def test_a_folder_without_dicom_files_is_one_problem(tmp_path: Path) -> None:
    (problem,) = problems(tmp_path, DICOM, None, label_files=IMAGES)
    assert (problem.kind, problem.file) == ("missing file", "**/*.dcm")


@pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse such names")
def test_a_file_name_that_is_not_utf_8_is_one_problem_without_the_name(tmp_path: Path) -> None:
    save_dicom(tmp_path / "site/1.dcm", ImageComments="Edema")
    save_dicom(tmp_path / os.fsdecode(b"site/Doe\xff.dcm"), ImageComments="Edema")
    (problem,) = problems(tmp_path, DICOM, None, label_files=IMAGES)
    assert problem.kind == "unreadable file name"
    assert "Doe" not in str(problem)


# What the vocabulary offers besides.


def test_each_split_may_have_its_own_file(tmp_path: Path) -> None:
    columns = {name: cell for name, cell in COLUMNS.items() if name != "split"}
    for place, split in enumerate(("train", "test")):
        save_rows(tmp_path / "site" / f"{split}.csv", [onehot(place)])
    files = {"train": ["train.csv"], "test": ["test.csv"]}
    table = {**ONEHOT, "columns": columns}
    assert column(open_table(tmp_path, table, None, label_files=files), "split") == ["train", "test"]
    mixed = open_table(tmp_path, table, None, label_files=files, splits={"official": False})
    assert column(mixed, "split") == ["train", "train"]
    site = config(tmp_path, table, label_files=files)
    assert column(open_site(site, Path(), tmp_path / "site" / "test.csv"), "split") == ["test"]
    assert column(open_site(site, Path(), tmp_path / "site" / "train.csv"), "split") == ["train"]


def test_only_image_and_patient_need_a_column(tmp_path: Path) -> None:
    table = {**ONEHOT, "columns": {"image": "File", "patient": "File"}, "default_view": "frontal"}
    opened = open_table(tmp_path, table, [onehot(1), onehot(2)])
    assert column(opened, "patient") == ["1.png", "2.png"]
    assert column(opened, "view") == ["frontal", "frontal"]
    assert column(opened, "split") == ["train", "train"]
    assert column(opened, "sex") == column(opened, "age") == [None, None]


def test_without_official_splits_their_column_need_not_be_there(tmp_path: Path) -> None:
    row = onehot(1)
    del row["Set"]
    table = open_table(tmp_path, ONEHOT, [row], splits={"official": False})
    assert column(table, "split") == ["train"]


@each(
    ("images", "path"),
    [
        ({}, "a/1"),
        ({"suffix": ".png"}, "a/1.png"),
        ({"path": "{study}/{image}.dcm"}, "S7/a/1.dcm"),
        ({"path": "p{patient[:2]}/{Study No}/x", "suffix": ".jpg"}, "p47/S7/x.jpg"),
        ({"roots": ["old", "new"]}, "new/a/1"),
        ({"roots": ["old", "older"]}, "old/a/1"),
        ({"remove_prefix": "a/"}, "1"),
    ],
)
def test_the_path_of_an_image_is_made_as_the_yaml_says(tmp_path: Path, images: dict[str, Any], path: str) -> None:
    (tmp_path / "site/new/a").mkdir(parents=True)
    (tmp_path / "site/new/a/1").touch()
    columns = {"image": "File", "patient": "MRN", "study": "Study No"}
    row = onehot(1, File=".\\a\\1", MRN="4711", **{"Study No": "S7"})
    assert column(open_table(tmp_path, {**ONEHOT, "columns": columns, "images": images}, [row]), "image") == [path]


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252"])
def test_an_encoding_that_is_named_is_used(tmp_path: Path, encoding: str) -> None:
    row = onehot(1, MRN="Müller", Projection="Ü")
    save_rows(tmp_path / "site" / "labels.csv", [row], encoding=encoding)
    table = {**ONEHOT, "encoding": encoding, "words": {"view": {"ü": "other"}}}
    opened = open_table(tmp_path, table, None)
    assert (column(opened, "patient"), column(opened, "view")) == (["Müller"], ["other"])


def test_accents_of_two_kinds_are_the_same_column_and_the_same_word(tmp_path: Path) -> None:
    row = {**onehot(1, Projection="Thorax a\u0300 plat"), "O\u0308deme": 1, "Sexe\u0301": "Ma\u0302le"}
    table = {
        **ONEHOT,
        "columns": {**COLUMNS, "sex": "Sex\u00e9"},
        "words": {"view": {"thorax a\u0300 plat": "ap"}, "sex": {"m\u00e2le": "M"}},
    }
    opened = open_table(tmp_path, table, [row], labels={**NAMES, "edema": ["\u00d6deme"]})
    assert (column(opened, "view"), column(opened, "sex"), labels(opened)[0][1]) == (["ap"], ["M"], 1)
    with pytest.raises(ConfigError, match="has a word twice"):
        config(tmp_path, {**ONEHOT, "words": {"view": {1: "pa", "1": "ap"}}})


def test_words_of_the_site_are_added_to_those_that_are_known(tmp_path: Path) -> None:
    row = onehot(1, "ja", "nein", "?", "n.d.", "1", Projection="1", Set="Lernen", Sex="w", Age="N/A")
    row["Pulmonary Edema"] = "nein"
    table = {
        **ONEHOT,
        "words": {"view": {1: "pa"}, "split": {"lernen": "train"}, "sex": {"W": "F"}},
        "values": {"positive": [1, "ja"], "negative": [0, "nein"], "uncertain": ["?"], "blank": ["n.d."]},
        "missing": ["n/a"],
    }
    opened = open_table(tmp_path, table, [row], uncertain="positive")
    assert labels(opened) == [[1, 0, 1, None, 1]]
    assert [column(opened, name) for name in ("view", "split", "sex", "age")] == [["pa"], ["train"], ["F"], [None]]


def test_terms_mean_what_the_yaml_says(tmp_path: Path) -> None:
    other = {**TERMS, "other_terms": "ignore"}
    for keys, cell, expected in (
        ({"terms": meanings(Fracture="ignore")}, "Fracture|Edema", [None, 1, None, None, None]),
        ({"terms": meanings(Fracture="missing")}, "Fracture|Edema", [None, 1, None, None, None]),
        ({"terms": meanings(Fracture="missing")}, "Fracture|Normal", [None] * 5),
        (other, "Fracture|Edema", [None, 1, None, None, None]),
        (other, "Fracture|Normal", [0] * 5),
        ({**other, "other_terms": "missing"}, "Fracture|Normal", [None] * 5),
        ({"terms": meanings(**{"": "normal"})}, "", [0] * 5),
        ({"separator": ";"}, "Edema; no Effusion", [None, 1, None, None, 0]),
        ({"terms": meanings(both="Edema; Pleural Effusion absent; mass uncertain")}, "BOTH", [None, 1, None, None, 0]),
        ({"terms": meanings(**{"no Edema": "ignore"})}, "no Edema", [None] * 5),
        ({}, "Edema?", [None, 9, None, None, None]),
        ({}, "Edema|possible pulmonary edema", [None, 1, None, None, None]),
    ):
        for uncertain, value in (("positive", 1), ("negative", 0)):
            table = open_table(
                tmp_path,
                {**TERMS, **keys},
                [person(1, Findings=cell)],
                uncertain=uncertain,
            )
            assert labels(table) == [[value if said == 9 else said for said in expected]], (keys, cell)


def test_a_disease_that_no_term_reports_is_never_negative_by_silence(tmp_path: Path) -> None:
    terms = {"Edema": "edema", "no mass": "mass absent", "Normal": "normal", "Scoliosis": "ignore"}
    rows = [person(n, Findings=cell) for n, cell in enumerate(["Edema", "Scoliosis", "Normal"])]
    table = {**TERMS, "terms": terms}
    found = open_table(tmp_path, table, rows, diseases=["edema", "mass"], blank="negative")
    assert labels(found) == [[1, None], [0, None], [0, 0]]


def test_a_sheet_can_be_named(tmp_path: Path) -> None:
    save_rows(tmp_path / "site/labels.xlsx", [onehot(1)])
    book = openpyxl.load_workbook(tmp_path / "site/labels.xlsx")
    book.worksheets[0].title = "Labels"
    book.create_sheet("Notes", 0)["A1"] = "read me"
    book.save(tmp_path / "site/labels.xlsx")
    assert len(open_table(tmp_path, {**ONEHOT, "sheet": "Labels"}, None, "labels.xlsx").frame) == 1
    (problem,) = problems(tmp_path, {**ONEHOT, "sheet": "Lables"}, None, "labels.xlsx")
    assert "no sheet 'Lables' (the nearest is 'Labels')" in problem.message


def test_a_hidden_sheet_is_not_the_first_and_hidden_rows_are_counted(tmp_path: Path) -> None:
    save_rows(tmp_path / "site/labels.xlsx", [onehot(1), onehot(2)])
    book = openpyxl.load_workbook(tmp_path / "site/labels.xlsx")
    book.worksheets[0].row_dimensions[3].hidden = True
    earlier = book.copy_worksheet(book.worksheets[0])
    earlier.delete_rows(3)
    earlier.sheet_state = "hidden"
    book.move_sheet(earlier, -1)
    book.active = 1
    book.save(tmp_path / "site/labels.xlsx")
    table = open_table(tmp_path, ONEHOT, None, "labels.xlsx")
    assert column(table, "image") == ["1.png", "2.png"]
    assert table.notes == ("labels.xlsx: 1 hidden row of the sheet is read too",)


@each("file", ["labels.csv", "labels.xlsx", "labels.parquet"])
def test_a_patient_whose_number_was_rounded_or_is_a_word_for_none_is_refused(tmp_path: Path, file: str) -> None:
    number: object = "1.23457E+17" if file == "labels.csv" else 1.2345678901234568e17
    (tmp_path / "site").mkdir()
    (problem,) = problems(tmp_path, ONEHOT, [onehot(1, MRN=number)], file)
    assert (problem.kind, problem.row) == ("rounded number", 2)
    (problem,) = problems(tmp_path, ONEHOT, [onehot(1, MRN="NULL")], file)
    assert (problem.kind, problem.message) == ("blank name", "no patient")


def test_numbers_of_32_bits_that_are_rounded_are_no_patients(tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    rows = [onehot(1), onehot(2)]
    cells = {name: [row[name] for row in rows] for name in rows[0]}
    table = pa.table({**cells, "MRN": pa.array(np.array([123456789, 7], np.float32))})
    pq.write_table(table, tmp_path / "site/labels.parquet")
    (problem,) = problems(tmp_path, ONEHOT, None, "labels.parquet")
    assert (problem.kind, problem.row) == ("rounded number", 2)


def test_a_disease_that_only_some_of_its_columns_deny_is_counted(tmp_path: Path) -> None:
    rows = [onehot(1, **{"Edema": "0", "Pulmonary Edema": ""}), onehot(2)]
    text = "labels.csv: edema is absent in 1 row in which only some of its columns say so, and others are empty"
    assert open_table(tmp_path, ONEHOT, rows).notes == (text,)
    assert not open_table(tmp_path, ONEHOT, rows, blank="negative").notes


def test_a_file_may_be_called_like_a_pattern(tmp_path: Path) -> None:
    save_rows(tmp_path / "site/labels1.csv", [onehot(1)])
    assert column(open_table(tmp_path, ONEHOT, [onehot(2)], "labels[1].csv"), "image") == ["2.png"]


def test_policy_is_that_of_every_site(tmp_path: Path) -> None:
    table = open_table(
        tmp_path, ONEHOT, [onehot(1, *"10000"), onehot(2, Projection="ap")], upsample={"cardiomegaly": 2}
    )
    assert column(table, "repeats") == [3, 1]
    assert column(open_table(tmp_path, ONEHOT, None, views=["ap"]), "image") == ["2.png"]


# Any order of columns or rows and any format give the same table.

CELLS = st.sampled_from(["1", "0", "-1", "", "yes", "no", "1.0", "uncertain"])
ROWS = st.lists(st.tuples(CELLS, CELLS, CELLS, CELLS, CELLS), min_size=1, max_size=6)
PROPERTY = settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])


@PROPERTY
@given(rows=ROWS, seed=st.integers(0, 99), delimiter=st.sampled_from([",", ";", "|", "\t"]))
def test_neither_the_order_of_columns_nor_the_delimiter_matters(
    tmp_path: Path, rows: list[tuple[str, ...]], seed: int, delimiter: str
) -> None:
    filled = [onehot(place, *cells, MRN=f'a "b", {delimiter} ü {place}') for place, cells in enumerate(rows)]
    expected = open_table(tmp_path, ONEHOT, filled)
    order = random.Random(seed).sample(list(filled[0]), len(filled[0]))
    save_rows(tmp_path / "site" / "labels.csv", filled, delimiter=delimiter, order=order)
    found = open_table(tmp_path, {**ONEHOT, "delimiter": delimiter}, None)
    assert found.frame.equals(expected.frame)


@PROPERTY
@given(rows=ROWS)
def test_every_format_gives_the_same_table(tmp_path: Path, rows: list[tuple[str, ...]]) -> None:
    filled = [onehot(place, *cells) for place, cells in enumerate(rows)]
    expected = open_table(tmp_path, ONEHOT, filled).frame.drop(columns="file", errors="ignore")
    for file in ("labels.tsv", "labels.csv.gz", "labels.xlsx", "labels.parquet"):
        assert open_table(tmp_path, ONEHOT, filled, file).frame.drop(columns="file", errors="ignore").equals(expected)


@PROPERTY
@given(
    said=st.lists(
        st.tuples(st.sampled_from(sorted(NAMES)), st.sampled_from(["{}", "no {}", "possible {}", "{}?", " {} "])),
        unique_by=lambda pair: pair[0],
        min_size=1,
    ),
    seed=st.integers(0, 99),
)
def test_delimited_listed_and_long_terms_say_the_same(tmp_path: Path, said: list[tuple[str, str]], seed: int) -> None:
    terms = [form.format(NAMES[disease][0].upper()) for disease, form in said]
    random.Random(seed).shuffle(terms)
    expected = {"{}": 1.0, " {} ": 1.0, "no {}": 0.0}
    wanted = [expected.get(dict(said).get(disease, "")) for disease in NAMES]
    assert labels(open_table(tmp_path, TERMS, [person(1, Findings="|".join(terms))])) == [wanted]
    assert labels(open_table(tmp_path, LIST, [person(1, Findings=json.dumps(terms))])) == [wanted]
    assert labels(open_table(tmp_path, LONG, [person(1, Finding=term) for term in terms])) == [wanted]


@settings(PROPERTY, max_examples=60)
@given(
    cell=st.text(max_size=40),
    table=st.sampled_from([TERMS, LIST]),
    name=st.sampled_from(["Findings", "Projection", "Age"]),
)
def test_no_cell_breaks_the_reader_or_comes_out_in_a_message(
    tmp_path: Path, cell: str, table: dict[str, Any], name: str
) -> None:
    rows = [{**person(1, Findings="Edema" if table is TERMS else "['Edema']"), name: f"{cell}{SECRET}"}]
    with pytest.raises(SiteError) as caught:
        open_table(tmp_path, table, rows, "labels.parquet")
    assert SECRET not in str(caught.value)


# Every mistake by name, with file, row and advice, and without the cell.


@each(
    ("table", "row", "kind", "message"),
    [
        (ONEHOT, onehot(2, SECRET, *"0000"), "bad label value", "'Cardiomegaly' has an unknown value"),
        (ONEHOT, onehot(2, MRN=""), "blank name", "no patient"),
        (ONEHOT, onehot(2, File=""), "blank name", "no image name"),
        (ONEHOT, onehot(2, File="1.png"), "duplicate image", "duplicate of the image at labels.csv:2"),
        (ONEHOT, onehot(2, File="./1.png"), "duplicate image", "duplicate of the image at labels.csv:2"),
        (ONEHOT, onehot(2, MRN="p1", Set="test"), "patient in two splits", "'train' at labels.csv:2"),
        (ONEHOT, onehot(2, File=f"../{SECRET}.png"), "path outside the root", "leaves the site's root"),
        (ROOTED, onehot(2, File=f"../{SECRET}.png"), "path outside the root", "leaves the site's root"),
        (ROOTED, onehot(2, File=f"/{SECRET}.png"), "path outside the root", "leaves the site's root"),
        (ROOTED, onehot(2, File=f"C:/{SECRET}.png"), "path outside the root", "leaves the site's root"),
        (ROOTED, onehot(2, MRN=f"../../{SECRET}"), "path outside the root", "leaves the site's root"),
        (ONEHOT, onehot(2, File=f"/{SECRET}.png"), "path outside the root", "leaves the site's root"),
        (ONEHOT, onehot(2, File=f"C:\\{SECRET}.png"), "path outside the root", "leaves the site's root"),
        (ONEHOT, onehot(2, File=f"https://x.org/{SECRET}"), "path outside the root", "leaves the site's root"),
        (ONEHOT, onehot(2, Projection=SECRET), "unknown view", "'Projection' is not a known view"),
        (ONEHOT, onehot(2, Set=SECRET), "unknown split", "'Set' is not a known split"),
        (ONEHOT, onehot(2, Set=""), "image without a split", "'Set' is empty"),
        (ONEHOT, onehot(2, Sex=SECRET), "unknown sex", "'Sex' is not a known sex"),
        (ONEHOT, onehot(2, Age="121"), "bad age", "'Age' is not an age from 0 to 120 years"),
        (ONEHOT, onehot(2, Age="-3"), "bad age", "'Age' is not an age from 0 to 120 years"),
        (ONEHOT, onehot(2, Age=SECRET), "bad age", "'Age' is not an age from 0 to 120 years"),
        (
            TERMS,
            person(2, Findings=f"Edema|{SECRET}"),
            "unknown finding",
            "'Findings': term 2 of 2 is not in table.terms",
        ),
        (TERMS, person(2, Findings="Edemma"), "unknown finding", "closest: 'edema'"),
        (TERMS, person(2, Findings="no no Edema"), "unknown finding", "term 1 of 1"),
        (TERMS, person(2, Findings="possible Normal"), "unknown finding", "term 1 of 1"),
        (TERMS, person(2, Findings="Edema|Normal"), "contradictory labels", "both present and absent"),
        (TERMS, person(2, Findings="Edema|no Edema"), "contradictory labels", "both present and absent"),
        (LIST, person(2, Findings=f"['{SECRET}'"), "bad label value", "'Findings' does not hold a list"),
        (LIST, person(2, Findings="__import__('os')"), "bad label value", "'Findings' does not hold a list"),
        (LIST, person(2, Findings="[1]"), "bad label value", "'Findings' does not hold a list"),
        (LIST, person(2, Findings="[" * 9000), "bad label value", "'Findings' does not hold a list"),
        (LONG, person(2, Finding=SECRET), "unknown finding", "'Finding': term 1 of 1"),
        (LONG, person(1, Finding="Edema", MRN="other"), "contradictory rows", "'MRN' differs from an earlier row"),
        (VALUED, person(2, Finding="Edema", Value=SECRET), "unknown finding", "'Finding': term 1 of 1"),
        (READERS, onehot(2, Reader=""), "blank name", "'Reader' is empty"),
        (READERS, onehot(1, Reader="Meyer"), "duplicate image", "an earlier row has the same image and annotator"),
        (READERS, onehot(1, Reader="Schulz", Age="64"), "contradictory rows", "'Age' differs from an earlier row"),
    ],
)
def test_a_bad_row_is_named_and_its_cell_is_not_shown(
    tmp_path: Path, table: dict[str, Any], row: dict[str, object], kind: str, message: str
) -> None:
    good = {
        "onehot": onehot(1),
        "readers": onehot(1, Reader="Meyer"),
        "delimited": person(1, Findings="Edema"),
        "list": person(1, Findings="['Edema']"),
        "long": person(1, Finding="Edema", Value="1"),
    }[table["layout"]]
    (problem,) = problems(tmp_path, table, [good, row])
    assert (problem.kind, problem.file, problem.row) == (kind, "labels.csv", 3)
    assert message in problem.message
    assert problem.advice
    assert SECRET not in f"{problem} {problem.advice}"


def test_rows_of_an_image_that_contradict_each_other_are_named_by_the_first(tmp_path: Path) -> None:
    rows = [person(2, Finding="Edema"), person(1, Finding="Edema"), person(1, Finding="Normal")]
    (problem,) = problems(tmp_path, LONG, rows)
    assert (problem.kind, problem.row) == ("contradictory labels", 3)
    assert "the rows of this image call" in problem.message


def test_all_problems_come_in_one_report(tmp_path: Path) -> None:
    rows = [onehot(1, Age="200"), onehot(2, Sex="x", MRN=""), onehot(3, "2", *"0000", Projection="?"), onehot(1)]
    found = [(problem.kind, problem.row) for problem in problems(tmp_path, ONEHOT, rows)]
    expected = [("unknown view", 4), ("unknown sex", 3), ("bad age", 2), ("bad label value", 4)]
    assert found == [*expected, ("blank name", 3), ("duplicate image", 5)]


@pytest.mark.parametrize("file", ["labels.csv", "labels.xlsx", "labels.parquet"])
def test_a_missing_column_is_named_with_the_nearest(tmp_path: Path, file: str) -> None:
    table = {**ONEHOT, "columns": {**COLUMNS, "patient": "mrm", "age": "Years"}}
    first, second = problems(tmp_path, table, [onehot(1)], file)
    assert (first.kind, first.file, first.row) == ("missing column", file, 1)
    assert "no column 'mrm' (the nearest is 'MRN')" in first.message
    assert "no column 'Years'" in second.message
    assert "found: File, MRN" in second.message


def test_a_file_without_a_header_does_not_come_out_as_one(tmp_path: Path) -> None:
    save_rows(tmp_path / "site/labels.csv", [{SECRET: "0", "Berlin": "1"}])
    found = problems(tmp_path, ONEHOT, None)
    assert {problem.kind for problem in found} == {"missing column"}
    assert all(SECRET not in str(problem) for problem in found)


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    names = [*onehot(1), "MRN"]
    save_rows(tmp_path / "site/labels.csv", [onehot(1)], order=names)
    (problem,) = problems(tmp_path, ONEHOT, None)
    assert (problem.kind, problem.message) == ("duplicate column", "2 columns are named 'MRN'")


@pytest.mark.parametrize("delimiter", [";", "\t", "|"])
def test_another_delimiter_is_recognized(tmp_path: Path, delimiter: str) -> None:
    save_rows(tmp_path / "site/labels.csv", [onehot(1)], delimiter=delimiter)
    (problem,) = problems(tmp_path, ONEHOT, None)
    assert (problem.kind, problem.row) == ("wrong delimiter", 1)
    assert "table.delimiter" in problem.advice


def test_mixed_delimiters_and_ragged_rows_are_named(tmp_path: Path) -> None:
    path = tmp_path / "site/labels.csv"
    save_rows(path, [onehot(number) for number in (1, 2, 3, 4)])
    lines = path.read_text().splitlines()
    lines[2], lines[3] = lines[2].replace(",", ";"), f"{SECRET},1"
    path.write_text("\n".join(lines))
    first, second = problems(tmp_path, ONEHOT, None)
    assert (first.kind, first.row, second.kind, second.row) == ("mixed delimiters", 3, "malformed row", 4)
    assert first.message == "1 cells where the header has 12; it has 12 if separated by ';'"
    assert SECRET not in str(second)


@each("notes", [{8: '"open'}, {3: '"two\nlines"', 8: '"open', 5000: '"so'}, {8: '"open', 5000: '"closed here"'}])
def test_rows_behind_a_quotation_mark_that_is_not_closed_are_not_lost(tmp_path: Path, notes: dict[int, str]) -> None:
    path = tmp_path / "site/labels.csv"
    save_rows(path, [onehot(number, Note=f"NOTE{number};") for number in range(9000)])
    text = path.read_text()
    for number, note in notes.items():
        text = text.replace(f"NOTE{number};", note)
    path.write_text(text)
    (problem,) = problems(tmp_path, ONEHOT, None)
    assert (problem.kind, problem.row) == ("malformed CSV", 10)


@each(
    ("written", "named", "message"),
    [
        ("latin-1", "utf-8", "is not UTF-8 (line 3): cp1252 or "),
        ("utf-8", "latin-1", "is UTF-8, not latin-1"),
        ("utf-8-sig", "cp1252", "is UTF-8, not cp1252"),
        ("cp1252", "latin-1", "is not latin-1 (line 3)"),
        ("utf-16", "utf-8", "is UTF-16, not utf-8"),
        ("utf-8", "utf-16", "is not UTF-16 with a byte order mark"),
        ("cp850", "cp1252", "is not cp1252 (line 3)"),
    ],
)
def test_a_wrong_encoding_is_recognized(tmp_path: Path, written: str, named: str, message: str) -> None:
    name = {"cp1252": "Müller €", "cp850": "Müller"}.get(written, "Müller")
    save_rows(tmp_path / "site/labels.csv", [onehot(1), onehot(2, MRN=name)], encoding=written)
    (problem,) = problems(tmp_path, {**ONEHOT, "encoding": named}, None)
    assert (problem.kind, problem.file) == ("wrong encoding", "labels.csv")
    assert message in problem.message


@each("encoding", ["shift_jis", "gb18030", "big5", "euc_kr", "cp1250", "cp1251", "utf-16", "utf-16-le"])
def test_any_encoding_of_python_can_be_named(tmp_path: Path, encoding: str) -> None:
    names = {"cp1250": "Ořechová", "cp1251": "Орехова", "euc_kr": "김", "gb18030": "陈", "big5": "陳"}
    name = names.get(encoding, "山田｜ソ")
    save_rows(tmp_path / "site/labels.csv", [onehot(1, MRN=name)], encoding=encoding)
    assert open_table(tmp_path, {**ONEHOT, "encoding": encoding}, None).frame["patient"].tolist() == [name]


@pytest.mark.parametrize("file", ["labels.xlsx", "labels.csv", "labels.parquet"])
def test_formulas_are_refused(tmp_path: Path, file: str) -> None:
    found = problems(tmp_path, ONEHOT, [onehot(1), onehot(2, MRN="=A2", Age="=1+1")], file)
    formulas = [problem for problem in found if problem.kind == "formula cell"]
    assert [(problem.row, problem.message) for problem in formulas] == [
        (3, "'MRN' is a formula or the error value of one"),
        (3, "'Age' is a formula or the error value of one"),
    ]


def test_the_errors_of_a_spreadsheet_are_no_patients(tmp_path: Path) -> None:
    (problem,) = problems(tmp_path, ONEHOT, [onehot(1, MRN="#N/A")], "labels.xlsx")
    assert (problem.kind, problem.row) == ("formula cell", 2)


@each("file", ["labels.xlsx", "labels.parquet"])
@each("content", [b"", b"PK\x03\x04 cut", b"File,MRN\n"])
def test_a_file_that_is_not_what_its_name_says_is_one_problem(tmp_path: Path, file: str, content: bytes) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / file).write_bytes(content)
    (problem,) = problems(tmp_path, ONEHOT, None, file)
    assert problem.kind == "unreadable file"


@pytest.mark.parametrize("file", ["labels.csv", "labels.xlsx", "labels.parquet"])
def test_a_table_without_rows_is_one_problem(tmp_path: Path, file: str) -> None:
    (tmp_path / "site").mkdir()
    path = tmp_path / "site" / file
    if file == "labels.parquet":
        pq.write_table(pa.table({name: pa.array([], pa.string()) for name in onehot(1)}), path)
    elif file == "labels.xlsx":
        book = openpyxl.Workbook()
        book.worksheets[0].append(list(onehot(1)))
        book.save(path)
    else:
        path.write_text(",".join(onehot(1)) + "\n")
    (problem,) = problems(tmp_path, ONEHOT, None, file)
    assert (problem.kind, problem.message) == ("empty file", "has a header and no rows")


def test_a_column_of_bytes_is_refused(tmp_path: Path) -> None:
    (problem,) = problems(tmp_path, ONEHOT, [onehot(1, MRN=b"4711")], "labels.parquet")
    assert (problem.kind, problem.message) == ("malformed column", "'MRN' holds binary, not text or numbers")


@pytest.mark.parametrize("kind", ["file", "folder", "link in a linked folder"])
def test_links_out_of_the_root_are_refused_and_links_inside_are_not(tmp_path: Path, kind: str) -> None:
    inside, outside = tmp_path / "site/real", tmp_path / "outside"
    for folder in (inside, outside):
        folder.mkdir(parents=True)
        (folder / "1.png").touch()
    (tmp_path / "site/inner").symlink_to(inside)
    assert problems(tmp_path, ONEHOT, [onehot(1, File="inner/1.png")]) == []
    if kind == "file":
        (tmp_path / "site/x.png").symlink_to(outside / "1.png")
    elif kind == "folder":
        (tmp_path / "site/x").symlink_to(outside)
    else:
        (inside / "out").symlink_to(outside)
    path = {"file": "x.png", "folder": "x/1.png"}.get(kind, "inner/out/1.png")
    (problem,) = problems(tmp_path, ONEHOT, [onehot(1, File="real/1.png"), onehot(2, File=path)])
    assert (problem.kind, problem.row) == ("path outside the root", 3)
    (tmp_path / "linked").symlink_to(tmp_path / "site")  # the root itself may be a link
    assert problems(tmp_path, ONEHOT, [onehot(1, File="real/1.png")], root="linked") == []


def test_headers_behind_a_link_out_of_the_root_are_refused(tmp_path: Path) -> None:
    save_dicom(tmp_path / "outside/1.dcm", ImageComments="Edema")
    save_dicom(tmp_path / "site/1.dcm", ImageComments="Edema")
    (tmp_path / "site/2.dcm").symlink_to(tmp_path / "outside/1.dcm")
    (problem,) = problems(tmp_path, DICOM, None, label_files=IMAGES)
    assert (problem.kind, problem.file, problem.row) == ("path outside the root", "DICOM files", 2)


def test_labels_of_headers_cannot_be_read_from_a_label_file(tmp_path: Path) -> None:
    with pytest.raises(SiteError, match="layout 'dicom' has no label file"):
        open_site(config(tmp_path, DICOM, label_files=IMAGES), Path(), tmp_path / "labels.csv")


def test_a_reader_who_is_not_there_is_a_problem_and_the_others_are_not_named(tmp_path: Path) -> None:
    (problem,) = problems(tmp_path, {**READERS, "raters": "Meyer"}, [onehot(1, Reader=SECRET)])
    assert (problem.kind, problem.message) == ("unknown rater", "'Reader' never names 'Meyer' among 1 annotators")


# Mistakes in the YAML.


@each(
    ("table", "keys", "message"),
    [
        (ONEHOT, {"reader": "chexpert"}, "'table': only with reader: table; reader 'chexpert' knows its format"),
        ({}, {}, "key 'table.layout' is missing"),
        ({"layout": "wide"}, {}, "'onehot', 'delimited', 'list', 'long', 'readers' or 'dicom', found 'wide'"),
        ({**ONEHOT, "colums": {}}, {}, "unknown key 'table.colums'; did you mean 'columns'?"),
        ({"layout": "delimited", "terms": {}}, {}, "layout 'delimited' needs columns.findings"),
        ({"layout": "long"}, {}, "needs columns.finding; layout 'long' needs 'terms'"),
        ({"layout": "readers"}, {}, "layout 'readers' needs columns.reader"),
        ({**ONEHOT, "columns": {"patient": "MRN"}}, {}, "layout 'onehot' needs columns.image"),
        ({**ONEHOT, "columns": {"image": "File"}}, {}, "columns.patient is needed, or from_path with a group"),
        ({**ONEHOT, "separator": ";"}, {}, "'separator' has no effect with layout 'onehot'"),
        ({**ONEHOT, "columns": {**COLUMNS, "reader": "R"}}, {}, "'columns.reader' has no effect with layout 'onehot'"),
        ({**TERMS, "values": {"positive": [1]}}, {}, "'values' has no effect with layout 'delimited'"),
        ({**VALUED, "values": {"positive": [1]}}, {}, "'values' has no effect with layout 'long'"),
        ({**ONEHOT, "values": {"positive": [0]}}, {}, "'0' is both positive and negative"),
        ({**ONEHOT, "format": "xlsx", "delimiter": ";"}, {}, "'delimiter' has no effect with format 'xlsx'"),
        ({**ONEHOT, "encoding": "shift-jiss"}, {}, "unknown encoding: shift-jiss"),
        ({**ONEHOT, "encoding": "base64"}, {}, "not a text encoding"),
        ({**ONEHOT, "format": "csv", "sheet": "A"}, {}, "'sheet' has no effect with format 'csv'"),
        ({**ONEHOT, "images": {"roots": ["../x"]}}, {}, "'../x' leaves the site's root"),
        ({**ONEHOT, "images": {"path": "{image.__class__"}}, {}, "write fields as {name}"),
        ({**ONEHOT, "images": {"path": "{image[0]}"}}, {}, "write fields as {name}"),
        ({**ONEHOT, "words": {"view": {"x": "front"}}}, {}, "'pa', 'ap', 'frontal'"),
        ({**ONEHOT, "raters": "majority"}, {}, "'raters' has no effect with layout 'onehot'"),
        (
            ONEHOT,
            {"reader": {"name": "table", "raters": "any"}},
            "unknown key 'reader.raters': it is an option of vindr",
        ),
        (ONEHOT, {"label_files": {"labels": ["a.csv"]}}, "label_files takes 'table', or 'train'"),
        (ONEHOT, {"label_files": {"train": ["a.csv"]}}, "columns.split exclude each other"),
        (DICOM, {}, "layout 'dicom' needs label_files.images"),
        ({**DICOM, "format": "csv"}, {"label_files": IMAGES}, "'format' has no effect with layout 'dicom'"),
        (
            {**DICOM, "columns": {"patient": "PatientName", "findings": "ImageComment"}},
            {"label_files": IMAGES},
            "'ImageComment' is not a DICOM element that may be read; did you mean 'ImageComments'?",
        ),
        (
            {**DICOM, "columns": {"patient": "PatientBirthDate", "findings": "ImageComments"}},
            {"label_files": IMAGES},
            "'PatientBirthDate' is not a DICOM element that may be read",
        ),
        (
            {**TERMS, "terms": {"edema": "oedema"}},
            {},
            "oedema: not among the site's 'diseases' (did you mean 'edema'?)",
        ),
        ({**TERMS, "terms": {"edema": "see report"}}, {}, "'edema': unknown meaning"),
        ({**TERMS, "terms": {"edema": "edema; edema absent"}}, {}, "mentions edema more than once"),
        ({**TERMS, "terms": {"edema": "edema", " Edema": "ignore"}}, {}, "has duplicate terms"),
        (TERMS, {"labels": NAMES}, "has terms and no 'labels'"),
        ({**ONEHOT, "terms": {"a": "edema"}}, {}, "'terms' has no effect with layout 'onehot'"),
        (ONEHOT, {"labels": {"edema": ["x"]}}, "'labels' says nothing about cardiomegaly, consolidation"),
    ],
)
def test_a_mistake_in_the_yaml_is_refused(
    tmp_path: Path, table: dict[str, Any], keys: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        config(tmp_path, table, **keys)
    assert message in str(caught.value)
    assert "site.yaml" in str(caught.value)


def test_the_reader_needs_its_block(tmp_path: Path) -> None:
    config(tmp_path, ONEHOT)
    path = tmp_path / "site.yaml"
    path.write_text(path.read_text().split("table:\n  columns")[0])
    with pytest.raises(ConfigError, match="'table': reader 'table' needs it"):
        load_site_config(path)


def test_labels_are_float32_and_the_frame_is_that_of_every_reader(tmp_path: Path) -> None:
    table = open_table(tmp_path, ONEHOT, [onehot(1)])
    assert table.labels().dtype == np.float32
    assert table.frame["age"].dtype == np.float32
    assert table.frame["view"].cat.categories.tolist() == list(VIEWS)
    assert table.frame["split"].cat.categories.tolist() == list(SPLITS)


def test_a_column_may_be_called_row(tmp_path: Path) -> None:
    rows = [onehot(number, row=f"p{number // 2}", Edema="1") for number in range(4)]
    table = open_table(tmp_path, {**ONEHOT, "columns": {**COLUMNS, "patient": "row", "study": "row"}}, rows)
    assert column(table, "patient") == column(table, "study") == ["p0", "p0", "p1", "p1"]
    assert column(table, "row") == [2, 3, 4, 5]


def test_a_word_for_no_split_is_an_empty_cell(tmp_path: Path) -> None:
    words = {**ONEHOT, "words": {"split": {"tbd": "missing"}}}
    (found,) = problems(tmp_path, words, [onehot(1), onehot(2, Set="TBD")])
    assert (found.kind, found.row) == ("image without a split", 3)


def test_numbers_in_a_column_of_floats_are_written_as_whole_ones(tmp_path: Path) -> None:
    cells = {name: [row[name] for row in (onehot(1), onehot(2), onehot(3))] for name in onehot(1)}
    numbers = pa.array([123456789012.0, 4711.0, 0.5])
    (tmp_path / "site").mkdir()
    pq.write_table(pa.table({**cells, "MRN": numbers, "Age": numbers.cast(pa.float16())}), tmp_path / "site/t.parquet")
    shape = {**ONEHOT, "columns": {name: cell for name, cell in COLUMNS.items() if name != "age"}}
    table = open_table(tmp_path, {**shape, "columns": {**shape["columns"], "study": "Age"}}, None, "t.parquet")
    assert column(table, "patient") == ["123456789012", "4711", "0.5"]
    assert column(table, "study") == ["inf", "4712", "0.5"]


@pytest.mark.parametrize("sign", ["\u00e9", '"', "\n"])
def test_a_delimiter_is_a_sign_that_no_csv_needs_for_itself(tmp_path: Path, sign: str) -> None:
    with pytest.raises(ConfigError, match="delimiter': must be an ASCII character"):
        problems(tmp_path, {**ONEHOT, "delimiter": sign}, [onehot(1)])


@each("rows", ['"' + "a" * 200_000, '"edema,edema,yes\neffusion,pleural_effusion,yes\n', '"a" b,edema,yes\n'])
def test_a_mapping_table_that_is_no_csv_is_reported(tmp_path: Path, rows: str) -> None:
    (tmp_path / "x.terms.csv").write_text(f"term,MEANING,confirmed\n{rows}")
    found = problems(tmp_path, {**TERMS, "terms": "x.terms.csv"}, [person(1, Findings="Edema")])
    assert found[0].kind == "malformed CSV"
    assert "x.terms.csv" in found[0].file


def test_a_file_that_a_yaml_names_is_beside_it_when_another_extends_it(tmp_path: Path) -> None:
    terms = "term,MEANING,confirmed\nEdema,edema,yes\n"
    (tmp_path / "x.terms.csv").write_text(terms)
    (tmp_path / "site.splits.csv").write_text("patient,split\np1,test\n")
    splits = {"file": "site.splits.csv"}
    open_table(tmp_path, {**TERMS, "terms": "x.terms.csv"}, [person(1, Findings="Edema")], splits=splits)
    other = tmp_path / "elsewhere/other.yaml"
    other.parent.mkdir()
    other.write_text("extends: ../site.yaml\ntitle: Other\n")
    table = open_site(load_site_config(other), tmp_path)
    assert column(table, "edema") == [1.0]
    assert column(table, "split") == ["test"]


def test_a_label_that_another_column_or_annotator_gives_is_not_counted_as_missing(tmp_path: Path) -> None:
    unknown = {"values": {"missing": ["u"]}}
    rows = [onehot(1, Edema="u"), onehot(2, **{"Edema": "u", "Pulmonary Edema": "u"}), onehot(3)]
    table = open_table(tmp_path, {**ONEHOT, **unknown}, rows)
    assert column(table, "edema") == [0.0, None, 0.0]
    assert table.not_understood == {"values that mean missing": {"edema": 1}}
    both = [{**row, "Reader": reader} for row in rows[:2] for reader in "AB"]
    both[1] |= {"Cardiomegaly": "u"}
    table = open_table(tmp_path, {**READERS, **unknown, "raters": "A"}, [*both, {**rows[2], "Reader": "B"}])
    assert table.not_understood == {"values that mean missing": {"edema": 1}}


def test_a_key_that_the_file_has_no_use_for_is_told(tmp_path: Path) -> None:
    table = open_table(tmp_path, {**ONEHOT, "sheet": "Labels"}, [onehot(1)])
    assert table.notes == ("labels.csv: 'sheet' has no effect with format 'csv'",)


def test_a_column_of_findings_may_be_empty(tmp_path: Path) -> None:
    rows = [person(number, Finding="", Value="1") for number in (1, 2)]
    assert column(open_table(tmp_path, VALUED, rows), "edema") == [None, None]

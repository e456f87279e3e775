"""What values mean: codes, the code book's file, numbers, and everything that is refused rather than guessed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chestfed.core.diseases import DISEASES, TITLES
from chestfed.core.errors import ConfigError, SiteError
from chestfed.sites import load_site_config, open_site
from chestfed.sites.reader import plain_id
from chestfed.sites.tables.codebook import COLUMNS as BOOK
from chestfed.sites.tables.codebook import EMPTY, Code, parse_code, read_book, write_book
from tests.cases import each
from tests.sites.own_tables import (
    COLUMNS,
    LONG,
    NAMES,
    READERS,
    TERMS,
    WIDE,
    config,
    labels,
    open_table,
    person,
    problems,
    wide,
)
from tests.sites.small_sites import column

N = None
VALUED: dict[str, Any] = {**LONG, "columns": {**COLUMNS, "finding": "Finding", "value": "Value"}}
ROOTED: dict[str, Any] = {"images": {"path": "{patient}/{image}", "roots": ["a", "b"]}}
#: Stands in cells that must not come out again.
SECRET = "Jane Doe"


def test_codes_are_added_to_the_known_words(tmp_path: Path) -> None:
    row = wide(1, "ja", "nein", "?", "n.d.", "yes", Projection="1", Set="Lernen", Sex="w", Age="N/A")
    row["Pulmonary Edema"] = "nein"
    codes = {
        "labels": {"ja": "positive", "nein": "negative", "?": "uncertain", "n.d.": "blank"},
        **{"view": {1: "pa"}, "split": {"lernen": "train"}, "sex": {"W": "F"}},
    }
    opened = open_table(tmp_path, {"codes": codes, "missing": ["n/a"]}, [row], uncertain="positive")
    assert labels(opened) == [[1, 0, 1, N, 1]]
    assert [column(opened, name) for name in ("view", "split", "sex", "age")] == [["pa"], ["train"], ["F"], [N]]
    codes |= {"Cardiomegaly": {"ja": "negative"}, "Projection": {"1": "ap"}}
    opened = open_table(tmp_path, {"codes": codes, "missing": ["n/a"]}, [row], uncertain="positive")
    assert (labels(opened)[0][0], column(opened, "view")) == (0, ["ap"])


def test_accents_of_two_kinds_are_the_same(tmp_path: Path) -> None:
    row = {**wide(1, Projection="Thorax a\u0300 plat"), "O\u0308deme": 1, "Sexe\u0301": "Ma\u0302le"}
    codes = {"view": {"thorax a\u0300 plat": "ap"}, "sex": {"m\u00e2le": "M"}}
    table = {"columns": {**COLUMNS, "sex": "Sex\u00e9"}, "codes": codes}
    opened = open_table(tmp_path, table, [row], labels={**NAMES, "edema": ["\u00d6deme"]})
    assert (column(opened, "view"), column(opened, "sex"), labels(opened)[0][1]) == (["ap"], ["M"], 1)


#: Cells of a label column, the codes of its numbers, and its labels (u: uncertain); None if numbers are unknown.
NUMBERS: list[tuple[str, dict[str, str], str | None]] = [
    ("0101", {}, "0101"),
    ("0 1 1.0 0,0", {}, "0110"),
    ("1212", {}, None),
    ("1212", {"2": "positive"}, None),  # 1 is absent there
    ("1212", {"1": "negative", "2": "positive"}, "0101"),
    ("0121", {"2": "positive"}, None),
    ("0121", {"0": "negative", "1": "uncertain", "2": "positive"}, "0u1u"),
    ("0 1 -1 1", {"-1": "uncertain"}, None),
    ("0 1 -1 99", {"0": "negative", "1": "positive", "-1": "missing", "99": "missing"}, "01NN"),
    ("0 1 5 yes", {}, None),
    ("0101", {"0": "positive", "1": "negative"}, "1010"),
]


@each(("cells", "codes", "expected"), NUMBERS)
def test_numbers_of_a_column_are_one_code_book(
    tmp_path: Path, cells: str, codes: dict[str, str], expected: str | None
) -> None:
    rows = [
        wide(place, cell, *"0000") | {"Pulmonary Edema": ""}
        for place, cell in enumerate(cells.split() if " " in cells else cells)
    ]
    rows = [{**row, **dict.fromkeys([names[0] for names in list(NAMES.values())[1:]], "no")} for row in rows]
    table = {"codes": {"Cardiomegaly": codes}} if codes else {}
    if expected is None:
        assert {problem.kind for problem in problems(tmp_path, table, rows)} == {"unknown label"}
        return
    code = {"0": 0.0, "1": 1.0, "u": 9.0, "N": N}
    found = open_table(tmp_path, table, rows, uncertain="positive", diseases=list(DISEASES))
    doubts = open_table(tmp_path, table, rows, uncertain="negative")
    pairs = zip(column(found, "cardiomegaly"), column(doubts, "cardiomegaly"), strict=True)
    assert [one if one == other else 9.0 for one, other in pairs] == [code[letter] for letter in expected]


def test_a_number_of_one_column_makes_codes_of_all(tmp_path: Path) -> None:
    rows = [wide(1, *"21111"), wide(2, *"11211")]  # nobody has an edema: 1 is absent
    for row in rows:
        row["Pulmonary Edema"] = "1"
    found = problems(tmp_path, {"codes": {"Cardiomegaly": {"1": "negative", "2": "positive"}}}, rows)
    named = " ".join(problem.message for problem in found)
    assert all(f"'{name}'" in named for name in ("Edema", "Effusion", "Pulmonary Edema", "Consolidation"))
    assert labels(open_table(tmp_path, {"codes": {"labels": {"1": "negative", "2": "positive"}}}, rows)) == [
        [1, 0, 0, 0, 0],
        [0, 0, 1, 0, 0],
    ]


def test_unknown_values_come_in_one_report(tmp_path: Path) -> None:
    rows = [wide(n, "often" if n < 3 else SECRET if n == 3 else "1", *"0000", Projection="L") for n in range(6)]
    rows[5] |= {"Cardiomegaly": "often", "MRN": "p0"}
    view, label = problems(tmp_path, {}, rows)
    assert (view.kind, label.kind, view.row, label.row) == ("unknown view", "unknown label", N, N)
    assert (view.rows, label.rows) == ((2, 3, 4, 5, 6, 7), (2, 3, 4, 5, 7))
    assert "'l' (6 rows)" in view.message
    assert "2 values of unknown meaning: 'often' (4 rows); 1 other value, first in row 5" in label.message
    assert SECRET not in str(label)
    few = problems(tmp_path, {}, [wide(n, "rare", *"0000", MRN=f"p{n // 2}") for n in range(4)])
    assert "rare" not in str(few)  # of two patients


def test_ages_may_be_words_and_codes(tmp_path: Path) -> None:
    rows = [wide(1, Age="85 or more"), wide(2, Age="80"), wide(3, Age="011M")]
    table = {"codes": {"age": {"85 or More": 85}}}
    assert column(open_table(tmp_path, table, rows), "age") == [85, 80, 0]
    table = {"codes": {"age": {"1": 15, "2": 25.5, "4": "missing"}}}
    assert column(open_table(tmp_path, table, [wide(n, Age=n) for n in (1, 2, 3, 4)]), "age") == [15, 25, 3, N]
    assert [problem.kind for problem in problems(tmp_path, {}, rows)] == ["unknown age"]


def test_a_word_for_no_split_is_an_empty_cell(tmp_path: Path) -> None:
    codes = {"codes": {"split": {"tbd": "missing"}}}
    (problem,) = problems(tmp_path, codes, [wide(1), wide(2, Set="TBD")])
    assert (problem.kind, problem.row) == ("image without a split", 3)


def test_filter_columns_drop_rows_and_count_them(tmp_path: Path) -> None:
    parts = ["CHEST", "Abdomen", "", "CHEST"]
    rows = [wide(number, BodyPart=part) for number, part in enumerate(parts)]
    table = {"keep": ["BodyPart"], "codes": {"keep": {"chest": "keep", "ABDOMEN": "drop"}}}
    opened = open_table(tmp_path, table, rows)
    assert column(opened, "image") == ["0.png", "2.png", "3.png"]
    assert opened.notes == ("labels.csv: 1 of 4 rows are left out by 'BodyPart' (table.keep)",)
    (problem,) = problems(tmp_path, {**table, "codes": {"keep": {"chest": "keep"}}}, rows)
    assert (problem.kind, problem.row) == ("unknown keep", 3)


def test_a_disease_of_one_class_is_refused_unless_named(tmp_path: Path) -> None:
    rows = [wide(1, *"10111"), wide(2, *"00000")]
    (problem,) = problems(tmp_path, {}, rows, one_class=[])
    assert (problem.kind, "edema has 0 positive and 2 negative" in problem.message) == ("one class", True)
    assert problems(tmp_path, {}, rows, one_class=["edema"]) == []


# Patients.


def test_a_centre_qualifies_its_patients(tmp_path: Path) -> None:
    rows = [wide(1, MRN="17", Centre="A"), wide(2, MRN="17", Centre="B", Set="test")]
    assert [problem.kind for problem in problems(tmp_path, {}, rows)] == ["patient in two splits"]
    table = open_table(tmp_path, {"patient_prefix": "Centre"}, rows)
    assert column(table, "patient") == column(table, "study") == ["A/17", "B/17"]
    (problem,) = problems(tmp_path, {"patient_prefix": "Centre"}, [*rows, wide(3, Centre="", Set="train")])
    assert (problem.kind, problem.row) == ("blank name", 4)


@each("dates", [["2019-01-02", "2020-11-30"], ["20190102"], ["02.01.2019", "30.11.20"], ["2019-01-02 10:11"]])
def test_dates_are_no_patients(tmp_path: Path, dates: list[str]) -> None:
    rows = [wide(number, MRN=date) for number, date in enumerate(dates)]
    assert [problem.kind for problem in problems(tmp_path, {}, rows)] == ["dates as patients"]
    assert problems(tmp_path, {}, [*rows, wide(9, MRN="20191332")]) == []


@each(
    ("one", "other", "same"),
    [
        ("P0001", "p0001 ", True),
        ("100000", "100000.0", True),
        ("A 17", "a17", True),
        ("A\u200b1", "A1", True),
        ("7", "007", True),
        ("P1", "P2", False),
    ],
)
def test_ids_that_differ_in_spelling_are_one_patient(tmp_path: Path, one: str, other: str, same: bool) -> None:
    assert (plain_id(one) == plain_id(other)) == same
    rows = [wide(1, MRN=one), wide(2, MRN=other, Set="test")]
    kinds = {problem.kind for problem in problems(tmp_path, {}, rows)}
    assert kinds <= {"similar patients", "patient in two splits"}
    assert bool(kinds) == same
    assert problems(tmp_path, {}, [rows[0], {**rows[1], "Set": "train"}]) == []


# Every mistake by kind, file and row, with advice, and without the cell.

BAD_ROWS: list[tuple[dict[str, Any], dict[str, object], str]] = [
    (WIDE, wide(2, SECRET, *"0000"), "unknown label"),
    (WIDE, wide(2, MRN=""), "blank name"),
    (WIDE, wide(2, MRN="NULL"), "blank name"),
    (WIDE, wide(2, MRN="1.23457E+17"), "rounded number"),
    (WIDE, wide(2, File=""), "blank name"),
    (WIDE, wide(2, File="1.png"), "duplicate image"),
    (WIDE, wide(2, File="./1.png"), "duplicate image"),
    (WIDE, wide(2, MRN="p1", Set="test"), "patient in two splits"),
    *(
        (table, wide(2, File=f"{beginning}{SECRET}.png"), "path outside the root")
        for table in (WIDE, ROOTED)
        for beginning in ("../", "/", "C:/", "C:\\", "https://x.org/")
    ),
    (ROOTED, wide(2, MRN=f"../../{SECRET}"), "path outside the root"),
    (WIDE, wide(2, Projection=SECRET), "unknown view"),
    (WIDE, wide(2, Set=SECRET), "unknown split"),
    (WIDE, wide(2, Set=""), "image without a split"),
    (WIDE, wide(2, Sex=SECRET), "unknown sex"),
    *((WIDE, wide(2, Age=age), "unknown age") for age in ("121", "-3", SECRET)),
    (WIDE, wide(2, File="Summe:"), "total row"),
    (TERMS, person(2, Findings=f"Edema|{SECRET}"), "unknown finding"),
    (TERMS, person(2, Findings="no no Edema"), "unknown finding"),
    (TERMS, person(2, Findings="possible Normal"), "unknown finding"),
    (TERMS, person(2, Findings="Edema|Normal"), "contradictory labels"),
    (TERMS, person(2, Findings="Edema|no Edema"), "contradictory labels"),
    (TERMS, person(2, Findings="__import__('os')"), "unknown finding"),
    *((TERMS, person(2, Findings=cell), "bad label value") for cell in (f"['{SECRET}'", "[1]", "[" * 9000)),
    (LONG, person(2, Finding=SECRET), "unknown finding"),
    (LONG, person(1, Finding="Edema", MRN="other"), "contradictory rows"),
    (LONG, person(1, Finding="Normal"), "contradictory labels"),
    (VALUED, person(2, Finding="Edema", Value=SECRET), "unknown label"),
    (VALUED, person(2, Finding="Edema", Value="2"), "unknown label"),
    (READERS, wide(2, Reader=""), "blank name"),
    (READERS, wide(1, Reader="Meyer"), "duplicate image"),
    (READERS, wide(1, Reader="Schulz", Age="64"), "contradictory rows"),
]


@each(("table", "row", "kind"), BAD_ROWS)
def test_a_bad_row_is_named_and_its_cell_is_not_shown(
    tmp_path: Path, table: dict[str, Any], row: dict[str, object], kind: str
) -> None:
    good = person(1, Findings="Edema", Finding="Edema", Value="yes", Reader="Meyer") | wide(1)
    expected = 2 if table is LONG and row.get("Finding") == "Normal" else 3
    found = problems(tmp_path, table, [good, row])
    assert [(problem.kind, problem.file, problem.row) for problem in found] == [(kind, "labels.csv", expected)]
    assert all(problem.advice for problem in found)
    assert SECRET not in f"{found}"


def test_all_problems_come_together(tmp_path: Path) -> None:
    rows = [wide(1, Age="200"), wide(2, Sex="x", MRN=""), wide(3, "2", *"0000", Projection="?"), wide(1)]
    kinds = {problem.kind for problem in problems(tmp_path, {}, rows)}
    assert kinds == {"blank name", "duplicate image", *(f"unknown {kind}" for kind in ("age", "label", "sex", "view"))}


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cell=st.text(max_size=40), name=st.sampled_from(["Findings", "Projection", "Age", "Sex", "Set"]))
def test_no_cell_breaks_the_reader_or_is_shown(tmp_path: Path, cell: str, name: str) -> None:
    rows = [{**person(1, Findings="Edema"), name: f"{cell}{SECRET}"}]
    with pytest.raises(SiteError) as caught:
        open_table(tmp_path, TERMS, rows, "labels.parquet")
    assert SECRET.lower() not in str(caught.value).lower()


def test_an_annotator_who_is_not_there_is_a_problem(tmp_path: Path) -> None:
    (problem,) = problems(tmp_path, {**READERS, "raters": "Meyer"}, [wide(1, Reader=SECRET)])
    assert (problem.kind, SECRET in str(problem)) == ("unknown rater", False)


def test_columns_that_are_not_there_once_are_named(tmp_path: Path) -> None:
    table = {"columns": {**COLUMNS, "patient": "mrm", "age": "Years"}}
    first, second = problems(tmp_path, table, [wide(1)])
    assert (first.kind, first.file, first.row) == ("missing column", "labels.csv", 1)
    assert "(the nearest is 'MRN')" in first.message
    assert "'Years'" in second.message
    (problem,) = problems(tmp_path, {}, [wide(1)], labels={**NAMES, "edema": ["Edema_{reader}"]})
    assert problem.kind == "missing column"
    headless = problems(tmp_path, {}, [{SECRET: "0", "Berlin": "1"}])
    assert {problem.kind for problem in headless} == {"missing column"}
    assert SECRET not in str(headless)


# Mistakes in the YAML.

DICOM = {"columns": {"patient": "PatientID", "findings": "ImageComments"}}
IMAGES = {"label_files": {"images": ["**/*.dcm"]}}
MISTAKES: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({}, {"reader": "chexpert"}, "'table': only with reader: table; reader 'chexpert' knows its format"),
    ({"colums": {}}, {}, "unknown key 'table.colums'; did you mean 'columns'?"),
    ({"layout": "onehot"}, {}, "unknown key 'table.layout'"),
    ({"columns": {"patient": "MRN"}}, {}, "columns.image is needed"),
    ({"columns": {"image": "File"}}, {}, "columns.patient is needed, or from_path with a group"),
    ({"columns": {**COLUMNS, "value": "V"}}, {}, "columns.value needs columns.finding"),
    ({"columns": {**COLUMNS, "finding": "F", "findings": "G"}}, {}, "findings and finding exclude each other"),
    ({"separator": ";"}, {}, "'separator' has no effect without columns.findings"),
    ({"other_terms": "ignore"}, {}, "'other_terms' has no effect"),
    ({"raters": "majority"}, {}, "'raters' has no effect without annotators"),
    ({**READERS}, {"labels": {**NAMES, "edema": ["E_{reader}"]}}, "exclude each other"),
    ({"any_column": ["mass"]}, {}, "any_column: mass: not among"),
    ({"any_column": ["atelectasis"]}, {}, "any_column: atelectasis has one column"),
    ({"threshold": {"mass": 1}}, {}, "threshold: mass: not among"),
    ({**TERMS, "threshold": 1}, {}, "'threshold' has no effect"),
    ({"encoding": "shift-jiss"}, {}, "unknown encoding: shift-jiss"),
    ({"delimiter": '"'}, {}, "must be an ASCII character"),
    ({"images": {"roots": ["../x"]}}, {}, "'../x' leaves the site's root"),
    ({"images": {"path": "{image.__class__"}}, {}, "write fields as {name}"),
    ({"images": {"path": "{image[0]}"}}, {}, "write fields as {name}"),
    ({"codes": {"view": {"x": "front"}}}, {}, "codes: 'view', 'x': unknown meaning of a view"),
    ({"codes": {"Edema": {"x": "edema"}}}, {}, "unknown meaning of a label"),
    ({"codes": {"Oedema": {"x": "positive"}}}, {}, "'Oedema' is neither a column that is read"),
    ({"codes": {"labels": {"1": "positive", "1.0": "negative"}}}, {}, "'labels' has a value twice"),
    ({**TERMS, "codes": {"findings": {"edema": "oedema"}}}, {}, "oedema: not among the site's 'diseases'"),
    ({**TERMS, "codes": {"findings": {"edema": "see report"}}}, {}, "unknown meaning"),
    ({**TERMS, "codes": {"findings": {"edema": "edema; edema absent"}}}, {}, "mentions edema more than once"),
    (TERMS, {"labels": NAMES}, "remove 'labels'"),
    ({}, {"labels": {"edema": ["x"]}}, "'labels' says nothing about cardiomegaly, consolidation"),
    ({}, {"one_class": ["mass"]}, "mass: not among the site's 'diseases'"),
    ({}, {"reader": {"name": "table", "raters": "any"}}, "unknown key 'reader.raters': it is an option of vindr"),
    ({}, {"label_files": {"labels": ["a.csv"]}}, "label_files takes 'table', or 'train'"),
    ({}, {"label_files": {"train": ["a.csv"]}}, "columns.split exclude each other"),
    ({**DICOM, "delimiter": ";"}, IMAGES, "'delimiter' has no effect where label_files has images"),
    ({"columns": {**DICOM["columns"], "image": "x"}}, IMAGES, "'columns.image' has no effect"),
    ({"columns": {"patient": "PatientID", "findings": "ImageComment"}}, IMAGES, "did you mean 'ImageComments'?"),
    ({"columns": {"patient": "PatientBirthDate", "findings": "ImageComments"}}, IMAGES, "not a DICOM element that may"),
    ({**DICOM, "keep": ["PatientName"]}, IMAGES, "may identify a person"),
]


@each(("table", "keys", "message"), MISTAKES)
def test_a_mistake_in_the_yaml_is_refused(
    tmp_path: Path, table: dict[str, Any], keys: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        config(tmp_path, table, **keys)
    assert message in str(caught.value)
    assert "site.yaml" in str(caught.value)


# The code book's file.


def test_a_code_book_is_read_as_it_is_written(tmp_path: Path) -> None:
    codes = [
        Code("", "finding", "", 3, "", "", "missing", "yes"),
        Code("", "finding", "=cmd", 1),
        Code("", "finding", "(empty)", 1, "edema", "a word, 'x'", "edema absent; mass uncertain", "lexicon"),
        Code("-Heart", "label", "-1", 12, "", "", "uncertain", "yes"),
        Code("", "age", "85 or more", 1, "", "", "85", "yes"),
        Code("Part", "keep", "hand", 1, "drop", "", "drop", "yes"),
    ]
    write_book(tmp_path / "x.codes.csv", codes)
    text = (tmp_path / "x.codes.csv").read_text()
    assert not [cell for line in text.splitlines() for cell in line.split(",") if cell.startswith(("=", "-", "@"))]
    assert read_book(tmp_path / "x.codes.csv", ["edema", "mass"]) == (codes, [])


@each("how", ["utf-8-sig", "utf-16", "cp1252", "semicolons", "quotes", "blank rows"])
def test_a_code_book_may_be_saved_by_any_program(tmp_path: Path, how: str) -> None:
    code = Code("", "finding", "kein ödem größer", 3, "", "", "edema absent", "yes")
    path = tmp_path / "x.codes.csv"
    write_book(path, [code])
    text = path.read_text(encoding="utf-8").replace(",yes", ",X")
    change: dict[str, Callable[[], str]] = {
        "semicolons": lambda: text.replace(",", ";"),
        "quotes": lambda: "\n".join('"' + line.replace(",", '","') + '"' for line in text.splitlines()),
        "blank rows": lambda: text.replace("\n", "\r\n\r\n"),
    }
    path.write_bytes(change.get(how, lambda: text)().encode(how if how[:2] in ("ut", "cp") else "utf-8"))
    assert read_book(path, ["edema"]) == ([code], [])


@each(
    ("line", "kind"),
    [
        (",finding,x,1,,,oedemaa,yes", "unknown meaning"),
        (",finding,x,1,,,mass,yes", "unknown meaning"),
        (",finding,x,1,,,,yes", "unknown meaning"),
        (",finding,x,1,,,edema,maybe", "unknown confirmation"),
        (",finding,EDEMA ,1,,,ignore,yes", "duplicate value"),
        (",finding,,1,,,edema,yes", "blank name"),
        (",word,x,1,,,edema,yes", "unknown kind"),
        (",label,x,1,,,edema,yes", "unknown meaning"),
        (",age,x,1,,,130,yes", "unknown meaning"),
    ],
)
def test_a_mistake_in_a_code_book_has_its_row(tmp_path: Path, line: str, kind: str) -> None:
    path = tmp_path / "x.codes.csv"
    path.write_text(f"{','.join(BOOK)}\n,finding,edema,1,,,edema,yes\n{line}\n")
    codes, (problem,) = read_book(path, ["edema"])
    assert (problem.kind, problem.file, problem.row) == (kind, "x.codes.csv", 3)
    assert not any(code.known for code in codes if code.value != "edema")
    found = problems(tmp_path, {**TERMS, "codes": "x.codes.csv"}, [person(1, Findings="Edema")], diseases=["edema"])
    assert found == [problem]


@each("text", ["", "column,kind\n", '"' + "a" * 200_000, f'{",".join(BOOK)}\n,finding,"a,1,,,edema,yes\n'])
def test_a_file_that_is_no_code_book_is_reported(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.codes.csv").write_text(text)
    found = problems(tmp_path, {**TERMS, "codes": "x.codes.csv"}, [person(1, Findings="Edema")])
    assert found[0].kind in ("malformed CSV", "missing column")
    assert found[0].file == "x.codes.csv"


def test_a_denial_is_not_read_where_cells_are_cut_at_commas(tmp_path: Path) -> None:
    code = Code("", "finding", "no edema", 1, "", "", "edema absent", "yes")
    write_book(tmp_path / "x.codes.csv", [code])
    for separator, kinds in ((",", ["unsafe separator"]), (";", [])):
        assert [problem.kind for problem in read_book(tmp_path / "x.codes.csv", ["edema"], separator)[1]] == kinds


def test_only_confirmed_codes_count(tmp_path: Path) -> None:
    codes = [Code("", "finding", "edema", meaning="edema", confirmed="yes")]
    codes.append(Code("", "finding", "fluid", meaning="edema"))
    write_book(tmp_path / "x.codes.csv", codes)
    rows = [person(1, Findings="Edema"), person(2, Findings="fluid")]
    table = {**TERMS, "codes": "x.codes.csv"}
    (problem,) = problems(tmp_path, table, rows)
    assert (problem.kind, problem.row) == ("unknown finding", 3)
    for other in ("missing", "ignore"):
        opened = open_table(tmp_path, {**table, "other_terms": other}, rows, blank="negative", diseases=["edema"])
        assert column(opened, "edema") == [1, N]
        assert opened.not_understood == {"terms not confirmed": {"edema": 1}}
        assert "1 findings of x.codes.csv are not confirmed; in 1 of 2 images" in opened.notes[0]
    write_book(tmp_path / "x.codes.csv", [codes[0], replace(codes[1], confirmed="lexicon")])
    assert column(open_table(tmp_path, table, rows, diseases=["edema"]), "edema") == [1, 1]


def test_every_meaning_can_be_read_back() -> None:
    for text in ("normal", "ignore", "missing", *(f"{d}{s}" for d in TITLES for s in ("", " absent", " uncertain"))):
        assert parse_code("finding", text) == text
    assert parse_code("finding", " Pleural  Effusion ; mass ABSENT") == "pleural_effusion; mass absent"
    assert EMPTY not in ("normal", "ignore")


def test_files_of_a_yaml_are_beside_it_wherever_it_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_book(tmp_path / "x.codes.csv", [Code("", "finding", "edema", meaning="edema", confirmed="yes")])
    (tmp_path / "site.splits.csv").write_text("patient,split\np1,test\n")
    splits = {"file": "site.splits.csv"}
    open_table(tmp_path, {**TERMS, "codes": "x.codes.csv"}, [person(1, Findings="Edema")], splits=splits)
    other = tmp_path / "elsewhere/other.yaml"
    other.parent.mkdir()
    other.write_text("extends: ../site.yaml\ntitle: Other\n")
    monkeypatch.chdir(tmp_path)
    for path in (other, Path("elsewhere/other.yaml"), Path("site.yaml")):
        table = open_site(load_site_config(path), tmp_path)
        assert (column(table, "edema"), column(table, "split")) == ([1.0], ["test"])

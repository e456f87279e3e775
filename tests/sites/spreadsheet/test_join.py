"""The reader for a hospital's own table: files joined by a key, what the image's path tells, JSON, words for ages."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chestfed.core.errors import ConfigError
from chestfed.sites import open_site
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
PEOPLE: dict[str, Any] = {"file": "people", "key": ["MRN", "ID"], "columns": ["Sex", "Age"]}
FILES = {"table": ["labels.csv"], "people": ["people.csv"]}
#: Stands in cells that must not come out again.
SECRET = "Jane Doe"


def images(*numbers: int, **cells: object) -> list[dict[str, object]]:
    """Rows that do not tell the patient's sex and age."""
    rows = [onehot(number, **cells) for number in numbers]
    return [{name: cell for name, cell in row.items() if name not in ("Sex", "Age")} for row in rows]


def people(folder: Path, *rows: dict[str, object], file: str = "people.csv") -> None:
    save_rows(folder / "site" / file, rows)


# A second file.


def test_columns_of_a_second_file_are_joined_by_a_key(tmp_path: Path) -> None:
    people(tmp_path, {"ID": "p2", "Age": 44, "Sex": "M"}, {"ID": "p1", "Age": 63, "Sex": "F"}, {"ID": "p9", "Sex": ""})
    table = open_table(tmp_path, {**ONEHOT, "join": [PEOPLE]}, images(1, 2), label_files=FILES)
    assert (column(table, "sex"), column(table, "age")) == (["F", "M"], [63, 44])
    assert column(table, "row") == [2, 3]


@each("file", ["people.tsv", "people.csv.gz", "people.xlsx", "people.parquet"])
def test_the_second_file_has_a_format_of_its_own(tmp_path: Path, file: str) -> None:
    people(tmp_path, {"ID": "p1", "Sex": "F", "Age": "63"}, file=file)
    table = open_table(tmp_path, {**ONEHOT, "join": [PEOPLE]}, images(1), label_files={**FILES, "people": [file]})
    assert (column(table, "sex"), column(table, "age")) == (["F"], [63])


def test_labels_too_may_stand_in_the_second_file(tmp_path: Path) -> None:
    rows = [person(number) for number in (1, 2)]
    found = [{"File": f"{number}.png", "Findings": cell} for number, cell in ((2, "Normal"), (1, "Edema|no effusion"))]
    people(tmp_path, *found)
    join = {"file": "people", "key": ["File"], "columns": ["Findings"]}
    table = open_table(tmp_path, {**TERMS, "join": [join]}, rows, label_files=FILES)
    assert labels(table) == [[None, 1, None, None, 0], [0] * 5]


def test_rows_whose_key_is_not_in_the_second_file_are_reported_with_their_row(tmp_path: Path) -> None:
    people(tmp_path, {"ID": "p1", "Sex": "F", "Age": 63})
    rows = [*images(1), *images(2, MRN=SECRET), *images(3, MRN="")]
    found = problems(tmp_path, {**ONEHOT, "join": [PEOPLE]}, rows, label_files=FILES)
    unmatched = [problem for problem in found if problem.kind == "unmatched row"]
    assert [(problem.file, problem.row) for problem in unmatched] == [("labels.csv", 3), ("labels.csv", 4)]
    assert "'MRN' is not in the joined file 'people'" in unmatched[0].message
    assert "'MRN' is empty" in unmatched[1].message
    assert SECRET not in str(found)


def test_rows_whose_key_is_not_in_the_second_file_may_be_left_out_or_keep_blanks(tmp_path: Path) -> None:
    people(tmp_path, {"ID": "p1", "Sex": "F", "Age": 63})
    for unmatched, expected in (("drop", ["1.png"]), ("blank", ["1.png", "2.png"])):
        join = {**PEOPLE, "unmatched": unmatched}
        table = open_table(tmp_path, {**ONEHOT, "join": [join]}, images(1, 2), label_files=FILES)
        assert column(table, "image") == expected
        assert column(table, "sex") == ["F", None][: len(expected)]


def test_a_second_file_without_columns_only_says_which_rows_are_kept(tmp_path: Path) -> None:
    people(tmp_path, {"File": "2.png"}, {"File": "2.png"})
    join = {"file": "people", "key": ["File"], "unmatched": "drop"}
    rows = [onehot(1), onehot(2)]
    assert column(open_table(tmp_path, {**ONEHOT, "join": [join]}, rows, label_files=FILES), "image") == ["2.png"]


def test_a_key_that_fits_nowhere_is_one_problem_and_not_one_per_row(tmp_path: Path) -> None:
    people(tmp_path, {"ID": "001", "Sex": "F", "Age": 63})
    for unmatched in ("report", "blank", "drop"):
        join = {**PEOPLE, "unmatched": unmatched}
        (found,) = problems(tmp_path, {**ONEHOT, "join": [join]}, images(1, 2, 3), label_files=FILES)
        assert (found.kind, found.row) == ("nothing left", None)
        assert "no 'MRN' is in 'ID' of the joined file" in found.message


def test_the_second_file_may_repeat_itself_but_not_contradict_itself(tmp_path: Path) -> None:
    same = {"ID": "p1", "Sex": "F", "Age": 63, "Visit": 1}
    people(tmp_path, same, {**same, "Visit": 2}, {**same, "Visit": 3, "Age": 64})
    (found,) = problems(tmp_path, {**ONEHOT, "join": [PEOPLE]}, images(1), label_files=FILES)
    assert (found.kind, found.file, found.row) == ("contradictory rows", "people.csv", 4)
    people(tmp_path, same, {**same, "Visit": 2})
    assert problems(tmp_path, {**ONEHOT, "join": [PEOPLE]}, None, label_files=FILES) == []


def test_accents_of_two_kinds_are_the_same_key_and_the_same_patient(tmp_path: Path) -> None:
    people(tmp_path, {"ID": "Jo\u0308rg", "Age": 44, "Sex": "M"})
    rows = images(1, MRN="J\u00f6rg") + images(2, MRN="Jo\u0308rg")
    table = open_table(tmp_path, {**ONEHOT, "join": [PEOPLE]}, rows, label_files=FILES)
    assert (column(table, "patient"), column(table, "age")) == (["J\u00f6rg"] * 2, [44, 44])


def test_a_chain_of_files_is_joined_in_its_order(tmp_path: Path) -> None:
    people(tmp_path, {"ID": "p1", "Ward": "w7"})
    save_rows(tmp_path / "site" / "wards.csv", [{"Ward": "w7", "Sex": "F", "Age": "63"}])
    chain = [
        {"file": "people", "key": ["MRN", "ID"], "columns": ["Ward"]},
        {"file": "wards", "key": ["Ward"], "columns": ["Sex", "Age"]},
    ]
    files = {**FILES, "wards": ["wards.csv"]}
    assert column(open_table(tmp_path, {**ONEHOT, "join": chain}, images(1), label_files=files), "sex") == ["F"]


def test_a_joined_column_counts_where_the_table_has_one_of_that_name(tmp_path: Path) -> None:
    people(tmp_path, {"ID": "p1", "Sex": "M", "Age": 63})
    table = open_table(tmp_path, {**ONEHOT, "join": [PEOPLE]}, [onehot(1, Sex="F")], label_files=FILES)
    assert column(table, "sex") == ["M"]


def test_beside_a_label_file_that_is_given_alone_the_second_one_is_looked_for(tmp_path: Path) -> None:
    people(tmp_path, {"ID": "p1", "Sex": "F", "Age": 63})
    save_rows(tmp_path / "site" / "other_name.csv", images(1))
    site = config(tmp_path, {**ONEHOT, "join": [PEOPLE]}, label_files=FILES)
    table = open_site(site, tmp_path / "nowhere", tmp_path / "site" / "other_name.csv")
    assert column(table, "sex") == ["F"]


@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(order=st.permutations(range(6)), left_out=st.sets(st.integers(0, 5), max_size=5), extra=st.booleans())
def test_the_order_of_the_second_file_does_not_matter(
    tmp_path: Path, order: list[int], left_out: set[int], extra: bool
) -> None:
    told = [
        {"ID": f"p{number}", "Sex": "FM"[number % 2], "Age": 20 + number} for number in order if number not in left_out
    ]
    people(tmp_path, *told, *([{"ID": "x", "Sex": "F", "Age": 1}] if extra else []))
    join = {**PEOPLE, "unmatched": "blank"}
    table = open_table(tmp_path, {**ONEHOT, "join": [join]}, images(*range(6)), label_files=FILES)
    ages = [None if number in left_out else 20 + number for number in range(6)]
    assert column(table, "age") == ages


def test_what_is_wrong_with_the_second_file_is_reported_under_its_name(tmp_path: Path) -> None:
    table = {**ONEHOT, "join": [PEOPLE]}
    (found,) = problems(tmp_path, table, images(1), label_files=FILES)
    assert (found.kind, found.file) == ("missing file", "people.csv")
    people(tmp_path, {"ID": "p1", "Gender": "F", "Age": 63})
    (found,) = problems(tmp_path, table, None, label_files=FILES)
    assert (found.kind, found.file) == ("missing column", "people.csv")
    assert "no column 'Sex'" in found.message


@each(
    ("joins", "message"),
    [
        ([{**PEOPLE, "file": "persons"}], "'persons' is not a role in label_files"),
        ([{**PEOPLE, "file": "table"}], "'table' is the table itself"),
        ([PEOPLE, {**PEOPLE, "key": ["File"]}], "'Sex' is taken from two joined files"),
        ([{**PEOPLE, "columns": ["Sex", "Sex"]}], "duplicate column in 'columns'"),
        ([{**PEOPLE, "columns": [], "unmatched": "blank"}], "has no effect without"),
        ([{**PEOPLE, "format": "parquet", "delimiter": ";"}], "'delimiter' has no effect with format 'parquet'"),
        ([{**PEOPLE, "key": []}], "key"),
        ([{**PEOPLE, "key": ["Sex"]}], "the key 'Sex' of the file 'people' is not known before it is taken"),
    ],
)
def test_a_mistake_in_a_join_is_refused(tmp_path: Path, joins: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(ConfigError, match="join") as caught:
        config(tmp_path, {**ONEHOT, "join": joins}, label_files=FILES)
    assert message in str(caught.value)


# What the path tells.

PATHED: dict[str, Any] = {
    **ONEHOT,
    "columns": {"image": "File"},
    "from_path": r"(?P<patient>patient\d+)/(?P<study>study\d+)/view\d+_(?P<view>\w+)\.",
    "words": {"view": {"frontal": "frontal", "side": "lateral"}},
}


def test_patient_study_and_view_are_read_from_the_path_of_the_image(tmp_path: Path) -> None:
    rows = [
        onehot(1, File="train/patient1/study1/view1_frontal.jpg"),
        onehot(2, File="train/patient1/study2/view1_side.jpg"),
    ]
    table = open_table(tmp_path, PATHED, rows)
    assert column(table, "patient") == ["patient1"] * 2
    assert column(table, "study") == ["study1", "study2"]
    assert column(table, "view") == ["frontal", "lateral"]


def test_the_split_may_be_read_from_the_path_and_crossing_patients_are_found(tmp_path: Path) -> None:
    table = {**ONEHOT, "columns": {"image": "File"}, "from_path": "^(?P<split>[^/]+)/(?P<patient>[^_]+)_"}
    rows = [onehot(1, File="train/a_1.png"), onehot(2, File="val/b_1.png"), onehot(3, File="test/a_2.png")]
    assert column(open_table(tmp_path, table, rows[:2]), "split") == ["train", "valid"]
    (found,) = problems(tmp_path, table, rows)
    assert (found.kind, found.row) == ("patient in two splits", 4)


def test_a_path_that_the_pattern_does_not_fit_is_reported_without_being_shown(tmp_path: Path) -> None:
    rows = [onehot(1, File="patient1/study1/view1_frontal.jpg"), onehot(2, File=f"{SECRET}.jpg")]
    found = problems(tmp_path, PATHED, rows)
    assert ("unknown path", 3) in [(problem.kind, problem.row) for problem in found]
    assert SECRET not in str(found)


def test_the_pattern_works_on_headers_and_on_several_rows_per_image_too(tmp_path: Path) -> None:
    rows = [onehot(1, File="p1/1.png", Reader=reader) for reader in "AB"]
    columns = {"image": "File", "reader": "Reader"}
    by_folder = {"from_path": "^(?P<patient>[^/]+)/"}
    assert column(open_table(tmp_path, {"layout": "readers", "columns": columns, **by_folder}, rows), "patient") == [
        "p1"
    ]
    save_dicom(tmp_path / "site" / "p7" / "1.dcm", ImageComments="Edema")
    table = {"layout": "dicom", "columns": {"findings": "ImageComments"}, "terms": meanings(), **by_folder}
    assert column(open_table(tmp_path, table, None, label_files={"images": ["**/*.dcm"]}), "patient") == ["p7"]


@each(
    ("keys", "message"),
    [
        ({"from_path": "("}, "is not a regular expression"),
        ({"from_path": "patient"}, "needs named groups among patient, study, view, split"),
        ({"from_path": "(?P<age>.)"}, "not age"),
        ({"from_path": "(?P<study>.)"}, "columns.patient is needed"),
        ({"columns": COLUMNS, "from_path": "(?P<view>.)"}, "columns.view and the group 'view' of from_path exclude"),
        ({"from_path": "(?P<patient>.)", "images": {"path": "{patient}/{image}"}}, "images.path needs {patient}"),
        ({"from_path": "(?P<patient>.)(?P<split>.)", "default_split": "test"}, "'default_split' has no effect"),
    ],
)
def test_a_mistake_in_the_pattern_is_refused(tmp_path: Path, keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        config(tmp_path, {**ONEHOT, "columns": {"image": "File"}, **keys})
    assert message in str(caught.value)


# JSON, words for ages, sets that only evaluate.

LISTED: dict[str, Any] = {
    "layout": "list",
    "columns": {"image": "file_name", "patient": "file_name", "findings": "syms"},
    "terms": meanings(**{"Mass": "ignore", "": "normal"}),
}
OBJECTS = [
    {"file_name": "1.png", "syms": ["Effusion", "Mass"], "boxes": [[1, 2, 3, 4]]},
    {"file_name": "2.png", "syms": [], "boxes": []},
    {"file_name": "3.png", "syms": ["Edema"]},
]


@pytest.mark.parametrize("file", ["labels.json", "labels.jsonl", "labels.json.gz"])
def test_a_list_of_json_objects_is_a_table(tmp_path: Path, file: str) -> None:
    whole = json.dumps(OBJECTS) if "jsonl" not in file else "\n".join(map(json.dumps, OBJECTS)) + "\n"
    (tmp_path / "site").mkdir()
    path = tmp_path / "site" / file
    path.write_bytes(gzip.compress(whole.encode()) if file.endswith(".gz") else whole.encode())
    table = open_table(tmp_path, LISTED, None, file, blank="negative")
    assert labels(table) == [[0, 0, 0, 0, 1], [0] * 5, [0, 1, 0, 0, 0]]
    assert column(table, "row") == [2, 3, 4]


@each(
    ("text", "kind"),
    [
        ("[1, 2]", "malformed JSON"),
        ('[{"file_name": "1.png"', "malformed JSON"),
        ("[" * 100_000, "malformed JSON"),
        ('[{"file_name": "1.png", "syms": {"a": 1}}]', "malformed column"),
        ('[{"file_name": "1.png"}]', "missing column"),
        ('[{"file_name": "1.png", "syms": "\\ud800"}]', "malformed column"),
        ('[{"file_name": "1.png", "\\ud800": 1}]', "malformed JSON"),
        ('[{"file_name": "1.png", "syms": [], "syms": ["e"]}]', "malformed JSON"),
        ('{"file_name": "1.png", "syms": []}\n{"file_name": "2.png", "syms": [], "syms": ["e"]}', "malformed JSON"),
    ],
)
def test_what_is_no_list_of_json_objects_is_refused(tmp_path: Path, text: str, kind: str) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "labels.json").write_text(text, encoding="utf-8")
    assert kind in [problem.kind for problem in problems(tmp_path, LISTED, None, "labels.json")]


def test_numbers_and_truth_values_in_json_are_cells(tmp_path: Path) -> None:
    row = {"image": "1.png", "person": 17.0, "age": 63.0, **{names[0]: None for names in NAMES.values()}}
    row |= {"Cardiomegaly": 1.0, "Edema": False, "Effusion": True, "Pulmonary Edema": float("nan")}
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "labels.json").write_text(json.dumps([row]), encoding="utf-8")
    table = {**ONEHOT, "columns": {"image": "image", "patient": "person", "age": "age"}}
    found = open_table(tmp_path, table, None, "labels.json")
    assert labels(found) == [[1, 0, None, None, 1]]
    assert (column(found, "patient"), column(found, "age")) == (["17"], [63])


def test_words_for_ages_are_read(tmp_path: Path) -> None:
    rows = [onehot(1, Age="85 or more"), onehot(2, Age="80"), onehot(3, Age="011M")]
    table = {**ONEHOT, "words": {"age": {"85 or More": 85}}}
    assert column(open_table(tmp_path, table, rows), "age") == [85, 80, 0]
    table = {**ONEHOT, "words": {"age": {"1": 15, "2": 25.5}}}
    assert column(open_table(tmp_path, table, [onehot(n, Age=n) for n in (1, 2, 3)]), "age") == [15, 25, 3]
    found = [problem.kind for problem in problems(tmp_path, ONEHOT, rows)]
    assert found == ["bad age"]


def test_a_set_may_be_for_evaluation_only(tmp_path: Path) -> None:
    columns = {name: told for name, told in COLUMNS.items() if name != "split"}
    table = {**ONEHOT, "columns": columns, "default_split": "test"}
    assert column(open_table(tmp_path, table, [onehot(1), onehot(2)]), "split") == ["test", "test"]

"""Where the image of a row is, what its path tells, headers that name it, and files that are joined to the table."""

from __future__ import annotations

import unicodedata
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chestfed.core.errors import ConfigError
from chestfed.inspection import check_site
from chestfed.sites import open_site
from chestfed.sites.folders import Folders
from chestfed.sites.tables.image_paths import in_roots
from chestfed.sites.tables.schema import Images
from tests.cases import each
from tests.sites.own_tables import (
    COLUMNS,
    READERS,
    TERMS,
    config,
    labels,
    meanings,
    open_table,
    person,
    problems,
    save_dicom,
    save_rows,
    wide,
)
from tests.sites.small_sites import column

BELOW: dict[str, Any] = {"images": {"roots": ["img"], "suffix": ".png", "recursive": True}}
PEOPLE: dict[str, Any] = {"file": "people", "key": ["MRN", "ID"], "columns": ["Sex", "Age"]}
FILES = {"table": ["labels.csv"], "people": ["people.csv"]}
#: Stands in cells and names that must not come out again.
SECRET = "Moon7"


def touch(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()


def test_a_file_is_found_in_any_folder_below_a_root(tmp_path: Path) -> None:
    touch(tmp_path / "site", "img/Doe/a/1.png", "img/Roe/2.png", "elsewhere/2.png", "img/.trash/1.png")
    rows = [wide(1, File="1"), wide(2, File="Roe\\2.png"), wide(3, File="3")]
    table = open_table(tmp_path, BELOW, rows)
    assert column(table, "image") == ["img/Doe/a/1.png", "img/Roe/2.png", "img/3.png"]


def test_a_name_that_several_files_have_is_a_problem_of_its_row_and_no_folder_is_named(tmp_path: Path) -> None:
    touch(tmp_path / "site", "img/Doe/1.png", "img/Roe/1.png", "img/Roe/2.png")
    found = problems(tmp_path, BELOW, [wide(1, File="1"), wide(2, File="2"), wide(3, File="Doe/1")])
    assert [(problem.kind, problem.row) for problem in found] == [("ambiguous image", 2)]
    assert not [name for name in ("Doe", "Roe") if name in str(found)]


def test_the_path_below_the_root_tells_what_from_path_asks_for(tmp_path: Path) -> None:
    touch(tmp_path / "site", "img/P7/1.png", "img/P9/2.png")
    columns = {"image": "File"}
    table = {**BELOW, "columns": columns, "from_path": "^(?P<patient>[^/]+)/"}
    assert column(open_table(tmp_path, table, [wide(1, File="1"), wide(2, File="2")]), "patient") == ["P7", "P9"]


@each(("disk", "cell"), [("NFD", "NFC"), ("NFC", "NFD")])
@each("recursive", [False, True])
def test_accents_may_be_stored_either_way(tmp_path: Path, disk: Any, cell: Any, recursive: bool) -> None:
    file = unicodedata.normalize(disk, "img/Prénom/größe.png")
    touch(tmp_path / "site", file)
    images = {"roots": ["img"], "recursive": recursive}
    rows = [wide(1, File=unicodedata.normalize(cell, "Prénom/größe.png"))]
    assert column(open_table(tmp_path, {**BELOW, "images": images}, rows), "image") == [file]


PARTS = st.lists(st.sampled_from(["a", "b", "ä", "a\u0308"]), min_size=1, max_size=3).map("/".join)


@given(files=st.lists(PARTS, min_size=1, max_size=6, unique=True), asked=PARTS)
def test_of_the_files_below_a_root_exactly_those_fit_whose_path_ends_so(
    tmp_path_factory: pytest.TempPathFactory, files: list[str], asked: str
) -> None:
    root = tmp_path_factory.mktemp("site")
    for name in files:
        if not any((root / part).is_file() for part in [name, *map(str, Path(name).parents)]):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            if not (root / name).exists():
                (root / name).touch()
    there = [str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()]

    def plain(path: str) -> tuple[str, ...]:
        return Path(unicodedata.normalize("NFC", path)).parts

    fitting = [path for path in there if plain(path)[-len(plain(asked)) :] == plain(asked)]
    placed = in_roots(pd.Series([asked], dtype=object), Images(recursive=True), Folders(root))
    assert bool(placed.ambiguous[0]) == (len(fitting) > 1)
    assert placed.images[0] == (fitting[0] if len(fitting) == 1 else asked)


def test_any_ending_is_not_searched_for_in_all_folders() -> None:
    with pytest.raises(ValueError, match="cannot be combined"):
        Images(suffix="any", recursive=True)


def test_a_folder_has_images_without_an_ending_and_no_hidden_ones(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        for name in ("IM1", "IM2.dcm"):
            save_dicom(tmp_path / "site" / folder / name)
        (tmp_path / "site" / folder / "._IM2.dcm").write_bytes(b"of a Mac")
        (tmp_path / "site" / folder / "report").write_text("no image")
    (tmp_path / "site/b/IM3").touch()  # perhaps a damaged one
    save_dicom(tmp_path / "site/c/1.dcm")
    (tmp_path / "site/c/done").touch()
    rows = [wide(number, File=folder) for number, folder in enumerate("abc")]
    table = open_table(tmp_path, {"images": {"folder": True}}, rows)
    assert table.frame["image"].tolist() == ["a/IM1", "a/IM2.dcm", "b/IM1", "b/IM2.dcm", "b/IM3", "c/1.dcm"]


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
    row = wide(1, File=".\\a\\1", MRN="4711", **{"Study No": "S7"})
    assert column(open_table(tmp_path, {"columns": columns, "images": images}, [row]), "image") == [path]


@pytest.mark.parametrize("kind", ["file", "folder", "link in a linked folder"])
def test_links_out_of_the_root_are_refused_and_links_inside_are_not(tmp_path: Path, kind: str) -> None:
    inside, outside = tmp_path / "site/real", tmp_path / "outside"
    for folder in (inside, outside):
        folder.mkdir(parents=True)
        (folder / "1.png").touch()
    (tmp_path / "site/inner").symlink_to(inside)
    assert problems(tmp_path, {}, [wide(1, File="inner/1.png")]) == []
    if kind == "file":
        (tmp_path / "site/x.png").symlink_to(outside / "1.png")
    elif kind == "folder":
        (tmp_path / "site/x").symlink_to(outside)
    else:
        (inside / "out").symlink_to(outside)
    path = {"file": "x.png", "folder": "x/1.png"}.get(kind, "inner/out/1.png")
    (problem,) = problems(tmp_path, {}, [wide(1, File="real/1.png"), wide(2, File=path)])
    assert (problem.kind, problem.row) == ("path outside the root", 3)
    (tmp_path / "linked").symlink_to(tmp_path / "site")  # the root itself may be a link
    assert problems(tmp_path, {}, [wide(1, File="real/1.png")], root="linked") == []


# Headers.


def table(element: str = "AccessionNumber", **images: Any) -> dict[str, Any]:
    return {
        "columns": {"image": "File", "patient": "MRN", "view": "ViewPosition"},
        "images": {"header": element, "elements": ["ViewPosition"], "roots": ["img"], **images},
        "codes": {"view": {"LL": "lateral"}},
    }


def films(folder: Path, **first: str) -> None:
    """Two images of one study, one of another, and a report."""
    for n, (accession, patient, view) in enumerate((("007", "a", "PA"), ("007", "a", "LL"), ("A9", "b", "AP"))):
        told = {"AccessionNumber": accession, "PatientID": patient, "ViewPosition": view, "SOPInstanceUID": f"1.2.{n}"}
        path = folder / f"site/img/{SECRET}/IM{n}"
        save_dicom(path, **{**told, "StudyInstanceUID": f"1.9.{accession[-1]}", **(first if n == 0 else {})})
    save_dicom(folder / "site/img/SR", SOPClassUID="1.2.840.10008.5.1.4.1.1.88.11", AccessionNumber="007")


def test_all_images_of_a_study_share_the_labels_of_its_row(tmp_path: Path) -> None:
    films(tmp_path)
    found = open_table(tmp_path, table(), [wide(1, File="A9", Edema=1), wide(2, File="007", Edema=0)])
    assert column(found, "image") == [f"img/{SECRET}/IM{n}" for n in (2, 0, 1)]
    assert column(found, "view") == ["ap", "pa", "lateral"]
    assert column(found, "row") == [2, 3, 3]
    assert [row[1] for row in labels(found)] == [1, 0, 0]


@pytest.mark.parametrize(("element", "cell"), [("SOPInstanceUID", "1.2.2"), ("StudyInstanceUID", "1.9.9")])
def test_images_may_be_named_by_uids(tmp_path: Path, element: str, cell: str) -> None:
    films(tmp_path)
    assert column(open_table(tmp_path, table(element), [wide(1, File=cell)]), "image") == [f"img/{SECRET}/IM2"]


def test_rows_without_an_image_are_named_or_dropped(tmp_path: Path) -> None:
    films(tmp_path)
    rows = [wide(1, File="A9"), wide(2, File="7"), wide(3, File="")]
    found = problems(tmp_path, table(), rows)
    assert [(problem.kind, problem.row) for problem in found] == [("blank name", 4), ("unmatched row", 3)]
    assert len(open_table(tmp_path, table(unmatched="drop"), rows[:2]).frame) == 1
    (problem,) = problems(tmp_path, table(unmatched="drop"), rows[1:2])
    assert problem.kind == "nothing left"


def test_a_number_that_patients_share_and_a_uid_that_files_share_are_problems(tmp_path: Path) -> None:
    films(tmp_path, PatientID="c", SOPInstanceUID="1.2.1")
    rows = [wide(1, File="007"), wide(2, File="A9")]
    (problem,) = problems(tmp_path, table(), rows)
    assert (problem.kind, problem.row) == ("ambiguous image", 2)
    films(tmp_path, SOPInstanceUID="1.2.1")
    (problem,) = problems(tmp_path, table("SOPInstanceUID"), [wide(1, File="1.2.1")])
    assert problem.message == "several files have this row's SOPInstanceUID"


def test_a_number_of_which_one_image_has_no_patient_is_a_problem_and_no_patients_at_all_are_none(
    tmp_path: Path,
) -> None:
    films(tmp_path, PatientID="")
    rows = [wide(1, File="007"), wide(2, File="A9")]
    (problem,) = problems(tmp_path, table(), rows)
    assert (problem.kind, problem.row) == ("ambiguous image", 2)
    films(tmp_path, PatientID="")
    save_dicom(tmp_path / f"site/img/{SECRET}/IM1", AccessionNumber="007", PatientID="", SOPInstanceUID="1.2.1")
    assert problems(tmp_path, table(), rows) == []


def test_rows_of_another_patient_than_their_image_are_problems_that_name_nobody(tmp_path: Path) -> None:
    films(tmp_path)
    save_dicom(tmp_path / "site/img/IM3", AccessionNumber="B1", PatientID="", SOPInstanceUID="1.2.3")
    slipped = [wide(1, File="A9", MRN="a"), wide(2, File="007", MRN="b"), wide(3, File="B1", MRN="a")]
    found = problems(tmp_path, table(), slipped)
    assert [(problem.kind, problem.row) for problem in found] == [("another patient", 2), ("another patient", 3)]
    assert found[0].message == "'MRN' is not the PatientID in the header of this row's image"


def test_patients_that_the_table_calls_otherwise_are_not_compared_with_headers(tmp_path: Path) -> None:
    films(tmp_path)
    assert problems(tmp_path, table(), [wide(1, File="A9", MRN="p1"), wide(2, File="007", MRN="p2")]) == []
    assert problems(tmp_path, table(), [wide(1, File="A9", MRN="b"), wide(2, File="007", MRN="a")]) == []


def test_two_rows_of_one_study_are_a_problem(tmp_path: Path) -> None:
    films(tmp_path)
    found = problems(tmp_path, table(), [wide(1, File="A9", Edema=1), wide(2, File="A9", Edema=0)])
    assert [(problem.kind, problem.row) for problem in found] == [("duplicate image", 3)]


def test_an_unreadable_header_is_a_problem_that_names_nothing_but_in_a_check(tmp_path: Path) -> None:
    films(tmp_path)
    (tmp_path / f"site/img/{SECRET}/IM9").touch()
    rows = [wide(1, File="A9"), wide(2, File="007")]
    (problem,) = problems(tmp_path, table(), rows)
    assert (problem.kind, SECRET in str(problem)) == ("unreadable header", False)
    save_rows(tmp_path / "site/labels.csv", rows)
    report = check_site(config(tmp_path, table()), tmp_path, images=False)
    assert [SECRET in problem.message for problem in report.errors] == [True]
    assert "structured report 1" in str(report.warnings)


@each(
    ("images", "message"),
    [
        ({"suffix": ".dcm"}, "'suffix' has no effect together with 'header'"),
        ({"header": None}, "'elements' needs 'header'"),
        ({"header": "PatientName"}, "header"),
        ({"elements": ["ViewPosition", "PatientSex"]}, "no column is 'PatientSex'"),
    ],
)
def test_keys_that_do_not_fit_are_refused(tmp_path: Path, images: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        config(tmp_path, table(**images))


def test_elements_that_may_not_be_read_are_refused(tmp_path: Path) -> None:
    strange = {**table(elements=["PatientName"]), "columns": {"image": "File", "patient": "PatientName"}}
    with pytest.raises(ConfigError, match="may identify a person"):
        config(tmp_path, strange)


# A second file.


def images(*numbers: int, **cells: object) -> list[dict[str, object]]:
    """Rows that do not tell the patient's sex and age."""
    rows = [wide(number, **cells) for number in numbers]
    return [{name: cell for name, cell in row.items() if name not in ("Sex", "Age")} for row in rows]


def people(folder: Path, *rows: dict[str, object], file: str = "people.csv") -> None:
    save_rows(folder / "site" / file, rows)


def test_columns_of_a_second_file_are_joined_by_a_key(tmp_path: Path) -> None:
    people(tmp_path, {"ID": "p2", "Age": 44, "Sex": "M"}, {"ID": "p1", "Age": 63, "Sex": "F"}, {"ID": "p9", "Sex": ""})
    table = open_table(tmp_path, {"join": [PEOPLE]}, images(1, 2), label_files=FILES)
    assert (column(table, "sex"), column(table, "age")) == (["F", "M"], [63, 44])
    assert column(table, "row") == [2, 3]


@each("file", ["people.tsv", "people.csv.gz", "people.xlsx", "people.parquet"])
def test_the_second_file_has_a_format_of_its_own(tmp_path: Path, file: str) -> None:
    people(tmp_path, {"ID": "p1", "Sex": "F", "Age": "63"}, file=file)
    table = open_table(tmp_path, {"join": [PEOPLE]}, images(1), label_files={**FILES, "people": [file]})
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
    found = problems(tmp_path, {"join": [PEOPLE]}, rows, label_files=FILES)
    unmatched = [problem for problem in found if problem.kind == "unmatched row"]
    assert [(problem.file, problem.row) for problem in unmatched] == [("labels.csv", 3), ("labels.csv", 4)]
    assert "'MRN' is not in the joined file 'people'" in unmatched[0].message
    assert "'MRN' is empty" in unmatched[1].message
    assert SECRET not in str(found)


def test_rows_whose_key_is_not_in_the_second_file_may_be_left_out_or_keep_blanks(tmp_path: Path) -> None:
    people(tmp_path, {"ID": "p1", "Sex": "F", "Age": 63})
    for unmatched, expected in (("drop", ["1.png"]), ("blank", ["1.png", "2.png"])):
        join = {**PEOPLE, "unmatched": unmatched}
        table = open_table(tmp_path, {"join": [join]}, images(1, 2), label_files=FILES)
        assert column(table, "image") == expected
        assert column(table, "sex") == ["F", None][: len(expected)]


def test_a_second_file_without_columns_only_says_which_rows_are_kept(tmp_path: Path) -> None:
    people(tmp_path, {"File": "2.png"}, {"File": "2.png"})
    join = {"file": "people", "key": ["File"], "unmatched": "drop"}
    rows = [wide(1), wide(2)]
    assert column(open_table(tmp_path, {"join": [join]}, rows, label_files=FILES), "image") == ["2.png"]


def test_a_key_that_fits_nowhere_is_one_problem_and_not_one_per_row(tmp_path: Path) -> None:
    people(tmp_path, {"ID": "001", "Sex": "F", "Age": 63})
    for unmatched in ("report", "blank", "drop"):
        join = {**PEOPLE, "unmatched": unmatched}
        (found,) = problems(tmp_path, {"join": [join]}, images(1, 2, 3), label_files=FILES)
        assert (found.kind, found.row) == ("nothing left", None)
        assert "no 'MRN' is in 'ID' of the joined file" in found.message


def test_the_second_file_may_repeat_itself_but_not_contradict_itself(tmp_path: Path) -> None:
    same = {"ID": "p1", "Sex": "F", "Age": 63, "Visit": 1}
    people(tmp_path, same, {**same, "Visit": 2}, {**same, "Visit": 3, "Age": 64})
    (found,) = problems(tmp_path, {"join": [PEOPLE]}, images(1), label_files=FILES)
    assert (found.kind, found.file, found.row) == ("contradictory rows", "people.csv", 4)
    people(tmp_path, same, {**same, "Visit": 2})
    assert problems(tmp_path, {"join": [PEOPLE]}, None, label_files=FILES) == []


def test_accents_of_two_kinds_are_the_same_key_and_the_same_patient(tmp_path: Path) -> None:
    people(tmp_path, {"ID": "Jo\u0308rg", "Age": 44, "Sex": "M"})
    rows = images(1, MRN="J\u00f6rg") + images(2, MRN="Jo\u0308rg")
    table = open_table(tmp_path, {"join": [PEOPLE]}, rows, label_files=FILES)
    assert (column(table, "patient"), column(table, "age")) == (["J\u00f6rg"] * 2, [44, 44])


def test_a_chain_of_files_is_joined_in_its_order(tmp_path: Path) -> None:
    people(tmp_path, {"ID": "p1", "Ward": "w7"})
    save_rows(tmp_path / "site" / "wards.csv", [{"Ward": "w7", "Sex": "F", "Age": "63"}])
    chain = [
        {"file": "people", "key": ["MRN", "ID"], "columns": ["Ward"]},
        {"file": "wards", "key": ["Ward"], "columns": ["Sex", "Age"]},
    ]
    files = {**FILES, "wards": ["wards.csv"]}
    assert column(open_table(tmp_path, {"join": chain}, images(1), label_files=files), "sex") == ["F"]


def test_a_joined_column_counts_where_the_table_has_one_of_that_name(tmp_path: Path) -> None:
    people(tmp_path, {"ID": "p1", "Sex": "M", "Age": 63})
    table = open_table(tmp_path, {"join": [PEOPLE]}, [wide(1, Sex="F")], label_files=FILES)
    assert column(table, "sex") == ["M"]


def test_beside_a_label_file_that_is_given_alone_the_second_one_is_looked_for(tmp_path: Path) -> None:
    people(tmp_path, {"ID": "p1", "Sex": "F", "Age": 63})
    save_rows(tmp_path / "site" / "other_name.csv", images(1))
    site = config(tmp_path, {"join": [PEOPLE]}, label_files=FILES)
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
    table = open_table(tmp_path, {"join": [join]}, images(*range(6)), label_files=FILES)
    ages = [None if number in left_out else 20 + number for number in range(6)]
    assert column(table, "age") == ages


def test_what_is_wrong_with_the_second_file_is_reported_under_its_name(tmp_path: Path) -> None:
    table = {"join": [PEOPLE]}
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
        ([{**PEOPLE, "key": []}], "key"),
        ([{**PEOPLE, "key": ["Sex"]}], "the key 'Sex' of the file 'people' is not known before it is taken"),
    ],
)
def test_a_mistake_in_a_join_is_refused(tmp_path: Path, joins: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(ConfigError, match="join") as caught:
        config(tmp_path, {"join": joins}, label_files=FILES)
    assert message in str(caught.value)


# What the path tells.

PATHED: dict[str, Any] = {
    "columns": {"image": "File"},
    "from_path": r"(?P<patient>patient\d+)/(?P<study>study\d+)/view\d+_(?P<view>\w+)\.",
    "codes": {"view": {"side": "lateral"}},
}


def test_patient_study_and_view_are_read_from_the_path_of_the_image(tmp_path: Path) -> None:
    rows = [
        wide(1, File="train/patient1/study1/view1_frontal.jpg"),
        wide(2, File="train/patient1/study2/view1_side.jpg"),
    ]
    table = open_table(tmp_path, PATHED, rows)
    assert column(table, "patient") == ["patient1"] * 2
    assert column(table, "study") == ["study1", "study2"]
    assert column(table, "view") == ["frontal", "lateral"]


def test_the_split_may_be_read_from_the_path_and_crossing_patients_are_found(tmp_path: Path) -> None:
    table = {"columns": {"image": "File"}, "from_path": "^(?P<split>[^/]+)/(?P<patient>[^_]+)_"}
    rows = [wide(1, File="train/a_1.png"), wide(2, File="val/b_1.png"), wide(3, File="test/a_2.png")]
    assert column(open_table(tmp_path, table, rows[:2]), "split") == ["train", "valid"]
    (found,) = problems(tmp_path, table, rows)
    assert (found.kind, found.row) == ("patient in two splits", 4)


def test_a_path_that_the_pattern_does_not_fit_is_reported_without_being_shown(tmp_path: Path) -> None:
    rows = [wide(1, File="patient1/study1/view1_frontal.jpg"), wide(2, File=f"{SECRET}.jpg")]
    found = problems(tmp_path, PATHED, rows)
    assert ("unknown path", 3) in [(problem.kind, problem.row) for problem in found]
    assert SECRET not in str(found)


def test_the_pattern_works_on_headers_and_on_several_rows_per_image_too(tmp_path: Path) -> None:
    rows = [wide(1, File="p1/1.png", Reader=reader) for reader in "AB"]
    columns = {"image": "File", "reader": "Reader"}
    by_folder = {"from_path": "^(?P<patient>[^/]+)/"}
    assert column(open_table(tmp_path, {**READERS, "columns": columns, **by_folder}, rows), "patient") == ["p1"]
    save_dicom(tmp_path / "site" / "p7" / "1.dcm", ImageComments="Edema")
    table = {"columns": {"findings": "ImageComments"}, "codes": {"findings": meanings()}, **by_folder}
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
        config(tmp_path, {"columns": {"image": "File"}, **keys})
    assert message in str(caught.value)

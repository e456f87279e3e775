"""Files that are joined to a hospital's table by a key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chestfed.core.errors import ConfigError
from chestfed.data.sites import open_site
from tests.cases import each
from tests.data.sites.own_tables import (
    COLUMNS,
    SECRET,
    TERMS,
    config,
    labels,
    open_table,
    person,
    problems,
    save_rows,
    wide,
)
from tests.data.sites.small_sites import column

N = None
PEOPLE: dict[str, Any] = {"file": "people", "key": ["MRN", "ID"], "columns": ["Sex", "Age"]}
BY_FILE: dict[str, Any] = {"file": "people", "key": ["File"], "columns": []}
FILES = {"table": ["labels.csv"], "people": ["people.csv"]}
P1 = {"ID": "p1", "Sex": "F", "Age": 63}


def images(*numbers: int, **cells: object) -> list[dict[str, object]]:
    """Rows without the patient's sex and age."""
    rows = [wide(number, **cells) for number in numbers]
    return [{name: cell for name, cell in row.items() if name not in ("Sex", "Age")} for row in rows]


def save_people(folder: Path, *rows: dict[str, object], file: str = "people.csv") -> None:
    save_rows(folder / "site" / file, rows)


#: Join, rows of the second file, rows of the table -> columns.
JOINED: list[tuple[dict[str, Any], list[dict[str, Any]], list[dict[str, object]], dict[str, Any]]] = [
    (
        PEOPLE,
        [{"ID": "p2", "Age": 44, "Sex": "M"}, P1, {"ID": "p9", "Sex": ""}],
        images(1, 2),
        {"sex": ["F", "M"], "age": [63, 44], "row": [2, 3]},
    ),
    ({**PEOPLE, "unmatched": "drop"}, [P1], images(1, 2), {"image": ["1.png"], "sex": ["F"]}),
    ({**PEOPLE, "unmatched": "blank"}, [P1], images(1, 2), {"image": ["1.png", "2.png"], "sex": ["F", N]}),
    ({**BY_FILE, "unmatched": "drop"}, [{"File": "2.png"}] * 2, [wide(1), wide(2)], {"image": ["2.png"]}),
    (
        PEOPLE,  # accents of two kinds
        [{"ID": "Jo\u0308rg", "Age": 44, "Sex": "M"}],
        images(1, MRN="J\u00f6rg") + images(2, MRN="Jo\u0308rg"),
        {"patient": ["J\u00f6rg"] * 2, "age": [44, 44]},
    ),
    (PEOPLE, [{**P1, "Sex": "M"}], [wide(1, Sex="F")], {"sex": ["M"]}),
    (PEOPLE, [{**P1, "Visit": 1}, {**P1, "Visit": 2}], images(1), {"sex": ["F"]}),
]


@each(("join", "people", "rows", "expected"), JOINED)
def test_columns_are_joined_by_a_key(
    tmp_path: Path, join: dict[str, Any], people: list[Any], rows: list[Any], expected: dict[str, Any]
) -> None:
    save_people(tmp_path, *people)
    table = open_table(tmp_path, {"join": [join]}, rows, label_files=FILES)
    assert {name: column(table, name) for name in expected} == expected


@each(
    ("unmatched", "left_out", "words"),
    [
        ("drop", {"unjoined": 1}, "1 of 2 rows are not in the joined file 'people': left out"),
        ("blank", {}, "1 of 2 rows are not in the joined file"),
    ],
)
def test_rows_without_a_partner_are_counted(
    tmp_path: Path, unmatched: str, left_out: dict[str, int], words: str
) -> None:
    save_people(tmp_path, P1, *({"ID": f"p{number}", "Sex": "F", "Age": 50} for number in (7, 8)))
    table = open_table(tmp_path, {"join": [{**PEOPLE, "unmatched": unmatched}]}, images(1, 2), label_files=FILES)
    assert table.left_out == left_out
    assert any(words in note for note in table.notes)
    assert any("2 of 3 values of 'ID' are in no row" in note for note in table.notes)


def test_partners_in_any_table_are_counted(tmp_path: Path) -> None:
    save_people(tmp_path, P1, {"ID": "p2", "Sex": "M", "Age": 44}, {"ID": "p7", "Sex": "M", "Age": 44})
    save_people(tmp_path, *images(2), file="test.csv")
    files = {"train": ["labels.csv"], "test": ["test.csv"], "people": ["people.csv"]}
    columns = {role: name for role, name in COLUMNS.items() if role != "split"}
    table = open_table(tmp_path, {"join": [PEOPLE], "columns": columns}, images(1), label_files=files)
    assert [note for note in table.notes if "no row" in note] == [
        "joined file 'people': 1 of 3 values of 'ID' are in no row of the table: not used"
    ]


#: Join, rows of the second file (none: no file), rows of the table -> problems, as kind, file and row.
UNFIT: list[tuple[dict[str, Any], list[dict[str, Any]], list[dict[str, object]], list[tuple[str, str, Any]]]] = [
    (
        PEOPLE,
        [P1],
        [*images(1), *images(2, MRN=SECRET), *images(3, MRN="")],
        [("unmatched row", "labels.csv", 3), ("unmatched row", "labels.csv", 4), ("blank name", "labels.csv", 4)],
    ),
    *(
        ({**PEOPLE, "unmatched": choice}, [{**P1, "ID": "001"}], images(1, 2, 3), [("nothing left", "labels.csv", N)])
        for choice in ("report", "blank", "drop")
    ),
    (
        PEOPLE,
        [{**P1, "Visit": 1}, {**P1, "Visit": 2}, {**P1, "Visit": 3, "Age": 64}],
        images(1),
        [("contradictory rows", "people.csv", 4)],
    ),
    (PEOPLE, [], images(1), [("missing file", "people.csv", N)]),
    (PEOPLE, [{"ID": "p1", "Gender": "F", "Age": 63}], images(1), [("missing column", "people.csv", 1)]),
]


@each(("join", "people", "rows", "expected"), UNFIT)
def test_an_unfit_second_file_is_refused(
    tmp_path: Path, join: dict[str, Any], people: list[Any], rows: list[Any], expected: list[Any]
) -> None:
    if people:
        save_people(tmp_path, *people)
    reported = problems(tmp_path, {"join": [join]}, rows, label_files=FILES)
    assert [(problem.kind, problem.file, problem.row) for problem in reported] == expected
    assert SECRET not in str(reported)


@each("file", ["people.tsv", "people.csv.gz", "people.xlsx", "people.parquet"])
def test_the_second_file_has_its_own_format(tmp_path: Path, file: str) -> None:
    save_people(tmp_path, {**P1, "Age": "63"}, file=file)
    table = open_table(tmp_path, {"join": [PEOPLE]}, images(1), label_files={**FILES, "people": [file]})
    assert (column(table, "sex"), column(table, "age")) == (["F"], [63])


def test_labels_may_be_in_the_second_file(tmp_path: Path) -> None:
    cells = ((2, "Normal"), (1, "Edema|no effusion"))
    save_people(tmp_path, *({"File": f"{number}.png", "Findings": cell} for number, cell in cells))
    join = {**BY_FILE, "columns": ["Findings"]}
    table = open_table(tmp_path, {**TERMS, "join": [join]}, [person(1), person(2)], label_files=FILES)
    assert labels(table) == [[N, 1, N, N, 0], [0] * 5]


def test_a_chain_of_files_is_joined(tmp_path: Path) -> None:
    save_people(tmp_path, {"ID": "p1", "Ward": "w7"})
    save_people(tmp_path, {"Ward": "w7", "Sex": "F", "Age": "63"}, file="wards.csv")
    chain = [{**PEOPLE, "columns": ["Ward"]}, {"file": "wards", "key": ["Ward"], "columns": ["Sex", "Age"]}]
    table = open_table(tmp_path, {"join": chain}, images(1), label_files={**FILES, "wards": ["wards.csv"]})
    assert column(table, "sex") == ["F"]


def test_the_second_file_is_beside_labels(tmp_path: Path) -> None:
    save_people(tmp_path, P1)
    save_people(tmp_path, *images(1), file="other_name.csv")
    site = config(tmp_path, {"join": [PEOPLE]}, label_files=FILES)
    assert column(open_site(site, tmp_path / "nowhere", tmp_path / "site/other_name.csv"), "sex") == ["F"]


@each("columns", [["Edema_{reader}"], ["Sex", "Sex"]])
def test_joined_columns_are_named_once(tmp_path: Path, columns: list[str]) -> None:
    with pytest.raises(ConfigError):
        config(tmp_path, {"join": [{**PEOPLE, "columns": columns}]}, label_files=FILES)


@given(order=st.permutations(range(6)), left_out=st.sets(st.integers(0, 5), max_size=5), extra=st.booleans())
def test_the_second_file_has_no_order(tmp_path: Path, order: list[int], left_out: set[int], extra: bool) -> None:
    rows = [
        {"ID": f"p{number}", "Sex": "FM"[number % 2], "Age": 20 + number} for number in order if number not in left_out
    ]
    save_people(tmp_path, *rows, *([{"ID": "x", "Sex": "F", "Age": 1}] if extra else []))
    join = {**PEOPLE, "unmatched": "blank"}
    table = open_table(tmp_path, {"join": [join]}, images(*range(6)), label_files=FILES)
    ages = [N if number in left_out else 20 + number for number in range(6)]
    assert column(table, "age") == ages

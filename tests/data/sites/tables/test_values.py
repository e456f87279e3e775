"""What values mean: codes and numbers, and everything that is refused rather than guessed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chestfed.core.diseases import DISEASES
from chestfed.core.errors import SiteError
from chestfed.data.sites.reader import ages, plain_id
from tests.cases import each
from tests.data.sites.own_tables import (
    COLUMNS,
    LONG,
    NAMES,
    READERS,
    SECRET,
    TERMS,
    VALUED,
    WIDE,
    labels,
    open_table,
    person,
    problems,
    refusals,
    wide,
)
from tests.data.sites.small_sites import column

N = None
ROOTED: dict[str, Any] = {"images": {"path": "{patient}/{image}", "roots": ["a", "b"]}}


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
def test_numbers_of_a_column_are_codes(tmp_path: Path, cells: str, codes: dict[str, str], expected: str | None) -> None:
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
    site_table = open_table(tmp_path, table, rows, uncertain="positive", diseases=list(DISEASES))
    doubts = open_table(tmp_path, table, rows, uncertain="negative")
    pairs = zip(column(site_table, "cardiomegaly"), column(doubts, "cardiomegaly"), strict=True)
    assert [value if value == other else 9.0 for value, other in pairs] == [code[letter] for letter in expected]


def test_one_number_makes_codes_of_all(tmp_path: Path) -> None:
    rows = [wide(1, *"21111"), wide(2, *"11211")]  # nobody has an edema: 1 is absent
    for row in rows:
        row["Pulmonary Edema"] = "1"
    errors = problems(tmp_path, {"codes": {"Cardiomegaly": {"1": "negative", "2": "positive"}}}, rows)
    named = " ".join(problem.message for problem in errors)
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
    assert [kind for kind, _ in refusals(tmp_path, {}, rows)] == ["unknown age"]


@pytest.mark.parametrize(
    ("word", "per_year"),
    [
        *((word, 1) for word in ("Jahre", "lat", "lata", "rok", "anni", "jaar", "let", "år")),
        *((word, 12) for word in ("miesięcy", "miesiące", "mesi", "maanden", "měsíců", "månader", "måneder")),
        *((word, 52.18) for word in ("tygodni", "týdnů", "settimane", "weken", "veckor", "uger", "uker")),
        *((word, 365.25) for word in ("dni", "dnů", "giorni", "dagen", "dagar", "dage", "dager")),
    ],
)
def test_ages_may_have_words_of_units(word: str, per_year: float) -> None:
    assert ages(pd.Series([f"{7.5 * per_year:.0f} {word}"])).tolist() == [8 if per_year == 1 else 7]


def test_a_word_for_no_split_is_empty(tmp_path: Path) -> None:
    codes = {"codes": {"split": {"tbd": "missing"}}}
    assert refusals(tmp_path, codes, [wide(1), wide(2, Set="TBD")]) == [("image without a split", 3)]


def test_filter_columns_drop_and_count_rows(tmp_path: Path) -> None:
    parts = ["CHEST", "Abdomen", "", "CHEST"]
    rows = [wide(number, BodyPart=part) for number, part in enumerate(parts)]
    table = {"keep": ["BodyPart"], "codes": {"keep": {"chest": "keep", "ABDOMEN": "drop"}}}
    opened = open_table(tmp_path, table, rows)
    assert column(opened, "image") == ["0.png", "2.png", "3.png"]
    assert opened.notes == ("labels.csv: 1 of 4 rows are left out by 'BodyPart' (table.keep)",)
    assert opened.left_out == {"not_kept": 1}
    assert refusals(tmp_path, {**table, "codes": {"keep": {"chest": "keep"}}}, rows) == [("unknown keep", 3)]


def test_a_disease_of_one_class_is_refused(tmp_path: Path) -> None:
    rows = [wide(1, *"10111"), wide(2, *"00000")]
    (problem,) = problems(tmp_path, {}, rows, one_class=[])
    assert (problem.kind, "edema has 0 positive and 2 negative" in problem.message) == ("one class", True)
    assert problems(tmp_path, {}, rows, one_class=["edema"]) == []


# Patients.


def test_a_centre_qualifies_its_patients(tmp_path: Path) -> None:
    rows = [wide(1, MRN="17", Centre="A"), wide(2, MRN="17", Centre="B", Set="test")]
    assert [kind for kind, _ in refusals(tmp_path, {}, rows)] == ["patient in two splits"]
    table = open_table(tmp_path, {"patient_prefix": "Centre"}, rows)
    assert column(table, "patient") == column(table, "study") == ["A/17", "B/17"]
    assert refusals(tmp_path, {"patient_prefix": "Centre"}, [*rows, wide(3, Centre="", Set="train")]) == [
        ("blank name", 4)
    ]


@each("dates", [["2019-01-02", "2020-11-30"], ["20190102"], ["02.01.2019", "30.11.20"], ["2019-01-02 10:11"]])
def test_dates_are_no_patients(tmp_path: Path, dates: list[str]) -> None:
    rows = [wide(number, MRN=date) for number, date in enumerate(dates)]
    assert [kind for kind, _ in refusals(tmp_path, {}, rows)] == ["dates as patients"]
    assert problems(tmp_path, {}, [*rows, wide(9, MRN="20191332")]) == []


@each(
    ("first", "other", "same"),
    [
        ("P0001", "p0001 ", True),
        ("100000", "100000.0", True),
        ("A 17", "a17", True),
        ("A\u200b1", "A1", True),
        ("7", "007", True),
        ("P1", "P2", False),
    ],
)
def test_spellings_of_an_id_are_one_patient(tmp_path: Path, first: str, other: str, same: bool) -> None:
    assert (plain_id(first) == plain_id(other)) == same
    rows = [wide(1, MRN=first), wide(2, MRN=other, Set="test")]
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
    (WIDE, wide(2, File="1.png"), "contradictory rows"),
    (WIDE, wide(2, File="./1.png"), "contradictory rows"),
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
def test_a_bad_row_does_not_show_its_cell(
    tmp_path: Path, table: dict[str, Any], row: dict[str, object], kind: str
) -> None:
    good = person(1, Findings="Edema", Finding="Edema", Value="yes", Reader="Meyer") | wide(1)
    expected = 2 if table is LONG and row.get("Finding") == "Normal" else 3
    errors = problems(tmp_path, table, [good, row])
    assert [(problem.kind, problem.file, problem.row) for problem in errors] == [(kind, "labels.csv", expected)]
    assert all(problem.advice for problem in errors)
    assert SECRET not in f"{errors}"


def test_all_problems_come_together(tmp_path: Path) -> None:
    rows = [wide(1, Age="200"), wide(2, Sex="x", MRN=""), wide(3, "2", *"0000", Projection="?"), wide(1)]
    kinds = {problem.kind for problem in problems(tmp_path, {}, rows)}
    assert kinds == {
        "blank name",
        "contradictory rows",
        *(f"unknown {kind}" for kind in ("age", "label", "sex", "view")),
    }


@given(cell=st.text(max_size=40), name=st.sampled_from(["Findings", "Projection", "Age", "Sex", "Set"]))
def test_no_cell_breaks_the_reader(tmp_path: Path, cell: str, name: str) -> None:
    rows = [{**person(1, Findings="Edema"), name: f"{cell}{SECRET}"}]
    with pytest.raises(SiteError) as caught:
        open_table(tmp_path, TERMS, rows, "labels.parquet")
    assert SECRET.lower() not in str(caught.value).lower()


def test_an_absent_annotator_is_a_problem(tmp_path: Path) -> None:
    (problem,) = problems(tmp_path, {**READERS, "raters": "Meyer"}, [wide(1, Reader=SECRET)])
    assert (problem.kind, SECRET in str(problem)) == ("unknown rater", False)


def test_missing_columns_are_named(tmp_path: Path) -> None:
    table = {"columns": {**COLUMNS, "patient": "mrm", "age": "Years"}}
    first, second = problems(tmp_path, table, [wide(1)])
    assert (first.kind, first.file, first.row) == ("missing column", "labels.csv", 1)
    assert "(the nearest is 'MRN')" in first.message
    assert first.advice.startswith("fix table.columns.patient, table.columns.age in ")
    assert ".yaml; the header" in first.advice
    assert "'Years'" in second.message
    (problem,) = problems(tmp_path, {}, [wide(1)], labels={**NAMES, "edema": ["Edema_{reader}"]})
    assert problem.kind == "missing column"
    headless = problems(tmp_path, {}, [{SECRET: "0", "Berlin": "1"}])
    assert {problem.kind for problem in headless} == {"missing column"}
    assert SECRET not in str(headless)

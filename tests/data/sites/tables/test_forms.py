"""The forms of a hospital's own table: whichever columns hold the labels, they become the same long form."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chestfed.core.errors import SiteError
from chestfed.data.sites import SiteTable, load_site_config, open_site
from chestfed.data.sites.opening import survey_site
from chestfed.data.sites.reader import SPLITS, VIEWS
from chestfed.data.sites.tables import dicom_headers
from tests.cases import each
from tests.data.sites.own_tables import (
    COLUMNS,
    LONG,
    NAMES,
    READERS,
    TERMS,
    VALUED,
    WIDE,
    config,
    labels,
    meanings,
    open_table,
    person,
    refusals,
    save_dicom,
    save_rows,
    wide,
)
from tests.data.sites.small_sites import CONFIGS, column

N = None
DICOM: dict[str, Any] = {
    "columns": {
        **{"patient": "PatientID", "study": "StudyInstanceUID", "view": "ViewPosition"},
        **{"sex": "PatientSex", "age": "PatientAge", "findings": "ImageComments"},
    },
    "codes": {"findings": meanings()},
}
IMAGES = {"images": ["**/*.dcm"]}


def test_wide_columns_become_a_table(tmp_path: Path) -> None:
    rows = [
        wide(1, "1", "0", "-1", "", "1.0", Sex="female", Age="058Y"),
        wide(2, "yes", "No", "uncertain", "TRUE", "false", Projection="LAT", Set="val", Sex="", Age=""),
        wide(3, Projection="", Set="test", Sex="unknown", Age="11M", **{"Pulmonary Edema": "1"}),
    ]
    codes = {"codes": {**WIDE["codes"], "view": {"Lat": "lateral"}}}
    table = open_table(tmp_path, codes, rows)
    assert labels(table) == [[1, 0, N, N, 1], [1, 0, N, 1, 0], [0, 1, 0, 0, 0]]
    people = ["p1", "p2", "p3"]
    expected = {
        **{"view": ["pa", "lateral", "unknown"], "split": ["train", "valid", "test"], "row": [2, 3, 4]},
        **{"sex": ["F", N, N], "age": [58, N, 0], "image": ["1.png", "2.png", "3.png"]},
        **{"study": people, "patient": people},
    }
    assert {name: column(table, name) for name in expected} == expected
    assert table.labels().dtype == table.frame["age"].dtype == np.float32
    assert table.frame["view"].cat.categories.tolist() == list(VIEWS)
    assert table.frame["split"].cat.categories.tolist() == list(SPLITS)


def test_a_findings_column_becomes_a_table(tmp_path: Path) -> None:
    cells = ["Cardiomegaly|no edema|possible consolidation|effusion?", "Normal", "without cardiomegaly | EDEMA", ""]
    cells += ["cannot exclude pulmonary  edema|Negative for Effusion", "['Edema', 'no effusion']", '["cardiomegaly"]']
    rows = [person(place, Findings=cell) for place, cell in enumerate(cells)]
    expected = [[1, 0, 1, N, 1], [0] * 5, [0, 1, N, N, N], [N] * 5, [N, 1, N, N, 0], [N, 1, N, N, 0], [1, N, N, N, N]]
    assert labels(open_table(tmp_path, TERMS, rows, uncertain="positive")) == expected
    expected = [[1, 0, 0, 0, 0], [0] * 5, [0, 1, 0, 0, 0], [N] * 5, [0] * 5, [0, 1, 0, 0, 0], [1, 0, 0, 0, 0]]
    assert labels(open_table(tmp_path, TERMS, N, uncertain="negative", blank="negative")) == expected


def test_a_row_per_finding_becomes_a_table(tmp_path: Path) -> None:
    findings = [(1, "Edema"), (2, "Normal"), (1, "no Effusion"), (3, ""), (1, "Edema")]
    table = open_table(tmp_path, LONG, [person(number, Finding=cell) for number, cell in findings])
    assert column(table, "image") == ["1.png", "2.png", "3.png"]
    assert labels(table) == [[N, 1, N, N, 0], [0] * 5, [N] * 5]
    assert column(table, "row") == [2, 3, 5]


#: Values of one finding -> the five labels with uncertain: positive.
VALUES = [
    ([("Edema", "1"), ("Effusion", "0"), ("Atelectasis", "")], [N, 1, N, N, 0]),
    ([("Edema", "yes"), ("no Effusion", "yes"), ("no Cardiomegaly", "no")], [1, 1, N, N, 0]),
    ([("Edema", "uncertain"), ("Consolidation?", "no")], [N, 1, 1, N, N]),
    ([("Normal", "1")], [0] * 5),
    ([("Normal", "0"), ("Edema", "1")], [N, 1, N, N, N]),
    ([("Edema", "n.a."), ("Effusion", "1")], [N, N, N, N, 1]),
]


@each(("findings", "expected"), VALUES)
def test_a_finding_may_have_a_value(
    tmp_path: Path, findings: list[tuple[str, str]], expected: list[float | None]
) -> None:
    rows = [person(1, Finding=finding, Value=value) for finding, value in findings]
    codes = {"findings": meanings(), "labels": {"n.a.": "missing"}}
    assert labels(open_table(tmp_path, {**VALUED, "codes": codes}, rows, uncertain="positive")) == [expected]


VOTES = {
    "any": [[1, 0, N, 1, 0], [1, 0, 0, 0, 0]],
    "majority": [[1, 0, N, 0, 0], [1, 0, 0, 0, 0]],
    "all": [[0, 0, 0, 0, 0], [1, 0, 0, 0, 0]],
    "Meyer": [[1, 0, N, 1, 0], [N] * 5],
}


@each("rule", VOTES)
def test_annotators_vote_in_rows_and_columns(tmp_path: Path, rule: str) -> None:
    rows = [
        wide(1, 1, 0, -1, 1, 0, Reader="Meyer", Age=63, MRN=17),
        wide(1, 1, 0, -1, 0, 0, Reader="Mueller", Age=63, MRN=17),
        wide(2, 1, 0, 0, 0, 0, Reader="Mueller", Age=N, MRN=18),
        wide(1, 0, 0, 0, 0, 0, Reader="Schmidt", Age=63, MRN=17),
    ]
    for row in rows:
        row["Pulmonary Edema"] = N
    table = open_table(tmp_path, {**READERS, "raters": rule}, rows)
    assert labels(table) == VOTES[rule]
    assert [column(table, name) for name in ("patient", "age", "row")] == [["17", "18"], [63, N], [2, 4]]
    names = {disease: columns[0] for disease, columns in NAMES.items()}
    voted = [person(1), person(2)]
    for row in rows:
        image = voted[["1.png", "2.png"].index(str(row["File"]))]
        image |= {f"{name}_{row['Reader']}": row[name] for name in names.values()}
    columns = {disease: [f"{name}_{{reader}}"] for disease, name in names.items()}
    assert labels(open_table(tmp_path, {**WIDE, "raters": rule}, voted, labels=columns)) == VOTES[rule]


@each("rule", ["any", "majority", "all", "A"])
def test_joint_label_counts_beside_votes(tmp_path: Path, rule: str) -> None:
    """A disease with a column of its own has that label, whatever the rule for the others is."""
    rows = []
    for number, cell in enumerate([1, 0, "u", ""], start=1):
        row = wide(number, 0, cell, 1 - number % 2, number % 2, number % 2)
        rows.append(row | {f"Cardiomegaly_{name}": vote for name, vote in zip("ABC", (1, number % 2, 0), strict=True)})
    columns = {**NAMES, "cardiomegaly": ["Cardiomegaly_{reader}"], "edema": ["Edema"]}
    table = {**WIDE, "raters": rule, "codes": {"labels": {"u": "uncertain"}}}
    read = labels(open_table(tmp_path, table, rows, labels=columns, uncertain="missing", one_class="all"))
    assert [edema for _, edema, *_ in read] == [1, 0, N, N]
    expected = {"any": [1, 1, 1, 1], "majority": [1, 0, 1, 0], "all": [0, 0, 0, 0], "A": [1, 1, 1, 1]}
    assert [heart for heart, *_ in read] == expected[rule]


def test_positive_and_uncertain_is_uncertain(tmp_path: Path) -> None:
    rows = [wide(1, *cells, Reader=f"R{place}") for place, cells in enumerate(["10000", "u0000", "00000"])]
    table = {**READERS, "codes": {"labels": {"u": "uncertain"}}, "raters": "majority"}
    for uncertain, label in (("positive", 1), ("negative", 0)):
        assert labels(open_table(tmp_path, table, rows, uncertain=uncertain))[0][0] == label


@each(
    ("threshold", "cells", "expected"),
    [
        (0.5, ["0.5", "0.49", "1", "", "0,7"], [1, 0, 1, N, 1]),
        (50, ["50", "49.9", "100", "75 %", "7"], [1, 0, 1, 1, 0]),
        (0.5, ["50%", "49 %", "1", "n.a.", "0"], [1, 0, 1, N, 0]),
    ],
)
def test_numbers_have_a_threshold(
    tmp_path: Path, threshold: float, cells: list[str], expected: list[float | None]
) -> None:
    table = {"threshold": threshold, "codes": {"labels": {"n.a.": "missing"}}}
    assert labels(open_table(tmp_path, table, [wide(1, *cells) | {"Pulmonary Edema": ""}])) == [expected]
    only = {"threshold": {"edema": threshold}}
    rows = [wide(1, 1, cells[0], 0, 0, 0) | {"Pulmonary Edema": ""}]
    assert labels(open_table(tmp_path, only, rows)) == [[1, 1, 0, 0, 0]]


def test_labels_are_read_from_dicom_headers(tmp_path: Path) -> None:
    first = {"StudyInstanceUID": "1.2.9", "ViewPosition": "PA", "PatientSex": "F", "PatientAge": "063Y"}
    save_dicom(tmp_path / "site/a/1.dcm", **first, ImageComments="Edema|no effusion")
    save_dicom(tmp_path / "site/b/2.dcm", PatientID="4712", ImageComments="Normal", BodyPartExamined="CHEST")
    save_dicom(tmp_path / "site/b/3.dcm", PatientID="4713", ViewPosition="", PatientSex="O")
    save_dicom(tmp_path / "site/b/4.dcm", PatientID="4713", BodyPartExamined="HAND")
    (tmp_path / "site/notes.txt").write_text("not an image")
    codes = {**DICOM["codes"], "keep": {"CHEST": "keep", "HAND": "drop"}}
    table = open_table(tmp_path, {**DICOM, "keep": ["BodyPartExamined"], "codes": codes}, N, label_files=IMAGES)
    assert labels(table) == [[N, 1, N, N, 0], [0] * 5, [N] * 5]
    expected = {
        "image": ["a/1.dcm", "b/2.dcm", "b/3.dcm"],
        "patient": ["4711", "4712", "4713"],
        "study": ["1.2.9", "4712", "4713"],
        "view": ["pa", "unknown", "unknown"],
        "sex": ["F", N, N],
        "age": [63, N, N],
    }
    assert {name: column(table, name) for name in expected} == expected
    assert "1 of 4 rows are left out by 'BodyPartExamined'" in table.notes[0]


@pytest.mark.slow
def test_many_headers_take_several_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(12):
        save_dicom(tmp_path / f"site/{number:02d}.dcm", PatientID=str(number), ImageComments="Edema")
    site = config(tmp_path, DICOM, label_files=IMAGES)
    alone = open_site(site, tmp_path)
    monkeypatch.setattr(dicom_headers, "_SMALL_JOB", 4)
    counts: list[tuple[int, int]] = []
    together = survey_site(site, tmp_path, progress=lambda done, total: counts.append((done, total))).table
    assert together.frame.equals(alone.frame)
    assert counts == [(number, 12) for number in range(1, 13)]


GUANGZHOU = ("NORMAL/IM-0432-0001.jpeg", "NORMAL/NORMAL2-IM-1236-0001.jpeg", "PNEUMONIA/person7_virus_9.jpeg")


def open_paths(root: Path, site: str, *names: str, overrides: tuple[str, ...] = ()) -> SiteTable:
    """A site whose labels are in paths, with empty files."""
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    return open_site(load_site_config(CONFIGS / f"films/{site}.yaml", ["one_class=all", *overrides]), root)


def test_folders_and_file_names_are_labels(tmp_path: Path) -> None:
    for place in ("guangzhou", "open_films/guangzhou"):
        table = open_paths(tmp_path / place[:4], "guangzhou", *(f"{place}/{name}" for name in GUANGZHOU))
        assert table.frame["image"].tolist() == list(GUANGZHOU)
        assert table.frame["patient"].tolist() == ["IM-0432", "NORMAL2-IM-1236", "person7"]
        assert table.labels()[:, 0].tolist() == [0, 0, 1]
        assert set(table.frame["view"]) == {"ap"}
    pattern = r"table.from_path='(?P<split>train|test)/(?P<finding>NORMAL|PNEUMONIA)/(?P<view>pa|ap)_(?P<patient>p\d)'"
    names = ("guangzhou/train/NORMAL/pa_p1.png", "guangzhou/test/PNEUMONIA/ap_p2.png")
    table = open_paths(tmp_path / "split", "guangzhou", *names, overrides=(pattern,))
    assert (column(table, "split"), column(table, "view")) == (["test", "train"], ["ap", "pa"])
    for site, code in (("montgomery", "MCUCXR"), ("shenzhen", "CHNCXR")):
        names = [f"{site}/CXR_png/{code}_000{number}_{number % 2}.png" for number in (1, 2)]
        table = open_paths(tmp_path, site, *names, f"{site}/other/{code}_1_1.png")
        assert table.labels()[:, 0].tolist() == [1, 0]


@each(
    ("name", "kind"),
    [
        ("NORMAL/other.jpeg", "unknown path"),
        ("COVID/person7_virus_9.jpeg", "unknown path"),
        ("PNEUMONIA/person7_virus_9.jpeg", "unknown finding"),
        ("NORMAL/notes.txt", "missing file"),
    ],
)
def test_a_path_without_label_is_reported(tmp_path: Path, name: str, kind: str) -> None:
    others = [] if kind == "missing file" else [f"guangzhou/{GUANGZHOU[0]}"]
    codes = ("table.codes={findings: {NORMAL: normal}}",) if kind == "unknown finding" else ()
    with pytest.raises(SiteError) as caught:
        open_paths(tmp_path, "guangzhou", *others, f"guangzhou/{name}", overrides=codes)
    assert [problem.kind for problem in caught.value.problems] == [kind]
    assert "person7" not in str(caught.value)


# What findings in words say together.


@each(
    ("keys", "cell", "expected"),
    [
        ({"codes": {"findings": meanings(Fracture="ignore")}}, "Fracture|Edema", [N, 1, N, N, N]),
        ({"codes": {"findings": meanings(Fracture="missing")}}, "Fracture|Edema", [N, 1, N, N, N]),
        ({"codes": {"findings": meanings(Fracture="missing")}}, "Fracture|Normal", [N] * 5),
        ({"other_terms": "ignore"}, "Fracture|Edema", [N, 1, N, N, N]),
        ({"other_terms": "ignore"}, "Fracture|Normal", [0] * 5),
        ({"other_terms": "missing"}, "Fracture|Normal", [N] * 5),
        ({"codes": {"findings": meanings(**{"": "normal"})}}, "", [0] * 5),
        ({"codes": {"findings": meanings(**{"": "normal"})}}, "[]", [0] * 5),
        ({"separator": ";"}, "Edema; no Effusion", [N, 1, N, N, 0]),
        (
            {"codes": {"findings": meanings(both="Edema; Pleural Effusion absent; mass uncertain")}},
            "BOTH",
            [N, 1, N, N, 0],
        ),
        ({"codes": {"findings": meanings(**{"no Edema": "ignore"})}}, "no Edema", [N] * 5),
        ({}, "Edema?", [N, 9, N, N, N]),
        ({}, "Edema|possible pulmonary edema", [N, 1, N, N, N]),
    ],
)
def test_findings_mean_what_the_codes_say(
    tmp_path: Path, keys: dict[str, Any], cell: str, expected: list[float | None]
) -> None:
    for uncertain, value in (("positive", 1), ("negative", 0)):
        table = open_table(tmp_path, {**TERMS, **keys}, [person(1, Findings=cell)], uncertain=uncertain)
        assert labels(table) == [[value if label == 9 else label for label in expected]]


def test_unreported_diseases_are_missing(tmp_path: Path) -> None:
    codes = {"findings": {"Edema": "edema", "no mass": "mass absent", "Normal": "normal", "Scoliosis": "ignore"}}
    rows = [person(n, Findings=cell) for n, cell in enumerate(["Edema", "Scoliosis", "Normal"])]
    table = open_table(tmp_path, {**TERMS, "codes": codes}, rows, diseases=["edema", "mass"], blank="negative")
    assert labels(table) == [[1, N], [0, N], [0, 0]]


def test_negatives_from_normal_are_remarked(tmp_path: Path) -> None:
    rows = [person(1, Findings="Edema"), person(2, Findings="Normal")]
    assert "negatives: 1 of 2 images" in open_table(tmp_path, TERMS, rows).notes[0]
    assert not open_table(tmp_path, TERMS, [*rows, person(3, Findings="no edema")]).notes
    assert not open_table(tmp_path, TERMS, rows, blank="negative").notes
    assert not open_table(tmp_path, TERMS, rows, diseases=["edema"]).notes


CELLS = st.sampled_from(["1", "0", "-1", "", "yes", "no", "1.0", "uncertain"])
ROWS = st.lists(st.tuples(CELLS, CELLS, CELLS, CELLS, CELLS), min_size=1, max_size=6)


@pytest.mark.slow
@given(rows=ROWS, seed=st.integers(0, 99))
def test_columns_and_rows_have_no_order(tmp_path: Path, rows: list[tuple[str, ...]], seed: int) -> None:
    filled = [wide(place, *cells) | {"Pulmonary Edema": ""} for place, cells in enumerate(rows)]
    expected = open_table(tmp_path, WIDE, filled).frame.drop(columns="row")
    shuffled = random.Random(seed).sample(filled, len(filled))
    order = random.Random(seed).sample(list(filled[0]), len(filled[0]))
    save_rows(tmp_path / "site/labels.csv", [{name: row[name] for name in order} for row in shuffled])
    table = open_table(tmp_path, WIDE, N).frame.drop(columns="row").sort_values("image").reset_index(drop=True)
    assert table.equals(expected.sort_values("image").reset_index(drop=True))


@given(
    findings=st.lists(
        st.tuples(st.sampled_from(sorted(NAMES)), st.sampled_from(["{}", "no {}", "possible {}", "{}?", " {} "])),
        unique_by=lambda pair: pair[0],
        min_size=1,
    ),
    seed=st.integers(0, 99),
)
def test_every_form_says_the_same(tmp_path: Path, findings: list[tuple[str, str]], seed: int) -> None:
    terms = [form.format(NAMES[disease][0].upper()) for disease, form in findings]
    random.Random(seed).shuffle(terms)
    label = {"{}": 1.0, " {} ": 1.0, "no {}": 0.0}
    expected = [label.get(dict(findings).get(disease, "")) for disease in NAMES]
    forms: list[tuple[dict[str, Any], list[dict[str, object]]]] = [
        (TERMS, [person(1, Findings="|".join(terms))]),
        (TERMS, [person(1, Findings=json.dumps(terms))]),
        (LONG, [person(1, Finding=term) for term in terms]),
        (VALUED, [person(1, Finding=term, Value="yes") for term in terms]),
    ]
    word = {"{}": "yes", " {} ": "yes", "no {}": "no"}
    cells = [word.get(form, "uncertain") if (form := dict(findings).get(disease)) else "" for disease in NAMES]
    forms.append(({}, [wide(1, *cells) | {"Pulmonary Edema": ""}]))
    for table, rows in forms:
        assert labels(open_table(tmp_path, table, rows)) == [expected]


# Splits, policies and what is counted.


def test_each_split_may_have_its_own_file(tmp_path: Path) -> None:
    columns = {name: cell for name, cell in COLUMNS.items() if name != "split"}
    for place, split in enumerate(("train", "test")):
        save_rows(tmp_path / "site" / f"{split}.csv", [wide(place)])
    files = {"train": ["train.csv"], "test": ["test.csv"]}
    table = {"columns": columns}
    assert column(open_table(tmp_path, table, N, label_files=files), "split") == ["train", "test"]
    mixed = open_table(tmp_path, table, N, label_files=files, splits={"official": False})
    assert column(mixed, "split") == ["train", "train"]
    site = config(tmp_path, table, label_files=files)
    for split in ("test", "train"):
        assert column(open_site(site, Path(), tmp_path / f"site/{split}.csv"), "split") == [split]
    test = {"columns": columns, "default_split": "test"}
    assert column(open_table(tmp_path, test, [wide(1), wide(2)]), "split") == ["test", "test"]


def test_only_image_and_patient_are_needed(tmp_path: Path) -> None:
    table = {"columns": {"image": "File", "patient": "File"}, "default_view": "frontal"}
    opened = open_table(tmp_path, table, [wide(1), wide(2)])
    expected = {"patient": ["1.png", "2.png"], "view": ["frontal"] * 2, "split": ["train"] * 2, "sex": [N, N]}
    assert {name: column(opened, name) for name in (*expected, "age")} == {**expected, "age": [N, N]}
    row = {name: cell for name, cell in wide(1).items() if name != "Set"}
    assert column(open_table(tmp_path, {}, [row], splits={"official": False}), "split") == ["train"]


def test_columns_that_disagree_are_counted(tmp_path: Path) -> None:
    half = [wide(1, **{"Edema": "0", "Pulmonary Edema": ""}), wide(2)]
    text = "labels.csv: edema is absent in 1 row in which only some of its columns say so, and others are empty"
    assert open_table(tmp_path, {}, half).notes == (text,)
    assert not open_table(tmp_path, {}, half, blank="negative").notes
    agree = [wide(number, *"01000", **{"Pulmonary Edema": "1"}) for number in range(20)]
    sides, strict = wide(21, *"01000", **{"Pulmonary Edema": "0"}), {"any_column": []}
    (note,) = open_table(tmp_path, strict, [*agree, sides]).notes
    assert "edema contradict each other in 1 of the 21 rows" in note
    assert refusals(tmp_path, strict, [agree[0], sides]) == [("contradictory columns", N)]
    table = open_table(tmp_path, {}, [agree[0], sides])
    assert (column(table, "edema"), table.notes) == ([1, 1], ())


def test_only_missing_labels_are_counted(tmp_path: Path) -> None:
    unknown = {"codes": {"labels": {"u": "missing"}}}
    rows = [wide(1, Edema="u"), wide(2, **{"Edema": "u", "Pulmonary Edema": "u"}), wide(3)]
    table = open_table(tmp_path, unknown, rows)
    assert column(table, "edema") == [0.0, N, 0.0]
    assert table.not_understood == {"values that mean missing": {"edema": 1}}
    both = [{**row, "Reader": reader} for row in rows[:2] for reader in "AB"]
    both[1] |= {"Cardiomegaly": "u"}
    table = open_table(tmp_path, {**READERS, **unknown, "raters": "A"}, [*both, {**rows[2], "Reader": "B"}])
    assert table.not_understood == {"values that mean missing": {"edema": 1}}


def test_policy_is_that_of_every_site(tmp_path: Path) -> None:
    rows = [wide(1, *"10000"), wide(2, Projection="ap")]
    assert column(open_table(tmp_path, {}, rows, upsample={"cardiomegaly": 2}), "repeats") == [3, 1]
    assert column(open_table(tmp_path, {}, N, views=["ap"]), "image") == ["2.png"]


def test_a_column_may_be_called_row(tmp_path: Path) -> None:
    rows = [wide(number, row=f"p{number // 2}") for number in range(4)]
    table = open_table(tmp_path, {"columns": {**COLUMNS, "patient": "row", "study": "row"}}, rows)
    assert column(table, "patient") == column(table, "study") == ["p0", "p0", "p1", "p1"]
    assert column(table, "row") == [2, 3, 4, 5]

"""A flag is followed or refused, and the image column is not a running number."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from chestfed.core.errors import ConfigError, SiteError
from tests.new_site.hospitals import LABELS, bring, chestfed, draft, everything_said, keys, opened, rows, without
from tests.sites.own_tables import save_dicom
from tests.sites.small_sites import column


def findings(**cells: Any) -> list[dict[str, object]]:
    words = ["edema", "normal", "effusion"]
    return [{**without(row, *LABELS), "Findings": words[n % 3], **cells} for n, row in enumerate(rows())]


def test_a_flag_that_would_have_no_effect_is_an_error(tmp_path: Path) -> None:
    readers = [{**row, "rad_id": f"R{reader}"} for row in findings() for reader in (1, 2, 3)]
    onehot: list[dict[str, object]] = rows()
    for table, choices, flag in (
        (
            readers,
            {"layout": "long", "columns": {"reader": "none"}, "raters": "all"},
            "--raters: the table has no annot",
        ),
        (onehot, {"raters": "any"}, "--raters: the table has no annotators"),
        (onehot, {"columns": {"reader": "Patient"}}, "--reader-column: layout 'onehot' has none"),
        (onehot, {"columns": {"value": "Oedema"}}, "--value-column: only layout 'long' has one"),
        (onehot, {"separator": ";"}, "--separator: layout 'onehot' has none"),
        (onehot, {"words": {"value": {"7": "positive"}}}, "--value 7: no cell of a label column is '7'"),
        (findings(), {"words": {"value": {"edema": "positive"}}}, "--value edema: enter what a term means"),
        (onehot, {"labels": {"edema": ["Stauung"]}}, "--label edema=Stauung: no free column is called 'Stauung'"),
        (onehot, {"labels": {"edema": ["File"]}}, "--label edema=File: no free column"),
        (onehot, {"sheet": "A"}, "--sheet does not apply to labels.csv"),
    ):
        bring(tmp_path, table)
        with pytest.raises(ConfigError) as caught:
            draft(tmp_path, **choices)
        assert flag in str(caught.value), choices
    bring(tmp_path, onehot, file="labels.xlsx")
    for choices in ({"delimiter": ";"}, {"encoding": "utf-8"}):
        with pytest.raises(ConfigError, match=r"does not apply to labels\.xlsx"):
            draft(tmp_path, "labels.xlsx", **choices)


def test_rows_that_a_flag_leaves_out_are_counted_and_the_stop_names_the_flag(tmp_path: Path) -> None:
    clean = rows()
    table = [*clean, {**clean[0], "File": "gone"}, {**clean[0], "File": "Summe", "Patient": "Summe", "Oedema": 6}]
    labels = bring(tmp_path, table, images=[f"{row['File']}.png" for row in clean])
    said = ["site", "new", "st-anne", "--images", tmp_path / "images", "--labels", labels, "--yes"]
    said += ["--out", tmp_path]
    with pytest.raises(ConfigError, match="add --drop missing_image"):
        chestfed(*said)
    said += ["--drop", "missing_image"]
    with pytest.raises(ConfigError, match="or add --drop total"):
        chestfed(*said)
    made = chestfed(*said, "--drop", "total", "--force")
    assert "1 of 14 rows that are totals" in made
    assert "1 of 14 rows that name an image that does not exist" in made
    assert "refused" not in made
    with pytest.raises(ConfigError, match="--drop sums"):
        chestfed(*said, "--drop", "sums")


#: Three annotators of each image; the first always reports edema, the third never.
OPINIONS = {"R1": ("edema", "effusion"), "R2": ("edema", "normal"), "R3": ("normal", "effusion")}


def opinions(column: str, **said: object) -> list[dict[str, object]]:
    """A row per image, annotator and finding, with two boxes of the same finding."""
    return [
        {**without(row, *LABELS), "Finding": terms[n % 2], column: name, "x": 10 * n + box, **said}
        for n, row in enumerate(rows())
        for name, terms in OPINIONS.items()
        for box in (1, 2)
    ]


@pytest.mark.parametrize("column", ["rad_id", "Kürzel"])
def test_annotators_of_a_table_with_a_row_per_finding_are_recognized_and_their_votes_counted(
    tmp_path: Path, column: str
) -> None:
    bring(tmp_path, opinions(column))
    if column == "Kürzel":
        with pytest.raises(ConfigError, match=r"annotator column: .* Candidates: Kürzel, none.*--reader-column"):
            draft(tmp_path)
    flag = {"columns": {"reader": column}} if column == "Kürzel" else {}
    for raters, edema, effusion in (
        (None, 1.0, 1.0),  # a guess: the majority of three
        ("any", 1.0, 1.0),
        ("all", 0.0, 0.0),
        ("R3", 0.0, 1.0),
    ):
        made = draft(tmp_path, raters=raters, blank="negative", **flag)
        table = keys(made)["table"]
        assert (table["columns"]["reader"], table["raters"]) == (column, raters or "majority")
        site = opened(tmp_path, made)
        of_edema, of_effusion = (site.frame[name].tolist() for name in ("edema", "pleural_effusion"))
        assert of_edema[::2] == [edema] * 6, raters
        assert of_effusion[1::2] == [effusion] * 6, raters
    with pytest.raises(SiteError, match="contradictory labels"):
        opened(tmp_path, draft(tmp_path, columns={"reader": "none"}))


def test_an_annotator_who_does_not_mention_a_disease_votes_as_blank_says(tmp_path: Path) -> None:
    said = {"R1": "edema", "R2": "effusion", "R3": "normal"}
    bring(tmp_path, [{**without(row, *LABELS), "Finding": t, "Reader": r} for row in rows() for r, t in said.items()])
    for blank, edema in (("negative", 0.0), ("missing", 0.0)):
        site = opened(tmp_path, draft(tmp_path, raters="majority", blank=blank))
        assert site.frame["edema"].tolist() == [edema] * 12 if blank == "negative" else site.frame["edema"].isna().all()


def test_annotators_who_contradict_each_other_are_no_contradiction(tmp_path: Path) -> None:
    table = [
        {**without(row, *LABELS), "Finding": "edema", "Reader": name, "Says": int(name != "R3")}
        for row in rows()
        for name in OPINIONS
    ]
    bring(tmp_path, table)
    assert set(column(opened(tmp_path, draft(tmp_path)), "edema")) == {1.0}


def test_a_flag_for_a_table_is_an_error_where_the_labels_are_in_headers(tmp_path: Path) -> None:
    for n in range(4):
        save_dicom(tmp_path / f"images/{n}.dcm", PatientID=f"P{n}", StudyDescription=("Edema", "Normal")[n % 2])
    for choices, flag in (
        ({"columns": {"patient": "AccessionNumber"}}, "--patient-column"),
        ({"columns": {"view": "none"}}, "--view-column"),
        ({"layout": "delimited"}, "--layout"),
        ({"delimiter": ";"}, "--delimiter"),
    ):
        with pytest.raises(ConfigError, match=flag):
            draft(tmp_path, None, **choices)
    assert keys(draft(tmp_path, None, separator="+"))["table"]["separator"] == "+"


def test_an_age_column_that_holds_no_ages_is_an_error_if_a_flag_names_it(tmp_path: Path) -> None:
    bring(tmp_path, rows(Code=["x", "y"], Empty=[None], AgeMonths=["7", "31"], Alter_Monate=["7 Monate"]))
    for name in ("Code", "Empty", "AgeMonths"):
        with pytest.raises(ConfigError, match=f"--age-column {name}"):
            draft(tmp_path, columns={"age": name})
    assert keys(draft(tmp_path, columns={"age": "Alter_Monate"}))["table"]["columns"]["age"] == "Alter_Monate"


def test_a_running_number_is_not_the_image_column_while_another_looks_like_file_names(tmp_path: Path) -> None:
    numbers = list(range(1, 41))
    random.Random(1).shuffle(numbers)
    for number_column, name, cell in (
        ("Bildnummer", "Dateiname", "img_{}.png"),
        ("Nr", "Dateiname", "img_{}.png"),
        ("Nr", "Export", "img_{}.png"),
        ("Nr", "Image", "x{}"),
    ):
        table = [
            {number_column: n, name: cell.format(number), "PatNr": f"p{n // 2}", "Oedema": n % 2}
            for n, number in enumerate(numbers, start=1)
        ]
        bring(tmp_path, table, [f"{n}.png" for n in range(1, 41)])
        with pytest.raises(
            ConfigError, match=f"'{number_column}' name files, but possibly by chance.*'{name}' looks like"
        ) as caught:
            draft(tmp_path)
        assert ".png" not in str(caught.value)
        taken = keys(draft(tmp_path, columns={"image": number_column}))
        assert taken["table"]["columns"]["image"] == number_column
    bring(tmp_path, [without(row, "Image") for row in table], [f"{n}.png" for n in range(1, 41)])
    assert keys(draft(tmp_path))["table"]["columns"]["image"] == "Nr"


def test_five_rows_and_their_files_are_shown_on_the_terminal_and_written_nowhere(tmp_path: Path) -> None:
    bring(tmp_path, rows(12))
    made = draft(tmp_path)
    assert made.examples == tuple(f"row {row} -> img{row - 2:03d}.png" for row in (2, 4, 7, 10, 13))
    assert "img0" not in everything_said(made)
    assert column(opened(tmp_path, made), "image")[5] == "images/img005.png"
    command = ["site", "new", "x", "--images", tmp_path / "images", "--labels", tmp_path / "labels.csv", "--yes"]
    said = chestfed(*command, "--out", tmp_path)
    assert all(example in said for example in made.examples)
    assert "img0" not in (tmp_path / "x.yaml").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"encoding": "klingon"}, "--encoding klingon: unknown encoding"),
        ({"encoding": "hex"}, "--encoding hex: .* not a text encoding"),
        ({"delimiter": ";;"}, "--delimiter ;;: "),
        ({"separator": "", "columns": {"findings": "File"}}, "--separator: give the character"),
        ({"delimiter": "\u00e9"}, "--delimiter \u00e9: must be an ASCII character"),
    ],
)
def test_a_table_that_cannot_be_written_so_is_refused(tmp_path: Path, choices: dict[str, str], message: str) -> None:
    bring(tmp_path, rows())
    with pytest.raises(ConfigError, match=message):
        draft(tmp_path, **choices)


def test_a_key_that_is_set_is_not_proposed_again(tmp_path: Path) -> None:
    bring(tmp_path, [*rows(), {**rows()[0], "Oedema": 0}])
    said = ["site", "new", "st-anne", "--images", tmp_path / "images", "--labels", tmp_path / "labels.csv", "--yes"]
    with pytest.raises(ConfigError, match="add --drop duplicate"):
        chestfed(*said, "--out", tmp_path / "sites")
    with pytest.raises(ConfigError, match="these differ in what they say") as told:
        chestfed(*said, "--out", tmp_path / "sites", "--drop", "duplicate", "--force")
    assert "--drop" not in str(told.value)


def test_a_file_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    bring(tmp_path, rows())
    said = ["site", "new", "st-anne", "--images", tmp_path / "images", "--labels", tmp_path / "labels.csv", "--yes"]
    with pytest.raises(ConfigError, match=r"--out .*st\.yaml: name a folder"):
        chestfed(*said, "--out", tmp_path / "st.yaml")
    assert not (tmp_path / "st.yaml").exists()

"""Views, ages, sexes and values as hospitals write them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from chestfed.core.errors import ConfigError
from chestfed.sites.reader import ages
from tests.new_site.hospitals import LABELS, bring, chestfed, draft, everything_said, keys, opened, rows
from tests.sites.own_tables import save_dicom
from tests.sites.small_sites import column


def test_laterals_that_a_column_tells_in_other_words_are_left_out(tmp_path: Path) -> None:
    bring(tmp_path, rows(30, Projektion=["p.a.", "seitlich", "a.p. liegend"]))
    made = draft(tmp_path)
    assert keys(made)["table"]["columns"]["view"] == "Projektion"
    assert column(opened(tmp_path, made), "view") == ["pa", "ap"] * 10
    assert not any("views are unknown" in note for note in made.notes)


@pytest.mark.parametrize("cells", [["seitlich", "Bucky", "Stativ"], ["正面", "側面", "側面"], [17, 18, 19]])
def test_words_that_are_not_known_for_the_view_stop_until_a_flag_says_what_they_mean(
    tmp_path: Path, cells: list[object]
) -> None:
    bring(tmp_path, rows(30, Projektion=cells))
    with pytest.raises(ConfigError, match=r"'Projektion' \(view\): unknown words: .*10\).*--word view:WORD=MEANING"):
        draft(tmp_path)
    words = {str(cells[0]): "pa", str(cells[1]).lower(): "lateral", str(cells[2]).lower(): "lateral"}
    made = draft(tmp_path, words={"view": words})
    assert keys(made)["views"] == ["pa", "ap", "frontal"]
    assert column(opened(tmp_path, made), "view") == ["pa"] * 10


def test_a_view_that_nobody_knows_is_left_out_and_counted(tmp_path: Path) -> None:
    bring(tmp_path, rows(30, Projektion=["p.a.", "unbekannt", None, "Buckytisch", "?", "LAT"]))
    made = draft(tmp_path, words={"view": {"buckytisch": "unknown"}})
    assert column(opened(tmp_path, made), "view") == ["pa"] * 5
    assert any("20 of 30 rows have no known view and are left out" in note for note in made.notes)


def test_words_for_sex_split_and_age_stop_and_have_a_flag(tmp_path: Path) -> None:
    bring(
        tmp_path,
        rows(30, Sex=["W.", "M.", "k.A."], Set=["Menge A"] * 2 + ["Menge B"] * 2, Age=["63", "85 plus", "jung"] * 3),
    )
    with pytest.raises(ConfigError) as caught:
        draft(tmp_path, columns={"age": "none"})
    said = str(caught.value)
    assert "--word split:WORD=MEANING" in said
    assert "'menge a' (16), 'menge b' (14)" in said
    split = {"menge a": "train", "menge b": "test"}
    age = {"85 plus": "85", "jung": "missing"}
    made = draft(tmp_path, words={"split": split, "age": age})
    site = opened(tmp_path, made)
    assert column(site, "split")[:4] == ["train", "train", "test", "test"]
    assert column(site, "age")[:2] == [63.0, 85.0]
    assert site.frame["age"].isna().sum() == 10
    assert column(site, "sex")[:2] == ["F", "M"]


@pytest.mark.parametrize("word", ["view:x=pa", "sex:x=F", "split:x=test", "age:x=3"])
def test_a_word_that_no_cell_has_is_refused(tmp_path: Path, word: str) -> None:
    bring(tmp_path, rows(View=["PA"]))
    command = ["site", "new", "x", "--images", tmp_path / "images", "--labels", tmp_path / "labels.csv", "--yes"]
    with pytest.raises(ConfigError, match=f"--word {word.partition('=')[0]}: no cell of "):
        chestfed(*command, "--out", tmp_path, "--word", word)


@pytest.mark.parametrize("word", ["view=pa", "hair:x=red", "view:x=sideways", "sex:=F", "age:x=200", "age:x=old"])
def test_a_word_flag_is_read_strictly(tmp_path: Path, word: str) -> None:
    bring(tmp_path, rows(View=["PA"]))
    command = ["site", "new", "x", "--images", tmp_path / "images", "--labels", tmp_path / "labels.csv", "--yes"]
    with pytest.raises(ConfigError, match=f"--word {word}: "):
        chestfed(*command, "--out", tmp_path, "--word", word)


def test_a_column_of_views_under_another_name_is_found_by_its_words(tmp_path: Path) -> None:
    bring(tmp_path, rows(30, Comment=["PA", "LAT", "AP"], Side=["L", "R"], Ward=["AP", "Ward 7"]))
    made = draft(tmp_path)
    assert keys(made)["table"]["columns"]["view"] == "Comment"
    assert "by its words alone: 10 pa, 10 lateral, 10 ap" in everything_said(made)
    assert len(opened(tmp_path, made).frame) == 20


def test_a_column_called_like_the_view_with_many_words_that_tell_none_is_not_used_and_said(tmp_path: Path) -> None:
    bring(tmp_path, rows(30, Position=[f"ward {n}" for n in range(15)]))
    made = draft(tmp_path)
    assert "view" not in keys(made)["table"]["columns"]
    assert any("'Position' is named like the view, but 0% of its cells" in note for note in made.notes)
    assert any("the views are unknown: lateral images, if any, are used for training" in note for note in made.notes)


@pytest.mark.parametrize(
    ("cell", "years"),
    [
        *((cell, 63) for cell in ("63 años", "63 anos", "63 an\u0303os", "63 ans", "63 Jahre", "63 J", "63J.", "63a")),
        *((cell, 63) for cell in ("63 years", "63 Y", "063Y", "63.0", "63 yo", "63,9 Jahre", " 63 AÑOS ")),
        *(
            (cell, 0)
            for cell in ("011M", "11 meses", "11 Monate", "11 mois", "3 weeks", "40 días", "5 Tage", "12 jours")
        ),
        *((cell, 2) for cell in ("24 Monate", "105 W", "31 months")),
        *((cell, None) for cell in ("63 j", "63 Zappa", "y63", "63-64", "121", "63 y 2 m", "años")),
    ],
)
def test_ages_are_read_with_their_words(cell: str, years: int | None) -> None:
    read = ages(pd.Series([cell]))[0]
    assert (None if np.isnan(read) else read) == years


def test_a_column_of_ages_with_words_is_the_age(tmp_path: Path) -> None:
    bring(tmp_path, rows(Edad=["63 años", "7 meses"]))
    assert column(opened(tmp_path, draft(tmp_path)), "age")[:2] == [63.0, 0.0]


def test_labels_with_a_decimal_comma_are_labels(tmp_path: Path) -> None:
    table = rows()
    bring(tmp_path, table, delimiter=";")
    plain = opened(tmp_path, draft(tmp_path))
    decimal = [{k: f"{v},0" if isinstance(v, int) else v for k, v in row.items()} for row in table]
    bring(tmp_path, decimal, delimiter=";")
    np.testing.assert_array_equal(opened(tmp_path, draft(tmp_path)).labels(), plain.labels())


def test_fractions_are_no_labels(tmp_path: Path) -> None:
    table = rows()
    table[4]["Oedema"] = "0,5"
    bring(tmp_path, table, delimiter=";")
    with pytest.raises(ConfigError, match=r"'Oedema' \(edema\): .* \(row 6; remove totals, or add --drop total\)"):
        draft(tmp_path)


@pytest.mark.parametrize("file", ["labels.csv", "labels.xlsx"])
def test_a_row_of_totals_is_named_by_its_number(tmp_path: Path, file: str) -> None:
    table = [{**row, **{name: "x" if row[name] else None for name in LABELS}} for row in rows()]
    bring(tmp_path, table, file=file)
    bring(tmp_path, [*table, {"File": "Total", **dict.fromkeys(LABELS, 6)}], [], file)
    with pytest.raises(
        ConfigError, match=r"1 that fewer than 3 rows have \(row 14; remove totals, or add --drop total\)"
    ):
        draft(tmp_path, file)


def test_a_sex_column_in_short_is_read(tmp_path: Path) -> None:
    bring(tmp_path, rows(**{"Geschl.": ["männlich", "weiblich"]}))
    assert column(opened(tmp_path, draft(tmp_path)), "sex")[:2] == ["M", "F"]


def test_a_patient_who_stands_in_the_first_row_only_is_told(tmp_path: Path) -> None:
    bring(tmp_path, [{**row, "Patient": row["Patient"] if n % 2 == 0 else None} for n, row in enumerate(rows())])
    match = r"'Patient' has such a name, but 6 of 12 cells are empty \(the first in row 3\): fill it in on every row"
    with pytest.raises(ConfigError, match=match):
        draft(tmp_path)


def test_a_patient_column_that_says_different_things_of_one_image_is_told(tmp_path: Path) -> None:
    table = rows()
    bring(tmp_path, [*table, *({**row, "Patient": f"x{n}"} for n, row in enumerate(table))])
    with pytest.raises(ConfigError, match=r"'Patient' has such a name, but several values for one image"):
        draft(tmp_path)


def test_a_table_with_a_column_that_is_called_row_is_described(tmp_path: Path) -> None:
    bring(tmp_path, rows(row=range(12)))
    assert len(opened(tmp_path, draft(tmp_path)).frame) == 12


def test_folders_of_images_without_an_ending_are_described_and_opened(tmp_path: Path) -> None:
    table = [{**row, "File": f"Z{place}"} for place, row in enumerate(rows())]
    for row in table:
        for name in ("IM1", "IM2"):
            save_dicom(tmp_path / "images" / str(row["File"]) / name, PatientID=str(row["Patient"]))
    bring(tmp_path, table, images=[])
    assert len(opened(tmp_path, draft(tmp_path)).frame) == 24


@pytest.mark.parametrize("sign", ["\x7f", "\u2028", "\U0001f600\u200b"])
def test_a_name_with_a_sign_that_cannot_be_seen_is_written_so_that_yaml_reads_it(tmp_path: Path, sign: str) -> None:
    bring(tmp_path, rows(30, **{f"Projek{sign}tion": ["PA", "AP", "lateral"]}))
    made = draft(tmp_path, columns={"view": f"Projek{sign}tion"})
    assert column(opened(tmp_path, made), "view") == ["pa", "ap"] * 10


def test_a_table_of_json_lines_has_neither_an_encoding_nor_a_delimiter(tmp_path: Path) -> None:
    bring(tmp_path, rows())
    (tmp_path / "labels.jsonl").write_text("\n".join(map(json.dumps, rows())))
    made = draft(tmp_path, "labels.jsonl")
    assert not {"encoding", "delimiter", "header_row"} & keys(made)["table"].keys()
    assert len(opened(tmp_path, made).frame) == 12

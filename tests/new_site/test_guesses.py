"""What is guessed of tables as they come, and where it stops instead."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from chestfed.core.errors import ConfigError, SiteError
from tests.new_site.hospitals import LABELS, bring, draft, everything_said, keys, opened, rows, without
from tests.sites.own_tables import save_dicom
from tests.sites.small_sites import column


def test_a_plain_table_is_described_and_opens(tmp_path: Path) -> None:
    table = rows(
        Projection=["PA", "AP", "LAT"], Sex=["w", "m"], Age=["063Y", "70"], Set=["training", "training", "held out"]
    )
    for n, row in enumerate(table):
        row["Set"] = "training" if n < 8 else "held out"
    bring(tmp_path, table)
    made = draft(tmp_path)
    site = keys(made)
    assert site["table"]["columns"] == {
        **{"image": "File", "patient": "Patient", "view": "Projection", "split": "Set", "sex": "Sex", "age": "Age"}
    }
    assert site["labels"] == dict(
        zip(
            ("cardiomegaly", "edema", "consolidation", "atelectasis", "pleural_effusion"),
            ([n] for n in LABELS),
            strict=True,
        )
    )
    assert "12 of 12 cells name a file" in made.text
    opening = opened(tmp_path, made)
    assert column(opening, "split") == ["train"] * 6 + ["test"] * 2
    assert set(column(opening, "sex")) == {"F", "M"}


# --- images -----------------------------------------------------------------------------------------------------------


def shuffled(count: int) -> list[int]:
    numbers = list(range(1, count + 1))
    random.Random(1).shuffle(numbers)
    return numbers


def two_numbers(first: str, second: str, count: int = 20) -> list[dict[str, object]]:
    """Two columns of numbers, both of which are names of files."""
    return [
        {first: n, second: other, "Patient": f"p{n // 2}", "Oedema": n % 2}
        for n, other in zip(range(1, count + 1), shuffled(count), strict=True)
    ]


def test_of_two_columns_that_name_images_the_one_called_like_an_image_is_taken(tmp_path: Path) -> None:
    bring(tmp_path, two_numbers("No", "Image"), [f"{n}.png" for n in range(1, 21)])
    assert keys(draft(tmp_path))["table"]["columns"]["image"] == "Image"


def test_of_two_columns_that_name_images_neither_is_taken_if_their_names_do_not_tell(tmp_path: Path) -> None:
    bring(tmp_path, two_numbers("A", "B"), [f"{n}.png" for n in range(1, 21)])
    with pytest.raises(ConfigError, match=r"not the same ones: A \(20 of 20.*Candidates: A, B.*--image-column"):
        draft(tmp_path)
    assert keys(draft(tmp_path, columns={"image": "b"}))["table"]["columns"]["image"] == "B"


def test_ages_that_happen_to_be_names_of_files_are_no_rival(tmp_path: Path) -> None:
    table = [{"Age": 30 + n % 20, "X": 1 + n, "Patient": f"p{n}", "Oedema": n % 2} for n in range(60)]
    bring(tmp_path, table, [f"{n}.png" for n in range(1, 61)])
    made = keys(draft(tmp_path))["table"]["columns"]
    assert (made["image"], made["age"]) == ("X", "Age")


def test_a_table_of_another_folder_is_refused_with_its_columns(tmp_path: Path) -> None:
    bring(tmp_path, rows(), ["other1.png", "other2.png"])
    with pytest.raises(ConfigError, match=r"no column has cells that name the 2 images.*File, Patient"):
        draft(tmp_path)


def test_a_column_that_names_too_few_files_is_a_candidate_only(tmp_path: Path) -> None:
    bring(tmp_path, rows(), [f"img{n:03d}.png" for n in range(6)])
    with pytest.raises(ConfigError, match=r"too few cells name a file.*: File \(6 of 12 cells name a file\)"):
        draft(tmp_path)
    made = draft(tmp_path, columns={"image": "File"})
    assert any("6 rows with no file" in note for note in made.notes)


PLACES = [
    (
        ["images_001/a.png", "images_002/b.png"],
        ["a.png", "b.png"],
        {"roots": ["images"], "recursive": True},
    ),
    (["x/1/a.dcm", "x/2/b.dcm"], ["1/a", "2/b"], {"roots": ["images/x"], "suffix": ".dcm"}),
    (["1/a.png", "2/b.png"], [r"C:\old\1\a.png", r"C:\old\2\b.png"], {"roots": ["images"], "remove_prefix": "C:/old/"}),
    (["a.JPG", "b.JPG"], ["a", "b"], {"roots": ["images"], "suffix": ".JPG"}),
    (["gro\u0308ße.png", "a.png"], ["gr\u00f6ße.png", "a.png"], {"roots": ["images"]}),
    (["ö/1.png", "ä/2.png"], ["ö/1", "ä/2"], {"roots": ["images"], "suffix": ".png"}),
]


@pytest.mark.parametrize(("files", "cells", "expected"), PLACES)
def test_the_way_from_a_cell_to_its_file_is_found(
    tmp_path: Path, files: Sequence[str], cells: Sequence[str], expected: dict[str, object]
) -> None:
    table = [{"F": cell, "Patient": f"p{n}", "Oedema": n % 2} for n, cell in enumerate(cells)]
    bring(tmp_path, table, files)
    made = draft(tmp_path)
    assert keys(made)["table"]["images"] == expected
    assert column(opened(tmp_path, made), "image") == [f"images/{file}" for file in files]


def test_folders_called_like_patients_stay_out_of_the_yaml(tmp_path: Path) -> None:
    table = [{"File": f"img{n:03d}", "Oedema": n % 2} for n in range(24)]
    files = [f"CD/MUELLER_Hans{n // 2}_1951/img{n:03d}.png" for n in range(24)]
    bring(tmp_path, table, files)
    made = draft(tmp_path, columns={"patient": "folder"})
    assert keys(made)["table"]["images"] == {"roots": ["images"], "recursive": True, "suffix": ".png"}
    assert "MUELLER" not in everything_said(made)
    assert "CD" not in keys(made)["table"]["from_path"]
    table_ = opened(tmp_path, made)
    assert column(table_, "image") == [f"images/{file}" for file in files]
    assert set(column(table_, "patient")) == {f"MUELLER_Hans{n}_1951" for n in range(12)}


def test_a_beginning_of_cells_that_differs_from_row_to_row_is_not_written(tmp_path: Path) -> None:
    table = [{"File": f"old/Zappa{n}/{n}.png", "Patient": f"p{n}", "Oedema": n % 2} for n in range(8)]
    bring(tmp_path, table, [f"{n}.png" for n in range(8)])
    with pytest.raises(ConfigError) as caught:
        draft(tmp_path, columns={"image": "File"})
    assert "Zappa" not in str(caught.value)


def test_folders_that_other_columns_name_become_a_template(tmp_path: Path) -> None:
    table = [
        {"dicom": f"view{1 + n % 2}", "subject_id": 10000 + 1000 * (n // 4), "study_id": 500 + n // 2, "edema": n % 2}
        for n in range(16)
    ]
    files = [f"p{str(r['subject_id'])[:2]}/p{r['subject_id']}/s{r['study_id']}/{r['dicom']}.dcm" for r in table]
    bring(tmp_path, table, files)
    made = draft(tmp_path)
    assert keys(made)["table"]["images"]["path"] == "p{patient[:2]}/p{patient}/s{study}/{image}" or (
        keys(made)["table"]["images"]["path"] == "p10/p{patient}/s{study}/{image}"
    )
    assert column(opened(tmp_path, made), "image") == [f"images/{file}" for file in files]


def test_files_that_no_row_names_are_counted(tmp_path: Path) -> None:
    bring(tmp_path, rows(), [*(f"img{n:03d}.png" for n in range(12)), "stray.png"])
    assert any("1 file of the folder, named by no row" in note for note in draft(tmp_path).notes)


# --- patients ---------------------------------------------------------------------------------------------------------


def test_without_a_column_of_patients_it_stops_and_says_what_that_means(tmp_path: Path) -> None:
    table = [{**without(row, "Patient"), "Code": row["Patient"]} for row in rows()]
    bring(tmp_path, table)
    with pytest.raises(ConfigError, match=r"patient column: no column has such a name.*Candidates: .*Code.*none"):
        draft(tmp_path)
    assert keys(draft(tmp_path, columns={"patient": "Code"}))["table"]["columns"]["patient"] == "Code"
    alone = draft(tmp_path, columns={"patient": "none"})
    assert keys(alone)["table"]["columns"]["patient"] == "File"
    assert "every image counts as a separate patient" in alone.text


def test_patients_that_only_the_folders_tell_are_taken_from_there_or_asked_for(tmp_path: Path) -> None:
    table = [{"Path": f"P{n // 4}/S{n // 2}/view{n % 2}.png", "Oedema": n % 2} for n in range(16)]
    bring(tmp_path, table, [str(row["Path"]) for row in table])
    made = draft(tmp_path)
    assert "4 folders at level 1 of 16 images" in made.text
    assert opened(tmp_path, made).frame["patient"].nunique() == 4


def test_two_columns_of_patients_that_agree_are_one(tmp_path: Path) -> None:
    table = [{**row, "MRN": f"9{str(row['Patient'])[-1]}"} for row in rows()]
    bring(tmp_path, table)
    made = draft(tmp_path)
    assert keys(made)["table"]["columns"]["patient"] == "Patient"
    assert "MRN groups them in the same way" in made.text


def test_two_columns_of_patients_that_disagree_are_a_question(tmp_path: Path) -> None:
    table = [{**row, "MRN": n // 3} for n, row in enumerate(rows())]
    bring(tmp_path, table)
    with pytest.raises(ConfigError, match=r"group the images differently\. Candidates: Patient, MRN"):
        draft(tmp_path)


def test_no_name_of_a_patient_or_an_image_is_written_or_shown(tmp_path: Path) -> None:
    table = rows(
        Remark=["Zappa was here", "see Moon", None], Findings=["edema; dear Zappa7 was ill", "normal", "effusion"]
    )
    bring(tmp_path, table)
    for layout in (None, "delimited"):
        said = everything_said(draft(tmp_path, layout=layout))
        assert not re.search(r"Zappa|Moon|img\d", said)


# --- labels -----------------------------------------------------------------------------------------------------------


def test_label_columns_of_other_diseases_only_are_refused(tmp_path: Path) -> None:
    table = [{**without(row, *LABELS), "Fracture": n % 2, "Scoliosis": "0"} for n, row in enumerate(rows())]
    bring(tmp_path, table)
    with pytest.raises(ConfigError, match=r"no column is named like a disease.*look like labels: Fracture.*--label"):
        draft(tmp_path)
    made = draft(tmp_path, labels={"pneumothorax": ["Fracture"]})
    assert keys(made)["labels"] == {"pneumothorax": ["Fracture"]}


def test_values_that_are_not_known_are_a_question(tmp_path: Path) -> None:
    table = [{**row, "Oedema": (0, 1, 2)[n % 3]} for n, row in enumerate(rows())]
    bring(tmp_path, table)
    with pytest.raises(ConfigError, match=r"column 'Oedema' \(edema\): unknown values: '2' \(4\).*--value"):
        draft(tmp_path)
    made = draft(tmp_path, words={"value": {"2": "uncertain"}}, uncertain="positive")
    assert [row.term for row in made.terms if row.meaning == "uncertain"] == ["2"]
    assert opened(tmp_path, made).frame["edema"].tolist() == [0, 1, 1] * 4


def test_a_label_can_be_said_and_unsaid(tmp_path: Path) -> None:
    table = [{**row, "KM": row["Oedema"]} for row in rows()]
    bring(tmp_path, table)
    made = draft(tmp_path, labels={"cardiomegaly": ["KM"], "edema": []})
    assert keys(made)["labels"]["cardiomegaly"] == ["KM"]
    assert "edema" not in keys(made)["diseases"]


@pytest.mark.parametrize(
    ("there", "absent", "blank"),
    [("x", None, "negative"), ("+", "-", "missing"), ("sí", "no", "missing"), ("1.0", "0.0", "missing")],
)
def test_codes_are_understood_and_an_empty_cell_means_no_only_if_nothing_else_does(
    tmp_path: Path, there: str, absent: str | None, blank: str
) -> None:
    table = [{**row, **{name: there if row[name] else absent for name in LABELS}} for row in rows()]
    bring(tmp_path, table)
    made = draft(tmp_path)
    assert keys(made)["blank"] == blank
    assert opened(tmp_path, made).frame["edema"].tolist() == [1.0, 0.0] * 6
    assert any("--blank missing" in note for note in made.notes) == (blank == "negative")


def test_a_sign_means_the_same_in_all_columns_of_labels(tmp_path: Path) -> None:
    table = [{**row, **{name: "+" if row[name] and name != "Oedema" else "-" for name in LABELS}} for row in rows()]
    bring(tmp_path, table)
    assert opened(tmp_path, draft(tmp_path)).frame["edema"].tolist() == [0.0] * 12


@pytest.mark.parametrize(("yes", "letter"), [("y", "x"), ("y", "s"), ("1", "t"), ("present", "j")])
def test_a_letter_beside_another_word_for_yes_may_mean_something_else(tmp_path: Path, yes: str, letter: str) -> None:
    for n, row in enumerate(table := rows(30)):
        row |= {name: yes if row[name] else "n" if n % 4 == 1 else letter for name in LABELS}
    bring(tmp_path, table)
    with pytest.raises(ConfigError, match=rf"unknown values: '{letter}' \("):
        draft(tmp_path)
    frame = opened(tmp_path, draft(tmp_path, words={"value": {letter: "missing"}})).frame
    assert frame["edema"].isna().tolist() == [row["Oedema"] == letter for row in table]


def test_a_letter_is_as_doubtful_in_a_column_of_values(tmp_path: Path) -> None:
    values = {("edema", 0): "y", ("edema", 1): "n", ("effusion", 0): "x", ("effusion", 1): "y"}
    table = [
        {"File": f"{n}", "Patient": f"p{n}", "Finding": name, "Value": values[name, n % 2]}
        for n in range(6)
        for name in ("edema", "effusion")
    ]
    bring(tmp_path, table)
    made = draft(tmp_path, columns={"value": "Value"})
    assert [row.term for row in made.terms if not row.known] == ["effusion = x"]


def test_that_one_side_or_kind_of_a_disease_is_taken_for_all_of_it_is_said(tmp_path: Path) -> None:
    table = [{**without(row, "Oedema"), "Left effusion": 1, "Right effusion": 0} for row in rows()]
    table = [{**without(row, "Effusion"), "Alveolar edema": n % 2} for n, row in enumerate(table)]
    bring(tmp_path, table)
    said = [note for note in draft(tmp_path).notes if "is the only column of" in note]
    assert [note.split(":")[0] for note in said] == ["'Alveolar edema' is the only column of edema"]


def test_v_and_m_are_two_sexes_the_other_way_round_in_dutch_and_in_spanish(tmp_path: Path) -> None:
    bring(tmp_path, rows(Sexo=["V", "M"]))
    assert column(opened(tmp_path, draft(tmp_path)), "sex") == ["M", "F"] * 6
    bring(tmp_path, rows(Gender=["V", "M"]))
    with pytest.raises(ConfigError, match=r"unknown words: 'v' \(6\), 'm' \(6\)"):
        draft(tmp_path)


def test_rows_of_several_readers_need_to_say_who_reads(tmp_path: Path) -> None:
    table = [{**row, "Who": f"D{reader}", "Note": None} for row in rows() for reader in (1, 2, 3)]
    bring(tmp_path, table)
    with pytest.raises(ConfigError, match=r"annotator column: images have 3\.0 rows each.*Candidates: Who"):
        draft(tmp_path)
    made = draft(tmp_path, columns={"reader": "Who"})
    assert (keys(made)["table"]["layout"], keys(made)["table"]["raters"]) == ("readers", "majority")
    assert len(opened(tmp_path, made).frame) == 12


def test_a_row_per_finding_with_a_value_that_is_not_called_so_is_a_question(tmp_path: Path) -> None:
    table = [
        {"File": f"{n}", "Patient": f"p{n}", "Finding": name, "Opinion": "yes" if (n + place) % 3 else "no"}
        for n in range(6)
        for place, name in enumerate(("edema", "effusion"))
    ]
    bring(tmp_path, table)
    with pytest.raises(ConfigError, match=r"value column: Opinion holds yes and no\. Candidates: Opinion, none"):
        draft(tmp_path)
    made = draft(tmp_path, columns={"value": "Opinion"})
    assert keys(made)["table"]["layout"] == "long"
    assert {row.term for row in made.terms} == {
        f"{name} = {cell}" for name in ("edema", "effusion") for cell in ("yes", "no")
    }
    assert opened(tmp_path, made).frame["edema"].tolist() == [0, 1, 1, 0, 1, 1]


def test_columns_win_over_terms_that_tell_no_more_and_the_other_is_mentioned(tmp_path: Path) -> None:
    bring(tmp_path, rows(Findings=["edema", "effusion", "normal"]))
    made = draft(tmp_path)
    assert keys(made)["table"]["layout"] == "onehot"
    assert any("'Findings' holds findings too" in note for note in made.notes)


def test_labels_in_headers_are_found_without_a_table(tmp_path: Path) -> None:
    for n in range(6):
        finding = ("Edema\\Effusion", "Normal", "possible atelectasis")[n % 3]
        path = tmp_path / f"images/{n}.dcm"
        save_dicom(path, PatientID=f"Zappa{n // 2}", StudyDescription=finding, ViewPosition="PA", PatientAge="050Y")
    made = draft(tmp_path, None)
    site = keys(made)
    assert site["label_files"] == {"images": ["**/*.dcm"]}
    assert site["table"]["columns"]["findings"] == "StudyDescription"
    assert "Zappa" not in everything_said(made)
    assert opened(tmp_path, made).frame["edema"].tolist() == pytest.approx([1, 0, math.nan] * 2, nan_ok=True)


def test_pictures_without_headers_need_a_table(tmp_path: Path) -> None:
    bring(tmp_path, rows())
    with pytest.raises(ConfigError, match=r"not DICOM files \(12 \.png\): name the file of the labels with --labels"):
        draft(tmp_path, None)


def test_labels_of_0_and_1_name_no_images_though_files_are_called_so(tmp_path: Path) -> None:
    table = [{**without(row, "File"), "Study": f"S{n:03d}"} for n, row in enumerate(rows())]
    bring(tmp_path, table, [f"S{n:03d}/{view}.png" for n in range(12) for view in (0, 1)])
    made = draft(tmp_path)
    assert keys(made)["table"]["columns"]["image"] == "Study"
    assert len(opened(tmp_path, made).frame) == 24


# --- files ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("encoding", "name", "expected"),
    [
        ("latin-1", "Herzvergrößerung", "cp1252"),
        ("cp1252", "Herzvergrößerung €", "cp1252"),
        ("shift_jis", "心拡大と無気肺の所見あり", "cp932"),
        ("utf-8-sig", "Herzvergrößerung", "utf-8"),
    ],
)
def test_the_encoding_is_told_from_the_bytes(tmp_path: Path, encoding: str, name: str, expected: str) -> None:
    notes = (
        ["für Ärztin geprüft", "möglich, später größer", "unverändert über Jahre", "Übergröße"]
        if "ö" in name
        else ["a"]
    )
    table = [
        {**without(row, *LABELS), name: row["Oedema"], "Note": notes[number % len(notes)]}
        for number, row in enumerate(rows())
    ]
    bring(tmp_path, table, encoding=encoding, delimiter=";")
    said = {"cardiomegaly": [name]} if "€" in name or "心" in name else {}
    made = draft(tmp_path, labels=said)
    assert keys(made)["table"]["encoding"] == expected
    assert keys(made)["labels"] == {"cardiomegaly": [name]}
    assert opened(tmp_path, made).frame["cardiomegaly"].tolist() == [1, 0] * 6


def test_an_ambiguous_encoding_is_refused_with_the_candidates(tmp_path: Path) -> None:
    bring(tmp_path, rows(Note=["řídké nález"]), encoding="cp1250")
    with pytest.raises(ConfigError, match=r"add --encoding cp1252 or --encoding cp1250 or "):
        draft(tmp_path)
    assert keys(draft(tmp_path, encoding="cp1250"))["table"]["encoding"] == "cp1250"


@pytest.mark.parametrize("delimiter", [",", ";", "|"])
def test_the_delimiter_is_the_one_that_cuts_evenly(tmp_path: Path, delimiter: str) -> None:
    bring(tmp_path, rows(Note=["a, b; c | d", "e"]), delimiter=delimiter)
    assert keys(draft(tmp_path))["table"]["delimiter"] == delimiter


def test_blank_columns_and_columns_called_alike_do_no_harm(tmp_path: Path) -> None:
    bring(tmp_path, rows())
    lines = (tmp_path / "labels.csv").read_text().splitlines()
    text = "\n".join([f"{lines[0]},,Twice,Twice,Sex", *(f"{line},,1,2," for line in lines[1:])])
    (tmp_path / "labels.csv").write_text(text + "\n")
    made = draft(tmp_path)
    assert any("2 columns are named 'Twice'" in note for note in made.notes)
    assert "sex" not in keys(made)["table"]["columns"]
    assert len(opened(tmp_path, made).frame) == 12


def test_a_table_with_broken_rows_is_reported_without_its_cells(tmp_path: Path) -> None:
    bring(tmp_path, rows())
    with (tmp_path / "labels.csv").open("a") as file:
        file.write("img999,Zappa9,1,0,1,0,1,1,1,1\n")
    with pytest.raises(SiteError, match="malformed row") as caught:
        draft(tmp_path)
    assert "Zappa" not in str(caught.value)


def test_ages_that_are_none_count_as_missing_and_a_patient_called_so_stays(tmp_path: Path) -> None:
    table = rows(20, Age=[*range(30, 49), 412])
    for row in table:
        row["Patient"] = 412 if row["Patient"] == "Zappa0" else row["Patient"]
    bring(tmp_path, table)
    made = draft(tmp_path)
    assert [(row.term, row.meaning) for row in made.terms if row.kind == "age"] == [("412", "missing")]
    frame = opened(tmp_path, made).frame
    assert (len(frame), frame["age"].isna().sum()) == (20, 1)
    assert "412" in set(frame["patient"])


def test_a_rare_word_in_a_column_of_words_is_not_written_but_its_row_is_named(tmp_path: Path) -> None:
    table = rows(24, View=["PA", "AP"], Age=[50, 60])
    table[3]["View"], table[5]["Age"] = "Frank Zappa", "Zappa"
    bring(tmp_path, table)
    with pytest.raises(ConfigError) as caught:
        draft(tmp_path)
    said = str(caught.value)
    assert "'View' (view): unknown words: 1 that fewer than 3 rows have (row 5;" in said
    assert "'Age' (age): not ages: 1 that fewer than 3 rows have (row 7;" in said
    assert "zappa" not in said.lower()


def test_images_and_table_in_different_folders_have_their_root_above_both(tmp_path: Path) -> None:
    bring(tmp_path / "a", rows())
    (tmp_path / "b").mkdir()
    (tmp_path / "a/SYNTHETIC.txt").touch()
    (tmp_path / "a/labels.csv").rename(tmp_path / "b/table [1].csv")
    made = draft(tmp_path, "b/table [1].csv", images="a/images")
    assert keys(made)["root"] == str(tmp_path.resolve())
    table = opened(tmp_path, made)
    assert column(table, "image")[0] == "a/images/img000.png"
    assert table.synthetic


def test_folds_are_no_split(tmp_path: Path) -> None:
    bring(tmp_path, rows(Split=["fold1", "fold2"]))
    with pytest.raises(ConfigError, match=r"'Split' \(split\): unknown words: .*--split-column none"):
        draft(tmp_path)
    assert "split" not in keys(draft(tmp_path, columns={"split": "none"}))["table"]["columns"]


def test_a_flag_that_names_no_column_gets_a_suggestion(tmp_path: Path) -> None:
    bring(tmp_path, rows())
    with pytest.raises(ConfigError, match="--patient-column Pateint: no such column; did you mean 'Patient'"):
        draft(tmp_path, columns={"patient": "Pateint"})


class Answers:
    """Somebody who answers one question otherwise than proposed."""

    def __init__(self, what: str, answer: str) -> None:
        self.what, self.answer = what, answer
        self.asked: list[str] = []

    def __call__(
        self,
        what: str,
        flag: str,
        guess: str | None,
        candidates: Sequence[str],
        why: str,
        examples: Sequence[str] = (),
    ) -> str:
        self.asked.append(what)
        assert guess is None or guess in candidates
        assert self.what != what or self.answer in candidates
        return self.answer if what == self.what else guess or candidates[0]


@pytest.mark.parametrize(
    ("what", "answer", "key", "expected"),
    [
        ("sex column", "none", "sex", None),
        ("sex column", "Gender", "sex", "Gender"),
        ("patient column", "Patient", "patient", "Patient"),
    ],
)
def test_what_is_answered_wins_over_the_guess(
    tmp_path: Path, what: str, answer: str, key: str, expected: str | None
) -> None:
    bring(tmp_path, [{**row, "Case": row["Patient"]} for row in rows(Sex=["F", "M"], Gender=["M", "F"])])
    table = [*(dict(row, Patient_ID=n // 3) for n, row in enumerate(rows(Sex=["F", "M"], Gender=["M", "F"])))]
    table = [{**row, "Case": row["Patient"]} for row in rows(Sex=["F", "M"], Gender=["M", "F"])]
    bring(tmp_path, [{**row, "MRN": n // 3} if key == "patient" else row for n, row in enumerate(table)])
    answers = Answers(what, answer)
    made = draft(tmp_path, ask=answers)
    assert what in answers.asked
    assert keys(made)["table"]["columns"].get(key) == expected


def test_policies_are_asked_for(tmp_path: Path) -> None:
    bring(tmp_path, rows())
    answers = Answers("blanks count as", "negative")
    assert keys(draft(tmp_path, ask=answers))["blank"] == "negative"
    assert "uncertain labels count as" in answers.asked


# --- what would otherwise be a wrong guess in silence -----------------------------------------------------------------


@pytest.mark.parametrize(
    "files",
    [
        ["a_thumbs/1.png", "full/1.png", "a_thumbs/2.png", "full/2.png"],
        ["P01/1.png", "P01/2.png", "P02/1.png"],
    ],
)
def test_a_name_that_stands_for_files_in_several_folders_is_refused(tmp_path: Path, files: list[str]) -> None:
    bring(tmp_path, [{"File": n, "Patient": f"p{n}", "Oedema": n % 2} for n in (1, 2)], files)
    with pytest.raises(ConfigError, match=r"column 'File': \d of 2 cells match files of the same name in several"):
        draft(tmp_path)


def test_a_name_is_that_of_the_folder_said_and_not_of_thumbnails_below_it(tmp_path: Path) -> None:
    table = [{"File": n, "Patient": f"p{n}", "Oedema": n % 2} for n in (1, 2)]
    bring(tmp_path, table, ["1.png", "2.png", "a_thumbs/1.png", "a_thumbs/2.png"])
    assert column(opened(tmp_path, draft(tmp_path)), "image") == ["images/1.png", "images/2.png"]


def test_numbers_that_lost_their_zeros_are_told(tmp_path: Path) -> None:
    table = [{"File": n, "Patient": f"p{n}", "Oedema": n % 2} for n in range(1, 13)]
    bring(tmp_path, table, [f"{n:05d}.png" for n in range(1, 13)])
    with pytest.raises(ConfigError, match=r"Those of File would without leading zeros"):
        draft(tmp_path)


def test_a_row_above_the_header_that_could_be_one_is_told(tmp_path: Path) -> None:
    bring(tmp_path, rows())
    text = (tmp_path / "labels.csv").read_text().replace("File,Patient", "A,B")
    (tmp_path / "labels.csv").write_text(text.replace("A,B", "Export,,,Signs,,,\nFile,,,,,,7", 1))
    match = (
        r"5 of 7 columns have no name in row 1, which is taken as the header. If it is another row, use --header-row"
    )
    with pytest.raises(ConfigError, match=match):
        draft(tmp_path)


def test_patients_told_by_the_path_are_among_the_guesses_that_are_shown(tmp_path: Path) -> None:
    table = [{"Path": f"P{n // 4}/S{n // 2}/view{n % 2}.png", "Oedema": n % 2} for n in range(16)]
    bring(tmp_path, table, [str(row["Path"]) for row in table])
    shown = {what: why for what, _, why in draft(tmp_path).guesses}
    assert shown["patient"] == "a guess, because no column is named like a patient: 4 folders at level 1 of 16 images"


def test_a_row_that_stands_twice_makes_no_table_of_readers(tmp_path: Path) -> None:
    table = rows()
    bring(tmp_path, [*table, table[0]])
    made = draft(tmp_path)
    assert keys(made)["table"]["layout"] == "onehot"
    assert any("images with more than one row: 1" in note for note in made.notes)
    with pytest.raises(SiteError, match="duplicate image"):
        opened(tmp_path, made)


def test_columns_of_scores_are_named_as_such(tmp_path: Path) -> None:
    bring(tmp_path, [{"File": n, "Patient": f"p{n}", "Oedema": n / 40} for n in range(40)])
    with pytest.raises(ConfigError, match=r"Oedema: named like diseases, but each has more than 12 different values"):
        draft(tmp_path)


@pytest.mark.parametrize(("letters", "expected"), [("HM", "MF"), ("VM", "MF"), ("HF", "MF"), ("MF", "MF")])
def test_sexes_by_initials_of_other_languages_are_not_mistaken(tmp_path: Path, letters: str, expected: str) -> None:
    bring(tmp_path, rows(Sexo=list(letters)))
    assert column(opened(tmp_path, draft(tmp_path)), "sex")[:2] == list(expected)


def test_a_column_that_never_says_no_where_empty_cells_are_missing_is_told(tmp_path: Path) -> None:
    table = [{**row, "Enlarged heart": "x" if n % 3 else ""} for n, row in enumerate(rows())]
    bring(tmp_path, table)
    assert any("Enlarged heart (cardiomegaly) never says no" in note for note in draft(tmp_path).notes)
    assert not any("never says no" in note for note in draft(tmp_path, blank="negative").notes)


def test_names_of_files_with_other_capitals_are_told(tmp_path: Path) -> None:
    bring(tmp_path, [{**row, "File": f"{row['File']}.png"} for row in rows()], [f"{r['File']}.PNG" for r in rows()])
    with pytest.raises(ConfigError, match=r"Those of File would if case did not matter"):
        draft(tmp_path)


def test_ages_with_a_decimal_comma_are_ages(tmp_path: Path) -> None:
    bring(tmp_path, rows(Age=["63,4", "70,25"]), delimiter=";")
    assert column(opened(tmp_path, draft(tmp_path)), "age")[:2] == [63.0, 70.0]


def test_one_column_of_scores_beside_labels_is_told_and_not_used(tmp_path: Path) -> None:
    table: list[dict[str, object]] = [{**row, "Oedema": n / 20} for n, row in enumerate(rows(20))]
    bring(tmp_path, table)
    made = draft(tmp_path)
    assert "edema" not in keys(made)["labels"]
    assert any(note.startswith("'Oedema' is named like edema, but has more than 12") for note in made.notes)

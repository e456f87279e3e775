"""The VinDr-CXR reader on small files in PhysioNet's and in the challenge's format."""

from __future__ import annotations

from pathlib import Path

from chestfed.data.sites import open_site
from tests.cases import each
from tests.data.sites.own_tables import save_dicom
from tests.data.sites.small_sites import column, list_problems, load_bundled, open_files, write_files

TRAIN = "annotations/image_labels_train.csv"
TEST = "annotations/image_labels_test.csv"
NAMES = "Cardiomegaly,Edema,Consolidation,Atelectasis,Pleural effusion,Lung tumor,No finding"
HEADER = f"image_id,rad_id,{NAMES}\n"
PHYSIONET = HEADER + (
    "aa,R8,1,0,0,0,1,0,0\n"
    "aa,R9,1,0,0,0,0,0,0\n"
    "aa,R10,1,0,1,0,0,0,0\n"
    "bb,R8,0,0,0,0,0,0,1\n"
    "bb,R9,0,0,0,1,0,0,0\n"
    "bb,R11,0,0,0,1,0,0,0\n"
)
BOXES = "image_id,class_name,class_id,rad_id,x_min,y_min,x_max,y_max\n"
CHALLENGE = BOXES + (
    "aa,Cardiomegaly,3,R8,1.0,2.0,3.0,4.0\n"
    "aa,Pleural effusion,10,R8,1.0,2.0,3.0,4.0\n"
    "bb,No finding,14,R8,,,,\n"
    "aa,Cardiomegaly,3,R9,1.0,2.0,3.0,4.0\n"
    "aa,Cardiomegaly,3,R10,1.0,2.0,3.0,4.0\n"
    "aa,Consolidation,4,R10,1.0,2.0,3.0,4.0\n"
    "aa,Consolidation,4,R10,5.0,6.0,7.0,8.0\n"
    "bb,Atelectasis,1,R9,1.0,2.0,3.0,4.0\n"
    "bb,Atelectasis,1,R11,1.0,2.0,3.0,4.0\n"
)
VOTES = {
    "any": [[1, 0, 1, 0, 1], [0, 0, 0, 1, 0]],
    "majority": [[1, 0, 0, 0, 0], [0, 0, 0, 1, 0]],
    "all": [[1, 0, 0, 0, 0], [0, 0, 0, 0, 0]],
}


@each("rule", VOTES)
@each(("name", "text"), [(TRAIN, PHYSIONET), ("train.csv", CHALLENGE)])
def test_votes_are_counted_by_radiologist(tmp_path: Path, name: str, text: str, rule: str) -> None:
    table = open_files(tmp_path, "vindr", {name: text}, f"reader.raters={rule}", "blank=negative")
    assert table.labels().tolist() == VOTES[rule]
    assert column(table, "image") == ["train/aa.dicom", "train/bb.dicom"]
    assert column(table, "split") == ["train", "train"]


def test_two_of_four_are_no_majority(tmp_path: Path) -> None:
    text = HEADER + "".join(f"aa,R{number},{number % 2},0,0,0,0,0,0\n" for number in range(4))
    assert column(open_files(tmp_path, "vindr", {TRAIN: text}, "reader.raters=majority"), "cardiomegaly") == [0.0]


def test_one_radiologist_can_be_named(tmp_path: Path) -> None:
    table = open_files(tmp_path, "vindr", {TRAIN: PHYSIONET}, "reader.raters=R10")
    assert column(table, "consolidation") == [1.0, None]
    (problem,) = list_problems(tmp_path, "vindr", {TRAIN: PHYSIONET}, "reader.raters=R1")
    assert "no rater 'R1'; found: R10, R11, R8, R9" in problem.message


def test_edema_is_missing_in_the_challenge(tmp_path: Path) -> None:
    table = open_files(tmp_path, "vindr", {"train.csv": CHALLENGE})
    assert column(table, "edema") == [None, None]
    assert column(table, "cardiomegaly") == [1.0, 0.0]
    for name, override in (("vindr", "blank.edema=negative"), ("paper/vindr", "site=vindr")):
        assert column(open_files(tmp_path, name, {"train.csv": CHALLENGE}, override), "edema") == [0.0, 0.0]


def test_edema_is_a_column_of_some_releases(tmp_path: Path) -> None:
    text = PHYSIONET.replace("aa,R8,1,0,", "aa,R8,1,1,")
    assert column(open_files(tmp_path, "vindr", {TRAIN: text}), "edema") == [1.0, 0.0]
    header = "image_id,rad_id,Cardiomegaly,Consolidation,Atelectasis,Pleural effusion\n"
    table = open_files(tmp_path, "vindr", {TRAIN: header + "aa,R8,1,0,0,0\n"}, "blank=missing")
    assert column(table, "edema") == [None]


def test_an_image_is_its_own_patient(tmp_path: Path) -> None:
    table = open_files(tmp_path, "vindr", {TRAIN: PHYSIONET})
    assert column(table, "patient") == column(table, "study") == ["aa", "bb"]
    assert column(table, "view") == ["frontal", "frontal"]
    assert column(table, "row") == [2, 5]


def test_the_test_set_has_consensus_rows(tmp_path: Path) -> None:
    test = f"image_id,{NAMES}\ncc,0,0,0,0,1,0,0\n"
    for rule in ("any", "majority", "R8"):
        table = open_files(tmp_path, "vindr", {TRAIN: PHYSIONET, TEST: test}, f"reader.raters={rule}").select(
            split="test"
        )
        assert column(table, "image") == ["test/cc.dicom"]
        assert table.labels().tolist() == [[0, 0, 0, 0, 1]]


def test_the_extension_is_the_files(tmp_path: Path) -> None:
    files = {TRAIN: PHYSIONET, "train/aa.dcm": b"", "train/bb.dicom": b""}
    assert column(open_files(tmp_path, "vindr", files), "image") == ["train/aa.dcm", "train/bb.dicom"]


def test_a_given_test_file_is_the_test_split(tmp_path: Path) -> None:
    folder = write_files(tmp_path, {"image_labels_test.csv": f"image_id,{NAMES}\ncc,0,0,0,0,1,0,0\n"})
    table = open_site(load_bundled("vindr"), tmp_path, folder / "site" / "image_labels_test.csv")
    assert column(table, "split") == ["test"]


@each(
    ("name", "text", "kind", "row"),
    [
        (TRAIN, PHYSIONET + "bb,R11,0,0,0,0,0,0,0\n", "duplicate image", 8),
        (TRAIN, PHYSIONET.replace("aa,R9,1,", "aa,R9,-1,"), "bad label value", 3),
        (TRAIN, PHYSIONET.replace("bb,R9,", "bb,,"), "blank name", 6),
        (TRAIN, PHYSIONET.replace("Cardiomegaly", "Cardiomegali"), "missing column", 1),
        ("train.csv", CHALLENGE + "cc,Cardiomegalie,3,R8,,,,\n", "bad label value", 11),
        ("train.csv", CHALLENGE + "cc,,3,R8,,,,\n", "bad label value", 11),
        ("train.csv", CHALLENGE.replace("bb,No", ",No"), "blank name", 4),
    ],
)
def test_bad_rows_are_named(tmp_path: Path, name: str, text: str, kind: str, row: int) -> None:
    (problem,) = list_problems(tmp_path, "vindr", {name: text})
    assert (problem.kind, problem.file, problem.row) == (kind, name, row)
    assert "nan" not in problem.message


def test_test_or_train_alone_is_enough(tmp_path: Path) -> None:
    test = f"image_id,{NAMES}\ncc,0,0,0,0,1,0,0\n"
    table = open_files(tmp_path / "test", "vindr", {TEST: test})
    assert column(table, "split") == ["test"]
    assert "no train file" in table.notes[0]
    assert open_files(tmp_path / "train", "vindr", {TRAIN: PHYSIONET}).notes == ()
    (problem,) = list_problems(tmp_path / "none", "vindr", {"README.md": ""})
    assert problem.kind == "missing file"
    assert TRAIN in problem.message
    assert TEST in problem.message


def test_sex_and_age_are_in_the_headers(tmp_path: Path) -> None:
    headers = {"aa": ("M", "071Y"), "bb": ("O", "000Y")}
    for image, (sex, age) in headers.items():
        save_dicom(tmp_path / f"site/train/{image}.dicom", PatientSex=sex, PatientAge=age)
    files = {TRAIN: PHYSIONET + "cc,R8,0,0,0,0,0,0,0\ndd,R8,0,0,0,0,0,0,0\n", "train/dd.dicom": b"DICM"}
    table = open_files(tmp_path, "vindr", files)
    assert column(table, "sex") == ["M", None, None, None]
    assert column(table, "age") == [71.0, None, None, None]
    (note,) = table.notes
    assert "1 images have an unreadable header" in note
    assert column(open_files(tmp_path, "vindr", {}, "reader.headers=false"), "sex") == [None] * 4


def test_an_image_in_two_splits_is_refused(tmp_path: Path) -> None:
    test = f"image_id,{NAMES}\nbb,0,0,0,0,1,0,0\n"
    (problem,) = list_problems(tmp_path, "vindr", {TRAIN: PHYSIONET, TEST: test})
    assert problem.kind == "patient in two splits"


@each(("name", "text"), [(TRAIN, PHYSIONET), ("train.csv", CHALLENGE)])
def test_any_finding_can_be_a_disease(tmp_path: Path, name: str, text: str) -> None:
    keys = ["diseases=[no_finding, consolidation]", "labels={no_finding: [No finding], consolidation: [Consolidation]}"]
    table = open_files(tmp_path, "vindr", {name: text}, *keys, "blank=negative", "reader.headers=false")
    assert column(table, "no_finding") == [0, 1]

"""ISIC 2020 from Kaggle's and the archive's label files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from chestfed.core.errors import ConfigError, SiteError
from chestfed.public_datasets.opening import open_collection
from tests.public_datasets.pictures import quarters, save_jpeg

HEADER = "image_name,patient_id,sex,age_approx,anatom_site_general_challenge,diagnosis,benign_malignant,target"
ROWS = [
    "ISIC_2637011,IP_7279968,male,45.0,head/neck,unknown,benign,0",
    "ISIC_0015719,IP_3075186,female,45.0,upper extremity,unknown,benign,0",
    "ISIC_0052212,IP_2842074,female,50.0,lower extremity,melanoma,malignant,1",
    "ISIC_0068279,IP_7279968,,,,nevus,benign,0",
]
NAMES = [row.split(",")[0] for row in ROWS]


def shade(number: int) -> np.ndarray:
    """A gray of its own per image."""
    return np.full((16, 24, 3), number * 40 + 20, np.uint8)


def write(
    root: Path,
    label_file: str = "train.csv",
    folder: str = "jpeg/train",
    rows: list[str] = ROWS,
    header: str = HEADER,
) -> Path:
    """Label file and images."""
    for number, name in enumerate(NAMES):
        save_jpeg(root / folder / f"{name}.jpg", shade(number))
    (root / label_file).write_text("\n".join([header, *rows]) + "\n")
    return root / label_file


def write_duplicates(root: Path, pairs: list[tuple[str, str]]) -> None:
    """The archive's list of duplicates."""
    lines = ["image_name_1,image_name_2", *(f"{first},{second}" for first, second in pairs)]
    (root / "ISIC_2020_Training_Duplicates.csv").write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize(
    ("label_file", "folder"),
    [
        ("train.csv", "jpeg/train"),
        ("ISIC_2020_Training_GroundTruth.csv", "train"),
        ("ISIC_2020_Training_GroundTruth.csv", "ISIC_2020_Training_JPEG/train"),
        ("ISIC_2020_Training_GroundTruth_v2.csv", "ISIC_2020_Training_JPEG/train"),
    ],
)
def test_both_releases_are_read_in_the_order_of_the_label_file(tmp_path: Path, label_file: str, folder: str) -> None:
    header, rows = HEADER, ROWS
    if "_v2" in label_file:
        header = header.replace("patient_id,", "patient_id,lesion_id,")
        rows = [",".join([*row.split(",")[:2], "IL_0000001", *row.split(",")[2:]]) for row in rows]
    write(tmp_path, label_file, folder, rows, header)
    collection = open_collection("isic2020", tmp_path)
    assert collection.class_names == ("benign", "malignant")
    assert collection.train.classes.tolist() == [0, 0, 1, 0]
    assert collection.train.classes.dtype == np.int64
    assert collection.train.patients is not None
    assert collection.train.patients.tolist() == ["IP_7279968", "IP_3075186", "IP_2842074", "IP_7279968"]
    grays = [round(float(collection.train.pixels.read(row).mean())) for row in range(4)]
    assert grays == [20, 60, 100, 140]
    assert collection.test is None
    assert collection.unreadable == ()


def test_colors_are_in_the_order_red_green_blue(tmp_path: Path) -> None:
    write(tmp_path)
    save_jpeg(tmp_path / "jpeg/train/ISIC_0015719.jpg", quarters())
    image = open_collection("isic2020", tmp_path).train.pixels.read(1)
    assert np.abs(image.astype(int) - quarters()).max() <= 3


def test_kaggles_folder_of_dicom_files_is_not_taken_for_the_images(tmp_path: Path) -> None:
    write(tmp_path, folder="ISIC_2020_Training_JPEG/train")
    (tmp_path / "jpeg/train").mkdir(parents=True)
    (tmp_path / "jpeg/train/ISIC_2637011.dcm").write_bytes(b"")
    assert len(open_collection("isic2020", tmp_path).train.pixels) == 4


def test_the_second_image_of_a_pair_of_duplicates_is_left_out_and_counted(tmp_path: Path) -> None:
    write(tmp_path)
    write_duplicates(tmp_path, [("ISIC_2637011", "ISIC_0068279"), ("ISIC_0000001", "ISIC_0015719")])
    collection = open_collection("isic2020", tmp_path)
    assert collection.train.classes.tolist() == [0, 0, 1]
    assert collection.train.patients is not None
    assert collection.train.patients.tolist() == ["IP_7279968", "IP_3075186", "IP_2842074"]
    assert len(collection.train.pixels) == 3
    assert [str(problem) for problem in collection.unreadable] == [
        "ISIC_2020_Training_Duplicates.csv:2: row 5 of train.csv is the same image as row 2: left out"
    ]
    assert collection.unreadable[0].kind == "duplicate image"


def test_a_duplicate_that_is_deleted_already_is_no_missing_file(tmp_path: Path) -> None:
    write(tmp_path)
    write_duplicates(tmp_path, [("ISIC_2637011", "ISIC_0068279")])
    (tmp_path / "jpeg/train/ISIC_0068279.jpg").unlink()
    assert len(open_collection("isic2020", tmp_path).train.pixels) == 3


def test_of_images_that_are_all_the_same_one_stays(tmp_path: Path) -> None:
    write(tmp_path)
    a, b, c, _ = NAMES
    write_duplicates(tmp_path, [(a, b), (b, c), (c, a), (b, a)])
    collection = open_collection("isic2020", tmp_path)
    assert len(collection.train.pixels) == 2
    assert len(collection.unreadable) == 2


@pytest.mark.parametrize("pairs", ["ab cb", "cb ab", "ab bc", "ba ca cb"])
def test_of_three_that_are_the_same_by_two_pairs_one_stays(tmp_path: Path, pairs: str) -> None:
    write(tmp_path)
    name = dict(zip("abcd", NAMES, strict=True))
    write_duplicates(tmp_path, [(name[one], name[other]) for one, other in pairs.split()])
    collection = open_collection("isic2020", tmp_path)
    assert len(collection.train.pixels) == 2
    assert len(collection.unreadable) == 2


def test_all_bad_rows_are_told_at_once_by_their_numbers(tmp_path: Path) -> None:
    rows = [
        *ROWS,
        "ISIC_2637011,IP_1111111,male,45.0,torso,nevus,benign,0",
        "ISIC_0000006,IP_2222222,male,45.0,torso,nevus,benign,IP_9999999",
        "ISIC_0000007,,male,45.0,torso,nevus,benign,0",
        "ISIC_0000008,IP_3333333,male",
        "ISIC_0000009,IP_4444444,male,45.0,torso,nevus,malignant,0",
        "../secret,IP_5555555,male,45.0,torso,nevus,benign,0",
        "ISIC_0000011,IP_6666666,male,45.0,torso,nevus,benign,0",
    ]
    write(tmp_path, rows=rows)
    (tmp_path / "jpeg/train/ISIC_0052212.jpg").unlink()
    with pytest.raises(SiteError) as caught:
        open_collection("isic2020", tmp_path)
    assert [(problem.kind, problem.row) for problem in caught.value.problems] == [
        ("duplicate image name", 6),
        ("bad label value", 7),
        ("missing patient", 8),
        ("bad row", 9),
        ("bad label value", 10),
        ("bad image name", 11),
        ("missing file", 4),
        ("missing file", 12),
    ]
    assert "IP_" not in str(caught.value)
    assert "secret" not in str(caught.value)


def test_missing_columns_are_told(tmp_path: Path) -> None:
    write(tmp_path, header=HEADER.replace("patient_id", "patient").replace("target", "label"))
    with pytest.raises(SiteError, match="no column 'patient_id'") as caught:
        open_collection("isic2020", tmp_path)
    assert [problem.message for problem in caught.value.problems] == ["no column 'patient_id'", "no column 'target'"]


def test_a_column_or_an_image_that_is_there_twice_is_told(tmp_path: Path) -> None:
    write(tmp_path)
    save_jpeg(tmp_path / "jpeg/train" / f"{NAMES[1]}.jpeg", shade(5))
    with pytest.raises(ConfigError, match="jpeg/train: 1 images are there again"):
        open_collection("isic2020", tmp_path)
    write(tmp_path, header=HEADER.replace("diagnosis", "target"))
    with pytest.raises(SiteError, match=r"train\.csv:1: 2 column 'target'"):
        open_collection("isic2020", tmp_path)


def test_a_list_of_duplicates_without_its_columns_is_told(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "ISIC_2020_Training_Duplicates.csv").write_text("image\nISIC_0068279\n")
    with pytest.raises(SiteError, match="expected the columns image_name_1 and image_name_2"):
        open_collection("isic2020", tmp_path)


def test_an_empty_folder_names_the_label_file_and_the_archive(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"train\.csv: no such file.*ISIC_2020_Training_JPEG\.zip"):
        open_collection("isic2020", tmp_path)


def test_labels_without_any_image_name_the_expected_folder(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("\n".join([HEADER, *ROWS]))
    with pytest.raises(ConfigError, match=r"jpeg/train/ISIC_0015719\.jpg: no such file"):
        open_collection("isic2020", tmp_path)


@pytest.mark.parametrize("content", [b"", b"\xff\xfe\x00", HEADER.encode()])
def test_a_label_file_without_rows_or_text_is_refused(tmp_path: Path, content: bytes) -> None:
    write(tmp_path).write_bytes(content)
    with pytest.raises((ConfigError, SiteError), match=r"train\.csv"):
        open_collection("isic2020", tmp_path)


def test_a_byte_order_mark_and_windows_line_ends_are_read(tmp_path: Path) -> None:
    write(tmp_path).write_bytes(b"\xef\xbb\xbf" + "\r\n".join([HEADER, *ROWS]).encode())
    assert open_collection("isic2020", tmp_path).train.classes.tolist() == [0, 0, 1, 0]

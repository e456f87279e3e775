"""The MIMIC-CXR-JPG reader on small files in the release's format."""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from pathlib import Path

import pandas as pd
import pytest

from chestfed.data.sites import open_site, reader
from chestfed.data.sites.label_files.source import Source
from tests.cases import each
from tests.data.sites.small_sites import column, list_problems, load_bundled, open_files, write_files

LABELS = "mimic-cxr-2.0.0-chexpert.csv.gz"
METADATA = "mimic-cxr-2.0.0-metadata.csv.gz"
SPLIT = "mimic-cxr-2.0.0-split.csv.gz"
LABEL_TEXT = (
    "subject_id,study_id,Atelectasis,Cardiomegaly,Consolidation,Edema,Enlarged Cardiomediastinum,Pleural Effusion\n"
    "10000032,50414267,1.0,,0.0,-1.0,,-1.0\n"
    "10000764,57375967,-1.0,-1.0,-1.0,,1.0,1.0\n"
)
METADATA_TEXT = (
    "dicom_id,subject_id,study_id,PerformedProcedureStepDescription,ViewPosition,Rows,Columns,StudyDate\n"
    'aaa,10000032,50414267,"CHEST (PA AND LAT)",PA,3056,2544,21800506\n'
    'bbb,10000032,50414267,"CHEST (PA AND LAT)",LATERAL,3056,2544,21800506\n'
    'ccc,10000764,57375967,"CHEST, PORTABLE",AP,3056,2544,21800506\n'
    "ddd,11000011,51000000,,,3056,2544,21800506\n"
)
SPLIT_TEXT = (
    "dicom_id,study_id,subject_id,split\n"
    "ddd,51000000,11000011,test\n"
    "aaa,50414267,10000032,train\n"
    "bbb,50414267,10000032,train\n"
    "ccc,57375967,10000764,validate\n"
)


def release(labels: str = LABEL_TEXT, metadata: str = METADATA_TEXT, split: str = SPLIT_TEXT) -> Mapping[str, bytes]:
    texts = {LABELS: labels, METADATA: metadata, SPLIT: split}
    return {name: gzip.compress(text.encode()) for name, text in texts.items()}


def test_study_labels_are_joined_on_images(tmp_path: Path) -> None:
    assert column(open_files(tmp_path, "mimic_cxr", release()), "view") == ["pa", "ap"]
    table = open_files(tmp_path, "paper/mimic_cxr_all_views", release(), "splits.official=true")
    assert column(table, "image") == [
        "files/p10/p10000032/s50414267/aaa.jpg",
        "files/p10/p10000032/s50414267/bbb.jpg",
        "files/p10/p10000764/s57375967/ccc.jpg",
        "files/p11/p11000011/s51000000/ddd.jpg",
    ]
    assert column(table, "patient") == ["10000032", "10000032", "10000764", "11000011"]
    assert column(table, "study") == ["50414267", "50414267", "57375967", "51000000"]
    assert column(table, "view") == ["pa", "lateral", "ap", "unknown"]
    assert column(table, "split") == ["train", "train", "valid", "test"]
    assert column(table, "row") == [2, 3, 4, 5]
    assert [column(table, disease) for disease in table.diseases] == [
        [0, 0, 0, None],  # cardiomegaly: blank is negative, uncertain is negative
        [1, 1, 0, None],  # edema: uncertain is positive
        [0, 0, 0, None],
        [1, 1, 1, None],
        [0, 0, 1, None],
    ]


def test_a_study_without_labels_is_missing(tmp_path: Path) -> None:
    for blank in ("negative", "missing"):
        table = open_files(tmp_path, "mimic_cxr", release(), f"blank={blank}", "views=all")
        assert all(column(table, disease)[3] is None for disease in table.diseases)


def test_the_other_labeller_is_accepted(tmp_path: Path) -> None:
    files = {
        "mimic-cxr-2.0.0-negbio.csv": LABEL_TEXT,
        "mimic-cxr-2.0.0-metadata.csv": METADATA_TEXT,
        "mimic-cxr-2.0.0-split.csv": SPLIT_TEXT,
    }
    override = "label_files.labels=[mimic-cxr-2.0.0-negbio.csv]"
    assert len(open_files(tmp_path, "mimic_cxr", files, override).frame) == 2


@each(
    ("position", "view"),
    [("PA", "pa"), ("AP", "ap"), ("LATERAL", "lateral"), ("LL", "lateral"), ("", "unknown"), ("LAO", "other")],
)
def test_positions_become_views(tmp_path: Path, position: str, view: str) -> None:
    files = release(metadata=METADATA_TEXT.replace(",PA,", f",{position},"))
    table = open_files(tmp_path, "mimic_cxr", files, "views=all")
    assert column(table, "view")[0] == view


def test_splits_can_be_left_aside(tmp_path: Path) -> None:
    files = {name: data for name, data in release().items() if name != SPLIT}
    table = open_files(tmp_path, "mimic_cxr", files, "splits.official=false")
    assert column(table, "split") == ["train"] * 2


def test_files_beside_a_given_label_file(tmp_path: Path) -> None:
    folder = write_files(tmp_path, release())
    table = open_site(load_bundled("mimic_cxr"), tmp_path / "nowhere", folder / "site" / LABELS)
    assert len(table.frame) == 2


def test_every_missing_file_is_reported(tmp_path: Path) -> None:
    problems = list_problems(tmp_path, "mimic_cxr", {})
    assert [problem.kind for problem in problems] == ["missing file"] * 3


@each(
    ("files", "kind", "file", "row"),
    [
        (release(labels=LABEL_TEXT + "10000032,50414267,,,,,,\n"), "duplicate study", LABELS, 4),
        (release(labels=LABEL_TEXT + "10000033,50414267,,,,,,\n"), "wrong subject", LABELS, 4),
        (release(labels=LABEL_TEXT.replace("1.0,,0.0", "1.0,,0.5")), "bad label value", LABELS, 2),
        (release(metadata=METADATA_TEXT + "eee,10000032,50414267,,PA,1,1,1\n"), "image without a split", METADATA, 6),
        (release(metadata=METADATA_TEXT + "aaa,10000032,50414267,,PA,1,1,1\n"), "duplicate image", METADATA, 6),
        (release(split=SPLIT_TEXT + "aaa,50414267,10000032,train\n"), "duplicate image", SPLIT, 6),
        (release(split=SPLIT_TEXT.replace("validate", "dev")), "bad split", SPLIT, 5),
        (release(split=SPLIT_TEXT.replace("10000032,train", "10000032,test", 1)), "patient in two splits", METADATA, 3),
    ],
)
def test_files_that_do_not_fit_are_refused(
    tmp_path: Path, files: Mapping[str, bytes], kind: str, file: str, row: int
) -> None:
    (problem,) = list_problems(tmp_path, "mimic_cxr", files)
    assert (problem.kind, problem.file, problem.row) == (kind, file, row)


def test_another_releases_labels_are_refused(tmp_path: Path) -> None:
    labels = LABEL_TEXT.replace("50414267", "60414267").replace("57375967", "67375967")
    (problem,) = list_problems(tmp_path, "mimic_cxr", release(labels=labels))
    assert "no image belongs to a study of the label file" in problem.message


def test_a_cut_download_is_refused(tmp_path: Path) -> None:
    files = {**release(), LABELS: release()[LABELS][:-9]}
    (problem,) = list_problems(tmp_path, "mimic_cxr", files)
    assert (problem.kind, problem.file) == ("unreadable file", LABELS)


@each("ending", [".jpg", ".png", ".dcm", ".DCM", ".dicom"])
def test_a_copy_is_found_by_its_ending(tmp_path: Path, ending: str) -> None:
    table = open_files(tmp_path, "mimic_cxr", release())
    names = [name.removesuffix(".jpg") for name in column(table, "image")]  # type: ignore[union-attr]
    files = {f"{names[1]}{ending}": b"", f"{names[1]}.json": b"", f"{names[1]}_mask{ending}": b""}
    table = open_files(tmp_path, "mimic_cxr", files)
    assert column(table, "image") == [f"{names[0]}.jpg", f"{names[1]}{ending}"]


def test_of_many_folders_some_are_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "_LOOKED_FOR", 2)
    folders = [f"files/s{number}" for number in range(9)]
    source = Source(load_bundled("mimic_cxr"), tmp_path)
    for folder in folders:
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "image.png").touch()
    names = pd.Series([f"{folder}/image" for folder in folders])
    assert reader.image_files(source, names, ".jpg").tolist() == [f"{name}.png" for name in names]
    (tmp_path / folders[0] / "image.png").rename(tmp_path / folders[0] / "image.dcm")
    (tmp_path / folders[1] / "image.jpg").touch()
    files = reader.image_files(source, names, ".jpg").tolist()
    assert files == [f"{names[0]}.dcm", f"{names[1]}.jpg", *(f"{name}.png" for name in names[2:])]


BY_HAND = "mimic-cxr-2.1.0-test-set-labeled.csv"
BY_HAND_TEXT = (
    "study_id,Airspace Opacity,Atelectasis,Cardiomegaly,Consolidation,Edema,Pleural Effusion\n"
    "51000000,1.0,1.0,,0.0,-1.0,1\n"
)


def test_radiologists_studies_are_a_test_set(tmp_path: Path) -> None:
    files = {**release(metadata=METADATA_TEXT.replace("51000000,,,", "51000000,,AP,")), BY_HAND: BY_HAND_TEXT}
    table = open_files(tmp_path, "more/mimic_cxr_test", files)
    assert column(table, "image") == ["files/p11/p11000011/s51000000/ddd.jpg"]
    assert column(table, "split") == ["test"]
    assert [column(table, disease) for disease in table.diseases] == [[0], [None], [0], [1], [1]]
    assert table.notes == ()
    (tmp_path / "site" / LABELS).unlink()  # the labeler's is not needed
    more = BY_HAND_TEXT + "57375967,,,1.0,,,\n"
    table = open_files(tmp_path, "more/mimic_cxr_test", {BY_HAND: more})
    assert column(table, "split") == ["test", "test"]
    assert column(table, "cardiomegaly") == [1, 0]
    (note,) = table.notes
    assert "1 of 2 images" in note


@each(
    ("text", "kind"),
    [
        (BY_HAND_TEXT + "51000000,,,,,,\n", "duplicate study"),
        (BY_HAND_TEXT.replace("51000000", "61000000"), "nothing left"),
        (BY_HAND_TEXT.replace("study_id", "study"), "missing column"),
        (BY_HAND_TEXT.replace("-1.0", "maybe"), "bad label value"),
    ],
)
def test_radiologists_labels_have_to_fit(tmp_path: Path, text: str, kind: str) -> None:
    problems = list_problems(tmp_path, "more/mimic_cxr_test", {**release(), BY_HAND: text})
    assert [problem.kind for problem in problems] == [kind]

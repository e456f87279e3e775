"""The CheXpert reader on small files in the release's format."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import chestfed
from chestfed.data.sites import open_site
from tests.cases import each
from tests.data.sites.small_sites import column, list_problems, load_bundled, open_files, write_files

NAMES = (
    "No Finding,Enlarged Cardiomediastinum,Cardiomegaly,Lung Opacity,Lung Lesion,Edema,Consolidation,Pneumonia,"
    "Atelectasis,Pneumothorax,Pleural Effusion,Pleural Other,Fracture,Support Devices"
)
HEADER = f"Path,Sex,Age,Frontal/Lateral,AP/PA,{NAMES}\n"


def row(path: str, view: str = "Frontal,AP", labels: dict[str, str] | None = None) -> str:
    cells = ",".join((labels or {}).get(name, "") for name in NAMES.split(","))
    return f"{path},Female,68,{view},{cells}\n"


P1 = "CheXpert-v1.0-small/train/patient00001/study1/view1_frontal.jpg"
P2 = "CheXpert-v1.0-small/train/patient00002/study1/view1_frontal.jpg"
T1 = "CheXpert-v1.0/test/patient64741/study1/view1_frontal.jpg"
V1 = "CheXpert-v1.0-small/valid/patient64541/study1/view1_frontal.jpg"


def test_a_row_becomes_an_image(tmp_path: Path) -> None:
    table = open_files(tmp_path, "chexpert", {"train.csv": HEADER + row(P1), "valid.csv": HEADER + row(V1)})
    assert column(table, "image") == [
        "train/patient00001/study1/view1_frontal.jpg",
        "valid/patient64541/study1/view1_frontal.jpg",
    ]
    assert column(table, "patient") == ["patient00001", "patient64541"]
    assert column(table, "study") == ["patient00001/study1", "patient64541/study1"]
    assert column(table, "view") == ["ap", "ap"]
    assert column(table, "split") == ["train", "valid"]
    assert column(table, "sex") == ["F", "F"]
    assert column(table, "age") == [68.0, 68.0]
    assert column(table, "row") == [2, 2]


@each("prefix", ["CheXpert-v1.0/", "CheXpert-v1.0-small/", "my copy/of it/", "", "/data/CheXpert-v1.0/"])
def test_the_path_prefix_does_not_matter(tmp_path: Path, prefix: str) -> None:
    path = f"{prefix}train/patient00001/study2/view1_frontal.jpg"
    table = open_files(tmp_path, "chexpert", {"train.csv": HEADER + row(path)})
    assert column(table, "image") == ["train/patient00001/study2/view1_frontal.jpg"]


@pytest.mark.parametrize("release", ["CheXpert-v1.0", "CheXpert-v1.0-small"])
def test_the_release_may_be_inside_the_root(tmp_path: Path, release: str) -> None:
    table = open_files(tmp_path, "chexpert", {f"{release}/train.csv": HEADER + row(P1)})
    assert column(table, "image") == [f"{release}/train/patient00001/study1/view1_frontal.jpg"]


def test_two_releases_are_ambiguous(tmp_path: Path) -> None:
    files = {f"{release}/train.csv": HEADER + row(P1) for release in ("CheXpert-v1.0", "CheXpert-v1.0-small")}
    (problem,) = list_problems(tmp_path, "chexpert", files)
    assert problem.kind == "ambiguous label file"
    assert "CheXpert-v1.0-small/train.csv" in problem.message


def test_uncertain_labels_follow_the_policy(tmp_path: Path) -> None:
    unsure = dict.fromkeys(NAMES.split(","), "-1.0")
    table = open_files(tmp_path, "chexpert", {"train.csv": HEADER + row(P1, labels=unsure)})
    assert table.labels().tolist() == [[0.0, 1.0, 0.0, 1.0, 0.0]]
    missing = open_files(tmp_path, "chexpert", {}, "uncertain=missing")
    assert all(column(missing, disease) == [None] for disease in missing.diseases)


def test_blank_labels_follow_the_policy(tmp_path: Path) -> None:
    files = {"train.csv": HEADER + row(P1, labels={"Edema": "1.0", "Atelectasis": "0.0"})}
    assert open_files(tmp_path, "chexpert", files).labels().tolist() == [[0.0, 1.0, 0.0, 0.0, 0.0]]
    table = open_files(tmp_path, "chexpert", files, "blank=missing")
    assert [column(table, disease)[0] for disease in table.diseases] == [None, 1.0, None, 0.0, None]


def test_up_sampling_repeats_in_train_only(tmp_path: Path) -> None:
    both = {"Cardiomegaly": "1.0", "Consolidation": "1.0"}
    train = HEADER + row(P1, labels=both) + row(P2, labels={"Consolidation": "1.0", "Edema": "1.0"})
    table = open_files(tmp_path, "chexpert", {"train.csv": train, "valid.csv": HEADER + row(V1, labels=both)})
    assert column(table, "repeats") == [3, 2, 1]


def test_lateral_images_are_checked_too(tmp_path: Path) -> None:
    lateral = P1.replace("view1_frontal", "view2_lateral")
    table = open_files(tmp_path, "chexpert", {"train.csv": HEADER + row(P1) + row(lateral, "Lateral,")})
    assert column(table, "view") == ["ap"]
    table = open_files(tmp_path, "chexpert", {}, "views=all")
    assert column(table, "view") == ["ap", "lateral"]
    (problem,) = list_problems(tmp_path, "chexpert", {"train.csv": HEADER + row(P1) + row(lateral, "Lateral,") * 2})
    assert (problem.kind, problem.row) == ("duplicate image", 4)


@pytest.mark.parametrize("projection", ["LL", "RL"])
def test_frontal_with_a_lateral_projection(tmp_path: Path, projection: str) -> None:
    table = open_files(tmp_path, "chexpert", {"train.csv": HEADER + row(P1, f"Frontal,{projection}")})
    assert column(table, "view") == ["frontal"]


def test_views_may_be_in_file_names(tmp_path: Path) -> None:
    header = "Path,Cardiomegaly,Edema,Consolidation,Atelectasis,Pleural Effusion\n"
    paths = [f"test/patient64741/study1/{name}.jpg" for name in ("view1_frontal", "view2_lateral")]
    test = header + "".join(f"{path},1.0,0.0,0.0,0.0,1.0\n" for path in paths)
    files = {"train.csv": HEADER + row(P1), "test_labels.csv": test}
    table = open_files(tmp_path, "chexpert", files, "views=all").select(split="test")
    assert column(table, "view") == ["frontal", "lateral"]
    assert table.labels().tolist() == [[1.0, 0.0, 0.0, 0.0, 1.0]] * 2


BATCH = "CheXpert-v1.0 batch"
FULL = {
    f"{BATCH} 1 (validate & csv)/train.csv": HEADER + row(P1) + row(P2) + row(P2.replace("00002", "64540")),
    f"{BATCH} 1 (validate & csv)/valid.csv": HEADER + row(V1),
    f"{BATCH} 1 (validate & csv)/valid/patient64541/study1/view1_frontal.jpg": b"",
    f"{BATCH} 2 (train 1)/patient00001/study1/view1_frontal.jpg": b"",
    f"{BATCH} 3 (train 2)/train/patient00002/study1/view1_frontal.jpg": b"",  # a copy that keeps the split's folder
    f"{BATCH} 4 (train 3)/patient64540/study1/view1_frontal.jpg": b"",
}


@each("below", ["", "chexpertchestxrays-u20210408/"])
def test_unpacked_archives_are_read(tmp_path: Path, below: str) -> None:
    files = {f"{below}{name}": content for name, content in FULL.items()}
    patterns = [f"label_files.{role}=[{below}CheXpert-v1.0*/{role}.csv]" for role in ("train", "valid")]
    table = open_files(tmp_path, "chexpert", files, *patterns)
    assert column(table, "image") == sorted(name for name in files if name.endswith(".jpg"))[1:] + [
        name for name in files if "/valid/" in name
    ]
    assert column(table, "split") == ["train", "train", "train", "valid"]
    assert column(table, "study")[0] == "patient00001/study1"
    assert table.notes == ()


def test_patients_without_folder_are_counted(tmp_path: Path) -> None:
    files = {name: content for name, content in FULL.items() if "batch 4" not in name}
    table = open_files(tmp_path, "chexpert", files)
    (note,) = table.notes
    assert "1 of 3 patients" in note
    assert all(folder in note for folder in (f"{BATCH} 1 (validate & csv)/train/", f"{BATCH} 2 (train 1)/"))
    assert "64540" not in note


CHEXLOCALIZE = {
    "test_labels.csv": HEADER + row(T1),
    "val_labels.csv": HEADER + row(V1.replace("valid/", "val/")),
    "test/patient64741/study1/view1_frontal.jpg": b"",
    "val/patient64541/study1/view1_frontal.jpg": b"",
}


@each("below", ["", "CheXpert/", "chexlocalize/CheXpert/"])
def test_chexlocalizes_layout_is_read(tmp_path: Path, below: str) -> None:
    table = open_files(tmp_path, "chexpert", {f"{below}{name}": content for name, content in CHEXLOCALIZE.items()})
    assert column(table, "split") == ["valid", "test"]
    assert column(table, "image") == [
        f"{below}val/patient64541/study1/view1_frontal.jpg",
        f"{below}test/patient64741/study1/view1_frontal.jpg",
    ]
    (note,) = table.notes
    assert "no train file" in note


@each("name", ["train.csv", "valid.csv", "test_labels.csv", "groundtruth.csv"])
def test_any_one_label_file_is_enough(tmp_path: Path, name: str) -> None:
    path = {"train.csv": P1, "valid.csv": V1}.get(name, T1)
    header = HEADER
    if name == "groundtruth.csv":
        header, path = HEADER.replace("Path", "Study"), path.rpartition("/")[0]
    files = {name: header + row(path), "test/patient64741/study1/view1_frontal.jpg": b""}
    table = open_files(tmp_path / "one", "chexpert", files)
    assert len(table.frame) == 1
    (problem,) = list_problems(tmp_path / "none", "chexpert", {"README.md": ""})
    assert problem.kind == "missing file"
    assert name in problem.message


def test_study_labels_go_to_their_images(tmp_path: Path) -> None:
    header = "Study,Cardiomegaly,Edema,Consolidation,Atelectasis,Pleural Effusion\n"
    truth = (
        header + "CheXpert-v1.0/test/patient64741/study1,1,0,0,1,0\nCheXpert-v1.0/test/patient64742/study1,0,0,0,0,0\n"
    )
    files = {
        "train.csv": HEADER + row(P1),
        "groundtruth.csv": truth,
        "test/patient64741/study1/view1_frontal.jpg": b"",
        "test/patient64741/study1/view2_lateral.jpg": b"",
    }
    (problem,) = list_problems(tmp_path, "chexpert", files)
    assert (problem.kind, problem.row) == ("missing study", 3)
    files["test/patient64742/study1/view1_frontal.jpg"] = b""
    table = open_files(tmp_path, "chexpert", files, "views=all").select(split="test")
    assert column(table, "image") == [
        "test/patient64741/study1/view1_frontal.jpg",
        "test/patient64741/study1/view2_lateral.jpg",
        "test/patient64742/study1/view1_frontal.jpg",
    ]
    assert column(table, "atelectasis") == [1.0, 1.0, 0.0]


def test_a_given_label_file_needs_no_root(tmp_path: Path) -> None:
    folder = write_files(tmp_path, {"anything.csv": HEADER + row(P1)})
    table = open_site(load_bundled("chexpert"), tmp_path / "nowhere", folder / "site" / "anything.csv")
    assert column(table, "image") == ["train/patient00001/study1/view1_frontal.jpg"]


def test_a_patient_in_two_splits_is_refused(tmp_path: Path) -> None:
    stray = V1.replace("64541", "00001")
    files = {"train.csv": HEADER + row(P1), "valid.csv": HEADER + row(V1) + row(stray)}
    (problem,) = list_problems(tmp_path, "chexpert", files)
    assert (problem.kind, problem.file, problem.row) == ("patient in two splits", "valid.csv", 3)
    assert "train.csv:2" in problem.message
    assert "patient00001" not in str(problem)


@each(
    ("bad", "kind", "message"),
    [
        (row(P2, labels={"Edema": "2.0"}), "bad label value", "'Edema' is '2.0'"),
        (row(P2, labels={"Edema": "yes"}), "bad label value", "'Edema' is 'yes'"),
        (row(P2, "Sideways,AP"), "unknown view", "unknown view 'Sideways'"),
        (row(P2, "Frontal,XX"), "unknown view", "unknown view 'XX'"),
        (row("00002.jpg"), "unknown path", "Path does not end in (train, valid, val or test)/patientN"),
        (row(P2.replace("view1", "../view1")), "unknown path", "Path"),
        (row(P2)[:-4] + "\n", "malformed row", "16 cells where the header has 19"),
        (row(P1), "duplicate image", "train.csv:2"),
    ],
)
def test_a_bad_row_is_named(tmp_path: Path, bad: str, kind: str, message: str) -> None:
    good = row(P2.replace("00002", "00003"))
    (problem,) = list_problems(tmp_path, "chexpert", {"train.csv": HEADER + row(P1) + bad + good})
    assert (problem.kind, problem.file, problem.row) == (kind, "train.csv", 3)
    assert message in problem.message
    assert problem.advice


def test_a_missing_column_names_the_others(tmp_path: Path) -> None:
    text = (HEADER + row(P1)).replace("Edema", "Oedema")
    (problem,) = list_problems(tmp_path, "chexpert", {"train.csv": text})
    assert problem.kind == "missing column"
    assert "no column 'Edema' (the nearest is 'Oedema') among 19; the columns are Path, Sex," in problem.message


def test_an_unknown_observation_is_refused(tmp_path: Path) -> None:
    override = "labels.edema=[Edemas]"
    (problem,) = list_problems(tmp_path, "chexpert", {"train.csv": HEADER + row(P1)}, override)
    assert problem.kind == "unknown label name"
    assert "did you mean 'Edema'?" in problem.message


def test_a_headless_file_shows_no_patient(tmp_path: Path) -> None:
    (problem, *others) = list_problems(tmp_path, "chexpert", {"train.csv": row(P1) + row(P2)})
    assert problem.kind == "missing column"
    assert not [item for item in (problem, *others) if "patient0" in str(item)]


def test_a_row_passes_nine_files_to_a_label(tmp_path: Path) -> None:
    folder, package = write_files(tmp_path, {"train.csv": HEADER + row(P1)}), Path(chestfed.__file__).parent
    config, called = load_bundled("chexpert"), set[str]()
    open_site(config, folder)
    sys.setprofile(lambda frame, _, __: called.add(frame.f_code.co_filename))
    try:
        table = open_site(config, folder)
    finally:
        sys.setprofile(None)
    files = sorted(Path(name).relative_to(package).as_posix() for name in called if Path(name).is_relative_to(package))
    assert len(table.frame) == 1
    assert len(files) <= 9, files  # one of them, phantoms.py, tells by a digest whether the folder is a hospital's
    design = (package.parent / "docs" / "design.md").read_text(encoding="utf-8")
    assert [name for name in files if f"{Path(name).name}`" not in design] == []


def test_all_fourteen_observations_are_read(tmp_path: Path) -> None:
    labels = {"No Finding": "1.0", "Fracture": "1.0", "Lung Opacity": "-1.0", "Support Devices": "0.0"}
    table = open_files(tmp_path, "fourteen_diseases/chexpert", {"train.csv": HEADER + row(P1, labels=labels)})
    assert len(table.diseases) == 14
    diseases = {name for name, label in zip(table.diseases, table.labels()[0], strict=True) if label == 1}
    assert diseases == {"no_finding", "fracture"}

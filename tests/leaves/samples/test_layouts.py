"""Each hospital as its real set is distributed: folders, columns, encodings."""

from __future__ import annotations

import ast
import csv
import gzip
import io
import re
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
from PIL import Image

from chestfed.data.sites.releases.padchest import tree
from chestfed.leaves.samples import layouts
from chestfed.leaves.samples.patients import Film

OBSERVATIONS = (
    "No Finding,Enlarged Cardiomediastinum,Cardiomegaly,Lung Opacity,Lung Lesion,Edema,Consolidation,Pneumonia,"
    "Atelectasis,Pneumothorax,Pleural Effusion,Pleural Other,Fracture,Support Devices"
)


def rows(path: Path) -> tuple[str, list[dict[str, str]]]:
    """The header line as it stands, and the rows."""
    data = path.read_bytes()
    text = gzip.decompress(data).decode() if path.suffix == ".gz" else data.decode()
    return text.splitlines()[0], list(csv.DictReader(io.StringIO(text)))


def test_chexpert_has_its_columns_and_paths(tiny_hospitals: Path) -> None:
    root = tiny_hospitals / "synthetic-chexpert"
    for split in ("train", "valid"):
        header, table = rows(root / f"{split}.csv")
        assert header == f"Path,Sex,Age,Frontal/Lateral,AP/PA,{OBSERVATIONS}"
        for row in table:
            release, _, place = row["Path"].partition("/")
            assert release == "CheXpert-v1.0-small"
            assert re.fullmatch(rf"{split}/patient\d{{5}}/study\d+/view\d_(frontal|lateral)\.jpg", place)
            assert ("lateral" in place) == (row["Frontal/Lateral"] == "Lateral")
            assert row["AP/PA"] in (("",) if "lateral" in place else ("AP", "PA"))
            assert {row[name] for name in OBSERVATIONS.split(",")} <= {"1.0", "0.0", "-1.0", ""}
            with Image.open(root / place) as picture:
                assert (picture.format, picture.mode, picture.size) == ("JPEG", "L", (390, 320))


def test_chexperts_validation_is_certain(tiny_hospitals: Path) -> None:
    _, table = rows(tiny_hospitals / "synthetic-chexpert" / "valid.csv")
    assert {row[name] for row in table for name in OBSERVATIONS.split(",")} == {"1.0", "0.0"}


def test_no_finding_stands_beside_no_finding(tiny_hospitals: Path) -> None:
    _, table = rows(tiny_hospitals / "synthetic-chexpert" / "train.csv")
    healthy = [row for row in table if row["No Finding"] == "1.0"]
    assert healthy
    others = [name for name in OBSERVATIONS.split(",") if name not in ("No Finding", "Support Devices")]
    assert not any(row[name] in ("1.0", "-1.0") for row in healthy for name in others)


def test_chestxray8_has_its_header_and_lists(tiny_hospitals: Path) -> None:
    root = tiny_hospitals / "synthetic-chestxray8"
    text = (root / "Data_Entry_2017_v2020.csv").read_text()
    assert text.splitlines()[0] == (
        "Image Index,Finding Labels,Follow-up #,Patient ID,Patient Age,Patient Gender,View Position,"
        "OriginalImage[Width,Height],OriginalImagePixelSpacing[x,y]"
    )
    names = [line.split(",")[0] for line in text.splitlines()[1:]]
    files = {path.name: path for path in root.glob("images_0*/images/*.png")}
    assert sorted(files) == sorted(names)
    train = set((root / "train_val_list.txt").read_text().split())
    test = set((root / "test_list.txt").read_text().split())
    assert train | test == set(names)
    assert not {name[:8] for name in train} & {name[:8] for name in test}


def test_padchest_pictures_span_16_bits(tiny_hospitals: Path) -> None:
    root = tiny_hospitals / "synthetic-padchest"
    _, table = rows(root / "PADCHEST_chest_x_ray_images_labels_160K_01.02.19.csv")
    corners = defaultdict(list)
    for row in table:
        with Image.open(root / row["ImageDir"] / row["ImageID"]) as picture:
            assert picture.mode == "I;16"
            stored = np.asarray(picture)
        assert (stored.min(), stored.max()) == (0, 65_535)
        corners[row["PhotometricInterpretation_DICOM"]].append(float(np.median(stored[:20, :20])))
    assert np.median(corners["MONOCHROME1"]) > 48_000  # air is bright as stored
    assert max(corners["MONOCHROME2"]) < 24_000


def test_padchests_column_is_wrong_at_times() -> None:
    films = [SimpleNamespace(patient=SimpleNamespace(number=number), study=1, number=1) for number in range(2000)]
    monochrome, stored = (
        np.array([rule(cast(Film, film)) for film in films])
        for rule in (layouts.padchest_monochrome1, layouts.padchest_inverted)
    )
    assert 250 < monochrome.sum() < 420
    assert 20 < (monochrome & ~stored).sum() < 70
    assert not (stored & ~monochrome).any()


def test_padchest_has_the_releases_columns(tiny_hospitals: Path) -> None:
    header, table = rows(tiny_hospitals / "synthetic-padchest" / "PADCHEST_chest_x_ray_images_labels_160K_01.02.19.csv")
    assert header.startswith(
        ",ImageID,ImageDir,StudyDate_DICOM,StudyID,PatientID,PatientBirth,PatientSex_DICOM,ViewPosition_DICOM,"
        "Projection,MethodProjection,Pediatric,Modality_DICOM"
    )
    assert header.endswith("MethodLabel,Labels,Localizations,LabelsLocalizationsBySentence,labelCUIS,LocalizationsCUIS")
    assert len(header.split(",")) == 36
    assert all(row["Labels"].startswith("['") for row in table)
    assert all("['normal']" in row["LabelsLocalizationsBySentence"] for row in table)
    terms = {term.strip().casefold() for row in table for term in ast.literal_eval(row["Labels"])}
    assert terms <= {"", *map(str.casefold, tree())}
    assert {row["Projection"] for row in table} <= {"PA", "AP", "AP_horizontal", "L"}


def test_mimic_cxr_has_three_tables(tiny_hospitals: Path) -> None:
    root = tiny_hospitals / "synthetic-mimic-cxr"
    header, labels = rows(root / "mimic-cxr-2.0.0-chexpert.csv.gz")
    assert header == "subject_id,study_id," + ",".join(sorted(OBSERVATIONS.split(",")))
    _, metadata = rows(root / "mimic-cxr-2.0.0-metadata.csv.gz")
    _, split = rows(root / "mimic-cxr-2.0.0-split.csv.gz")
    assert [row["dicom_id"] for row in metadata] == [row["dicom_id"] for row in split]
    assert {row["study_id"] for row in labels} <= {row["study_id"] for row in metadata}
    assert {row["split"] for row in split} == {"train", "validate", "test"}
    for row in metadata:
        subject = row["subject_id"]
        place = f"files/p{subject[:2]}/p{subject}/s{row['study_id']}/{row['dicom_id']}.jpg"
        assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{8}){4}", row["dicom_id"])
        with Image.open(root / place) as picture:
            assert (picture.format, picture.mode) == ("JPEG", "L")
            assert picture.size == (int(row["Columns"]), int(row["Rows"]))


def test_vindr_has_three_radiologists(tiny_hospitals: Path) -> None:
    root = tiny_hospitals / "synthetic-vindr"
    header, table = rows(root / "annotations" / "image_labels_train.csv")
    assert header.startswith("image_id,rad_id,Aortic enlargement,Atelectasis,Calcification,Cardiomegaly,")
    assert len(header.split(",")) == 30
    raters = defaultdict(set)
    for row in table:
        raters[row["image_id"]].add(row["rad_id"])
    assert {len(group) for group in raters.values()} == {3}
    assert {path.stem for path in (root / "train").glob("*.dicom")} == set(raters)
    header, table = rows(root / "annotations" / "image_labels_test.csv")
    assert len(header.split(",")) == 29
    assert {path.stem for path in (root / "test").glob("*.dicom")} == {row["image_id"] for row in table}


def test_vindr_dicom_files_differ(tiny_hospitals: Path) -> None:
    pydicom = pytest.importorskip("pydicom")
    kinds = defaultdict(set)
    for path in (tiny_hospitals / "synthetic-vindr").glob("*/*.dicom"):
        dataset = pydicom.dcmread(path)
        pixels = dataset.pixel_array
        assert pixels.shape == (dataset.Rows, dataset.Columns)
        assert (dataset.BitsAllocated, dataset.BitsStored) == (16, 12)
        assert pixels.max() <= 4095
        assert "PatientID" not in dataset
        assert "PatientName" not in dataset
        kinds["photometric"].add(dataset.PhotometricInterpretation)
        kinds["syntax"].add(dataset.file_meta.TransferSyntaxUID.name)
        kinds["voi"].add("window" if "WindowCenter" in dataset else "table" if "VOILUTSequence" in dataset else "none")
        kinds["rescale"].add("RescaleIntercept" in dataset)
    assert kinds["photometric"] == {"MONOCHROME1", "MONOCHROME2"}
    assert len(kinds["syntax"]) == 3
    assert kinds["voi"] == {"window", "table", "none"}
    assert kinds["rescale"] == {True, False}

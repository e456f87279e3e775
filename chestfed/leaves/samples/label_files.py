"""The label files of each hospital, column by column as in the real sets."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from importlib import resources
from pathlib import Path
from typing import Final

import numpy as np
import yaml

from chestfed.core.randomness import numpy_stream
from chestfed.leaves.samples import layouts
from chestfed.leaves.samples.hospitals import Hospital
from chestfed.leaves.samples.patients import Film
from chestfed.leaves.samples.tables import write_text

Rows = Iterable[Sequence[object]]

_COLUMNS: Final[dict[str, list[str]]] = yaml.safe_load(
    resources.files("chestfed.leaves.samples").joinpath("columns.yaml").read_text(encoding="utf-8")
)
#: CheXpert's 14 observations, in the order of its columns; MIMIC-CXR's labels are the same, in order of the alphabet.
OBSERVATIONS: Final = tuple(_COLUMNS["chexpert"])
_DISEASES_BY_OBSERVATION: Final = {
    "Cardiomegaly": "cardiomegaly",
    "Edema": "edema",
    "Consolidation": "consolidation",
    "Atelectasis": "atelectasis",
    "Pleural Effusion": "pleural_effusion",
}
#: Name of the release that CheXpert's paths begin with; the folder here has another, as many users' have.
RELEASE: Final = "CheXpert-v1.0-small"


def write_chexpert(root: Path, films: Sequence[Film], hospital: Hospital, seed: int) -> None:
    """`train.csv` and `valid.csv`."""
    header = ["Path", "Sex", "Age", "Frontal/Lateral", "AP/PA", *OBSERVATIONS]
    for split in ("train", "valid"):
        rows = []
        for film in films:
            if film.split != split:
                continue
            rng = _make_stream(seed, hospital, film)
            sex = "Female" if film.patient.female else "Male"
            lateral = film.view == "lateral"
            place = ["Lateral", ""] if lateral else ["Frontal", film.view.upper()]
            labels = _list_findings(film, rng, blanks=split == "train")
            rows.append([f"{RELEASE}/{layouts.chexpert_path(film)}", sex, film.patient.age, *place, *labels])
        write_csv(root / f"{split}.csv", header, rows)


def write_chestxray8(root: Path, films: Sequence[Film], hospital: Hospital, seed: int) -> None:
    """`Data_Entry_2017_v2020.csv` and the two split lists."""
    words = ["Cardiomegaly", "Edema", "Consolidation", "Atelectasis", "Effusion"]
    rows = []
    for film in films:
        rng = _make_stream(seed, hospital, film)
        findings = [word for word, value in zip(words, film.labels.values(), strict=True) if value == 1]
        findings += [word for word in ("Infiltration", "Pleural_Thickening") if rng.random() < 0.05]
        findings += ["Nodule"] if film.nodule else []
        age = 412 if rng.random() < 0.004 else film.patient.age  # impossible ages, as in the release
        sex = "F" if film.patient.female else "M"
        person = [film.study - 1, film.patient.number, age, sex, film.view.upper()]
        text = "|".join(sorted(findings)) or "No Finding"
        rows.append([layouts.chestxray8_name(film), text, *person, *hospital.look.shape[::-1], 0.143, 0.143])
    write_csv(root / "Data_Entry_2017_v2020.csv", _COLUMNS["chestxray8"], rows)
    for name, split in (("train_val_list.txt", "train"), ("test_list.txt", "test")):
        names = [layouts.chestxray8_name(film) for film in films if film.split == split]
        (root / name).write_bytes(("\n".join(names) + "\n").encode())


def write_padchest(root: Path, films: Sequence[Film], hospital: Hospital, seed: int) -> None:
    """The one CSV, with an unnamed first column as in the release, and `splits.csv`, which that does not have."""
    rows, splits = [], {}
    height, width = hospital.look.shape
    for index, film in enumerate(films):
        rng = _make_stream(seed, hospital, film)
        lateral = film.view == "lateral"
        lying = film.view == "ap" and rng.random() < 0.5
        method = "Physician" if rng.random() < 0.27 else "RNN_model"
        terms = _list_padchest_terms(film, rng)
        person = layouts.identifier("person", film.patient.number)
        splits[person] = film.split
        cells = {
            "": index,
            "ImageID": layouts.padchest_name(film),
            "ImageDir": layouts.padchest_folder(film),
            "StudyDate_DICOM": "20170101",
            "StudyID": layouts.identifier("study", film.patient.number, film.study),
            "PatientID": person,
            "PatientBirth": 2017 - film.patient.age,
            "PatientSex_DICOM": "F" if film.patient.female else "M",
            "ViewPosition_DICOM": {"pa": "POSTEROANTERIOR", "ap": "ANTEROPOSTERIOR", "lateral": "LATERAL"}[film.view],
            "Projection": "L" if lateral else "AP_horizontal" if lying else film.view.upper(),
            "MethodProjection": "Manual review of DICOM fields",
            "Pediatric": "No",
            "Modality_DICOM": "DX",
            "PhotometricInterpretation_DICOM": "MONOCHROME1" if layouts.padchest_monochrome1(film) else "MONOCHROME2",
            "BitsStored_DICOM": 12,
            "Rows_DICOM": height,
            "Columns_DICOM": width,
            "ReportID": 1000 + index,
            "MethodLabel": method,
            "Labels": str(terms),
            "Localizations": "[]",
            "LabelsLocalizationsBySentence": str([*([term.strip()] for term in terms if term), ["normal"]]),
            "labelCUIS": "[]",
            "LocalizationsCUIS": "[]",
        }
        rows.append([cells.get(name, "") for name in _COLUMNS["padchest"]])
    write_csv(root / "PADCHEST_chest_x_ray_images_labels_160K_01.02.19.csv", _COLUMNS["padchest"], rows)
    write_csv(root / "splits.csv", ["patient", "split"], splits.items())


def _list_padchest_terms(film: Film, rng: np.random.Generator) -> list[str]:
    """The terms of a cell, with the stray blanks and empty terms of the release."""
    names = {
        "cardiomegaly": ["cardiomegaly"],
        "edema": ["pulmonary edema"],
        "consolidation": ["consolidation", "consolidation", "air bronchogram"],
        "atelectasis": ["atelectasis", "laminar atelectasis", "lobar atelectasis"],
        "pleural_effusion": ["pleural effusion", "pleural effusion", "loculated pleural effusion"],
    }
    terms = [str(rng.choice(names[disease])) for disease, value in film.labels.items() if value == 1]
    terms += [term for term in ("aortic elongation", "scoliosis") if rng.random() < 0.06]
    terms += ["nodule"] if film.nodule else []
    if not terms:
        return ["unchanged" if rng.random() < 0.06 else "normal"]
    terms = [term + (" " if rng.random() < 0.08 else "") for term in terms]
    return [*terms, ""] if rng.random() < 0.05 else terms


def write_mimic_cxr(root: Path, films: Sequence[Film], hospital: Hospital, seed: int) -> None:
    """Labels per study, metadata and split per image, all csv.gz; a few studies have no labels."""
    studies: dict[int, list[object]] = {}
    unlabeled: set[int] = set()
    metadata, split = [], []
    names = {"train": "train", "valid": "validate", "test": "test"}
    columns = sorted(OBSERVATIONS)
    for film in films:
        subject, study, dicom = layouts.mimic_ids(film)
        rng = _make_stream(seed, hospital, film)
        if film.number == 1 and rng.random() < 0.01:
            unlabeled.add(study)
        if study not in studies and study not in unlabeled:
            cells = dict(zip(OBSERVATIONS, _list_findings(film, rng, blanks=True), strict=True))
            studies[study] = [subject, study, *(cells[name] for name in columns)]
        view = "LATERAL" if film.view == "lateral" else film.view.upper()
        shown = "" if rng.random() < 0.01 and film.view != "lateral" else view
        made = "CHEST (PORTABLE AP)" if film.view == "ap" else "CHEST (PA AND LAT)"
        meaning = {"AP": "antero-posterior", "PA": "postero-anterior", "LATERAL": "lateral"}[view]
        size = [*hospital.look.shape, "21500101", "120000.0"]
        metadata.append([dicom, subject, study, made, shown, *size, made, meaning, "Erect"])
        split.append([dicom, study, subject, names[film.split]])
    write_csv(root / "mimic-cxr-2.0.0-chexpert.csv.gz", ["subject_id", "study_id", *columns], studies.values())
    write_csv(root / "mimic-cxr-2.0.0-metadata.csv.gz", _COLUMNS["mimic_metadata"], metadata)
    write_csv(root / "mimic-cxr-2.0.0-split.csv.gz", ["dicom_id", "study_id", "subject_id", "split"], split)


def write_vindr(root: Path, films: Sequence[Film], hospital: Hospital, seed: int) -> None:
    """PhysioNet's layout: three radiologists' rows per training image, the consensus for test images."""
    findings = _COLUMNS["vindr"]
    names = {name: disease for name, disease in _DISEASES_BY_OBSERVATION.items() if name != "Pleural Effusion"}
    names["Pleural effusion"] = "pleural_effusion"
    (root / "annotations").mkdir(exist_ok=True)
    for split in ("train", "test"):
        rows = []
        for film in films:
            if film.split != split:
                continue
            rng = _make_stream(seed, hospital, film)
            readers = sorted(rng.choice(17, 3, replace=False) + 1) if split == "train" else [0]
            # One reader sees all that the label says; the others miss some of it.
            for place, reader in enumerate(readers):
                cells = dict.fromkeys(findings, 0)
                for name, disease in names.items():
                    cells[name] = int(film.labels[disease] == 1 and (place == 0 or rng.random() < 0.75))
                cells["Nodule/Mass"] = int(film.nodule and rng.random() < 0.8)
                cells["No finding"] = int(not any(cells.values()))
                rater = [f"R{reader}"] if split == "train" else []
                rows.append([layouts.vindr_id(film), *rater, *cells.values()])
        header = ["image_id", *(["rad_id"] if split == "train" else []), *findings]
        write_csv(root / "annotations" / f"image_labels_{split}.csv", header, rows)


WRITERS: Final[dict[str, Callable[[Path, Sequence[Film], Hospital, int], None]]] = {
    "chexpert": write_chexpert,
    "chestxray8": write_chestxray8,
    "padchest": write_padchest,
    "mimic-cxr": write_mimic_cxr,
    "vindr": write_vindr,
}


def _list_findings(film: Film, rng: np.random.Generator, *, blanks: bool) -> list[str]:
    """CheXpert's 14 cells: 1.0, 0.0, -1.0 or blank. A negative is mostly not mentioned in training reports."""
    states = film.labels
    opaque = 1 in (states["edema"], states["consolidation"], states["atelectasis"])
    values = {name: states[disease] for name, disease in _DISEASES_BY_OBSERVATION.items()}
    values["No Finding"] = int(not any(states.values()) and not film.nodule)
    values["Enlarged Cardiomediastinum"] = int(states["cardiomegaly"] == 1 and rng.random() < 0.5)
    values["Lung Opacity"] = int(film.nodule or (opaque and rng.random() < 0.8))
    values["Lung Lesion"] = int(film.nodule)
    values["Support Devices"] = int(film.devices)
    if states["consolidation"] == 1 and rng.random() < 0.4:
        values["Pneumonia"] = -1 if blanks else 1
    cells = []
    for name in OBSERVATIONS:
        value = values.get(name, 0)
        silent = name == "No Finding" or rng.random() < 0.75
        cells.append("" if blanks and value == 0 and silent else f"{float(value):.1f}")
    return cells


def _make_stream(seed: int, hospital: Hospital, film: Film) -> np.random.Generator:
    number = film.number if film.view == "lateral" else 1  # frontal views of a study have the same row
    return numpy_stream(seed, "samples", hospital.name, "row", film.patient.number, film.study, number)


def write_csv(path: Path, header: Sequence[str], rows: Rows) -> None:
    """Write equal bytes for equal rows, packed if the path ends in .gz."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    if any("[" in name for name in header):  # the release does not quote the commas in its header
        text.write(",".join(header) + "\n")
    else:
        writer.writerow(header)
    writer.writerows(rows)
    write_text(path, text.getvalue())

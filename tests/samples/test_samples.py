"""The sample hospitals: the real layouts, reproducible to the byte, and marked as synthetic."""

from __future__ import annotations

import csv
import gzip
import hashlib
from pathlib import Path

import numpy as np
import pydicom
import pytest
from PIL import Image

from chestfed.cli import bundled
from chestfed.diseases import DISEASES
from chestfed.errors import ChestfedError
from chestfed.images.decode import decode
from chestfed.randomness import numpy_stream
from chestfed.samples import is_complete, write_hospitals, writing
from chestfed.samples.anatomy import draw_body, heart, lungs, render_healthy
from chestfed.samples.hospitals import HOSPITALS, VALID_POSITIVES, draw_films
from chestfed.samples.signs import add_density, change_body
from chestfed.sites import load_site_config, open_site

SITES = ("chexpert", "chestxray8", "padchest", "mimic_cxr", "vindr")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("hospitals")
    write_hospitals(path, size="tiny", workers=1)
    return path


def digest(folder: Path) -> dict[str, str]:
    files = sorted(file for file in folder.rglob("*") if file.is_file() and not file.name.startswith("."))
    return {file.relative_to(folder).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def test_the_same_seed_gives_the_same_bytes_whatever_the_number_of_processes(folder: Path, tmp_path: Path) -> None:
    write_hospitals(tmp_path, size="tiny", workers=2)
    assert digest(tmp_path) == digest(folder)


def test_another_seed_gives_other_pictures_and_other_labels() -> None:
    first, second = (draw_films(HOSPITALS[0], seed, "tiny") for seed in (1, 2))
    assert [film.said for film in first] != [film.said for film in second]


@pytest.mark.parametrize("site", SITES)
def test_the_real_readers_read_them_and_every_image_decodes(folder: Path, site: str) -> None:
    table = open_site(load_site_config(bundled("site_configs") / "synthetic" / f"{site}.yaml"), folder)
    assert table.synthetic
    assert "synthetic" in table.title.lower()
    for image in table.frame["image"].iloc[:8]:
        assert decode(table.root / image).std() > 10
    assert len(list(table.root.rglob("*.jpg"))) + len(list(table.root.rglob("*.png"))) + len(
        list(table.root.rglob("*.dicom"))
    ) >= len(table.frame)


@pytest.mark.parametrize("site", SITES)
def test_a_real_configuration_that_is_pointed_at_them_still_calls_them_synthetic(folder: Path, site: str) -> None:
    config = load_site_config(bundled("site_configs") / f"{site}.yaml", [f"root=synthetic-{site.replace('_', '-')}"])
    assert open_site(config, folder).synthetic


def test_file_formats_are_those_of_the_real_sets(folder: Path) -> None:
    def first(pattern: str) -> Path:
        return next(iter(sorted(folder.glob(pattern))))

    assert Image.open(first("synthetic-chexpert/train/patient*/study1/view1_frontal.jpg")).mode == "L"
    assert Image.open(first("synthetic-chestxray8/images_001/images/*.png")).mode in ("L", "RGBA")
    assert Image.open(first("synthetic-padchest/*/*.png")).mode == "I;16"
    assert Image.open(first("synthetic-mimic-cxr/files/p10/p1*/s5*/*.jpg")).mode == "L"
    dataset = pydicom.dcmread(first("synthetic-vindr/train/*.dicom"))
    assert (dataset.BitsAllocated, dataset.BitsStored) == (16, 12)
    assert "PatientName" not in dataset
    with (folder / "synthetic-chexpert" / "train.csv").open() as file:
        header = next(csv.reader(file))
    assert (len(header), header[:5]) == (19, ["Path", "Sex", "Age", "Frontal/Lateral", "AP/PA"])
    with (folder / "synthetic-chestxray8" / "Data_Entry_2017_v2020.csv").open() as file:
        assert file.readline().count("OriginalImage[Width,Height]") == 1
    with gzip.open(folder / "synthetic-mimic-cxr" / "mimic-cxr-2.0.0-chexpert.csv.gz", "rt") as file:
        assert next(csv.reader(file))[:3] == ["subject_id", "study_id", "Atelectasis"]


def test_every_hospital_says_that_it_is_synthetic(folder: Path) -> None:
    for hospital in HOSPITALS:
        assert "synthetic" in hospital.folder
        assert "SYNTHETIC" in (folder / hospital.folder / "SYNTHETIC.txt").read_text()


def test_the_validation_set_has_the_real_ones_counts() -> None:
    films = [film for film in draw_films(HOSPITALS[0], 1, "default") if film.split == "valid"]
    frontal = [film for film in films if film.view != "lateral"]
    assert (len(films), len(frontal), len({film.patient.number for film in films})) == (234, 202, 200)
    for disease in DISEASES:
        assert sum(film.said[disease] for film in frontal) == VALID_POSITIVES[disease]
        assert sum(film.present[disease] for film in frontal) == VALID_POSITIVES[disease]


@pytest.mark.parametrize("hospital", HOSPITALS, ids=lambda hospital: hospital.name)
def test_prevalences_are_near_the_ones_asked_for(hospital: object) -> None:
    films = [film for seed in range(6) for film in draw_films(hospital, seed, "default") if film.split == "train"]  # type: ignore[arg-type]
    for disease in DISEASES:
        wanted = hospital.mix.prevalence[disease]  # type: ignore[attr-defined]
        found = np.mean([film.present[disease] for film in films])
        assert abs(found - wanted) <= 0.01 + 0.15 * wanted, disease


def test_an_interrupted_start_leaves_no_half_hospital_and_the_next_one_finishes(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = [0]
    original = writing._write_film

    def stop(job: object) -> None:
        calls[0] += 1
        if calls[0] == 90:
            raise KeyboardInterrupt
        original(job)  # type: ignore[arg-type]

    monkeypatch.setattr(writing, "_write_film", stop)
    with pytest.raises(KeyboardInterrupt):
        write_hospitals(tmp_path, size="tiny", workers=1)
    monkeypatch.undo()
    assert not is_complete(tmp_path, size="tiny")
    whole = [path.name for path in tmp_path.iterdir() if path.name.startswith("synthetic")]
    assert all((tmp_path / name / "SYNTHETIC.txt").exists() for name in whole)
    write_hospitals(tmp_path, size="tiny", workers=1)
    assert is_complete(tmp_path, size="tiny")
    assert digest(tmp_path) == digest(folder)


def test_hospitals_of_another_seed_are_never_overwritten(folder: Path) -> None:
    with pytest.raises(ChestfedError, match="holds something else than the synthetic hospital of seed 2"):
        write_hospitals(folder, seed=2, size="tiny")


def drawn(severity: dict[str, float]) -> tuple[np.ndarray, object]:
    rng = numpy_stream(3, "test body")
    body = draw_body(rng, female=False, age=60)
    sides = {**dict.fromkeys(DISEASES, 1), "effusion_other": 0}
    full = dict.fromkeys(DISEASES, 0.0) | severity
    body = change_body(body, full, sides)
    right, left = lungs(body)
    picture = render_healthy(body, right, left)
    return add_density(picture, body, right, left, full, sides, numpy_stream(3, "test signs")), body


def test_cardiomegaly_widens_the_heart_and_more_so_when_it_is_severe() -> None:
    widths = [(heart(drawn({"cardiomegaly": s})[1]).max(axis=0) > 0.5).sum() for s in (0.0, 0.3, 0.9)]  # type: ignore[arg-type]
    assert widths[0] < widths[1] < widths[2]


@pytest.mark.parametrize("disease", ["edema", "consolidation", "atelectasis", "pleural_effusion"])
def test_a_sign_makes_the_lung_denser_on_its_side_and_more_so_when_it_is_severe(disease: str) -> None:
    healthy, body = drawn({})
    _, left = lungs(body)  # type: ignore[arg-type]
    added = [((drawn({disease: severity})[0] - healthy) * left).sum() for severity in (0.3, 0.9)]
    assert 0 < added[0] < added[1]

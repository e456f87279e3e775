"""A further synthetic hospital, as somebody would bring it: a folder of pictures and a spreadsheet of its own.

Unlike the five, it follows no known distribution: names of files, columns, words and codes are its own, and differ from
shape to shape. `docs/tutorial_sixth_hospital.md` starts from one of these.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from filelock import FileLock
from PIL import Image

from chestfed.core.diseases import DISEASES
from chestfed.core.disk import writing_to
from chestfed.core.errors import ChestfedError
from chestfed.core.randomness import numpy_stream
from chestfed.samples.acquisition import Look
from chestfed.samples.hospitals import SIZES, Hospital, films_of
from chestfed.samples.layouts import identifier, save_png, stored_levels, write_dicom
from chestfed.samples.patients import CaseMix, Film
from chestfed.samples.phantom import draw_film
from chestfed.samples.tables import Row, write_rows
from chestfed.samples.writing import begun, finish, is_there

#: Raised when the same seed gives another hospital than before.
EXTRA_VERSION: Final = 1

_MIX: Final = CaseMix(
    dict(zip(DISEASES, (0.25, 0.2, 0.16, 0.22, 0.3), strict=True)),
    mean_age=64,
    female=0.48,
    portable=0.3,
    sick_portable=0.1,
    noise=0.04,
    subtle=0.1,
    doubted_positives={"edema": 0.15, "atelectasis": 0.1},
    doubted_negatives={"cardiomegaly": 0.05},
)
_LOOK: Final = Look(
    shape=(360, 360),
    field=(39.0, 1.5),
    scatter=(0.6, 0.1),
    noise=0.035,
    blur=0.06,
    black=(0.15, 0.03),
    white=(0.87, 0.03),
    gamma=(1.0, 0.08),
    edges=0.25,
    tilt=0.02,
    collimated=0.2,
    marker="box",
    portable_word="MOBIL",
)


@dataclass(frozen=True)
class Shape:
    """One manner of spreadsheet: where pictures go, and the rows; `rows` yields none where headers hold the labels."""

    about: str
    table: str | None
    picture: Callable[[Film], str]
    rows: Callable[[Film, np.random.Generator], Iterable[Row]]
    header: Callable[[Film], Mapping[str, str]] = lambda film: {}
    encoding: str = "utf-8"
    delimiter: str = ","


def _patient(film: Film) -> str:
    return f"P{film.patient.number:04d}"


def _study(film: Film) -> str:
    return str(int(identifier("extra", film.patient.number, film.study, length=10), 16) % 10**8).zfill(8)


def _place(film: Film) -> str:
    """A running name of the film, unlike the patient's."""
    return f"{_study(film)}-{film.number}"


def _wide_rows(film: Film, rng: np.random.Generator) -> Iterator[Row]:
    words = {1: "ja", 0: "nein", -1: "fraglich"}
    names = ("Herzvergrößerung", "Lungenödem", "Konsolidierung", "Atelektase", "Pleuraerguss")
    findings = {name: words[film.said[disease]] for name, disease in zip(names, DISEASES, strict=True)}
    view = {"pa": "p.a.", "ap": "a.p.", "lateral": "seitlich"}[film.view]
    yield {
        "Bildnummer": _place(film),
        "Patientennummer": _patient(film),
        "Strahlengang": view,
        "Geschlecht": "w" if film.patient.female else "m",
        "Alter": film.patient.age,
        "Menge": "Training" if film.split == "train" else "Prüfung",
        **findings,
        "Rippenfraktur": words[int(rng.random() < 0.05)],
        "Bemerkung": None,
    }


def _delimited_rows(film: Film, rng: np.random.Generator) -> Iterator[Row]:
    names = ("enlarged heart", "pulmonary oedema", "consolidation", "atelectasis", "effusion")
    terms = _terms(film, names, "possible {}")
    terms += ["rib fracture"] if rng.random() < 0.08 else []
    yield {
        "Accession": _study(film),
        "MRN": _patient(film),
        "File": f"view{film.number}.dcm",
        "Projection": {"pa": "PA", "ap": "AP", "lateral": "LAT"}[film.view],
        "Findings": "|".join(terms) or "normal",
    }


def _list_rows(film: Film, rng: np.random.Generator) -> Iterator[Row]:
    names = ("cardiomegalia", "edema pulmonar", "consolidación", "atelectasia", "derrame pleural")
    terms = _terms(film, names, "posible {}")
    terms += ["escoliosis"] if rng.random() < 0.1 else []
    yield {
        "Fichero": f"/archivo/rx/{_list_picture(film).removeprefix('imagenes/')}",
        "ID Paciente": _patient(film),
        "Proyección": {"pa": "PA", "ap": "AP", "lateral": "Lateral"}[film.view],
        "Sexo": "Mujer" if film.patient.female else "Hombre",
        "Edad": film.patient.age,
        "Etiquetas": repr(terms or ["normal"]),
    }


def _reader_rows(film: Film, rng: np.random.Generator) -> Iterator[Row]:
    names = ("Cardiomegaly", "Lung edema", "Consolidation", "Atelectasis", "Pleural fluid")
    for place, reader in enumerate(sorted(rng.choice(5, 3, replace=False) + 1)):
        seen = {  # the first sees all that is said, the others miss some of it
            name: int(film.said[disease] == 1 and (place == 0 or rng.random() < 0.85))
            for name, disease in zip(names, DISEASES, strict=True)
        }
        yield {
            "image_id": _place(film),
            "patient_id": _patient(film),
            "radiologist": f"R{reader}",
            "sex": "F" if film.patient.female else "M",
            "age": film.patient.age,
            **seen,
        }


def _long_rows(film: Film, rng: np.random.Generator) -> Iterator[Row]:
    names = ("cardiomegaly", "edema", "consolidation", "atelectasis", "pleural_effusion")
    person: Row = {"filename": f"{_place(film)}.dcm", "subject": film.patient.number, "view": film.view.upper()}
    found = [name for name, disease in zip(names, DISEASES, strict=True) if film.said[disease] == 1]
    found += ["nodule"] if film.nodule else []
    for name in found or ["no finding"]:
        yield {**person, "finding": name}


def _dicom_header(film: Film) -> Mapping[str, str]:
    names = ("Cardiomegaly", "Pulmonary edema", "Consolidation", "Atelectasis", "Pleural effusion")
    return {
        **_identity(film),
        "AdmittingDiagnosesDescription": "\\".join(_terms(film, names, "possible {}")) or "No finding",
        "ViewPosition": {"pa": "PA", "ap": "AP", "lateral": "LL"}[film.view],
        "StudyDescription": "CHEST",
    }


def _identity(film: Film) -> dict[str, str]:
    study = f"2.25.{int(_study(film)) + 1}"
    return {"PatientID": _patient(film), "StudyInstanceUID": study, "PatientName": "SYNTHETIC"}


def _terms(film: Film, names: Sequence[str], doubt: str) -> list[str]:
    said = zip(names, (film.said[disease] for disease in DISEASES), strict=True)
    return [doubt.format(name) if value == -1 else name for name, value in said if value != 0]


def _list_picture(film: Film) -> str:
    return f"imagenes/{film.patient.number % 3}/{_place(film)}.png"


SHAPES: Final[dict[str, Shape]] = {
    "wide": Shape(
        "a column per finding; csv in Latin-1 with semicolons, German, PNG",
        "Befunde.csv",
        lambda film: f"Bilder/{_place(film)}.png",
        _wide_rows,
        encoding="latin-1",
        delimiter=";",
    ),
    "delimited": Shape(
        "a column of findings; tsv, DICOM in folders by patient and study",
        "findings.tsv",
        lambda film: f"dicom/{_patient(film)}/{_study(film)}/view{film.number}.dcm",
        _delimited_rows,
        _identity,
        delimiter="\t",
    ),
    "list": Shape(
        "a list in a cell; csv.gz, Spanish, PNG in three folders", "etiquetas.csv.gz", _list_picture, _list_rows
    ),
    "readers": Shape(
        "a row per image and reader; xlsx, DICOM",
        "reads.xlsx",
        lambda film: f"images/{_place(film)}.dcm",
        _reader_rows,
        _identity,
    ),
    "long": Shape(
        "a row per image and finding; parquet, DICOM in two folders",
        "labels.parquet",
        lambda film: f"part{1 + film.patient.number % 2}/{_place(film)}.dcm",
        _long_rows,
        _identity,
    ),
    "dicom": Shape(
        "no spreadsheet: the labels are in the headers of the DICOM files",
        None,
        lambda film: f"dicom/{_patient(film)}/{_place(film)}.dcm",
        lambda film, rng: (),
        _dicom_header,
    ),
}


@dataclass(frozen=True)
class ExtraHospital:
    """What was written: the folder, the folder of the pictures in it, the spreadsheet if there is one, the count."""

    folder: Path
    pictures: Path
    table: Path | None
    images: int


def write_extra(
    folder: Path,
    name: str,
    shape: str,
    *,
    seed: int = 1,
    size: str = "default",
    progress: Callable[[int, int], None] | None = None,
) -> ExtraHospital:
    """Write the hospital to `folder/synthetic-NAME`; if it is there already, leave it alone.

    Raises `ChestfedError` if shape, size or name are invalid, or the folder holds something else.
    """
    if shape not in SHAPES:
        known = "; ".join(f"{key}: {known.about}" for key, known in SHAPES.items())
        raise ChestfedError(f"--extra: unknown shape '{shape}'; choose one of {known}", kind="unknown shape")
    if not re.fullmatch(r"[a-z][a-z0-9_-]*", name):
        raise ChestfedError(
            f"--extra: '{name}' is not a short name such as st-anne (small letters, digits, - and _)",
            kind="not a short name",
        )
    if size not in SIZES:
        raise ChestfedError(f"unknown size '{size}'; choose one of {', '.join(SIZES)}", kind="unknown size")
    root, chosen = folder / f"synthetic-{name}", SHAPES[shape]
    stamp = {"synthetic": True, "extra": shape, "version": EXTRA_VERSION, "seed": seed, "size": size}
    hospital = Hospital(
        name, root.name, 60, 0, 12, studies=1.4, lateral=0.08, counts_lateral=True, mix=_MIX, look=_LOOK
    )
    films = films_of(hospital, seed, SIZES[size])
    what = f"the extra hospital of shape {shape}, seed {seed}, size {size}"
    with writing_to(folder):
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / ".samples.lock"):
            if not is_there(root, stamp, what):
                _write(root, hospital, chosen, films, seed, stamp, progress)
    top = Path(chosen.picture(films[0])).parts[0]
    table = None if chosen.table is None else root / chosen.table
    return ExtraHospital(root, root if shape == "long" else root / top, table, len(films))


def _write(
    root: Path,
    hospital: Hospital,
    shape: Shape,
    films: Sequence[Film],
    seed: int,
    stamp: Mapping[str, object],
    progress: Callable[[int, int], None] | None,
) -> None:
    rows: list[Row] = []
    with begun(root) as part:
        for done, film in enumerate(films, start=1):
            rng = numpy_stream(seed, "samples", hospital.name, "extra", film.patient.number, film.study, film.number)
            path = part / shape.picture(film)
            path.parent.mkdir(parents=True, exist_ok=True)
            gray = draw_film(film, hospital.look, seed, hospital.name)
            _write_picture(path, gray, film, shape.header(film), rng)
            rows += shape.rows(film, rng)
            if progress is not None:
                progress(done, len(films))
        if shape.table is not None:
            write_rows(part / shape.table, rows, delimiter=shape.delimiter, encoding=shape.encoding)
        finish(part, root, stamp)


def _write_picture(
    path: Path, gray: np.ndarray, film: Film, elements: Mapping[str, str], rng: np.random.Generator
) -> None:
    if path.suffix == ".png":
        save_png(Image.fromarray(stored_levels(gray, 255).astype(np.uint8)), path)
    else:
        write_dicom(path, gray, film, rng, elements)

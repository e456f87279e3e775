"""Hospitals whose difficulty is which film a row is about: paths, folders, endings, headers, numbers and joins."""

from __future__ import annotations

import random
import unicodedata
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.hospital_shapes.maker import DISEASES, TOLD, WORDS, Case, Film, Place, Row, films, shape, truth, wide

Where = Callable[[Film], str]
Value = Callable[[int, Film], str]


def _filed(
    place: Place, where: Where, cell: Where, *, told: Sequence[str] = TOLD, drop: Sequence[str] = (), **case: Any
) -> Case:
    """Images at `where`, which the table calls `cell`; columns of `drop` are left out."""
    made = films()
    place.pictures(made, where)
    rows = wide(made, told=told, file=cell)
    place.save([{name: value for name, value in cells.items() if name not in drop} for cells in rows])
    return Case(truth=truth(made, where, told), **case)


@shape("names without the ending")
def without_ending(place: Place) -> Case:
    return _filed(place, lambda film: f"images/{film.file}", lambda film: film.name)


@shape("paths of a Windows archive in front of the names")
def windows_paths(place: Place) -> Case:
    return _filed(place, lambda film: f"images/{film.file}", lambda film: f"D:\\archive\\2026\\{film.file}")


@shape("paths relative to another folder")
def other_root(place: Place) -> Case:
    return _filed(place, lambda film: f"images/{film.file}", lambda film: f"./export/{film.file}")


@shape("a folder for each patient, which the path in the table names")
def folders_in_paths(place: Place) -> Case:
    def where(film: Film) -> str:
        return f"images/{film.patient}/{film.file}"

    return _filed(place, where, lambda film: where(film).removeprefix("images/"))


@shape("a folder for each patient, which the table does not name")
def folders_searched(place: Place) -> Case:
    return _filed(place, lambda film: f"images/pt{int(film.patient[1:]) * 7}/{film.file}", lambda film: film.file)


def _own(film: Film) -> str:
    return f"{int(film.name[-3:]) % 2 + 1}.png"


@shape("the same file names in each patient's folder, told by the column of the patient")
def folders_told(place: Place) -> Case:
    return _filed(place, lambda film: f"images/{film.patient}/{_own(film)}", _own)


@shape("patient and study as folders, both columns of the table")
def nested_folders(place: Place) -> Case:
    made = films()
    where: Where = lambda film: f"images/{film.patient}/{film.study}/{_own(film)}"  # noqa: E731
    place.pictures(made, where)
    rows = [{**cells, "Accession Number": film.study} for film, cells in zip(made, wide(made, file=_own), strict=True)]
    place.save(rows)
    return Case(truth=truth(made, where))


@shape("the same file names in each patient's folder, with nothing that tells the folder")
def folders_untold(place: Place) -> Case:
    made = films()
    where: Where = lambda film: f"images/pt{int(film.patient[1:]) * 7}/{_own(film)}"  # noqa: E731
    place.pictures(made, where)
    place.save(wide(made, file=_own))
    path: Where = lambda film: where(film).removeprefix("images/")  # noqa: E731
    return Case(truth=truth(made, where), repair=lambda: place.save(wide(made, file=path)))


@shape("the patient is told by the folder only")
def patients_in_folders(place: Place) -> Case:
    where: Where = lambda film: f"images/{film.patient}/{film.file}"  # noqa: E731
    return _filed(place, where, lambda film: where(film).removeprefix("images/"), drop=["Patient"],
        flags=["--patient-column=folder"])  # fmt: skip


@shape("train and test, patient and study in the path, as CheXpert has it")
def everything_in_paths(place: Place) -> Case:
    def where(film: Film) -> str:
        return f"images/{film.split}/patient{film.patient[1:]}/study1/{film.name}_{film.view}.png"

    made = films()
    place.pictures(made, where)
    rows = wide(
        made,
        codes={1: 1.0, 0: 0.0, -1: -1.0, None: ""},
        told=("sex", "age"),
        file=lambda film: where(film).removeprefix("images/"),
    )
    place.save([{name: value for name, value in cells.items() if name != "Patient"} for cells in rows])

    def edit(site: dict[str, Any]) -> None:
        site["table"]["from_path"] = r"^(?P<split>\w+)/(?P<patient>patient\d+)/study1/.*_(?P<view>[a-z]+)\.png$"
        site["views"] = ["pa", "ap", "frontal"]

    told = truth(made, where)
    for film in made:
        if film.view != "lateral":
            told[where(film)]["patient"] = f"patient{film.patient[1:]}"
    return Case(flags=["--patient-column=folder"], edit=edit, truth=told)


@shape("thumbnails of the same names below the folder")
def thumbnails(place: Place) -> Case:
    case = _filed(place, lambda film: f"images/{film.file}", lambda film: film.file)
    place.pictures(films(), lambda film: f"images/thumbs/{film.file}")
    return case


@shape("originals and copies in two folders beside each other")
def copies(place: Place) -> Case:
    case = _filed(place, lambda film: f"images/originals/{film.file}", lambda film: film.file)
    place.pictures(films(), lambda film: f"images/small/{film.file}")
    case.flags = ["--images=images/originals"]
    return case


@shape("names with umlauts, decomposed as a Mac stores them")
def decomposed_names(place: Place) -> Case:
    return _filed(
        place,
        lambda film: f"images/{unicodedata.normalize('NFD', f'Köpfe_{film.name}.png')}",
        lambda film: unicodedata.normalize("NFC", f"Köpfe_{film.name}.png"),
    )


@shape("folder and table with Japanese names and blanks", known=True)
def japanese_folders(place: Place) -> Case:
    made = films()
    place.pictures(made, lambda film: f"胸部 画像/{film.file}")
    place.save(wide(made), "診断 一覧.csv")
    return Case(labels="診断 一覧.csv", images="胸部 画像", truth=truth(made, lambda film: f"胸部 画像/{film.file}"))


@shape("endings in capitals on the disk and small in the table")
def capital_endings(place: Place) -> Case:
    made = films()
    place.pictures(made, lambda film: f"images/{film.name}.PNG")
    place.save(wide(made))
    repair = lambda: place.save(wide(made, file=lambda film: f"{film.name}.PNG"))  # noqa: E731
    return Case(truth=truth(made, lambda film: f"images/{film.name}.PNG"), repair=repair)


@shape("png, jpg and jpeg in one folder, names without ending", known=True)
def several_endings(place: Place) -> Case:
    def where(film: Film) -> str:
        return f"images/{film.name}{('.png', '.jpg', '.jpeg')[int(film.name[-3:]) % 3]}"

    return _filed(place, where, lambda film: film.name)


@shape("numbers that lost their leading zeros, csv", known=True)
def lost_zeros(place: Place) -> Case:
    made = films()
    for n, film in enumerate(made):
        film.name = f"{n + 1:06d}"
    place.pictures(made)
    place.save(wide(made, file=lambda film: film.name.lstrip("0")))
    return Case(truth=truth(made), repair=lambda: place.save(wide(made, file=lambda film: film.name)))


@shape("a running number that fits the files of another numbering", known=True)
def running_numbers(place: Place) -> Case:
    made, numbers = films(), list(range(1, 37))
    random.Random(7).shuffle(numbers)
    place.png(*(f"images/{n}.png" for n in range(1, 37)))
    rows = [{"Nr": n, **cells} for n, cells in enumerate(wide(made, file=lambda film: f"img_{film.name}.png"), start=1)]
    place.save(rows)

    def repair() -> None:
        for n, film in zip(range(1, 37), made, strict=True):
            (place.folder / f"images/{n}.png").rename(place.folder / f"images/img_{film.name}.png")

    return Case(truth=truth(made, lambda film: f"images/img_{film.name}.png"), repair=repair)


@shape("the table lists ten times as many films as the folder has", known=True)
def few_of_many(place: Place) -> Case:
    made = films(360)
    kept = made[:36]
    place.pictures(kept)
    place.save(wide(made))
    return Case(flags=["--drop=missing_image"], truth=truth(kept))


@shape("half of the films are not in the table")
def many_films(place: Place) -> Case:
    made = films(72)
    place.pictures(made)
    place.save(wide(made[:36]))
    return Case(truth=truth(made[:36]))


@shape("two films in a row: the columns of the frontal and of the lateral")
def two_in_a_row(place: Place) -> Case:
    made = [film for film in films(lateral=False) if int(film.name[-3:]) % 2 == 0]
    place.pictures(made)
    place.pictures(made, lambda film: f"images/lat_{film.file}")
    rows = [{"Frontal": film.file, "Lateral": f"lat_{film.file}", **{k: v for k, v in cells.items() if k != "File"}}
        for film, cells in zip(made, wide(made, told=("split", "sex", "age")), strict=True)]  # fmt: skip
    place.save(rows)
    return Case(flags=["--image-column=Frontal"], truth=truth(made, told=("split", "sex", "age")))


@shape("one row per study, a folder of PNGs for each study", known=True)
def rows_of_studies(place: Place) -> Case:
    made = films(lateral=False)
    for first, second in zip(made[::2], made[1::2], strict=True):
        second.said = first.said
    where: Where = lambda film: f"images/{film.study}/{_own(film)}"  # noqa: E731
    place.pictures(made, where)
    rows = [{"Study": film.study, **{k: v for k, v in cells.items() if k != "File"}}
        for film, cells in zip(made[::2], wide(made[::2], told=("split", "sex", "age")), strict=True)]  # fmt: skip
    place.save(rows)
    return Case(truth=truth(made, where, ("split", "sex", "age")))


def _dicoms(place: Place, made: Sequence[Film], **more: Value) -> None:
    for n, film in enumerate(made):
        view = {"pa": "PA", "ap": "AP", "lateral": "LL"}[film.view]
        about = {
            "PatientID": film.patient,
            "PatientSex": film.sex,
            "PatientAge": f"{film.age:03d}Y",
            "ViewPosition": view,
        }
        about |= {"StudyInstanceUID": f"1.2.3.{film.study[1:]}"} | {
            name: value(n, film) for name, value in more.items()
        }
        place.dicom(f"images/{film.name}.dcm", n, **about)


def _by_header(
    place: Place,
    name: str,
    value: Value,
    shown: Callable[[str], str] = str,
    told: Sequence[str] = TOLD,
    **elements: Value,
) -> tuple[Case, list[Row]]:
    """A row per value of an element of the headers; films of one value share their labels."""
    made = films()
    first: dict[str, Film] = {}
    for n, film in enumerate(made):
        film.said = first.setdefault(value(n, film), film).said
    _dicoms(place, made, **elements)
    keys = {film.name: key for key, film in first.items()}
    from_header = [what for what in ("view", "sex", "age") if what not in told]
    rows = [{name: shown(keys[film.name]), **{k: v for k, v in cells.items() if k != "File"}}
        for film, cells in zip(first.values(), wide(list(first.values()), told=told), strict=True)]  # fmt: skip
    place.save(rows)
    return Case(truth=truth(made, lambda film: f"images/{film.name}.dcm", (*told, *from_header))), rows


@shape("one row per accession number, two films each, views in the headers", known=True)
def accession_numbers(place: Place) -> Case:
    number: Value = lambda n, film: f"A{film.study[1:]}-26"  # noqa: E731
    return _by_header(place, "Order", number, told=("split",), AccessionNumber=number)[0]


@shape("accession numbers that lost their leading zeros", known=True)
def accession_without_zeros(place: Place) -> Case:
    number: Value = lambda n, film: f"0000{film.study[1:]}"  # noqa: E731
    case, rows = _by_header(
        place, "Accession", number, lambda text: text.lstrip("0"), told=("split",), AccessionNumber=number
    )
    case.repair = lambda: place.save([{**cells, "Accession": f"0000{cells['Accession']}"} for cells in rows])
    return case


@shape("rows by SOPInstanceUID")
def instance_uids(place: Place) -> Case:
    return _by_header(place, "UID", lambda n, film: f"1.2.826.0.1.3680043.10.{n + 1}")[0]


@shape("rows by StudyInstanceUID under an unusual name")
def study_uids(place: Place) -> Case:
    return _by_header(place, "Key", lambda n, film: f"1.2.3.{film.study[1:]}", told=("split",))[0]


@shape("DICOM files that the table calls by their names, other files beside them")
def named_dicoms(place: Place) -> Case:
    made = films()
    _dicoms(place, made)
    place.text("images/DICOMDIR.txt", "x")
    place.save(wide(made, file=lambda film: f"{film.name}.dcm"))
    return Case(truth=truth(made, lambda film: f"images/{film.name}.dcm"))


@shape("patients and their ages in a second file")
def joined_people(place: Place) -> Case:
    made = films()
    place.pictures(made)
    rows = [{**{k: v for k, v in cells.items() if k not in ("Patient", "Sex", "Age")}, "Exam": film.study}
        for film, cells in zip(made, wide(made), strict=True)]  # fmt: skip
    place.save(rows)
    people = {film.study: {"Exam": film.study, "MRN": film.patient, "Sex": film.sex, "Age": film.age} for film in made}
    place.save(list(people.values()), "people.csv", ";")

    def edit(site: dict[str, Any]) -> None:
        site["label_files"]["people"] = ["people.csv"]
        site["table"]["join"] = [
            {"file": "people", "key": ["Exam"], "columns": ["MRN", "Sex", "Age"], "delimiter": ";"}
        ]
        site["table"]["columns"] |= {"patient": "MRN", "sex": "Sex", "age": "Age"}

    return Case(flags=["--patient-column=none"], edit=edit, truth=truth(made))


@shape("labels per study in a second file, films in the first")
def joined_labels(place: Place) -> Case:
    made = films()
    for first, second in zip(made[::2], made[1::2], strict=True):
        second.said = first.said
    place.pictures(made)
    names = [WORDS["en"][disease] for disease in DISEASES]
    rows = [{**cells, "Exam": film.study} for film, cells in zip(made, wide(made), strict=True)]
    place.save([{k: v for k, v in cells.items() if k not in names} for cells in rows], "films.csv")
    place.save([{k: cells[k] for k in ("Exam", *names)} for cells in rows[::2]])

    def repair() -> None:
        place.save(rows)

    return Case(truth=truth(made), repair=repair)

"""Hospitals whose difficulty is which film a row is about, or how the files are written."""

from __future__ import annotations

import json
import random
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas as pd

from chestfed.leaves.samples.tables import format_rows, write_rows, write_text
from tests.leaves.drafts.campaign.maker import (
    DISEASES,
    EN,
    NAMES,
    ROLES,
    Case,
    Film,
    Place,
    Row,
    make_films,
    register,
    shape,
    tell_truth,
    wide,
)

WITHOUT_VIEW = ("split", "sex", "age")


def drop_column(name: str) -> Callable[[Row, Film, int], Row]:
    return lambda cells, film, n: {k: v for k, v in cells.items() if k != name}


def locate_below(film: Film) -> str:
    return f"images/{film.patient}/{film.file}"


def cut_folder(where: Callable[[Film], str]) -> Callable[[Film], str]:
    return lambda film: where(film).removeprefix("images/")


def number_file(film: Film) -> str:
    return f"{int(film.name[-3:]) % 2 + 1}.png"


def locate_odd(film: Film) -> str:
    return f"images/pt{int(film.patient[1:]) * 7}/{film.file}"


register("names without the ending", "without_ending", cell=lambda film: film.name, films_with={})
register(
    "paths of a Windows archive in front of the names",
    "windows_paths",
    cell=lambda film: f"D:\\archive\\2026\\{film.file}",
)
register("paths relative to another folder", "other_root", cell=lambda film: f"./export/{film.file}")
register(
    "a folder for each patient, which the path in the table names",
    "folders_in_paths",
    where=locate_below,
    cell=cut_folder(locate_below),
)
register("a folder for each patient, which the table does not name", "folders_searched", where=locate_odd)
register("the same file names in each patient's folder, told by the patient's column", "folders_told",
    where=lambda film: f"images/{film.patient}/{number_file(film)}", cell=number_file)  # fmt: skip
register("patient and study as folders, both columns of the table", "nested_folders", lambda cells, film, n: {**cells,
    "Accession Number": film.study}, cell=number_file,
    where=lambda film: f"images/{film.patient}/{film.study}/{number_file(film)}")  # fmt: skip
_UNTOLD = lambda film: f"images/pt{int(film.patient[1:]) * 7}/{number_file(film)}"  # noqa: E731
register("the same file names in each patient's folder, with nothing that tells the folder", "folders_untold",
    where=_UNTOLD, cell=number_file, repaired={"cell": cut_folder(_UNTOLD)})  # fmt: skip
register("the patient is told by the folder only", "patients_in_folders", drop_column("Patient"), where=locate_below,
    cell=cut_folder(locate_below),
    then=["--column=patient=folder"])  # fmt: skip
register("names with umlauts, decomposed as a Mac stores them", "decomposed_names",
    where=lambda film: f"images/{unicodedata.normalize('NFD', f'Köpfe_{film.name}.png')}",
    cell=lambda film: unicodedata.normalize("NFC", f"Köpfe_{film.name}.png"))  # fmt: skip
register("endings in capitals on the disk and small in the table", "capital_endings",
    repaired={"cell": lambda film: f"{film.name}.PNG"},
    where=lambda film: f"images/{film.name}.PNG")  # fmt: skip
register("png, jpg and jpeg in one folder, names without ending", "several_endings", cell=lambda film: film.name,
    where=lambda film: f"images/{film.name}{('.png', '.jpg', '.jpeg')[int(film.name[-3:]) % 3]}")  # fmt: skip
register("numbers that lost their leading zeros, csv", "lost_zeros", where=lambda film: f"images/{film.name[-3:]}.png",
    cell=lambda film: film.name[-3:].lstrip("0") or "0", repaired={"cell": lambda film: film.name[-3:]})  # fmt: skip


@shape("train and test, patient and study in the path, as CheXpert has it")
def everything_in_paths(place: Place) -> Case:
    def where(film: Film) -> str:
        return f"images/{film.split}/patient{film.patient[1:]}/study1/{film.name}_{film.view}.png"

    made = make_films()
    place.pictures(made, where)
    rows = wide(made, roles=("sex", "age"), file=cut_folder(where))
    place.save([{name: value for name, value in cells.items() if name != "Patient"} for cells in rows])
    pattern = r"^(?P<split>\w+)/(?P<patient>patient\d+)/study1/.*_(?P<view>[a-z]+)\.png$"
    truth = tell_truth(made, where, patient=lambda film: f"patient{film.patient[1:]}")
    return Case(truth, then=[f"--set=from_path={pattern}"])


@shape("thumbnails of the same names below the folder")
def thumbnails(place: Place) -> Case:
    made = make_films()
    place.pictures(made)
    place.pictures(made, lambda film: f"images/thumbs/{film.file}")
    place.save(wide(made))
    return Case(tell_truth(made))


@shape("originals and copies in two folders beside each other")
def copies(place: Place) -> Case:
    made = make_films()
    place.pictures(made, lambda film: f"images/originals/{film.file}")
    place.pictures(made, lambda film: f"images/small/{film.file}")
    place.save(wide(made))
    return Case(tell_truth(made, lambda film: f"images/originals/{film.file}"), then=["--images=images/originals"])


@shape("folder and table with Japanese names and blanks")
def japanese_folders(place: Place) -> Case:
    made = make_films()
    place.pictures(made, lambda film: f"胸部 画像/{film.file}")
    place.save(wide(made), "診断 一覧.csv")
    return Case(tell_truth(made, lambda film: f"胸部 画像/{film.file}"), "診断 一覧.csv", "胸部 画像")


@shape("a running number that fits the files of another numbering")
def running_numbers(place: Place) -> Case:
    made, numbers = make_films(), list(range(1, 37))
    random.Random(7).shuffle(numbers)
    place.png(*(f"images/{n}.png" for n in range(1, 37)))
    place.save(
        [
            {"Nr": n, **cells}
            for n, cells in zip(range(1, 37), wide(made, file=lambda f: f"img_{f.name}.png"), strict=True)
        ]
    )

    def repair() -> None:
        for n, film in zip(range(1, 37), made, strict=True):
            (place.folder / f"images/{n}.png").rename(place.folder / f"images/img_{film.name}.png")

    return Case(tell_truth(made, lambda film: f"images/img_{film.name}.png"), repair=repair)


@shape("the table lists ten times as many films as the folder has")
def few_of_many(place: Place) -> Case:
    made = make_films(360)
    place.pictures(made[:36])
    place.save(wide(made))
    return Case(tell_truth(made[:36]), then=["--set=rows.missing_image=drop"])


@shape("half of the films are not in the table")
def many_films(place: Place) -> Case:
    made = make_films(72)
    place.pictures(made)
    place.save(wide(made[:36]))
    return Case(tell_truth(made[:36]))


@shape("two films in a row: the columns of the frontal and of the lateral")
def two_in_a_row(place: Place) -> Case:
    made = [film for film in make_films(lateral=False) if int(film.name[-3:]) % 2 == 0]
    place.pictures(made)
    place.pictures(made, lambda film: f"images/lat_{film.file}")
    rows = wide(made, roles=WITHOUT_VIEW)
    place.save(
        [
            {"Frontal": cells.pop("File"), "Lateral": f"lat_{film.file}", **cells}
            for film, cells in zip(made, rows, strict=True)
        ]
    )
    return Case(tell_truth(made, roles=WITHOUT_VIEW), then=["--column=image=Frontal"])


def _share_labels(made: Sequence[Film]) -> None:
    """Both films of a study have the labels of the first."""
    for first, second in zip(made[::2], made[1::2], strict=True):
        second.findings = first.findings


@shape("one row per study, a folder of PNGs for each study")
def rows_of_studies(place: Place) -> Case:
    made = make_films(lateral=False)
    _share_labels(made)
    where = lambda film: f"images/{film.study}/{number_file(film)}"  # noqa: E731
    place.pictures(made, where)
    rows = wide(made[::2], roles=WITHOUT_VIEW)
    place.save(
        [
            {"Study": film.study, **drop_column("File")(cells, film, 0)}
            for film, cells in zip(made[::2], rows, strict=True)
        ]
    )
    return Case(tell_truth(made, where, WITHOUT_VIEW))


Value = Callable[[int, Film], str]


def _by_header(
    name: str, value: Value, roles: Sequence[str] = ROLES, shown: Callable[[str], str] = str, **elements: Value
) -> Any:
    """A row per value of an element of the headers; films of one value share their labels."""

    def make(place: Place) -> Case:
        made, first = make_films(), dict[str, Film]()
        for n, film in enumerate(made):
            film.findings = first.setdefault(value(n, film), film).findings
        place.dicoms(made, **elements)

        def save(form: Callable[[str], str]) -> None:
            cells = wide(list(first.values()), roles=roles)
            place.save(
                [
                    {name: form(key), **drop_column("File")(row, made[0], 0)}
                    for key, row in zip(first, cells, strict=True)
                ]
            )

        save(shown)
        truth = tell_truth(made, lambda film: f"images/{film.name}.dcm", tuple({*roles, "view", "sex", "age"}))
        return Case(truth, repair=None if shown is str else lambda: save(str))

    return make


_NUMBER: Value = lambda n, film: f"A{film.study[1:]}-26"  # noqa: E731
_ZEROS: Value = lambda n, film: f"0000{film.study[1:]}"  # noqa: E731
shape("one row per accession number, two films each, views in the headers", "accession_numbers")(
    _by_header("Order", _NUMBER, ("split",), AccessionNumber=_NUMBER))  # fmt: skip
shape("accession numbers that lost their leading zeros", "accession_without_zeros")(
    _by_header("Accession", _ZEROS, ("split",), lambda text: text.lstrip("0"), AccessionNumber=_ZEROS))  # fmt: skip
shape("rows by SOPInstanceUID", "instance_uids")(_by_header("UID", lambda n, film: f"1.2.826.0.1.3680043.10.{n + 1}"))
shape("rows by StudyInstanceUID under an unusual name", "study_uids")(
    _by_header("Key", lambda n, film: f"1.2.3.{film.study[1:]}", ("split",)))  # fmt: skip


@shape("DICOM files that the table calls by their names, other files beside them")
def named_dicoms(place: Place) -> Case:
    made = make_films()
    place.dicoms(made)
    write_text(place.folder / "images/DICOMDIR.txt", "x")
    place.save(wide(made, file=lambda film: f"{film.name}.dcm"))
    return Case(tell_truth(made, lambda film: f"images/{film.name}.dcm"))


@shape("patients and their ages in a second file")
def joined_people(place: Place) -> Case:
    made = make_films()
    place.pictures(made)
    drop = ("Patient", "Sex", "Age")
    rows = [
        {**{k: v for k, v in cells.items() if k not in drop}, "Exam": film.study}
        for film, cells in zip(made, wide(made), strict=True)
    ]
    place.save(rows)
    people = {film.study: {"Exam": film.study, "MRN": film.patient, "Sex": film.sex, "Age": film.age} for film in made}
    place.save(list(people.values()), "people.csv", delimiter=";")

    def edit(site: dict[str, Any]) -> None:
        site["label_files"]["people"] = ["people.csv"]
        site["table"]["join"] = [
            {"file": "people", "key": ["Exam"], "columns": ["MRN", "Sex", "Age"], "delimiter": ";"}
        ]
        site["table"]["columns"] |= {"patient": "MRN", "sex": "Sex", "age": "Age"}

    return Case(tell_truth(made), edit=edit, then=["--column=patient=none"])


@shape("labels per study in a second file, films in the first")
def joined_labels(place: Place) -> Case:
    made = make_films()
    _share_labels(made)
    place.pictures(made)
    rows = [{**cells, "Exam": film.study} for film, cells in zip(made, wide(made), strict=True)]
    place.save([{k: v for k, v in cells.items() if k not in NAMES} for cells in rows], "films.csv")
    place.save([{k: cells[k] for k in ("Exam", *NAMES)} for cells in rows[::2]])
    return Case(tell_truth(made), repair=lambda: place.save(rows))


# Formats ------------------------------------------------------------------------------------------------------------
def _format(
    name: str, about: str, save: Callable[[Place, list[Row]], str], *, fixed: bool = False, **case: Any
) -> None:
    """A wide table in some format; `save` returns what --labels is."""

    def make(place: Place) -> Case:
        made = make_films()
        place.pictures(made)
        repair = (lambda: place.save(wide(made))) if fixed else None
        return Case(tell_truth(made), save(place, wide(made)), repair=repair, **case)

    shape(about, name)(make)


def _split_files(place: Place, rows: list[Row]) -> str:
    for n in range(0, 36, 9):
        write_rows(place.folder / f"labels/part{n}.csv", rows[n : n + 9])
    return "labels"


def _partitions(place: Place, rows: list[Row]) -> str:
    pd.DataFrame(rows).to_parquet(place.folder / "labels.parquet", partition_cols=["Sex"], index=False)
    return "labels.parquet"


def _coco(place: Place, rows: list[Row]) -> str:
    images = [{"id": n, "file_name": cells["File"], **{k: v for k, v in cells.items() if k not in (*NAMES, "File")}}
        for n, cells in enumerate(rows)]  # fmt: skip
    notes = [{"id": n * 10 + m, "image_id": n, "category_id": m}
        for n, cells in enumerate(rows) for m, d in enumerate(NAMES) if cells[d] == "yes"]  # fmt: skip
    data = {"images": images, "annotations": notes, "categories": [{"id": m, "name": d} for m, d in enumerate(NAMES)]}
    write_text(place.folder / "labels.json", json.dumps(data))
    return "labels.json"


def _text(ending: str, encoding: str, delimiter: str = ",") -> Callable[[Place, list[Row]], str]:
    def save(place: Place, rows: list[Row]) -> str:
        write_text(place.folder / f"labels.{ending}", format_rows(rows, delimiter), encoding)
        return f"labels.{ending}"

    return save


_format("files_per_patient", "a csv for every few films", _split_files)
_format("partitions", "parquet in partitions", _partitions)
_format("text_tabs", "a .txt with tabs", _text("txt", "utf-8", "\t"))
_format("utf16_unmarked", "UTF-16 without its mark", _text("csv", "utf-16-le"), then=["--set=encoding=utf-16-le"])
_format("utf32", "UTF-32", _text("csv", "utf-32"), fixed=True)


@shape("COCO: films, categories and annotations")
def coco(place: Place) -> Case:
    made = make_films(doubt=False)
    for film in made:  # a film without an annotation has no row
        film.findings["edema"] = film.findings["edema"] if any(film.findings.values()) else 1
    place.pictures(made)
    _coco(place, wide(made))
    return Case(tell_truth(made), "labels.json", first=["--blank=negative"])


@shape("FHIR observations, a line each")
def fhir(place: Place) -> Case:
    made, lines = make_films(doubt=False, lateral=False), []
    place.pictures(made)
    for film in made:
        for disease in DISEASES:
            observation: Mapping[str, Any] = {
                "resourceType": "Observation",
                "subject": {"reference": f"Patient/{film.patient}"},
                "derivedFrom": [{"display": film.file}],
                "code": {"text": EN[disease]},
                "valueBoolean": bool(film.findings[disease]),
            }
            lines.append(json.dumps(observation))
    write_text(place.folder / "labels.ndjson", "\n".join(lines))
    columns = {
        "image": "derivedFrom.0.display",
        "patient": "subject.reference",
        "finding": "code.text",
        "value": "valueBoolean",
    }
    truth = tell_truth(made, roles=(), patient=lambda film: f"Patient/{film.patient}")
    return Case(truth, "labels.ndjson", then=[f"--column={role}={name}" for role, name in columns.items()])


@shape("a row of units below the header")
def units(place: Place) -> Case:
    made = make_films()
    place.pictures(made)
    rows = wide(made)
    place.save([{**dict.fromkeys(rows[0]), "Age": "years", "Edema": "(y/n)"}, *rows])
    return Case(tell_truth(made), repair=lambda: place.save(rows))

"""Hospitals whose findings are words: in one column, in lists, a row per finding, and in DICOM headers."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence

from benchmarks.hospital_shapes.maker import (
    DISEASES,
    WORDS,
    Case,
    Place,
    films,
    flags_for,
    meanings_of,
    row,
    shape,
    terms_of,
    truth,
)


def _column(place: Place, language: str, separator: str, *flags: str, file: str = "labels.csv", **how: str) -> Case:
    """One column of findings; a radiologist writes what the terms mean."""
    made, words = films(blank=True), WORDS[language]
    place.pictures(made)
    rows = [{**row(film, words), words["findings"]: separator.join(terms_of(film, words))} for film in made]
    place.save(rows, file, **how)
    return Case(labels=file, flags=flags, meanings=meanings_of(words), truth=truth(made))


@shape("one column of findings between bars")
def bars(place: Place) -> Case:
    return _column(place, "en", "|")


@shape("German findings between semicolons, Latin-1", known=True)
def german_findings(place: Place) -> Case:
    return _column(place, "de", "; ", encoding="latin-1")


@shape("Spanish findings between bars, xlsx")
def spanish_findings(place: Place) -> Case:
    return _column(place, "es", " | ", file="labels.xlsx")


@shape("Portuguese findings between semicolons, tab-separated")
def portuguese_findings(place: Place) -> Case:
    return _column(place, "pt", ";", file="labels.tsv")


@shape("French findings between bars, cp1252")
def french_findings(place: Place) -> Case:
    return _column(place, "fr", "|", "--encoding=cp1252", delimiter=";", encoding="cp1252")


@shape("Russian findings: the lexicon knows no word")
def russian_findings(place: Place) -> Case:
    words = WORDS["ru"]
    flags = [*flags_for(words, values=False), f"--findings-column={words['findings']}", "--separator=|"]
    return _column(place, "ru", "|", *flags)


@shape("Japanese findings, gzipped csv")
def japanese_findings(place: Place) -> Case:
    words = WORDS["ja"]
    flags = [*flags_for(words, values=False), f"--findings-column={words['findings']}", "--separator=|"]
    return _column(place, "ja", "|", *flags, file="labels.csv.gz")


@shape("sentences with commas, in which a denial goes on behind the comma", known=True)
def sentences(place: Place) -> Case:
    made, words, draw = films(doubt=False), WORDS["en"], random.Random(11)
    place.pictures(made)
    texts = {
        "no edema, effusion or consolidation": {"edema": 0, "pleural_effusion": 0, "consolidation": 0},
        "cardiomegaly, effusions resolved": {"cardiomegaly": 1, "pleural_effusion": 0},
        "small left effusion, basal atelectasis": {"pleural_effusion": 1, "atelectasis": 1},
        "heart size borderline": {"cardiomegaly": -1},
        "effusion: none": {"pleural_effusion": 0},
        "edema not excluded": {"edema": -1},
    }
    states = {1: "{}", 0: "{} absent", -1: "{} uncertain"}
    rows = []
    for film in made:
        text = draw.choice(list(texts))
        film.said = {disease: texts[text].get(disease) for disease in DISEASES}
        rows.append({**row(film, words), "Impression": text})
    place.save(rows)
    meanings = {text: "; ".join(states[s].format(d) for d, s in said.items()) for text, said in texts.items()}
    return Case(flags=["--findings-column=Impression"], meanings=meanings, truth=truth(made))


@shape("codes of diagnoses: J90, J81, I51.7")
def codes_of_diagnoses(place: Place) -> Case:
    return _in_codes(place, {"cardiomegaly": "I51.7", "edema": "J81", "consolidation": "J18.1", "atelectasis": "J98.1",
        "pleural_effusion": "J90"})  # fmt: skip


def _in_codes(place: Place, codes: dict[str, str]) -> Case:
    """Present diseases only; the cells name everything, so that `blank` is negative."""
    made, words = films(doubt=False), WORDS["en"]
    place.pictures(made)
    rows = [
        {**row(film, words), "ICD": ";".join(codes[d] for d in DISEASES if film.said[d]) or "Z00.0"} for film in made
    ]
    place.save(rows)
    meanings = {**{code.lower(): disease for disease, code in codes.items()}, "z00.0": "normal"}
    return Case(
        flags=["--findings-column=ICD", "--separator=;", "--blank=negative"], meanings=meanings, truth=truth(made)
    )


@shape("'No Finding' or the diseases that are present: a disease that is not named is not denied")
def positives_only(place: Place) -> Case:
    made, words = films(doubt=False), WORDS["en"]
    place.pictures(made)
    rows = []
    for film in made:
        present = [words[d] for d in DISEASES if film.said[d]]
        rows.append({**row(film, words), "Finding Labels": "|".join(present) or "No Finding"})
        film.said = {d: (1 if film.said[d] else None) if present else 0 for d in DISEASES}
    place.save(rows)
    return Case(truth=truth(made))


def _list(place: Place, form: str) -> Case:
    made, words = films(), WORDS["en"]
    place.pictures(made)
    rows = []
    for film in made:
        terms = terms_of(film, words)
        cell = {"python": str(terms), "json": json.dumps(terms), "numpy": "[" + " ".join(f"'{t}'" for t in terms) + "]"}
        rows.append({**row(film, words), "Labels": cell[form]})
    place.save(rows)
    return Case(meanings=meanings_of(words), truth=truth(made))


@shape("lists as Python prints them")
def python_lists(place: Place) -> Case:
    return _list(place, "python")


@shape("lists as JSON")
def json_lists(place: Place) -> Case:
    return _list(place, "json")


@shape("lists as numpy prints them, without commas")
def numpy_lists(place: Place) -> Case:
    return _list(place, "numpy")


@shape("lists in the cells of a parquet file")
def parquet_lists(place: Place) -> Case:
    made, words = films(), WORDS["en"]
    place.pictures(made)
    place.save([{**row(film, words), "Labels": terms_of(film, words)} for film in made], "labels.parquet")
    return Case(labels="labels.parquet", meanings=meanings_of(words), truth=truth(made))


def _long(
    place: Place, annotators: Sequence[str], *, value: bool = False, column: str = "rad_id", **case: object
) -> Case:
    """A row per finding, with votes of the majority if there are annotators; without a value, present findings only."""
    made, words, draw = films(doubt=False), WORDS["en"], random.Random(12)
    place.pictures(made)
    rows, agreed = [], {}
    for film in made:
        votes = {name: {d: draw.randint(0, 1) for d in DISEASES} for name in annotators or [""]}
        agreed[film.name] = {d: int(2 * sum(cast[d] for cast in votes.values()) > len(votes)) for d in DISEASES}
        for name, cast in votes.items():
            found = list(cast.items()) if value else [(d, 1) for d, vote in cast.items() if vote] or [("normal", 1)]
            for disease, vote in found:
                cells = {**row(film, words), "Finding": words[disease], **({"Present": vote} if value else {})}
                rows.append({**cells, **({column: name} if annotators else {}), "x_min": draw.randint(0, 10**6)})
    place.save(rows)
    said = truth(made, labels=lambda film, disease: agreed[film.name][disease])
    return Case(truth=said, **case)  # type: ignore[arg-type]


@shape("a row for each finding with yes and no")
def long_with_values(place: Place) -> Case:
    return _long(place, (), value=True)


@shape("a row for each finding of three annotators (as VinDr)", known=True)
def long_annotators(place: Place) -> Case:
    case = _long(place, ("R1", "R2", "R3"), flags=["--blank=negative"])
    return _first_with_flags(case)


@shape("a row for each finding of three annotators, with yes and no", known=True)
def long_annotators_with_values(place: Place) -> Case:
    return _long(place, ("R1", "R2", "R3"), value=True)


@shape("five annotators in a column called Kürzel")
def long_annotators_unnamed(place: Place) -> Case:
    return _long(place, ("A", "B", "C", "D", "E"), value=True, column="Kürzel", flags=["--reader-column=Kürzel"])


def _first_with_flags(case: Case) -> Case:
    """The flags are known beforehand: a decision about the labels, that the command does not stop at."""
    case.beforehand = True
    return case


@shape("findings in the comments of DICOM headers, no table")
def in_headers(place: Place) -> Case:
    return _headers(place, "ImageComments")


@shape("findings in the study's description, files without an ending, some other files")
def in_descriptions(place: Place) -> Case:
    case = _headers(place, "StudyDescription", ending="")
    place.text("images/README.txt", "exported by hand")
    place.text("images/AUTORUN.INF", "[autorun]\n")
    return case


def _headers(place: Place, element: str, ending: str = ".dcm") -> Case:
    made, words = films(), WORDS["en"]
    for n, film in enumerate(made):  # an element holds 64 letters
        film.said = {disease: film.said[disease] if place < 3 else None for place, disease in enumerate(DISEASES)}
        view = {"pa": "PA", "ap": "AP", "lateral": "LL"}[film.view]
        about = {
            "PatientID": film.patient,
            "PatientSex": film.sex,
            "PatientAge": f"{film.age:03d}Y",
            "ViewPosition": view,
        }
        about["StudyInstanceUID"] = f"1.2.3.{film.study[1:]}"
        place.dicom(f"images/{film.name}{ending}", n, **about, **{element: "; ".join(terms_of(film, words))})
    at = truth(made, place=lambda film: f"{film.name}{ending}", told=("view", "sex", "age"))
    return Case(labels=None, flags=["--separator=;"], meanings=meanings_of(words), truth=at)

"""Hospitals whose findings are words: in one column, in lists, a row per finding, in headers, and in folders."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from chestfed.leaves.samples.tables import WORDS
from tests.leaves.drafts.campaign.maker import (
    DISEASES,
    EN,
    Case,
    Film,
    Place,
    list_meanings,
    list_options,
    list_terms,
    list_words,
    make_films,
    row,
    shape,
    tell_truth,
)


def _column(
    place: Place, language: str, separator: str, file: str = "labels.csv", then: Sequence[str] = (), **how: str
) -> Case:
    """One column of findings; a radiologist writes what the terms mean."""
    made, words = make_films(blank=True), WORDS[language]
    place.pictures(made)
    rows = [{**row(film, words), words["findings"]: separator.join(list_terms(film, words))} for film in made]
    place.save(rows, file, **how)
    book = list_meanings(words)
    if language not in WORDS["known"]:
        then = [*list_options(words, labels=False), f"--column=findings={words['findings']}", "--set=separator=|"]
        book = {**list_words(words), **book}
    return Case(tell_truth(made), file, then=then, book=book)


for _about, _name, _arguments in (
    ("one column of findings between bars", "bars", {"language": "en", "separator": "|"}),
    ("German findings between semicolons, Latin-1", "german_findings",
     {"language": "de", "separator": "; ", "encoding": "latin-1"}),
    ("Spanish findings between bars, xlsx", "spanish_findings",
     {"language": "es", "separator": " | ", "file": "labels.xlsx"}),
    ("Portuguese findings between semicolons, tab-separated", "portuguese_findings",
     {"language": "pt", "separator": ";", "file": "labels.tsv"}),
    ("French findings between bars, cp1252", "french_findings",
     {"language": "fr", "separator": "|", "delimiter": ";", "encoding": "cp1252", "then": ["--set=encoding=cp1252"]}),
    ("Russian findings: the lexicon knows no word", "russian_findings", {"language": "ru", "separator": "|"}),
    ("Japanese findings, gzipped csv", "japanese_findings",
     {"language": "ja", "separator": "|", "file": "labels.csv.gz"}),
):  # fmt: skip
    shape(_about, _name)(partial(_column, **_arguments))

_STATES = {1: "{}", 0: "{} absent", -1: "{} uncertain"}


def _sentences(
    place: Place,
    texts: Mapping[str, dict[str, int]],
    column: str,
    more: Mapping[str, str] | None = None,
    blank: int | None = None,
    **case: Any,
) -> Case:
    """A text per film, and what it says of some diseases."""
    made, draw = make_films(doubt=False), random.Random(11)
    place.pictures(made)
    rows = []
    for film in made:
        text = draw.choice(list(texts))
        film.findings = {disease: texts[text].get(disease, blank) for disease in DISEASES}
        rows.append({**row(film, EN), column: text})
    place.save(rows)
    book = {text: "; ".join(_STATES[s].format(d) for d, s in findings.items()) for text, findings in texts.items()}
    return Case(tell_truth(made), book={**book, **(more or {})}, **case)


shape("sentences with commas, in which a denial goes on behind the comma", "sentences")(partial(_sentences,
    column="Impression",
    then=["--set=one_class=[cardiomegaly,atelectasis]"],
    texts={"no edema, effusion or consolidation": {"edema": 0, "pleural_effusion": 0, "consolidation": 0},
    "cardiomegaly, effusions resolved": {"cardiomegaly": 1, "pleural_effusion": 0}, "edema not excluded": {"edema": -1},
    "small left effusion, basal atelectasis": {"pleural_effusion": 1, "atelectasis": 1},
    "heart size borderline": {"cardiomegaly": -1}, "effusion: none": {"pleural_effusion": 0},
    "consolidation, edema, atelectasis": {"consolidation": 1, "edema": 1, "atelectasis": 1}}))  # fmt: skip
shape("MeSH terms with qualifiers after a slash", "mesh")(partial(_sentences, column="MeSH", texts={
    "Cardiomegaly/mild": {"cardiomegaly": 1}, "Pulmonary Edema": {"edema": 1},
    "Pulmonary Atelectasis/base/left": {"atelectasis": 1},
    "Consolidation/lung/upper lobe": {"consolidation": 1}, "Pleural Effusion/right/small": {"pleural_effusion": 1}},
    more=dict.fromkeys(("mild", "base", "left", "lung", "upper lobe", "right", "small"), "ignore"),
    first=["--blank=negative"], blank=0))  # fmt: skip


@shape("codes of diagnoses: J90, J81, I51.7")
def codes_of_diagnoses(place: Place) -> Case:
    codes = {
        "cardiomegaly": "I51.7",
        "edema": "J81",
        "consolidation": "J18.1",
        "atelectasis": "J98.1",
        "pleural_effusion": "J90",
    }
    made = make_films(doubt=False)
    place.pictures(made)
    place.save(
        [{**row(film), "ICD": ";".join(codes[d] for d in DISEASES if film.findings[d]) or "Z00.0"} for film in made]
    )
    book = {**{code: disease for disease, code in codes.items()}, "z00.0": "normal"}
    then = ["--column=findings=ICD", "--set=separator=;"]
    return Case(tell_truth(made), first=["--blank=negative"], then=then, book=book)


def _positives(place: Place, blank: str) -> Case:
    made = make_films(doubt=False)
    place.pictures(made)
    rows = []
    for film in made:
        present = [EN[d] for d in DISEASES if film.findings[d]]
        rows.append({**row(film), "Finding Labels": "|".join(present) or "No Finding"})
        film.findings = {
            d: (1 if film.findings[d] else 0 if blank == "negative" else None) if present else 0 for d in DISEASES
        }
    place.save(rows)
    return Case(tell_truth(made), first=[f"--blank={blank}"])


shape("'No Finding' or the diseases that are present; others are missing", "positives_only")(
    partial(_positives, blank="missing")
)
shape("'No Finding' or the diseases that are present; others are absent", "nih_list")(
    partial(_positives, blank="negative")
)


def _list(place: Place, form: str) -> Case:
    made = make_films()
    place.pictures(made)
    write: dict[str, Any] = {
        "python": str,
        "json": json.dumps,
        "numpy": lambda terms: f"[{' '.join(map(repr, terms))}]",
    }
    file = "labels.parquet" if form == "parquet" else "labels.csv"
    place.save([{**row(film), "Labels": write.get(form, list)(list_terms(film, EN))} for film in made], file)
    return Case(tell_truth(made), file, book=list_meanings(EN))


for _name, _about in (
    *(("python", "lists as Python prints them"), ("json", "lists as JSON")),
    *(("numpy", "lists as numpy prints them, without commas"), ("parquet", "lists in the cells of a parquet file")),
):
    shape(_about, f"{_name}_lists")(partial(_list, form=_name))


def _long(place: Place, annotators: Sequence[str], *, value: bool = False, column: str = "rad_id", **case: Any) -> Case:
    """A row per finding, with votes of the majority if there are annotators; without a value, present findings only."""
    made, draw, rows = make_films(doubt=False), random.Random(12), []
    place.pictures(made)
    for film in made:
        votes = {name: {d: draw.randint(0, 1) for d in DISEASES} for name in annotators or [""]}
        film.findings = {d: int(2 * sum(cast[d] for cast in votes.values()) > len(votes)) for d in DISEASES}
        for name, cast in votes.items():
            findings = list(cast.items()) if value else [(d, 1) for d, vote in cast.items() if vote] or [("normal", 1)]
            for disease, vote in findings:
                cells = {**row(film), "Finding": EN[disease], **({"Present": vote} if value else {})}
                rows.append({**cells, **({column: name} if annotators else {}), "x_min": draw.randint(0, 10**6)})
    place.save(rows)
    case["first"] = [*case.pop("first", ()), *(["--raters=majority"] if annotators else [])]
    return Case(tell_truth(made), **case)


_VINDR = ["--blank=negative"]
for _about, _name, _make in (
    ("a row for each finding with yes and no", "long_values", partial(_long, annotators=(), value=True)),
    ("a row for each finding that is present", "long_present", partial(_long, annotators=(), first=_VINDR)),
    ("a row for each finding of three annotators (as VinDr)", "long_annotators",
     partial(_long, annotators=("R1", "R2", "R3"), first=_VINDR)),
    ("a row for each finding of three annotators, with yes and no", "long_annotators_values",
     partial(_long, annotators=("R1", "R2", "R3"), value=True)),
    ("five annotators in a column called Kürzel", "long_annotators_unnamed",
     partial(_long, annotators=tuple("ABCDE"), value=True, column="Kürzel", then=["--column=reader=Kürzel"])),
):  # fmt: skip
    shape(_about, _name)(_make)


def _headers(place: Place, element: str, ending: str = ".dcm") -> Case:
    made = make_films()
    for film in made:  # an element holds 64 letters
        film.findings = {
            disease: film.findings[disease] if place < 3 else None for place, disease in enumerate(DISEASES)
        }
    place.dicoms(made, **{element: lambda n, film: "; ".join(list_terms(film, EN))})
    if not ending:
        for film in made:
            (place.folder / f"images/{film.name}.dcm").rename(place.folder / f"images/{film.name}")
        (place.folder / "images/README.txt").write_text("exported by hand")
        (place.folder / "images/AUTORUN.INF").write_text("[autorun]\n")
    at = tell_truth(made, lambda film: f"images/{film.name}{ending}", ("view", "sex", "age"))
    return Case(at, None, book=list_meanings(EN))


shape("findings in the comments of DICOM headers, no table", "in_headers")(partial(_headers, element="ImageComments"))
shape("findings in the study's description, files without an ending, some other files", "in_descriptions")(
    partial(_headers, element="StudyDescription", ending=""))  # fmt: skip


def _folders(place: Place, where: Any, patient: Any, first: Sequence[str] = (), then: Sequence[str] = ()) -> Case:
    """One finding per film, in its path."""
    made, draw = make_films(doubt=False), random.Random(13)
    for film in made:
        finding = draw.choice(["normal", *DISEASES])
        film.findings = {d: int(d == finding) for d in DISEASES}

    def locate(film: Film) -> str:
        return where(film, next((d for d in DISEASES if film.findings[d]), "normal"))

    place.pictures(made, locate)
    truth = tell_truth(made, locate, (), patient=patient)
    return Case(truth, None, first=["--blank=negative", *first], then=then)


shape("the folders are the labels, no table", "label_folders")(partial(_folders, then=["--column=patient=none"],
    where=lambda film, finding: f"images/{finding.upper()}/{film.file}", patient=lambda film: film.file))  # fmt: skip
shape("patients in the names of files, labels in the folders", "label_folders_patients")(partial(_folders,
    then=[r"--set=from_path=^(?P<finding>[^/]+)/(?P<patient>P\d+)_"], patient=lambda film: film.patient,
    where=lambda film, finding: f"images/{finding.upper()}/{film.patient}_{film.file}"))  # fmt: skip
shape("labels in the names of files, no table", "label_files")(partial(_folders,
    first=[r"--set=from_path=(?P<patient>P\d+)_[^_]+_(?P<finding>[a-z-]+)\.png$"], patient=lambda film: film.patient,
    where=lambda film, finding: f"images/{film.patient}_{film.name}_{finding.replace('_', '-')}.png"))  # fmt: skip

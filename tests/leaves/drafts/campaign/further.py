"""Exports that were written apart from the other hospitals, and described once before anything was changed for them."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from chestfed.leaves.samples.tables import WORDS, format_rows, write_sheets, write_text
from tests.leaves.drafts.campaign import maker
from tests.leaves.drafts.campaign.maker import (
    DISEASES,
    EN,
    FURTHER,
    NAMES,
    Case,
    Film,
    Place,
    Row,
    add_cells,
    list_terms,
    make_films,
    rename_labels,
    row,
    tell_truth,
    wide,
)
from tests.leaves.drafts.campaign.run import Outcome

register = partial(maker.register, into=FURTHER)
shape = partial(maker.shape, into=FURTHER)
BINARY: dict[int | None, Any] = {1: 1, 0: 0}
WITHOUT_AGE, WITHOUT_VIEW, WITHOUT_SPLIT = ("view", "split", "sex"), ("split", "sex", "age"), ("view", "sex", "age")


def _put(name: str, value: Any) -> Any:
    """A change of one column: a value for each film and number, or words for its cell."""
    words = value if isinstance(value, Mapping) else None
    return lambda cells, film, n: {**cells, name: words[cells[name]] if words else value(film, n)}


# Codes --------------------------------------------------------------------------------------------------------------
for _name, _about, _codes, _book in (
    ("likert", "confidence from 1 to 5", {1: 5, 0: 1, -1: 3}, {"5": "positive", "1": "negative", "3": "uncertain"}),
    ("mild_severe", "0 none, 1 mild, 2 severe", {1: 2, 0: 0, -1: 1},
     {"0": "negative", "2": "positive", "1": "uncertain"}),
    ("present_not", "present, not present, indeterminate", {1: "Present", 0: "Not present", -1: "Indeterminate"},
     {"not present": "negative", "indeterminate": "uncertain", "present": "positive"}),
    ("abbreviated", "pres and abs", {1: "pres", 0: "abs"}, {"pres": "positive", "abs": "negative"}),
    ("numbered_words", "REDCap's 1 - Present, 0 - Absent", {1: "1 - Present", 0: "0 - Absent"},
     {"1 - present": "positive", "0 - absent": "negative"}),
    ("bracketed", "(1) yes, (2) no, (3) not assessable", {1: "(1) yes", 0: "(2) no", -1: "(3) not assessable"},
     {"(1) yes": "positive", "(2) no": "negative", "(3) not assessable": "missing"}),
    ("letters_blank", "Y, N or nothing", {1: "Y", 0: "N", None: None}, {"y": "positive", "n": "negative"}),
    ("ones_and_blanks", "1 or nothing", {1: 1, 0: None}, {}),
    ("null_texts", "1, 0, NULL and n/a", {1: "1", 0: "0", -1: "n/a", None: "NULL"},
     {"n/a": "missing", "null": "missing"}),
    ("dash_is_open", "yes, no, and a dash for not assessed", {1: "yes", 0: "no", None: "-"}, {"-": "missing"}),
    ("numbers_and_words", "1, 0 and TRUE in one column", {1: "TRUE", 0: "0", -1: "1"}, {}),
    ("ill_and_healthy", "pathologic and healthy", {1: "pathologic", 0: "healthy"},
     {"pathologic": "positive", "healthy": "negative"}),
    ("reversed", "0 is present and 1 is absent", {1: 0, 0: 1}, {}),
):  # fmt: skip
    _given = {"blank": None in _codes and 0 in _codes, "doubt": -1 in _codes}
    _truth: dict[str, Any] = {}
    if _name == "numbers_and_words":  # the 1 is a yes too
        _truth = {d: lambda film, d=d: int(film.findings[d] != 0) for d in DISEASES}
    _first = ["--blank=negative"] if _name == "ones_and_blanks" else []
    _first += ["--code=0=positive", "--code=1=negative"] if _name == "reversed" else []
    register(_about, _name, films_with=_given, codes=_codes, book=_book, first=_first, truth=_truth)


@shape("each column has a code of its own: 1 and 2, or 0 and 1")
def codes_by_column(place: Place) -> Case:
    made = make_films(doubt=False)
    place.pictures(made)
    rows = wide(made, codes=BINARY)
    place.save([{**cells, "Edema": 2 - cells["Edema"], "Atelectasis": 2 - cells["Atelectasis"]} for cells in rows])
    then = ["--code=1=positive", "--code=0=negative", "--code=2=negative"]
    return Case(tell_truth(made), then=then)


def _percent(cells: Row, film: Film, n: int, form: str = "{:.1f} %", whole: float = 100) -> Row:
    draw = random.Random(n)
    scores = {EN[d]: draw.uniform(0.55, 1) if film.findings[d] else draw.uniform(0, 0.45) for d in DISEASES}
    return {**cells, **{name: form.format(score * whole).replace(".", ",") for name, score in scores.items()}}


register("percent with its sign and a decimal comma", "percent_signs", _percent, how={"delimiter": ";"},
    then=["--set=threshold=50"])  # fmt: skip
register("probabilities with a decimal comma", "comma_scores", partial(_percent, form="{:.3f}", whole=1),
    how={"delimiter": ";"}, then=["--set=threshold=0.5"])  # fmt: skip

# Headers ------------------------------------------------------------------------------------------------------------
register("REDCap's checkboxes find___1 to find___5, and an event", "redcap_numbers",
    lambda cells, film, n: {"redcap_event_name": "baseline_arm_1", **rename_labels(lambda name:
    f"find___{NAMES.index(name) + 1}")(cells, film, n)}, codes=BINARY,
    then=[f"--label={d}=find___{n + 1}" for n, d in enumerate(DISEASES)])  # fmt: skip
register("no-break spaces and line breaks in the headers", "broken_headers",
    rename_labels(lambda name: f"{name} ".replace(" ", "\u00a0") if "P" in name else f"{name}\n(0/1)"), codes=BINARY,
    then=[f"--label={d}={EN[d]}\n(0/1)" for d in DISEASES[:4]])  # fmt: skip
register("comments and dates beside each label", "beside_labels", add_cells(**{
    "Edema comment": "see report", "Edema date": "2026-01-02", "Edema_severity": lambda film, n: n % 4,
    "Atelectasis side": "left"}), then=["--set=ignore=[Edema_severity]"])  # fmt: skip
register("findings of the film before beside those of this", "prior_findings", add_cells(**{
    f"{EN[d]} (prior)": lambda film, n: ("yes", "no")[n % 2] for d in DISEASES}),
    then=[f"--set=ignore=[{', '.join(f'{EN[d]} (prior)' for d in DISEASES)}]"])  # fmt: skip
register("Normal heart in place of cardiomegaly", "normal_heart", lambda cells, film, n: {
    {"Cardiomegaly": "Normal heart"}.get(k, k): {"yes": "no", "no": "yes"}[v] if k == "Cardiomegaly" else v
    for k, v in cells.items()}, truth={"diseases": DISEASES[1:]}, then=["--set=ignore=[Normal heart]"])  # fmt: skip
register("Edema and Oedema, both the same", "twins", lambda cells, film, n: {**cells, "Oedema": cells["Edema"]},
    then=["--label=edema=Edema", "--set=ignore=[Oedema]"])  # fmt: skip
register("labels of a program and of a radiologist", "auto_and_manual", lambda cells, film, n: {
    **{k: v for k, v in cells.items() if k not in NAMES}, **{f"{k}_auto": n % 2 for k in NAMES},
    **{f"{k}_manual": cells[k] for k in NAMES}}, codes=BINARY,
    then=[*(f"--label={d}={EN[d]}_manual" for d in DISEASES),
          f"--set=ignore=[{', '.join(f'{name}_auto' for name in NAMES)}]"])  # fmt: skip


def _readings(place: Place, readers: Sequence[str], agreed: str = "", **case: Any) -> Case:
    """A column for each disease and reader, such as edema_r1; `agreed` is that of the consensus."""
    made, draw, rows = make_films(doubt=False), random.Random(8), []
    place.pictures(made)
    for film in made:
        cells = row(film)
        for disease in DISEASES:
            votes = [draw.randint(0, 1) for _ in readers]
            cells |= {f"{disease}_{name}": vote for name, vote in zip(readers, votes, strict=True)}
            film.findings[disease] = draw.randint(0, 1) if agreed else int(all(votes))
            cells |= {f"{disease}_{agreed}": film.findings[disease]} if agreed else {}
        rows.append(cells)
    place.save(rows)
    return Case(tell_truth(made), **case)


shape("two readings of each film, edema_r1 and edema_r2: only what both see", "double_readings")(
    partial(_readings, readers=("r1", "r2"), then=["--raters=all"]))  # fmt: skip
shape("three readings and a consensus, edema_consensus", "consensus")(partial(_readings, readers=("r1", "r2", "r3"),
    agreed="consensus"))  # fmt: skip


@shape("CheXpert's form: No Finding, 1, -1 and blanks")
def chexpert_form(place: Place) -> Case:
    made = make_films(blank=True)
    place.pictures(made)
    rows = wide(made, codes={1: "1.0", 0: "0.0", -1: "-1.0", None: None})
    place.save([{**cells, "No Finding": "1.0" if n % 9 == 0 else None} for n, cells in enumerate(rows)])
    book = {"1": "positive", "0": "negative", "-1": "uncertain"}
    return Case(tell_truth(made), then=["--set=ignore=[No Finding]"], book=book)


# Languages ----------------------------------------------------------------------------------------------------------
def _translated(place: Place, language: str, odd: Mapping[str, str], **case: Any) -> Case:
    made, words = make_films(blank=True), {**WORDS[language], **odd}
    place.pictures(made)
    place.save(wide(made, words), delimiter=";", encoding="utf-8-sig")
    return Case(tell_truth(made), **case)


for _name, _about, _language, locate_odd, _case in (
    ("french_ris", "a French export: Numéro de patient, face", "fr", {"image": "Nom du fichier",
     "patient": "Numéro de patient", "cardiomegaly": "Cardiomégalie (oui/non)", "view": "Incidence",
     "F": "Féminin", "M": "Masculin"}, {"then": ["--label=cardiomegaly=Cardiomégalie (oui/non)",
     "--column=patient=Numéro de patient"]}),
    ("german_ris", "a German export: Pat.-ID, m/w/d", "de", {"patient": "Pat.-ID", "image": "Bilddatei",
     "sex": "Geschl.", "edema": "Ödem", "pleural_effusion": "Pleuraerguß"}, {"then": ["--column=image=Bilddatei"]}),
    ("spanish_ris", "a Spanish export: Nº Historia, SI and NO", "es", {"patient": "Nº Historia", "yes": "SI",
     "no": "NO", "maybe": "DUDOSO", "F": "Femenino", "M": "Masculino"}, {"book": {"si": "positive"}}),
    ("portuguese_ris", "a Portuguese export: presente and ausente", "pt", {"yes": "presente", "no": "ausente"},
     {"book": {"presente": "positive", "ausente": "negative"}}),
    ("dutch", "a Dutch export: ja, nee, mogelijk", "en", {"yes": "ja", "no": "nee", "maybe": "mogelijk",
     "edema": "Longoedeem", "cardiomegaly": "Cardiomegalie", "consolidation": "Consolidatie",
     "atelectasis": "Atelectase", "pleural_effusion": "Pleuravocht"},
     {"then": [f"--label={d}={name}" for d, name in zip(DISEASES, ("Cardiomegalie", "Longoedeem", "Consolidatie",
      "Atelectase", "Pleuravocht"), strict=True)], "book": {"nee": "negative", "mogelijk": "uncertain"}}),
    ("chinese_words", "Chinese words below English headers", "en", {"yes": "有", "no": "无", "maybe": "可疑", "F": "女",
     "M": "男"}, {"book": {"有": "positive", "无": "negative", "可疑": "uncertain", "女": "F", "男": "M"}}),
):  # fmt: skip
    shape(_about, _name)(partial(_translated, language=_language, odd=locate_odd, **_case))


# Patients, views, splits, ages --------------------------------------------------------------------------------------
register(
    "Patient is the examination; the person is in MRN",
    "patient_is_study",
    lambda cells, film, n: {**cells, "Patient": f"E{n:04d}", "MRN": film.patient},
    then=["--column=patient=MRN"],
)
register("only the patient's name", "patient_names",
    lambda cells, film, n: {"Patient name" if k == "Patient" else k: f"DOE^{film.patient[1:]}" if k == "Patient" else v
    for k, v in cells.items()}, then=["--column=patient=Patient name"])  # fmt: skip
register("patient numbers that begin with the date of birth", "born_numbers",
    _put("Patient", lambda film, n: f"19{int(film.patient[1:]) % 90 + 10}0203-{film.patient[1:]}"))  # fmt: skip
register("p1001 and P1001 are one patient", "patient_capitals",
    _put("Patient", lambda film, n: film.patient.lower() if n % 2 else film.patient),
    repaired={"change": _put("Patient", lambda film, n: film.patient)})  # fmt: skip
register("a folder for each view, which no column tells", "view_folders", lambda cells, film, n: {
    k: v for k, v in cells.items() if k != "View"}, where=lambda film: f"images/{film.view.upper()}/{film.file}",
    then=[r"--set=from_path=^(?P<view>\w+)/"])  # fmt: skip
register("views in the description of the series: CHEST PA, CHEST LAT", "series_views", lambda cells, film, n: {
    "Series Description" if k == "View" else k: {"PA": "CHEST PA", "AP": "CHEST AP PORT", "LATERAL": "CHEST LAT"}[v]
    if k == "View" else v for k, v in cells.items()}, then=["--column=view=Series Description"],
    book={"chest pa": "pa", "chest ap port": "ap", "chest lat": "lateral"})  # fmt: skip
register("a column each for train, val and test, 0 and 1", "split_columns", lambda cells, film, n: {
    **{k: v for k, v in cells.items() if k != "Split"}, "train": int(film.split == "train"), "val": 0,
    "test": int(film.split == "test")}, then=["--column=split=test", "--set=ignore=[train, val]"],
    book={"1": "test", "0": "train"})  # fmt: skip
register("folds, of which -1 is the test set", "test_fold", lambda cells, film, n: {
    **{k: v for k, v in cells.items() if k != "Split"}, "fold": -1 if film.split == "test" else n % 3},
    then=["--column=split=fold"], book={"-1": "test", "0": "train", "1": "train", "2": "train"})  # fmt: skip
register("a year, of which the last is for testing as the protocol says", "last_year", lambda cells, film, n: {
    **{k: v for k, v in cells.items() if k != "Split"}, "Year": 2025 if film.split == "test" else 2021 + n % 4},
    then=["--column=split=Year"], book={"2025": "test", **{str(y): "train" for y in range(2021, 2025)}})  # fmt: skip
register("train or test is in the folder only", "split_folders", lambda cells, film, n: {
    k: v for k, v in cells.items() if k != "Split"}, where=lambda film: f"images/{film.split}/{film.file}",
    then=[r"--set=from_path=^(?P<split>\w+)/"])  # fmt: skip
register("sexes 1, 2 and 9 as ISO 5218", "iso_sex", _put("Sex", {"M": "1", "F": "2"}), book={"1": "M", "2": "F"})
register("sexes in German words", "german_sex", _put("Sex", {"F": "weiblich", "M": "männlich"}))
register("the year of birth in place of ages", "birth_years", lambda cells, film, n: {
    "Year of birth" if k == "Age" else k: 2026 - film.age if k == "Age" else v for k, v in cells.items()},
    roles=WITHOUT_AGE)  # fmt: skip
register("ages in bands, 60-69", "age_bands", _put("Age", lambda film, n: f"{film.age // 10 * 10}-{film.age // 10}9"),
    truth={"age": lambda film: None}, then=["--set=ignore=[Age]"])  # fmt: skip
register(
    "999 for an unknown age",
    "age_999",
    _put("Age", lambda film, n: 999 if n % 5 == 0 else film.age),
    book={"999": "missing"},
    truth={"age": lambda film: None if int(film.name[-3:]) % 5 == 0 else film.age},
)
register("ages in months, 756M", "age_months", _put("Age", lambda film, n: f"{film.age * 12}M"))
register("films of a CT among them, by the modality", "modality_ct", films_with={"doubt": False, "lateral": False},
    change=add_cells(Modality="DX"), roles=WITHOUT_VIEW)  # fmt: skip


@shape("rows of CT slices in the table, of which the folder has pictures")
def ct_rows(place: Place) -> Case:
    made = make_films(doubt=False)
    place.pictures(made)
    place.save([{**cells, "Modality": "CT" if n % 4 == 0 else "CR"} for n, cells in enumerate(wide(made))])
    kept = [film for n, film in enumerate(made) if n % 4]
    return Case(tell_truth(kept), then=["--code=Modality:ct=drop", "--code=Modality:cr=keep"])


# What a row is ------------------------------------------------------------------------------------------------------
@shape("REDCap's repeated instrument: a row of the person, then a row for each film")
def repeated_instrument(place: Place) -> Case:
    made = make_films()
    place.pictures(made)
    rows: list[Row] = []
    for n, (film, cells) in enumerate(zip(made, wide(made), strict=True)):
        if n % 2 == 0:
            rows.append({**dict.fromkeys(cells), "Patient": film.patient, "Sex": film.sex, "Age": film.age})
        rows.append({**cells, "Sex": None, "Age": None})
    place.save([{"record_id": cells.pop("Patient"), **cells} for cells in rows])
    truth = tell_truth(made, roles=("view", "split"))
    return Case(truth, then=["--column=patient=record_id", "--set=rows.unnamed=drop"])


def _one_per_box(place: Place) -> Case:
    made, rows = make_films(doubt=False), []
    place.pictures(made)
    for cells in wide(made, codes=BINARY):
        present = [name for name in NAMES if cells[name]]
        rows += [{**cells, **dict.fromkeys(NAMES, 0), name: 1} for name in present] or [cells]
    place.save(rows)
    return Case(tell_truth(made), repair=lambda: place.save(wide(made, codes=BINARY)))


shape("a row for each box, with a 1 for its disease and zeros beside it", "boxes")(_one_per_box)


def _omop(place: Place) -> Case:
    made = make_films(doubt=False)
    place.pictures(made)
    value = {1: "Present", 0: "Absent"}
    place.save([{"person_id": film.patient, "image_file": film.file, "measurement_id": n * 5 + m,
        "concept_name": EN[d], "value_as_concept_name": value[film.findings[d] or 0]}
        for n, film in enumerate(made) for m, d in enumerate(DISEASES)])  # fmt: skip
    then = ["--column=patient=person_id", "--column=finding=concept_name", "--column=value=value_as_concept_name",
        "--column=reader=none", "--column=image=image_file"]  # fmt: skip
    return Case(tell_truth(made, roles=()), then=then)


shape("OMOP's measurements, a row for each concept", "omop")(_omop)


@shape("a number for each class in one column")
def class_numbers(place: Place) -> Case:
    made, draw = make_films(doubt=False), random.Random(5)
    place.pictures(made)
    rows = []
    for film in made:
        number = draw.randint(0, 5)
        film.findings = {d: int(n + 1 == number) for n, d in enumerate(DISEASES)}
        rows.append({**row(film), "class_id": number})
    place.save(rows)
    book = {"0": "normal", **{str(n + 1): d for n, d in enumerate(DISEASES)}}
    return Case(tell_truth(made), first=["--blank=negative"], then=["--column=findings=class_id"], book=book)


@shape("the findings as digits: 01010")
def digits(place: Place) -> Case:
    made = make_films(doubt=False)
    place.pictures(made)
    place.save([{**row(film), "labels": "L" + "".join(str(film.findings[d]) for d in DISEASES)} for film in made])
    return Case(tell_truth(made), repair=lambda: place.save(wide(made, codes=BINARY)))


@shape("findings that are present, between commas; normal otherwise")
def comma_list(place: Place) -> Case:
    made = make_films(doubt=False)
    place.pictures(made)
    place.save(
        [
            {
                **row(film),
                "Diagnosis": ", ".join(list_terms(film, {**EN, "deny": ""})).replace(", ,", ",")
                if not any(film.findings.values())
                else ", ".join(EN[d] for d in DISEASES if film.findings[d]),
            }
            for film in made
        ]
    )
    return Case(tell_truth(made), first=["--blank=negative"])  # fmt: skip


@shape("train and test in two files of one folder")
def file_per_split(place: Place) -> Case:
    made = make_films()
    place.pictures(made)
    rows = wide(made)
    bare = [{k: v for k, v in cells.items() if k != "Split"} for cells in rows]
    for split in ("train", "test"):
        chosen = [cells for cells, film in zip(bare, made, strict=True) if film.split == split]
        place.save(chosen, f"labels/{split}.csv")

    def repair() -> None:
        for split in ("train", "test"):
            place.save([cells for cells in rows if cells["Split"] == split], f"labels/{split}.csv")

    return Case(tell_truth(made), "labels", then=["--set=ignore=[file_name]"], repair=repair)


def _repaired(name: str, about: str, text: Any, file: str = "labels.csv") -> None:
    """A file that has to be converted."""

    def make(place: Place) -> Case:
        made = make_films(doubt=False)
        place.pictures(made)
        write_text(place.folder / file, text(made))
        return Case(tell_truth(made), file, repair=lambda: place.save(wide(made), file))

    shape(about, name)(make)


_repaired("hl7", "HL7: OBX lines without a header", lambda made: "\n".join(
    f"MSH|^~\\&|RIS|H|||20260101||ORU^R01|{n}|P|2.5\nPID|1||{film.patient}\nOBX|1|ST|{EN['edema']}||"
    f"{'Y' if film.findings['edema'] else 'N'}||||||F" for n, film in enumerate(made)))  # fmt: skip
_repaired("fhir_bundle", "a FHIR bundle of reports", lambda made: json.dumps({"resourceType": "Bundle", "entry": [
    {"resource": {"resourceType": "DiagnosticReport", "subject": {"reference": film.patient}, "media":
    [{"link": {"display": film.file}}], "conclusionCode": [{"text": EN[d]} for d in DISEASES if film.findings[d]]}}
    for film in made]}), "labels.json")  # fmt: skip
_repaired("transposed", "a column for each film", lambda made: "\n".join(
    ",".join([name, *(str(cells[name]) for cells in wide(made))]) for name in wide(made)[0]))  # fmt: skip
_repaired("apostrophes", "Excel's apostrophe in front of names and numbers", lambda made: format_rows(
    [{**cells, "File": f"'{cells['File']}", "Patient": f"'{cells['Patient']}"} for cells in wide(made)]))  # fmt: skip


@shape("comments with # above the header, CRLF and a mark of UTF-8")
def commented(place: Place) -> Case:
    made = make_films()
    place.pictures(made)
    text = "# exported 2026-01-05\r\n# by PACS\r\n" + format_rows(wide(made), newline="\r\n")
    write_text(place.folder / "labels.csv", text, "utf-8-sig")
    return Case(tell_truth(made), then=["--set=header_row=3"])


@shape("left and right below a merged header")
def merged_sides(place: Place) -> Case:
    made, draw = make_films(doubt=False), random.Random(4)
    place.pictures(made)
    rows = [[film.file, film.patient, EN[film.view], film.split, film.sex, film.age,
        *(film.findings[d] for d in DISEASES[:4]),
        *(draw.choice([(1, 0), (0, 1)]) if film.findings["pleural_effusion"] else (0, 0))]
        for film in made]  # fmt: skip
    top = ["File", "Patient", "View", "Split", "Sex", "Age", *NAMES[:4], "Pleural Effusion", None]
    write_sheets(place.folder / "labels.xlsx", {"Data": [top, [*[None] * 10, "left", "right"], *rows]}, ("K1:L1",))
    named = [*top[:10], "Left pleural effusion", "Right pleural effusion"]
    repair = lambda: write_sheets(place.folder / "labels.xlsx", {"Data": [named, *rows]})  # noqa: E731
    return Case(tell_truth(made), "labels.xlsx", repair=repair)


@shape("MIMIC's folders: p10/p1000/s5000/ID.jpg, told by subject_id, study_id and dicom_id")
def mimic_form(place: Place) -> Case:
    where = lambda film: f"images/p{film.patient[1:3]}/p{film.patient[1:]}/s{film.study[1:]}/{film.name}.jpg"  # noqa: E731
    made = make_films()
    place.pictures(made, where)
    rows = wide(made, codes={1: "1.0", 0: "0.0", -1: "-1.0", None: None}, roles=("view", "split"))
    place.save([{"dicom_id": film.name, "subject_id": film.patient[1:], "study_id": film.study[1:],
        "ViewPosition": cells.pop("View"), **{k: v for k, v in cells.items() if k not in ("File", "Patient")}}
        for film, cells in zip(made, rows, strict=True)])  # fmt: skip
    book = {"1": "positive", "0": "negative", "-1": "uncertain"}
    return Case(tell_truth(made, where, ("view", "split")), book=book)


@shape("folders of split, finding and patient, no table")
def kaggle_folders(place: Place) -> Case:
    made, draw = make_films(doubt=False, lateral=False), random.Random(3)
    for film in made:
        present = draw.choice([None, *DISEASES])
        film.findings = {d: int(d == present) for d in DISEASES}

    def where(film: Film) -> str:
        finding = next((d for d in DISEASES if film.findings[d]), "normal")
        return f"images/{film.split}/{finding.upper()}/{film.patient}/{film.file}"

    place.pictures(made, where)
    then = [r"--set=from_path=^(?P<split>\w+)/(?P<finding>\w+)/(?P<patient>P\d+)/"]
    return Case(tell_truth(made, where, ("split",)), None, first=["--blank=negative"], then=then)


#: What became of those that were not right when the command first saw them; the YAML of a wrong one was written.
FIRST = {
    "broken_headers": "120 labels lost in silence",
    "double_readings": "80 labels wrong in silence",
    "consensus": "46 labels wrong in silence",
    "patient_capitals": "patients wrong in silence",
    "view_folders": "laterals used in silence",
    "percent_signs": "refused: the cells are no numbers",
    "french_ris": "refused: the patient's column",
    "series_views": "refused: the column filters rows, and has views",
}


def format_results(outcomes: Sequence[Outcome]) -> str:
    """A Markdown table of the first result and of what becomes of each now."""
    lines = ["| export | at first | now | calls | informed |", "|---|---|---|---|---|"]
    for each in outcomes:
        now = "right" if each.right else "refused" if each.calls is None else f"{each.wrong + each.missing} wrong"
        lines.append(
            f"| {each.about} | {FIRST.get(each.name, 'right')} | {now} | {each.calls or '-'} | {each.informed or '-'} |"
        )
    states = [FIRST.get(each.name, "right").partition(":")[0].rpartition(" in ")[-1] for each in outcomes]
    lines += [
        "",
        f"{len(outcomes)} exports. At first {states.count('right')} right, {states.count('refused')} refused, "
        f"{states.count('silence')} wrong in silence; now {sum(each.right for each in outcomes)} right, "
        f"{sum(each.calls is None for each in outcomes)} refused, {sum(each.wrong > 0 for each in outcomes)} wrong.",
    ]
    return "\n".join(lines)

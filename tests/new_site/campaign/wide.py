"""Hospitals with a column for each disease: languages, codes, formats, headers, and what surrounds the table."""

from __future__ import annotations

import random
from functools import partial
from typing import Any

from chestfed.samples.tables import WORDS, format_rows, write_sheets, write_text
from tests.new_site.campaign.maker import (
    DISEASES,
    EN,
    NAMES,
    Case,
    Film,
    Place,
    Row,
    changed,
    columns_of,
    films,
    renamed,
    row,
    shape,
    tell_truth,
    wide,
    words_of,
)

BLANK = {"blank": True}
#: Language -> encoding and delimiter of its table.
_LANGUAGES = {
    **{"en": ("ascii", "|"), "de": ("latin-1", ";"), "es": ("utf-8-sig", ","), "pt": ("cp1252", ";")},
    **{"fr": ("utf-16", "\t"), "ja": ("shift_jis", ","), "zh": ("gb18030", ","), "tw": ("big5", ",")},
    **{"ko": ("euc-kr", ","), "pl": ("cp1250", ";"), "cs": ("cp1250", ";"), "ru": ("cp1251", ";")},
    **{"el": ("cp1253", ";"), "tr": ("cp1254", ";"), "it": ("mac_roman", ",")},
}


def _language(place: Place, language: str, encoding: str, delimiter: str) -> Case:
    made, words = films(blank=True), WORDS[language]
    place.pictures(made)
    place.save(wide(made, words), delimiter=delimiter, encoding=encoding)
    known = language in WORDS["known"]
    then = [*([] if known else columns_of(words)), f"--set=encoding={encoding}"]
    return Case(tell_truth(made), then=then, book={} if known else words_of(words))


for _name, (_encoding, _delimiter) in _LANGUAGES.items():
    _make = partial(_language, language=_name, encoding=_encoding, delimiter=_delimiter)
    shape(f"columns and words in '{_name}', {_encoding}", f"language_{_name}")(_make)

_YES = {"yes": "positive", "no": "negative"}
#: Name -> what is odd, the cells for 1, 0, -1, None, the file, and the code book's meanings.
_CODES: dict[str, tuple[str, dict[int | None, Any], str, dict[str, str]]] = {
    "plain": ("1, 0 and empty cells", {1: 1, 0: 0, None: None}, "labels.csv", {}),
    "zeros_and_ones": ("1, 0, -1 and empty cells", {1: 1, 0: 0, -1: -1, None: None}, "labels.csv",
        {"1": "positive", "0": "negative", "-1": "uncertain"}),
    "gzipped": ("a gzipped csv", {1: "1", 0: "0"}, "labels.csv.gz", {}),
    "tabs_gzipped": ("a gzipped tsv with Y, N and ?", {1: "Y", 0: "N", -1: "?"}, "labels.tsv.gz",
        {"y": "positive", "n": "negative", "?": "uncertain"}),
    "parquet_floats": ("parquet, 1.0, 0.0, -1.0", {1: 1.0, 0: 0.0, -1: -1.0, None: None}, "labels.parquet",
        {"1": "positive", "0": "negative", "-1": "uncertain"}),
    "parquet_booleans": ("parquet with booleans", {1: True, 0: False, None: None}, "labels.parquet", {}),
    "feather": ("feather with booleans", {1: True, 0: False, None: None}, "labels.feather", {}),
    "json_objects": ("a list of JSON objects", {1: True, 0: False, None: None}, "labels.json", {}),
    "json_lines": ("JSON lines", {1: "yes", 0: "no", None: None}, "labels.jsonl", {}),
    "spss": ("1 is yes and 2 is no", {1: 1, 0: 2}, "labels.csv", {"1": "positive", "2": "negative"}),
    "absent_first": ("1 is absent and 2 is present", {1: 2, 0: 1}, "labels.csv", {"2": "positive", "1": "negative"}),
    "possible_between": ("0 absent, 1 possible, 2 present", {1: 2, 0: 0, -1: 1}, "labels.csv",
        {"2": "positive", "0": "negative", "1": "uncertain"}),
    "not_assessed": ("0, 1, -1 and 99, both not assessed", {1: 1, 0: 0, -1: 99, None: -1}, "labels.csv",
        {"1": "positive", "0": "negative", "-1": "missing", "99": "missing"}),
    "eights": ("888 unclear, 999 missing", {1: 1, 0: 0, -1: 888, None: 999}, "labels.csv",
        {"1": "positive", "0": "negative", "888": "uncertain", "999": "missing"}),
    "two_is_doubt": ("0, 1 and 2 for in doubt", {1: 1, 0: 0, -1: 2}, "labels.csv",
        {"1": "positive", "0": "negative", "2": "uncertain"}),
    "nine_is_blank": ("9 for not assessed", {1: 1, 0: 0, None: 9}, "labels.csv",
        {"1": "positive", "0": "negative", "9": "blank"}),
    "crosses": ("x, or nothing", {1: "x", 0: None}, "labels.xlsx", {"x": "positive"}),
    "signs": ("+, - and +/-", {1: "+", 0: "-", -1: "+/-"}, "labels.csv",
        {"+": "positive", "-": "negative", "+/-": "uncertain"}),
    "letters": ("P, A and E", {1: "P", 0: "A", -1: "E"}, "labels.csv",
        {"p": "positive", "a": "negative", "e": "uncertain"}),
    "letters_tn": ("T and N", {1: "T", 0: "N"}, "labels.csv", {"t": "positive", "n": "negative"}),
    "letters_on": ("O and N, oui and non", {1: "O", 0: "N"}, "labels.csv", {"o": "positive", "n": "negative"}),
    "letters_eh": ("E and H, evet and hayır", {1: "E", 0: "H"}, "labels.csv", {"e": "positive", "h": "negative"}),
    "letters_ke": ("K and E, kyllä and ei", {1: "K", 0: "E"}, "labels.csv", {"k": "positive", "e": "negative"}),
    "excel_german": ("WAHR and FALSCH", {1: "WAHR", 0: "FALSCH"}, "labels.csv", {}),
    "excel_spanish": ("VERDADERO and FALSO", {1: "VERDADERO", 0: "FALSO"}, "labels.csv", {}),
    "grades_words": ("mild, moderate, severe, none", {1: "moderate", 0: "none", -1: "mild"}, "labels.csv",
        {"moderate": "positive", "none": "negative", "mild": "uncertain"}),
    "normal_abnormal": ("normal and abnormal", {1: "abnormal", 0: "normal"}, "labels.csv",
        {"abnormal": "positive", "normal": "negative"}),
    "votes": ("shares of votes, 2/3", {1: "3/3", 0: "0/3", -1: "1/3"}, "labels.csv",
        {"3/3": "positive", "0/3": "negative", "1/3": "uncertain"}),
    "decimal_comma": ("1,0 and 0,0", {1: "1,0", 0: "0,0"}, "labels.csv", {}),
    "spaces": ("blanks around, in capitals", {1: "  YES ", 0: " No", -1: "Uncertain  "}, "labels.csv", {}),
    "marks": ("check marks and crosses", {1: "✓", 0: "✗"}, "labels.csv", {"✓": "positive", "✗": "negative"}),
    "stata": ("Stata with numbers", {1: 1, 0: 0}, "labels.dta", {}),
}  # fmt: skip
for _name, (_about, _codes, _file, _book) in _CODES.items():
    _how = {"delimiter": ";"} if _name == "decimal_comma" else {}
    _given = {"blank": None in _codes, "doubt": -1 in _codes}
    _then = ["--blank=negative"] if _name == "crosses" else []
    changed(_about, _name, films_with=_given, codes=_codes, file=_file, book=_book, first=_then, how=_how)

# Headers ----------------------------------------------------------------------------------------------------------
for _name, _about, _rename in (
    ("suffixes", "columns with a suffix, edema_gt", lambda name: f"{name.lower().replace(' ', '_')}_gt"),
    ("prefixes", "columns with a prefix, final_edema", lambda name: f"final_{name.lower().replace(' ', '_')}"),
    ("redcap_raw", "REDCap, findings___edema", lambda name: f"findings___{name.lower().replace(' ', '_')}"),
    ("redcap_labels", "REDCap with labels, Findings (choice=Edema)", lambda name: f"Findings (choice={name})"),
    ("counted", "columns called n_edema", lambda name: f"n_{name.lower()}"),
    ("percent_sign", "columns with a number, 3. Edema", lambda name: f"{NAMES.index(name) + 1}. {name}"),
):
    changed(_about, _name, renamed(_rename), codes={1: 1, 0: 0})
changed("codes in the headers, Edema (0=yes, 1=no)", "codes_in_headers", renamed(lambda name: f"{name} (0=yes, 1=no)"),
    codes={1: 0, 0: 1}, then=[*(f"--label={d}={EN[d]} (0=yes, 1=no)" for d in DISEASES), "--code=0=positive",
    "--code=1=negative"])  # fmt: skip


def _add(**cells: Any) -> Any:
    """A change that adds columns: values, or functions of the film and its number."""
    return lambda old, film, n: {**old, **{k: v(film, n) if callable(v) else v for k, v in cells.items()}}


def _both(cells: Row, film: Film, n: int) -> Row:
    effusion = film.said["pleural_effusion"]
    return {**cells, "Effusion": "no" if effusion else "yes"}


changed("two columns of one disease that contradict each other", "contradicting_columns", _both,
    then=["--label=pleural_effusion=Pleural Effusion"])  # fmt: skip


@shape("effusion left and right in two columns")
def sides(place: Place) -> Case:
    made, draw = films(doubt=False), random.Random(2)
    place.pictures(made)
    rows = wide(made)
    for cells in rows:
        said = cells.pop("Pleural Effusion")
        left = said == "yes" and draw.random() < 0.5
        cells["Left pleural effusion"] = "yes" if left else "no"
        cells["Right pleural effusion"] = "yes" if said == "yes" and not left else "no"
    place.save(rows)
    return Case(tell_truth(made))


@shape("columns that deny a disease, and ones that only resemble it")
def decoys(place: Place) -> Case:
    made, draw = films(), random.Random(3)
    place.pictures(made)
    rows = wide(made)
    for cells, film in zip(rows, made, strict=True):
        del cells["Edema"]
        cells["no_edema"] = "no" if film.said["edema"] == 1 else "yes"
        for name in ("Pericardial effusion", "Prior atelectasis", "Subcutaneous emphysema", "Edema confidence"):
            cells[name] = draw.choice(["yes", "no"])
    place.save(rows)
    return Case(
        tell_truth(made, diseases=[d for d in DISEASES if d != "edema"]), then=["--label=atelectasis=Atelectasis"]
    )


@shape("all five columns deny their disease")
def negated(place: Place) -> Case:
    made = films(doubt=False)
    place.pictures(made)
    rows = wide(made, codes={1: 0, 0: 1})
    place.save([{f"no_{k.lower()}" if k in NAMES else k: v for k, v in cells.items()} for cells in rows])
    then = [f"--label={d}=no_{EN[d].lower()}" for d in DISEASES] + ["--code=1=negative", "--code=0=positive"]
    return Case(tell_truth(made), then=then)


@shape("labels of three annotators in columns, cardiomegaly_reader1..3")
def votes_in_columns(place: Place) -> Case:
    made, draw = films(doubt=False), random.Random(6)
    place.pictures(made)
    rows = []
    for film in made:
        cells = row(film)
        for disease in DISEASES:
            votes = [draw.randint(0, 1) for _ in range(3)]
            film.said[disease] = int(sum(votes) > 1)
            cells |= {f"{disease}_reader{n + 1}": vote for n, vote in enumerate(votes)}
        rows.append(cells)
    place.save(rows)
    return Case(tell_truth(made))


changed("two of the five diseases only", "two_diseases", lambda cells, film, n: {k: v for k, v in cells.items()
    if k not in NAMES or k in ("Edema", "Pleural Effusion")},
    truth={"diseases": ["edema", "pleural_effusion"]}, films_with={})  # fmt: skip
changed("every film has the disease", "one_class", lambda cells, film, n: film.said.update(edema=1) or {**cells, "Edema": "yes"},
    then=["--set=one_class=[edema]"])  # fmt: skip


@shape("severity 0 to 3 in place of yes and no")
def grades(place: Place) -> Case:
    made, draw = films(doubt=False), random.Random(1)
    place.pictures(made)
    rows = wide(made, codes={1: 1, 0: 0})
    for cells in rows:
        cells.update({name: draw.choice([1, 2, 3]) for name in NAMES if cells[name]})
    place.save(rows)
    return Case(tell_truth(made), book={"0": "negative", "1": "positive", "2": "positive", "3": "positive"})


def _scores(cells: Row, film: Film, n: int, whole: float = 1) -> Row:
    draw = random.Random(n)
    scores = {EN[d]: draw.uniform(0.5, 1) if film.said[d] else draw.uniform(0, 0.49) for d in DISEASES}
    return {**cells, **{name: f"{score * whole:.{3 if whole == 1 else 1}f}" for name, score in scores.items()}}


changed("probabilities of a network in place of labels", "scores", _scores, then=["--set=threshold=0.5"])
changed("percent in place of labels", "percent", partial(_scores, whole=100), then=["--set=threshold=50"])

# Splits, views, sexes, ages, patients -------------------------------------------------------------------------------
_IS_TEST = {"1": "test", "0": "train"}


def _split(name: str, words: dict[str, Any]) -> Any:
    return lambda cells, film, n: {
        name if k == "Split" else k: words[film.split] if k == "Split" else v for k, v in cells.items()
    }


for _name, _about, _column, _words, _book in (
    ("is_test", "the split is is_test, 0 and 1", "is_test", {"train": 0, "test": 1}, _IS_TEST),
    ("is_train", "the split is train, 0 and 1", "train", {"train": 1, "test": 0}, {"1": "train", "0": "test"}),
    ("cohort", "a cohort: development, external validation", "cohort",
     {"train": "development", "test": "external validation"}, {"development": "train", "external validation": "test"}),
    ("numbered_sets", "sets 1 and 3", "set", {"train": 1, "test": 3}, {"1": "train", "3": "test"}),
    ("own_sets", "words for the sets that nobody knows", "Split", {"train": "Menge A", "test": "Menge B"},
     {"menge a": "train", "menge b": "test"}),
    ("usage", "the split in a column called usage", "usage", {"train": "train", "test": "test"}, {}),
):  # fmt: skip
    _then = [f"--column=split={_column}"] if _name == "usage" else []
    changed(_about, _name, _split(_column, _words), book=_book, then=_then)
changed("five folds beside no split", "folds", _add(fold=lambda film, n: int(film.patient[1:]) % 5), told=("view", "sex", "age"),
    then=["--column=split=none"])  # fmt: skip
changed("a split and folds beside it", "split_and_folds", _add(fold=lambda film, n: int(film.patient[1:]) % 5))


def _view(words: dict[str, str]) -> Any:
    return lambda cells, film, n: {**cells, "View": words[film.view]}


changed("views as numbers 1, 2, 3", "numbered_views", _view({"pa": "1", "ap": "2", "lateral": "3"}),
    book={"1": "pa", "2": "ap", "3": "lateral"})  # fmt: skip
changed("views S, L and D, stehend, liegend, dorsoventral", "letter_views", _view({"pa": "S", "ap": "L", "lateral": "Q"}),
    book={"s": "pa", "l": "ap", "q": "lateral"})  # fmt: skip
changed("views in descriptions: Thorax p.a. stehend", "described_views",
    _view({"pa": "Thorax p.a. stehend", "ap": "Thorax liegend", "lateral": "Thorax seitlich links"}))  # fmt: skip
changed("odd view words: X-table lateral, quer, RLAT", "own_views", lambda cells, film, n: {**cells, "View":
    {"LATERAL": ["RLAT", "X-table lateral"], "PA": ["dv", "PA"], "AP": ["quer", "AP"]}[cells["View"]][n % 4 // 2]},
    book={"rlat": "lateral", "x-table lateral": "lateral", "dv": "pa", "quer": "ap"})  # fmt: skip


@shape("a third of the views empty or unknown: these films may be laterals")
def some_views(place: Place) -> Case:
    made = films()
    place.pictures(made)
    rows = wide(made)
    for n, cells in enumerate(rows):
        cells["View"] = (None, "unknown", cells["View"])[n % 3]
    place.save(rows)
    return Case(tell_truth([film for n, film in enumerate(made) if n % 3 == 2]))


for _name, _about, _words, _book in (
    ("sex_wm", "sexes w and m", {"F": "w", "M": "m"}, {}),
    ("sex_hm", "sexes M and H, mujer and hombre", {"F": "M", "M": "H"}, {"m": "F", "h": "M"}),
    ("sex_vm", "sexes V and M, vrouw and man", {"F": "V", "M": "M"}, {"v": "F", "m": "M"}),
    ("sex_numbers", "sexes 0 and 1", {"F": 0, "M": 1}, {"0": "F", "1": "M"}),
):
    changed(_about, _name, lambda cells, film, n, words=_words: {**cells, "Sex": words[film.sex]}, book=_book)


@shape("ages as 063Y, with words, and 85 or more")
def worded_ages(place: Place) -> Case:
    made = films()
    place.pictures(made)
    rows = wide(made)
    for film, cells in zip(made, rows, strict=True):
        film.age = min(film.age, 85)
        cells["Age"] = "85 or more" if film.age == 85 else f"{film.age:03d}Y" if film.age % 2 else f"{film.age} years"
    place.save(rows)
    return Case(tell_truth(made), book={"85 or more": "85"})


changed("dates of birth and of the film in place of ages", "dates", _add(Born="1950-02-03",
    **{"Study date": lambda film, n: f"2026-01-{n % 28 + 1:02d}"}), told=("view", "split", "sex"), file="labels.xlsx")  # fmt: skip
changed("exam dates in a column called Patient", "dates_as_patients", lambda cells, film, n: {"Code": film.patient, **cells,
    "Patient": f"2026-0{n % 9 + 1}-1{n % 7}"}, then=["--column=patient=Code"])  # fmt: skip
changed("nothing but file, patient and labels", "bare", told=(), films_with={"lateral": False})
changed("another column groups the films as the patient's does", "two_patient_columns",
    lambda cells, film, n: {"MRN": f"{7 * int(film.patient[1:]):08d}", **cells})  # fmt: skip
changed("a patient number that no name of a column tells", "hidden_patients", lambda cells, film, n: {"K1": film.patient,
    **{k: v for k, v in cells.items() if k != "Patient"}}, then=["--column=patient=K1"])  # fmt: skip


@shape("two merged hospitals that number their patients alike")
def two_sites(place: Place) -> Case:
    made = films()
    place.pictures(made)
    rows = wide(made)
    for n, (film, cells) in enumerate(zip(made, rows, strict=True)):
        cells |= {"Site": "A" if n < 18 else "B", "Patient": f"{int(film.patient[1:]) % 9}"}
    place.save(rows)
    return Case(tell_truth(made), then=["--column=site=Site"])


def _filtered(name: str, about: str, column: str, kept: str, dropped: str) -> None:
    def make(place: Place) -> Case:
        made = films()
        place.pictures(made)
        rows = [{**cells, column: dropped if n % 4 == 0 else kept} for n, cells in enumerate(wide(made))]
        place.save(rows)
        book = {kept.lower(): "keep", dropped.lower(): "drop"}
        return Case(tell_truth([film for n, film in enumerate(made) if n % 4]), book=book)

    shape(about, name)(make)


_filtered("body_parts", "films of the abdomen among them", "BodyPartExamined", "CHEST", "ABDOMEN")
_filtered("series", "bone-suppressed copies among them", "Series", "original", "bone suppressed")
_filtered("intents", "films for processing among them", "Presentation Intent", "FOR PRESENTATION", "FOR PROCESSING")
_filtered("preliminary", "preliminary reports among them", "Report status", "final", "preliminary")
changed("a column of the modality, CR and DX", "modalities", _add(Modality=lambda film, n: ("CR", "DX")[n % 2]))


# What surrounds the table ---------------------------------------------------------------------------------------------
def _sheets(place: Place, sheets: dict[str, list[list[Any]]], merged: tuple[str, ...] = ()) -> None:
    write_sheets(place.folder / "labels.xlsx", sheets, merged)


def _cells(rows: list[Row]) -> list[list[Any]]:
    return [list(rows[0]), *(list(cells.values()) for cells in rows)]


@shape("cover sheet, merged title, header in row 4")
def workbook_with_titles(place: Place) -> Case:
    made = films()
    place.pictures(made)
    title = [["Chest films, St. Anne", None, None], ["as of 2026-10-01", None, None], []]
    _sheets(place, {"Cover": [["Department of Radiology"]], "Labels": [*title, *_cells(wide(made))]})
    return Case(tell_truth(made), "labels.xlsx", then=["--set=sheet=Labels", "--set=header_row=4"])


@shape("a sheet for each year")
def sheets_per_year(place: Place) -> Case:
    made = films()
    place.pictures(made)
    rows = wide(made)
    _sheets(
        place, {"2023": _cells(rows[:14]), "2024": _cells(rows[14:25]), "2025": _cells(rows[25:]), "Notes": [["x"]]}
    )
    return Case(tell_truth(made), "labels.xlsx")


@shape("a title merged over the columns above the header, and a row of groups")
def merged_groups(place: Place) -> Case:
    made = films()
    place.pictures(made)
    groups = ["Identification", None, "Film", None, "Person", None, "Findings", *[None] * 4]
    _sheets(place, {"Data": [groups, *_cells(wide(made))]}, ("A1:B1", "C1:D1", "E1:F1", "G1:K1"))
    return Case(tell_truth(made), "labels.xlsx", then=["--set=header_row=2"])


@shape("the patient's cell is merged over his films")
def merged_patients(place: Place) -> Case:
    made = films()
    place.pictures(made)
    rows = wide(made)
    for first, second in zip(rows[::2], rows[1::2], strict=True):
        second["Patient"] = None if second["Patient"] == first["Patient"] else second["Patient"]
    _sheets(place, {"Data": _cells(rows)}, tuple(f"B{n}:B{n + 1}" for n in range(2, len(rows) + 2, 2)))
    return Case(tell_truth(made), "labels.xlsx", repair=lambda: _sheets(place, {"Data": _cells(wide(made))}))


def _text(name: str, about: str, before: str = "", after: str = "", repair: bool = False, **case: Any) -> None:
    def make(place: Place) -> Case:
        made = films()
        place.pictures(made)
        text = format_rows(wide(made), ";" if "sep=" in before else ",")
        write_text(place.folder / "labels.csv", before + text + after)
        fix = (lambda: place.save(wide(made))) if repair else None
        return Case(tell_truth(made), repair=fix, **case)

    shape(about, name)(make)


_text(
    "preamble",
    "three lines of text above the header of a csv",
    "PACS export\nSite: St. Anne\n\n",
    then=["--set=header_row=4"],
)
_text("separator_line", "Excel's first line sep=;", "sep=;\n")
_text("footer", "a line 'End of export' below the table", after="End of export\n", repair=True)


@shape("a row of totals at the end of an xlsx")
def totals(place: Place) -> Case:
    made = films(doubt=False)
    place.pictures(made)
    rows = wide(made)
    place.save([*rows, {**dict.fromkeys(rows[0]), "File": "Total", "Edema": 12}], "labels.xlsx")
    return Case(tell_truth(made), "labels.xlsx", then=["--set=rows.total=drop"])


changed("reports with line breaks, quotes and delimiters beside the labels", "reports_beside",
    lambda cells, film, n: {"Report": f'Film {n}:\n"no, edema"; see\nabove', **cells})  # fmt: skip


@shape("two columns with the same name, two without one, and empty ones")
def odd_columns(place: Place) -> Case:
    made = films()
    place.pictures(made)
    text = format_rows(wide(made)).splitlines()
    lines = [f"{text[0]},Remark,Remark,,", *(f"{line},a,b,," for line in text[1:])]
    write_text(place.folder / "labels.csv", "\n".join(lines) + "\n")
    return Case(tell_truth(made))


@shape("effusion right in a second column without a name")
def nameless_side(place: Place) -> Case:
    made = films(doubt=False)
    place.pictures(made)
    text = format_rows(wide(made, told=())).splitlines()
    sides = [("no", "yes") if n % 2 and film.said["pleural_effusion"] else (EN["yes"] if film.said["pleural_effusion"] else "no",
        "no") for n, film in enumerate(made)]  # fmt: skip
    lines = [f"{line.rpartition(',')[0]},{left},{right}" for line, (left, right) in zip(text[1:], sides, strict=True)]
    write_text(place.folder / "labels.csv", "\n".join([f"{text[0]},", *lines]) + "\n")
    named = (
        "\n".join([text[0].replace("Pleural Effusion", "Left pleural effusion,Right pleural effusion"), *lines]) + "\n"
    )
    repair = lambda: write_text(place.folder / "labels.csv", named)  # noqa: E731
    return Case(tell_truth(made, told=()), repair=repair)


@shape("some rows are there twice")
def repeated_rows(place: Place) -> Case:
    made = films()
    place.pictures(made)
    rows = wide(made)
    place.save([*rows, *rows[:3]])
    return Case(tell_truth(made), then=["--set=rows.duplicate=drop"])


@shape("a table of all films, of which the folder holds half")
def half_of_the_films(place: Place) -> Case:
    made = films()
    place.pictures(made[::2])
    place.save(wide(made))
    return Case(tell_truth(made[::2]), then=["--column=image=File", "--set=rows.missing_image=drop"])


@shape("five rows corrected below the table: the later row counts")
def corrected_rows(place: Place) -> Case:
    made = films(doubt=False)
    place.pictures(made)
    rows = wide(made)
    wrong = [{**cells, "Edema": "no" if cells["Edema"] == "yes" else "yes"} for cells in rows[:5]]
    place.save([*wrong, *rows[5:], *rows[:5]])
    return Case(tell_truth(made), repair=lambda: place.save(rows))


def _annotators(place: Place, column: str, then: list[str]) -> Case:
    made, draw, rows = films(doubt=False), random.Random(6), []
    place.pictures(made)
    for film in made:
        votes = {d: [draw.randint(0, 1) for _ in range(3)] for d in DISEASES}
        film.said = {d: int(sum(cast) > 1) for d, cast in votes.items()}
        rows += [{**row(film), column: f"R{n}", **{EN[d]: votes[d][n] for d in DISEASES}} for n in range(3)]
    place.save(rows, "labels.xlsx")
    return Case(tell_truth(made), "labels.xlsx", then=then)


shape("three annotators, a row each, votes of the majority", "annotators")(
    partial(_annotators, column="Radiologist", then=[])
)
shape("three annotators in a column that is not called so", "annotators_unnamed")(
    partial(_annotators, column="Kürzel", then=["--column=reader=Kürzel"]))  # fmt: skip

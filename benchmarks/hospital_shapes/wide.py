"""Hospitals with a column for each disease: languages, encodings, codes, file formats, and what surrounds the table."""

from __future__ import annotations

import random
from functools import partial
from typing import Any

from benchmarks.hospital_shapes.maker import (
    DISEASES,
    WORDS,
    Case,
    Place,
    films,
    flags_for,
    row,
    shape,
    text_of,
    truth,
    wide,
)

#: Language -> encoding and delimiter of its table.
_LANGUAGES = {
    "en": ("ascii", "|"),
    "de": ("latin-1", ";"),
    "es": ("utf-8-sig", ","),
    "pt": ("cp1252", ";"),
    "fr": ("utf-16", "\t"),
    "ja": ("shift_jis", ","),
    "zh": ("gb18030", ","),
    "tw": ("big5", ","),
    "ko": ("euc-kr", ","),
    "pl": ("cp1250", ";"),
    "cs": ("cp1250", ";"),
    "ru": ("cp1251", ";"),
    "el": ("cp1253", ";"),
    "tr": ("cp1254", ";"),
    "it": ("mac_roman", ","),
}


def _language(place: Place, language: str, encoding: str, delimiter: str) -> Case:
    made, words = films(blank=True), WORDS[language]
    place.pictures(made)
    place.save(wide(made, words), delimiter=delimiter, encoding=encoding)
    flags = [] if language in WORDS["known"] else flags_for(words)
    return Case(flags=[*flags, f"--encoding={encoding}"], truth=truth(made))


for _name, (_encoding, _delimiter) in _LANGUAGES.items():
    _make = partial(_language, language=_name, encoding=_encoding, delimiter=_delimiter)
    _make.__name__ = f"language_{_name}"  # type: ignore[attr-defined]
    shape(f"columns and words in '{_name}', {_encoding}", known=_name in ("de", "ja"))(_make)


def _coded(place: Place, codes: dict[int | None, Any], file: str = "labels.csv", *flags: str, **how: Any) -> Case:
    """English columns whose cells are these codes for 1, 0, -1 and None."""
    made = films(blank=None in codes, doubt=-1 in codes)
    place.pictures(made)
    place.save(wide(made, codes=codes), file, **how)
    return Case(labels=file, flags=flags, truth=truth(made))


_LETTERS = ("--value=P=positive", "--value=A=negative", "--value=E=uncertain")
_SPSS = ("--value=1=positive", "--value=2=negative")
_MARKS = ("--value=✓=positive", "--value=✗=negative")
_CODES: dict[str, tuple[str, bool, dict[int | None, Any], str, tuple[str, ...]]] = {
    "zeros_and_ones": ("1, 0, -1 and empty cells", True, {1: 1, 0: 0, -1: -1, None: None}, "labels.csv", ()),
    "gzipped": ("a gzipped csv", False, {1: "1", 0: "0"}, "labels.csv.gz", ()),
    "tabs_gzipped": ("a gzipped tsv", False, {1: "Y", 0: "N", -1: "?"}, "labels.tsv.gz", ()),
    "parquet_floats": ("parquet, 1.0, 0.0, -1.0", True, {1: 1.0, 0: 0.0, -1: -1.0, None: None}, "labels.parquet", ()),
    "parquet_booleans": ("parquet with booleans", False, {1: True, 0: False, None: None}, "labels.parquet", ()),
    "json_objects": ("a list of JSON objects", False, {1: True, 0: False, None: None}, "labels.json", ()),
    "spss": ("1 is yes and 2 is no", True, {1: 1, 0: 2}, "labels.csv", _SPSS),
    "two_is_doubt": ("0, 1 and 2 for in doubt", False, {1: 1, 0: 0, -1: 2}, "labels.csv", ("--value=2=uncertain",)),
    "nine_is_blank": ("9 for not assessed", False, {1: 1, 0: 0, None: 9}, "labels.csv", ("--value=9=blank",)),
    "crosses": ("x, or nothing", True, {1: "x", 0: None}, "labels.xlsx", ()),
    "signs": ("+, - and +/-", False, {1: "+", 0: "-", -1: "+/-"}, "labels.csv", ()),
    "letters": ("P, A and E", False, {1: "P", 0: "A", -1: "E"}, "labels.csv", _LETTERS),
    "decimal_comma": ("1,0 and 0,0", False, {1: "1,0", 0: "0,0"}, "labels.csv", ()),
    "spaces": ("blanks around, in capitals", False, {1: "  YES ", 0: " No", -1: "Uncertain  "}, "labels.csv", ()),
    "marks": ("check marks and crosses", False, {1: "✓", 0: "✗"}, "labels.csv", _MARKS),
}  # fmt: skip
for _name, (_about, _known, _codes, _file, _flags) in _CODES.items():
    _how = {"delimiter": ";"} if _name == "decimal_comma" else {}

    def _with_codes(place: Place, codes: Any = _codes, file: str = _file, flags: Any = _flags, how: Any = _how) -> Case:
        return _coded(place, codes, file, *flags, **how)

    _with_codes.__name__ = _name
    shape(_about, known=_known)(_with_codes)


@shape("severity 0 to 3 in place of yes and no", known=True)
def grades(place: Place) -> Case:
    made, draw = films(doubt=False), random.Random(1)
    place.pictures(made)
    rows = wide(made, codes={1: 1, 0: 0})
    for cells in rows:
        cells.update({name: draw.choice([1, 2, 3]) for name in (WORDS["en"][d] for d in DISEASES) if cells[name]})
    place.save(rows)
    flags = ["--value=2=positive", "--value=3=positive"]
    return Case(flags=flags, truth=truth(made))


@shape("cover sheet, merged title, header in row 4", known=True)
def workbook_with_titles(place: Place) -> Case:
    made = films()
    place.pictures(made)
    rows = wide(made)
    title = [["Chest films, St. Anne", None, None], ["as of 2026-10-01", None, None], []]
    table = [*title, list(rows[0]), *(list(cells.values()) for cells in rows)]
    place.sheets("labels.xlsx", {"Cover": [["Department of Radiology"]], "Labels": table}, merged=())
    return Case(labels="labels.xlsx", flags=["--sheet=Labels"], truth=truth(made))


@shape("a title merged over the columns above the header, and a row of groups")
def merged_groups(place: Place) -> Case:
    made = films()
    place.pictures(made)
    rows = wide(made)
    groups = ["Identification", None, "Film", None, "Person", None, "Findings", *[None] * 4]
    table = [groups, list(rows[0]), *(list(cells.values()) for cells in rows)]
    place.sheets("labels.xlsx", {"Data": table}, merged=["A1:B1", "C1:D1", "E1:F1", "G1:K1"])
    return Case(labels="labels.xlsx", flags=["--header-row=2"], truth=truth(made))


@shape("the patient's cell is merged over his films")
def merged_patients(place: Place) -> Case:
    made = films()
    place.pictures(made)
    rows = wide(made)
    for first, second in zip(rows[::2], rows[1::2], strict=True):
        second["Patient"] = None if second["Patient"] == first["Patient"] else second["Patient"]
    table = [list(rows[0]), *(list(cells.values()) for cells in rows)]
    place.sheets("labels.xlsx", {"Data": table}, merged=[f"B{n}:B{n + 1}" for n in range(2, len(rows) + 2, 2)])
    return Case(labels="labels.xlsx", truth=truth(made))


@shape("three lines of text above the header of a csv", known=False)
def preamble(place: Place) -> Case:
    made = films()
    place.pictures(made)
    place.text("labels.csv", "PACS export\nSite: St. Anne\n\n" + text_of(wide(made)))
    return Case(truth=truth(made))


@shape("Excel's first line sep=;")
def separator_line(place: Place) -> Case:
    made = films()
    place.pictures(made)
    place.text("labels.csv", "sep=;\r\n" + text_of(wide(made), ";", "\r\n"))
    return Case(truth=truth(made))


@shape("a line 'End of export' below the table")
def footer(place: Place) -> Case:
    made = films()
    place.pictures(made)
    place.text("labels.csv", text_of(wide(made)) + "End of export\n")
    return Case(truth=truth(made), repair=lambda: place.save(wide(made)))


@shape("a row of totals at the end of an xlsx", known=True)
def totals(place: Place) -> Case:
    made = films(doubt=False)
    place.pictures(made)
    rows = wide(made, codes={1: "x", 0: None})
    sums = {
        name: (sum(cells[name] == "x" for cells in rows) if name in map(WORDS["en"].get, DISEASES) else None)
        for name in rows[0]
    }
    place.save([*rows, {**sums, "File": "Total"}], "labels.xlsx")
    return Case(labels="labels.xlsx", flags=["--drop=total"], truth=truth(made))


@shape("reports with line breaks, quotes and delimiters beside the labels")
def reports_beside(place: Place) -> Case:
    made = films()
    place.pictures(made)
    rows = [{"Report": f'Film {n}:\n"no, edema"; see\nabove', **cells} for n, cells in enumerate(wide(made))]
    place.save(rows)
    return Case(truth=truth(made))


@shape("two columns with the same name, two without one, and empty ones")
def odd_columns(place: Place) -> Case:
    made = films()
    place.pictures(made)
    text = text_of(wide(made)).splitlines()
    lines = [f"{text[0]},Remark,Remark,,", *(f"{line},a,b,," for line in text[1:])]
    place.text("labels.csv", "\n".join(lines) + "\n")
    return Case(truth=truth(made))


@shape("effusion left and right in two columns", known=True)
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
    return Case(truth=truth(made))


@shape("columns that deny a disease, and ones that only resemble it", known=True)
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
    return Case(truth=truth(made, diseases=[d for d in DISEASES if d != "edema"]))


@shape("two of the five diseases only", known=True)
def two_diseases(place: Place) -> Case:
    made, kept = films(), ("edema", "pleural_effusion")
    place.pictures(made)
    dropped = [WORDS["en"][d] for d in DISEASES if d not in kept]
    place.save([{name: cell for name, cell in cells.items() if name not in dropped} for cells in wide(made)])
    return Case(truth=truth(made, diseases=kept))


@shape("probabilities of a network in place of labels", known=True)
def scores(place: Place) -> Case:
    made, draw = films(doubt=False), random.Random(4)
    place.pictures(made)
    rows = wide(made)
    plain = [dict(cells) for cells in rows]
    for cells in rows:
        for disease in DISEASES:
            name = WORDS["en"][disease]
            cells[name] = round(draw.uniform(0.5, 1) if cells[name] == "yes" else draw.uniform(0, 0.5), 3)
    place.save(rows)
    return Case(truth=truth(made), repair=lambda: place.save(plain))


@shape("words for the sets that nobody knows")
def own_sets(place: Place) -> Case:
    made = films()
    place.pictures(made)
    words = {**WORDS["en"], "train": "Menge A", "test": "Menge B"}
    place.save(wide(made, words))
    return Case(flags=["--word=split:Menge A=train", "--word=split:Menge B=test"], truth=truth(made))


@shape("odd view words: X-table lateral, quer, RLAT, two planes", known=True)
def own_views(place: Place) -> Case:
    made, draw = films(), random.Random(5)
    place.pictures(made)
    rows = wide(made)
    for cells in rows:
        odd = {"LATERAL": ["RLAT", "X-table lateral"], "PA": ["dv", "PA"], "AP": ["quer", "AP"]}
        cells["View"] = draw.choice(odd[cells["View"]])
    place.save(rows)
    words = {"RLAT": "lateral", "X-table lateral": "lateral", "dv": "pa", "quer": "ap"}
    return Case(words=words, truth=truth(made))


@shape("views as numbers 1, 2, 3")
def numbered_views(place: Place) -> Case:
    made = films()
    place.pictures(made)
    place.save(wide(made, {**WORDS["en"], "pa": "1", "ap": "2", "lateral": "3"}))
    return Case(words={"1": "pa", "2": "ap", "3": "lateral"}, truth=truth(made))


@shape("views in whole descriptions: Thorax p.a. stehend, Thorax seitlich links")
def described_views(place: Place) -> Case:
    made = films()
    words = {**WORDS["en"], "pa": "Thorax p.a. stehend", "ap": "Thorax liegend", "lateral": "Thorax seitlich links"}
    place.pictures(made)
    place.save(wide(made, words))
    return Case(truth=truth(made))


@shape("a third of the views empty or unknown: these films may be laterals")
def some_views(place: Place) -> Case:
    made = films()
    place.pictures(made)
    rows = wide(made)
    for n, cells in enumerate(rows):
        cells["View"] = (None, "unknown", cells["View"])[n % 3]
    place.save(rows)
    return Case(truth=truth(film for n, film in enumerate(made) if n % 3 == 2))


@shape("ages as 063Y, with words, and 85 or more")
def worded_ages(place: Place) -> Case:
    made = films()
    place.pictures(made)
    rows = wide(made)
    for film, cells in zip(made, rows, strict=True):
        film.age = min(film.age, 85)
        cells["Age"] = "85 or more" if film.age == 85 else f"{film.age:03d}Y" if film.age % 2 else f"{film.age} years"
    place.save(rows)
    return Case(flags=["--word=age:85 or more=85"], beforehand=True, truth=truth(made))


@shape("dates of birth and of the film in place of ages")
def dates(place: Place) -> Case:
    made, told = films(), ("view", "split", "sex")
    place.pictures(made)
    rows = [
        {**cells, "Born": "1950-02-03", "Study date": f"2026-01-{n % 28 + 1:02d}"}
        for n, cells in enumerate(wide(made, told=told))
    ]
    place.save(rows, "labels.xlsx")
    return Case(labels="labels.xlsx", truth=truth(made, told=told))


@shape("nothing but file, patient and labels")
def bare(place: Place) -> Case:
    made = films(lateral=False)
    place.pictures(made)
    place.save(wide(made, told=()))
    return Case(truth=truth(made, told=()))


@shape("patients are told by a number beside which another column groups them alike")
def two_patient_columns(place: Place) -> Case:
    made = films()
    place.pictures(made)
    place.save(
        [{"MRN": f"{7 * int(film.patient[1:]):08d}", **cells} for film, cells in zip(made, wide(made), strict=True)]
    )
    return Case(truth=truth(made))


@shape("a patient number that no name of a column tells")
def hidden_patients(place: Place) -> Case:
    made = films()
    place.pictures(made)
    place.save(
        [
            {"K1": film.patient, **{k: v for k, v in cells.items() if k != "Patient"}}
            for film, cells in zip(made, wide(made), strict=True)
        ]
    )
    return Case(flags=["--patient-column=K1"], truth=truth(made))


@shape("three annotators, a row each, votes of the majority", known=True)
def annotators_in_rows(place: Place) -> Case:
    return _annotators(place, "Radiologist", [])


@shape("three annotators in a column that is not called so, in an xlsx")
def annotators_unnamed(place: Place) -> Case:
    return _annotators(place, "Kürzel", ["--layout=readers", "--reader-column=Kürzel"])


def _annotators(place: Place, column: str, flags: list[str]) -> Case:
    made, draw = films(doubt=False), random.Random(6)
    place.pictures(made)
    rows, agreed = [], {}
    for film in made:
        votes = {d: [draw.randint(0, 1) for _ in range(3)] for d in DISEASES}
        agreed[film.name] = {d: int(sum(cast) > 1) for d, cast in votes.items()}
        for n in range(3):
            rows.append(
                {**row(film, WORDS["en"]), column: f"R{n}", **{WORDS["en"][d]: cast[n] for d, cast in votes.items()}}
            )
    place.save(rows, "labels.xlsx")
    said = truth(made, labels=lambda film, disease: agreed[film.name][disease])
    return Case(labels="labels.xlsx", flags=flags, truth=said)


@shape("some rows are there twice")
def repeated_rows(place: Place) -> Case:
    made = films()
    place.pictures(made)
    rows = wide(made)
    place.save([*rows, *rows[:3]])
    return Case(flags=["--drop=duplicate"], truth=truth(made))


@shape("a table of all films, of which the folder holds half")
def half_of_the_films(place: Place) -> Case:
    made = films()
    place.pictures(made[::2])
    place.save(wide(made))
    return Case(flags=["--image-column=File", "--drop=missing_image"], truth=truth(made[::2]))


@shape("one annotator corrected five rows below the table: the later row counts")
def corrected_rows(place: Place) -> Case:
    made = films(doubt=False)
    place.pictures(made)
    rows = wide(made)
    wrong = [{**cells, "Edema": "no" if cells["Edema"] == "yes" else "yes"} for cells in rows[:5]]
    place.save([*wrong, *rows[5:], *rows[:5]])
    return Case(truth=truth(made), repair=lambda: place.save(rows))

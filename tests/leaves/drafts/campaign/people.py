"""Hospitals whose splits, views, people, filters, or the surroundings of the table are odd."""

from __future__ import annotations

import random
from functools import partial
from typing import Any

from chestfed.leaves.samples.tables import format_rows, write_sheets, write_text
from tests.leaves.drafts.campaign.maker import (
    DISEASES,
    EN,
    Case,
    Place,
    Row,
    add_cells,
    make_films,
    register,
    row,
    shape,
    tell_truth,
    wide,
)

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
    _codes = [f"--code=split:{value}={meaning}" for value, meaning in _book.items()]
    _then = [] if _column.casefold() in ("split", "set", "usage") else [f"--column=split={_column}", *_codes]
    register(_about, _name, _split(_column, _words), book=_book, then=_then)
register("five folds beside no split", "folds", add_cells(fold=lambda film, n: int(film.patient[1:]) % 5),
    roles=("view", "sex", "age"),
    then=["--column=ignore=fold"])  # fmt: skip
register("a split and folds beside it", "split_and_folds", add_cells(fold=lambda film, n: int(film.patient[1:]) % 5),
    then=["--column=ignore=fold"])  # fmt: skip


def _view(words: dict[str, str]) -> Any:
    return lambda cells, film, n: {**cells, "View": words[film.view]}


register("views as numbers 1, 2, 3", "numbered_views", _view({"pa": "1", "ap": "2", "lateral": "3"}),
    book={"1": "pa", "2": "ap", "3": "lateral"})  # fmt: skip
register("views S, L and D, stehend, liegend, dorsoventral", "letter_views",
    _view({"pa": "S", "ap": "L", "lateral": "Q"}),
    book={"s": "pa", "l": "ap", "q": "lateral"})  # fmt: skip
register("views in descriptions: Thorax p.a. stehend", "described_views",
    _view({"pa": "Thorax p.a. stehend", "ap": "Thorax liegend", "lateral": "Thorax seitlich links"}))  # fmt: skip
register("odd view words: X-table lateral, quer, RLAT", "own_views", lambda cells, film, n: {**cells, "View":
    {"LATERAL": ["RLAT", "X-table lateral"], "PA": ["dv", "PA"], "AP": ["quer", "AP"]}[cells["View"]][n % 4 // 2]},
    book={"rlat": "lateral", "x-table lateral": "lateral", "dv": "pa", "quer": "ap"})  # fmt: skip


@shape("a third of the views empty or unknown: these films may be laterals")
def some_views(place: Place) -> Case:
    made = make_films()
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
    register(_about, _name, lambda cells, film, n, words=_words: {**cells, "Sex": words[film.sex]}, book=_book)


@shape("ages as 063Y, with words, and 85 or more")
def worded_ages(place: Place) -> Case:
    made = make_films()
    place.pictures(made)
    rows = wide(made)
    for film, cells in zip(made, rows, strict=True):
        film.age = min(film.age, 85)
        cells["Age"] = "85 or more" if film.age == 85 else f"{film.age:03d}Y" if film.age % 2 else f"{film.age} years"
    place.save(rows)
    return Case(tell_truth(made), book={"85 or more": "85"})


register("dates of birth and of the film in place of ages", "dates", add_cells(Born="1950-02-03",
    **{"Study date": lambda film, n: f"2026-01-{n % 28 + 1:02d}"}), roles=("view", "split", "sex"),
    file="labels.xlsx")  # fmt: skip
register("exam dates in a column called Patient", "dates_as_patients",
    lambda cells, film, n: {"Code": film.patient, **cells,
    "Patient": f"2026-0{n % 9 + 1}-1{n % 7}"}, then=["--column=patient=Code"])  # fmt: skip
register("nothing but file, patient and labels", "bare", roles=(), films_with={"lateral": False})
register("another column groups the films as the patient's does", "two_patient_columns",
    lambda cells, film, n: {"MRN": f"{7 * int(film.patient[1:]):08d}", **cells})  # fmt: skip
register("a patient number that no name of a column tells", "hidden_patients",
    lambda cells, film, n: {"K1": film.patient,
    **{k: v for k, v in cells.items() if k != "Patient"}}, then=["--column=patient=K1"])  # fmt: skip


@shape("two merged hospitals that number their patients alike")
def two_sites(place: Place) -> Case:
    made = make_films()
    place.pictures(made)
    rows = wide(made)
    for n, (film, cells) in enumerate(zip(made, rows, strict=True)):
        cells |= {"Site": "A" if n < 18 else "B", "Patient": f"{int(film.patient[1:]) % 9}"}
    place.save(rows)
    return Case(tell_truth(made), then=["--column=site=Site"])


def _filtered(name: str, about: str, column: str, included: str, dropped: str) -> None:
    def make(place: Place) -> Case:
        made = make_films()
        place.pictures(made)
        rows = [{**cells, column: dropped if n % 4 == 0 else included} for n, cells in enumerate(wide(made))]
        place.save(rows)
        codes = [f"--code={column}:{value}={meaning}" for value, meaning in ((included, "keep"), (dropped, "drop"))]
        return Case(tell_truth([film for n, film in enumerate(made) if n % 4]), then=codes)

    shape(about, name)(make)


_filtered("body_parts", "films of the abdomen among them", "BodyPartExamined", "CHEST", "ABDOMEN")
_filtered("series", "bone-suppressed copies among them", "Series", "original", "bone suppressed")
_filtered("intents", "films for processing among them", "Presentation Intent", "FOR PRESENTATION", "FOR PROCESSING")
_filtered("preliminary", "preliminary reports among them", "Report status", "final", "preliminary")
register("a column of the modality, CR and DX", "modalities", add_cells(Modality=lambda film, n: ("CR", "DX")[n % 2]),
    then=["--column=ignore=Modality"])  # fmt: skip


# What surrounds the table ---------------------------------------------------------------------------------------------
def _sheets(place: Place, sheets: dict[str, list[list[Any]]], merged: tuple[str, ...] = ()) -> None:
    write_sheets(place.folder / "labels.xlsx", sheets, merged)


def _cells(rows: list[Row]) -> list[list[Any]]:
    return [list(rows[0]), *(list(cells.values()) for cells in rows)]


@shape("cover sheet, merged title, header in row 4")
def workbook_with_titles(place: Place) -> Case:
    made = make_films()
    place.pictures(made)
    title = [["Chest films, St. Anne", None, None], ["as of 2026-10-01", None, None], []]
    _sheets(place, {"Cover": [["Department of Radiology"]], "Labels": [*title, *_cells(wide(made))]})
    return Case(tell_truth(made), "labels.xlsx", then=["--set=sheet=Labels", "--set=header_row=4"])


@shape("a sheet for each year")
def sheets_per_year(place: Place) -> Case:
    made = make_films()
    place.pictures(made)
    rows = wide(made)
    _sheets(
        place, {"2023": _cells(rows[:14]), "2024": _cells(rows[14:25]), "2025": _cells(rows[25:]), "Notes": [["x"]]}
    )
    return Case(tell_truth(made), "labels.xlsx")


@shape("a title merged over the columns above the header, and a row of groups")
def merged_groups(place: Place) -> Case:
    made = make_films()
    place.pictures(made)
    groups = ["Identification", None, "Film", None, "Person", None, "Findings", *[None] * 4]
    _sheets(place, {"Data": [groups, *_cells(wide(made))]}, ("A1:B1", "C1:D1", "E1:F1", "G1:K1"))
    return Case(tell_truth(made), "labels.xlsx", then=["--set=header_row=2"])


@shape("the patient's cell is merged over his films")
def merged_patients(place: Place) -> Case:
    made = make_films()
    place.pictures(made)
    rows = wide(made)
    for first, second in zip(rows[::2], rows[1::2], strict=True):
        second["Patient"] = None if second["Patient"] == first["Patient"] else second["Patient"]
    _sheets(place, {"Data": _cells(rows)}, tuple(f"B{n}:B{n + 1}" for n in range(2, len(rows) + 2, 2)))
    return Case(tell_truth(made), "labels.xlsx", repair=lambda: _sheets(place, {"Data": _cells(wide(made))}))


def _text(name: str, about: str, before: str = "", after: str = "", repair: bool = False, **case: Any) -> None:
    def make(place: Place) -> Case:
        made = make_films()
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
    made = make_films(doubt=False)
    place.pictures(made)
    rows = wide(made)
    place.save([*rows, {**dict.fromkeys(rows[0]), "File": "Total", "Edema": 12}], "labels.xlsx")
    return Case(tell_truth(made), "labels.xlsx", then=["--set=rows.total=drop"])


register("reports with line breaks, quotes and delimiters beside the labels", "reports_beside",
    lambda cells, film, n: {"Report": f'Film {n}:\n"no, edema"; see\nabove', **cells})  # fmt: skip


@shape("two columns with the same name, two without one, and empty ones")
def odd_columns(place: Place) -> Case:
    made = make_films()
    place.pictures(made)
    text = format_rows(wide(made)).splitlines()
    lines = [f"{text[0]},Remark,Remark,,", *(f"{line},a,b,," for line in text[1:])]
    write_text(place.folder / "labels.csv", "\n".join(lines) + "\n")
    return Case(tell_truth(made))


@shape("effusion right in a second column without a name")
def nameless_side(place: Place) -> Case:
    made = make_films(doubt=False)
    place.pictures(made)
    text = format_rows(wide(made, roles=())).splitlines()
    present = [bool(film.findings["pleural_effusion"]) for film in made]
    sides = [("no", "yes") if n % 2 and ill else ("yes" if ill else "no", "no") for n, ill in enumerate(present)]
    lines = [f"{line.rpartition(',')[0]},{left},{right}" for line, (left, right) in zip(text[1:], sides, strict=True)]
    write_text(place.folder / "labels.csv", "\n".join([f"{text[0]},", *lines]) + "\n")
    named = (
        "\n".join([text[0].replace("Pleural Effusion", "Left pleural effusion,Right pleural effusion"), *lines]) + "\n"
    )
    repair = lambda: write_text(place.folder / "labels.csv", named)  # noqa: E731
    return Case(tell_truth(made, roles=()), repair=repair)


@shape("some rows are there twice")
def repeated_rows(place: Place) -> Case:
    made = make_films()
    place.pictures(made)
    rows = wide(made)
    place.save([*rows, *rows[:3]])
    return Case(tell_truth(made), then=["--set=rows.duplicate=drop"])


@shape("a table of all films, of which the folder holds half")
def half_of_the_films(place: Place) -> Case:
    made = make_films()
    place.pictures(made[::2])
    place.save(wide(made))
    return Case(tell_truth(made[::2]), then=["--column=image=File", "--set=rows.missing_image=drop"])


@shape("five rows corrected below the table: the later row counts")
def corrected_rows(place: Place) -> Case:
    made = make_films(doubt=False)
    place.pictures(made)
    rows = wide(made)
    wrong = [{**cells, "Edema": "no" if cells["Edema"] == "yes" else "yes"} for cells in rows[:5]]
    place.save([*wrong, *rows[5:], *rows[:5]])
    return Case(tell_truth(made), repair=lambda: place.save(rows))


def _annotators(place: Place, column: str, then: list[str]) -> Case:
    made, draw, rows = make_films(doubt=False), random.Random(6), []
    place.pictures(made)
    for film in made:
        votes = {d: [draw.randint(0, 1) for _ in range(3)] for d in DISEASES}
        film.findings = {d: int(sum(cast) > 1) for d, cast in votes.items()}
        rows += [{**row(film), column: f"R{n}", **{EN[d]: votes[d][n] for d in DISEASES}} for n in range(3)]
    place.save(rows, "labels.xlsx")
    return Case(tell_truth(made), "labels.xlsx", first=["--raters=majority"], then=then)


shape("three annotators, a row each, votes of the majority", "annotators")(
    partial(_annotators, column="Radiologist", then=[])
)
shape("three annotators in a column that is not called so", "annotators_unnamed")(
    partial(_annotators, column="Kürzel", then=["--column=reader=Kürzel"]))  # fmt: skip

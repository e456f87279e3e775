# ruff: noqa: E501 - tables of shapes
"""Ordinary tables whose columns and words no list of chestfed was written for, in the groups of a review.

Each has forty films of twenty patients. `then` are the answers of somebody who knows what the table means.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from chestfed.leaves.samples.tables import write_sheets
from tests.leaves.drafts.campaign.maker import (
    DISEASES,
    EN,
    NAMES,
    Case,
    Film,
    Place,
    Row,
    Shape,
    make_films,
    tell_truth,
    wide,
)

REVIEW: dict[str, tuple[str, Shape]] = {}
Change = Callable[[Row, Film, int], Row]
_BINARY = {1: 1, 0: 0}


def add(
    group: str,
    name: str,
    change: Change,
    then: Sequence[str] = (),
    *,
    first: Sequence[str] = (),
    codes: Mapping[int | None, Any] | None = None,
    films: Mapping[str, bool] | None = None,
    keep: Callable[[int], bool] = lambda n: True,
    truth: Mapping[str, Any] | None = None,
    where: Callable[[Film], str] | None = None,
    roles: Sequence[str] = ("view", "sex", "age"),
    file: str = "labels.csv",
    how: Mapping[str, str] | None = None,
) -> None:
    """Registers a wide table whose rows are changed; the films that `keep` does not take must be left out."""

    def make(place: Place) -> Case:
        made = make_films(40, **(films or {"doubt": False, "lateral": False}))
        at = where or (lambda film: f"images/{film.file}")
        place.pictures(made, at)
        rows = [
            change(cells, film, n)
            for n, (cells, film) in enumerate(zip(wide(made, codes=codes or _BINARY, roles=roles), made, strict=True))
        ]
        place.save(rows, file, **(how or {}))
        kept = [film for n, film in enumerate(made) if keep(n)]
        return Case(tell_truth(kept, at, roles, **(truth or {})), file, first=first, then=then)

    REVIEW[name] = group, make


def _with(**cells: Any) -> Change:
    return lambda old, film, n: {**old, **{k: v(film, n) if callable(v) else v for k, v in cells.items()}}


def _rename(**names: str) -> Change:
    return lambda old, film, n: {names.get(k.replace(" ", "_"), k): v for k, v in old.items()}


# 1 Rows that must not be used ------------------------------------------------------------------------------------
for _column, _good, _bad in (
    ("exclude", 0, 1),
    ("consent", "yes", "withdrawn"),
    ("usable", "Y", "N"),
    ("QC_pass", 1, 0),
    ("Einwilligung", "ja", "widerrufen"),
    ("ausgeschlossen", None, "x"),
    ("consentimiento", "sí", "no"),
    ("calidad", "buena", "mala"),
    ("exclu", "non", "oui"),
    ("aproveitável", "S", "N"),
    ("phantom", "FALSE", "TRUE"),
    ("rejected_by_tech", "", "yes"),
    ("artefact", 1, 3),
    ("eligible", "eligible", "screen failure"),
    ("report_status", "final", "preliminary"),
    ("quality", "good", "non-diagnostic"),
):
    _codes = [
        f"--code={_column}:{value or '(empty)' if value != 0 else 0}={meaning}"
        for value, meaning in ((_good, "keep"), (_bad, "drop"))
    ]
    add("exclusions", f"exclusion_{_column}", _with(**{_column: lambda film, n, b=_bad, g=_good: b if n % 4 == 0 else g}),
        _codes, keep=lambda n: n % 4 != 0)  # fmt: skip

# 2 Patients --------------------------------------------------------------------------------------------------------
for _name, _study, _person in (
    ("case_id", "case_id", "pseudonym"),
    ("pid", "PID", "CPR"),
    ("patient_nr", "Patient Nr", "Versicherte"),
    ("subject", "subject_id", "kennitala"),
    ("mrn", "MRN", "national_id"),
):
    add("patients", f"study_as_patient_{_name}",
        lambda old, film, n, s=_study, p=_person: {"File": old.pop("File"), s: f"E{7000 + 13 * n}", p: f"{film.patient[1:]}-Q", **{k: v for k, v in old.items() if k != "Patient"}},
        [f"--column=patient={_person}", f"--set=ignore=[{_study}]"])  # fmt: skip


def _merged(name: str, column: str, values: tuple[str, str]) -> None:
    def change(old: Row, film: Film, n: int) -> Row:
        return {**old, "Patient": 100 + n // 2 % 10, column: values[n >= 20]}

    add("patients", f"centers_{name}", change, [f"--column=site={column}"])


_merged("zentrum", "Zentrum", ("Nord", "Süd"))
_merged("country", "country", ("DK", "SE"))
_merged("trust", "NHS trust", ("RJ1", "RYJ"))
_merged("ward", "scanner room", ("1", "2"))
add("patients", "centers_folder", lambda old, film, n: {**old, "Patient": 100 + n // 2 % 10},
    ["--column=site=folder"], where=lambda film: f"images/{'BER' if int(film.patient[1:]) < 1010 else 'MUC'}/{film.file}")  # fmt: skip
add("patients", "thousands", lambda old, film, n: {**old, "Patient": f"{film.patient[1]}.{film.patient[2:]}" if n % 2 else film.patient[1:]},
    [])  # fmt: skip

# 3 Headers -----------------------------------------------------------------------------------------------------------
# (views, patients in DICOM headers: tests of the headers)

# 4 Splits ------------------------------------------------------------------------------------------------------------
for _column, _test, _train in (
    ("is_holdout", 1, 0),
    ("TrainTestSplit", "Te", "Tr"),
    ("external_set", "Y", "N"),
    ("usage_in_paper", "evaluation", "fitting"),
    ("in_test", "x", None),
    ("Verwendung", "Prüfmenge", "Lernen"),
    ("group", "T", "D"),
    ("mode", "infer", "fit"),
):
    _codes = [f"--code=split:{_test}=test", f"--code=split:{'(empty)' if _train is None else _train}=train"]
    add("splits", f"split_{_column}", _with(**{_column: lambda film, n, a=_test, b=_train: a if film.split == "test" else b}),
        [f"--column=split={_column}", "--test-fraction=0", *_codes], first=["--test-fraction=0.2"],
        truth={"split": lambda film: film.split})  # fmt: skip

# 5 Kinds of a disease ------------------------------------------------------------------------------------------------


def _kinds(name: str, kind: Callable[[str], str], only: Sequence[str] = DISEASES, then: Sequence[str] = ()) -> None:
    """Columns of a kind: 1 is the disease, 0 says nothing of it."""
    columns = {EN[d]: kind(EN[d]) for d in only}
    codes = [f"--code={columns[EN[d]]}:0=blank" for d in only]
    labels = [f"--label={d}={columns[EN[d]]}" for d in only]
    add("kinds", name, lambda old, film, n: {columns.get(k, k): v for k, v in old.items()},
        [*labels, *codes, f"--set=one_class=[{', '.join(only)}]", *then],
        truth={d: lambda film, d=d: 1 if film.findings[d] == 1 else None for d in only})  # fmt: skip


_kinds("kind_new", lambda name: f"New {name.lower()}")
_kinds("kind_left", lambda name: f"Left {name.lower()}", ["pleural_effusion"])
_kinds("kind_stable", lambda name: f"Stable {name}", ["edema", "pleural_effusion"])
_kinds("kind_acute_german", lambda name: "Akutes Lungenödem", ["edema"])
_kinds("kind_basal", lambda name: f"{name} basal", ["atelectasis", "consolidation"])

# 8 No answer ---------------------------------------------------------------------------------------------------------
for _name, _word in (
    ("n/a", "n/a"),
    ("na", "na"),
    ("N.A.", "N.A."),
    ("null", "null"),
    ("k.A.", "k.A."),
    ("NaN", "NaN"),
):

    def _hide(old: Row, film: Film, n: int, word: str = _word) -> Row:
        for d in DISEASES:
            shown = old[EN[d]]
            old[EN[d]] = word if (n + DISEASES.index(d)) % 5 == 1 else None if shown == 0 and n % 2 else shown
        return old

    add("no answer", f"no_answer_{_name}", _hide, [f"--code={_word}=missing"], first=["--blank=negative"],
        truth={d: lambda film, d=d: film.findings[d] for d in DISEASES})  # fmt: skip
for _name in list(REVIEW):
    if _name.startswith("no_answer_"):

        def _made(place: Place, make: Shape = REVIEW[_name][1]) -> Case:
            case, made = make(place), make_films(40, doubt=False, lateral=False)
            for n, film in enumerate(made):
                for d in DISEASES:
                    if (n + DISEASES.index(d)) % 5 == 1:
                        case.truth[f"images/{film.file}"][d] = None
            return case

        REVIEW[_name] = "no answer", _made

# Right before ----------------------------------------------------------------------------------------------------------
add("right before", "control", lambda old, film, n: old)
add("right before", "confidences", _with(**{f"{name} confidence": lambda film, n: f"0.{50 + n}" for name in NAMES}))
add("right before", "tabs_called_xls", lambda old, film, n: old, file="labels.xls")
add("right before", "weeks", lambda old, film, n: {**old, "Age": "7 weeks" if n < 2 else old["Age"]},
    truth={"age": lambda film: 0 if film.patient == "P1000" else film.age})  # fmt: skip
add("right before", "signs_in_names", lambda old, film, n: {"File": old.pop("File"), "note [x] * {y}": f"{n}", **old})
for _name, _codes_, _first in (
    ("chexbert", {1: 1, 0: 2, -1: 3, None: None}, ["--code=1=positive", "--code=2=negative", "--code=3=uncertain"]),
    ("postgres", {1: "t", 0: "f"}, ["--code=t=positive", "--code=f=negative"]),
    ("likert", {1: 5, 0: 1, -1: 3}, ["--code=5=positive", "--code=1=negative", "--code=3=uncertain"]),
    ("german_short", {1: "V.a.", 0: "n.b."}, ["--code=v.a.=positive", "--code=n.b.=negative"]),
    ("redcap_12", {1: 1, 0: 2}, ["--code=1=positive", "--code=2=negative"]),
    ("stars", {1: "1*", 0: "0*"}, ["--code=1*=positive", "--code=0*=negative"]),
    ("full_width", {1: "\uff11", 0: "\uff10"}, ["--code=\uff11=positive", "--code=\uff10=negative"]),
    ("one_two_floats", {1: "1.0", 0: "2.0"}, ["--code=1=positive", "--code=2=negative"]),
):
    add("codes", f"codes_{_name}", lambda old, film, n: old, _first, codes=_codes_,
        films={"doubt": -1 in _codes_, "blank": None in _codes_, "lateral": False})  # fmt: skip
add("codes", "girl_boy", lambda old, film, n: {**old, "Sex": {"F": "girl", "M": "boy"}[film.sex]},
    ["--code=sex:girl=F", "--code=sex:boy=M"])  # fmt: skip
add("codes", "spanish_cp1252", lambda old, film, n: {**old, "edad mínima": n % 3}, ["--set=ignore=[edad mínima]"],
    how={"encoding": "cp1252"})  # fmt: skip
add("codes", "percent_words", lambda old, film, n: {k: (">=50%" if v else "<50%") if k in NAMES else v for k, v in old.items()},
    ["--code=>=50%=positive", "--code=<50%=negative"])  # fmt: skip
add("codes", "icd_columns", lambda old, film, n: {{"Cardiomegaly": "I51.7", "Edema": "J81", "Consolidation": "J18.1", "Atelectasis": "J98.1", "Pleural Effusion": "J90"}.get(k, k): v for k, v in old.items()},
    [f"--label={d}={c}" for d, c in zip(DISEASES, ("I51.7", "J81", "J18.1", "J98.1", "J90"), strict=True)])  # fmt: skip
add("codes", "merged_names", lambda old, film, n: {**{f"{k}_x" if k in NAMES else k: v for k, v in old.items()}, **{f"{k}_y": n % 2 for k in NAMES}},
    [f"--label={d}={EN[d]}_x" for d in DISEASES] + [f"--set=ignore=[{', '.join(f'{k}_y' for k in NAMES)}]"])  # fmt: skip
add("codes", "chinese", lambda old, film, n: {{"File": "文件", "Patient": "患者", "View": "体位", "Sex": "性别", "Age": "年龄"}.get(k, k): v for k, v in old.items()},
    ["--column=patient=患者", "--column=view=体位", "--column=sex=性别", "--column=age=年龄"], how={"encoding": "gb18030"}, first=["--set=encoding=gb18030"])  # fmt: skip
add("codes", "ratio_and_volume", _with(**{"Herz-Thorax-Quotient": lambda film, n: f"0,{30 + n}", "effusion ml": lambda film, n: f"{17 * n}"}),
    ["--label=pleural_effusion=Pleural Effusion"], how={"delimiter": ";"})  # fmt: skip


def _long(group: str, name: str, write: Callable[[Film, str], str], then: Sequence[str]) -> None:
    def make(place: Place) -> Case:
        made = make_films(40, doubt=False, lateral=False)
        place.pictures(made)
        rows = [
            {"File": f.file, "Patient": f.patient, "observation": EN[d].lower(), "mention": write(f, d)}
            for f in made
            for d in DISEASES
        ]
        place.save(rows)
        return Case(tell_truth(made, roles=()), then=then)

    REVIEW[name] = group, make


_long("codes", "negbio_long", lambda film, d: ("negated", "affirmed")[film.findings[d] or 0],
    ["--column=finding=observation", "--column=value=mention", "--code=affirmed=positive", "--code=negated=negative"])  # fmt: skip


@partial(lambda name, make: REVIEW.__setitem__(name, ("codes", make)), "three_forms")
def _forms(place: Place) -> Case:
    made, rows = make_films(40, doubt=False, lateral=False), []
    place.pictures(made)
    for reader in ("Ana", "Bo", "Cai"):
        rows += [
            {"Timestamp": f"2026-01-{n % 28 + 1:02d} 10:{n:02d}", "Name": reader, **cells}
            for n, cells in enumerate(wide(made, roles=()))
        ]
    place.save(rows)
    return Case(tell_truth(made, roles=()), first=["--raters=majority"], then=["--column=reader=Name"])


# Ages ----------------------------------------------------------------------------------------------------------------
for _column in ("age (months)", "Alter (Monate)"):
    add("ages", f"age_{_column}", lambda old, film, n, c=_column: {c if k == "Age" else k: 12 * film.age if k == "Age" else v for k, v in old.items()},
        [])  # fmt: skip
add("ages", "age_with_note", lambda old, film, n: {**old, "Age": f"P{film.age}Y"})


# Forms of files --------------------------------------------------------------------------------------------------------
def _file(
    group: str, name: str, file: str, text: Callable[[list[Row], Sequence[Film]], str | bytes], then: Sequence[str] = ()
) -> None:
    """A file that no reader reads as a table; it must be refused with a way."""

    def make(place: Place) -> Case:
        made = make_films(40, doubt=False, lateral=False)
        place.pictures(made)
        written = text(wide(made, codes=_BINARY), made)
        data = written if isinstance(written, bytes) else written.encode()
        (place.folder / file).write_bytes(data)
        return Case(tell_truth(made), file, then=then)

    REVIEW[name] = group, make


def _html(rows: list[Row], _: object) -> str:
    lines = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells.values())}</tr>" for cells in rows)
    return f'<html><body><table border="1"><tr>{"".join(f"<th>{k}</th>" for k in rows[0])}</tr>{lines}</table></body></html>'


def _spreadsheet_ml(rows: list[Row], _: object) -> str:
    def cut(cells: Sequence[Any]) -> str:
        return f"<Row>{''.join(f'<Cell><Data ss:Type={chr(34)}String{chr(34)}>{cell}</Data></Cell>' for cell in cells)}</Row>"

    lines = "\n".join(map(cut, [list(rows[0]), *(list(cells.values()) for cells in rows)]))
    return (
        '<?xml version="1.0"?>\n<?mso-application progid="Excel.Sheet"?>\n'
        '<Workbook xmlns="urn:schemas-microsoft-com:office:spreadsheet" '
        f'xmlns:ss="urn:schemas-microsoft-com:office:spreadsheet"><Worksheet ss:Name="A"><Table>\n{lines}\n'
        "</Table></Worksheet></Workbook>"
    )


def _fixed_width(rows: list[Row], _: object) -> str:
    return "\n".join(
        "".join(f"{cell!s:<18}" for cell in cells) for cells in [list(rows[0]), *(list(r.values()) for r in rows)]
    )


def _label_studio(rows: list[Row], made: Sequence[Film]) -> str:
    return json.dumps([
        {"id": n, "data": {"image": f"/data/upload/{film.file}", "patient": film.patient},
         "annotations": [{"result": [{"type": "choices", "value": {"choices": [EN[d] for d in DISEASES if film.findings[d]]}}]}]}
        for n, film in enumerate(made)
    ])  # fmt: skip


def _via(rows: list[Row], made: Sequence[Film]) -> str:
    return json.dumps({"_via_settings": {}, "_via_img_metadata": {
        f"{film.file}88": {"filename": film.file, "size": 88, "regions": [], "file_attributes": {d: str(film.findings[d]) for d in DISEASES}}
        for film in made
    }})  # fmt: skip


_file("forms", "html_called_xls", "labels.xls", _html)
_file("forms", "spreadsheet_ml", "labels.xls", _spreadsheet_ml)
_file(
    "forms",
    "sas",
    "labels.sas7bdat",
    lambda rows, made: (
        bytes(12) + b"\xc2\xea\x81\x60\xb3\x14\x11\xcf\xbd\x92\x08\x00\x09\xc7\x31\x8c\x18\x1f\x10\x11" + bytes(4000)
    ),
)
_file("forms", "fixed_width", "labels.txt", _fixed_width)
_file("forms", "nested_json", "labels.json", lambda rows, made: json.dumps(
    {"study": "x", "records": [{"patient": film.patient, "films": [{"file": film.file, "labels": film.findings}]} for film in made]}))  # fmt: skip
_file(
    "forms", "json_by_image", "labels.json", lambda rows, made: json.dumps({film.file: film.findings for film in made})
)
_file("forms", "label_studio", "labels.json", _label_studio)
_file("forms", "via", "labels.json", _via)
_file("forms", "json_scores", "labels.json", lambda rows, made: json.dumps(
    [{"File": film.file, "Patient": film.patient, "scores": [{"label": EN[d], "score": 0.9 if film.findings[d] else 0.1} for d in DISEASES]} for film in made]))  # fmt: skip
_file("forms", "scores_in_cells", "labels.csv", lambda rows, made: "File,Patient,Findings\n" + "\n".join(
    f"{film.file},{film.patient},{'|'.join(f'{EN[d]}:{0.93 if film.findings[d] else 0.03}' for d in DISEASES)}" for film in made))  # fmt: skip
_file(
    "forms",
    "transposed",
    "labels.csv",
    lambda rows, made: "\n".join(",".join([key, *(str(cells[key]) for cells in rows)]) for key in rows[0]),
)
_file("forms", "signs_before_words", "labels.csv", lambda rows, made: "File,Patient,Findings\n" + "\n".join(
    f"{film.file},{film.patient},\"{', '.join('-+'[film.findings[d] or 0] + EN[d] for d in DISEASES)}\"" for film in made))  # fmt: skip
_file("forms", "two_header_rows", "labels.csv", lambda rows, made: "\n".join(
    [",".join(["Film"] * 6 + ["Finding"] * 5), ",".join(rows[0]), *(",".join(map(str, cells.values())) for cells in rows)]), ["--set=header_row=2"])  # fmt: skip


def _sheets(place: Place, second: bool) -> Case:
    made = make_films(40, doubt=False, lateral=False)
    place.pictures(made)
    rows = wide(made, codes=_BINARY, roles=("view",))
    sheet = [list(rows[0]), *(list(cells.values()) for cells in rows)]
    if second:
        people = {film.patient: [film.patient, film.sex, film.age] for film in made}
        write_sheets(
            place.folder / "labels.xlsx", {"Films": sheet, "People": [["Patient", "Sex", "Age"], *people.values()]}
        )
        join = "--set=join=[{file: labels.xlsx, sheet: People, key: [Patient], columns: [Sex, Age]}]"
        return Case(tell_truth(made, roles=("view", "sex", "age")), "labels.xlsx", first=["--set=sheet=Films", join])
    write_sheets(place.folder / "labels.xlsx", {"A": [["Film"] * 3 + ["Finding"] * 5, *sheet]})
    return Case(tell_truth(made, roles=("view",)), "labels.xlsx", then=["--set=header_row=2"])


REVIEW["two_header_rows_xlsx"] = "forms", partial(_sheets, second=False)
REVIEW["two_sheets"] = "joins", partial(_sheets, second=True)


@partial(lambda name, make: REVIEW.__setitem__(name, ("joins", make)), "bids")
def _bids(place: Place) -> Case:
    """A folder for each person and session, a table of people, and one of the films."""
    made = make_films(40, doubt=False, lateral=False)
    where = lambda film: f"bids/sub-{film.patient}/ses-{film.study}/cxr/{film.name}.png"  # noqa: E731
    place.pictures(made, where)
    rows = [{"participant_id": f"sub-{f.patient}", "session_id": f"ses-{f.study}", "name": f.name,
             **{EN[d]: f.findings[d] for d in DISEASES}} for f in made]  # fmt: skip
    place.save(rows, "bids/films.tsv", delimiter="\t")
    people = {f.patient: {"participant_id": f"sub-{f.patient}", "sex": f.sex, "age": f.age} for f in made}
    place.save(list(people.values()), "bids/participants.tsv", delimiter="\t")
    then = ["--column=image=name", "--column=patient=participant_id", "--column=study=session_id",
            "--set=images={path: '{participant_id}/{session_id}/cxr/{name}.png', roots: [.]}",
            "--set=join=[{file: participants.tsv, key: [participant_id], columns: [sex, age]}]"]  # fmt: skip
    return Case(tell_truth(made, where, roles=("sex", "age")), "bids/films.tsv", images="bids", then=then)


@partial(lambda name, make: REVIEW.__setitem__(name, ("joins", make)), "folder_with_dictionary")
def _folder(place: Place) -> Case:
    made = make_films(40, doubt=False, lateral=False)
    place.pictures(made)
    place.save(wide(made, codes=_BINARY), "tables/labels.csv")
    place.save([{"column": name, "meaning": f"a finding, {name}"} for name in NAMES], "tables/dictionary.csv")
    return Case(tell_truth(made), "tables", then=["--labels=tables/labels.csv"])


_long("codes", "icd_certainty", lambda film, d: ("A", "G")[film.findings[d] or 0],
    ["--column=finding=observation", "--column=value=mention", "--code=g=positive", "--code=a=negative"])  # fmt: skip
_long("codes", "snomed_context", lambda film, d: ("410516002", "410515003")[film.findings[d] or 0],
    ["--column=finding=observation", "--column=value=mention", "--code=410515003=positive", "--code=410516002=negative"])  # fmt: skip


@partial(lambda name, make: REVIEW.__setitem__(name, ("forms", make)), "visits_in_columns")
def _visits(place: Place) -> Case:
    made = make_films(40, doubt=False, lateral=False)
    place.pictures(made)
    rows = []
    for first, second in zip(made[::2], made[1::2], strict=True):
        both = {
            f"{k}_v{v}": film.findings[d]
            for d, k in EN.items()
            if d in DISEASES
            for v, film in ((1, first), (2, second))
        }
        rows.append({"Patient": first.patient, "file_v1": first.file, "file_v2": second.file, **both})
    place.save(rows)
    return Case(tell_truth(made, roles=()))

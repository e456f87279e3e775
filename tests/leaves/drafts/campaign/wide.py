"""Hospitals with a column for each disease: languages, codes, formats, headers, and what surrounds the table."""

from __future__ import annotations

import random
from functools import partial
from typing import Any

from chestfed.leaves.samples.tables import WORDS
from tests.leaves.drafts.campaign.maker import (
    DISEASES,
    EN,
    NAMES,
    Case,
    Film,
    Place,
    Row,
    list_options,
    list_words,
    make_films,
    register,
    rename_labels,
    row,
    shape,
    tell_truth,
    wide,
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
    made, words = make_films(blank=True), WORDS[language]
    place.pictures(made)
    place.save(wide(made, words), delimiter=delimiter, encoding=encoding)
    known = language in WORDS["known"]
    then = [*([] if known else list_options(words)), f"--set=encoding={encoding}"]
    return Case(tell_truth(made), then=then, book={} if known else list_words(words))


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
}  # fmt: skip
for _name, (_about, _codes, _file, _book) in _CODES.items():
    _how = {"delimiter": ";"} if _name == "decimal_comma" else {}
    _given = {"blank": None in _codes, "doubt": -1 in _codes}
    _then = ["--blank=negative"] if _name == "crosses" else []
    register(_about, _name, films_with=_given, codes=_codes, file=_file, book=_book, first=_then, how=_how)

# Headers ----------------------------------------------------------------------------------------------------------
for _name, _about, _rename in (
    ("suffixes", "columns with a suffix, edema_gt", lambda name: f"{name.lower().replace(' ', '_')}_gt"),
    ("prefixes", "columns with a prefix, final_edema", lambda name: f"final_{name.lower().replace(' ', '_')}"),
    ("redcap_raw", "REDCap, findings___edema", lambda name: f"findings___{name.lower().replace(' ', '_')}"),
    ("redcap_labels", "REDCap with labels, Findings (choice=Edema)", lambda name: f"Findings (choice={name})"),
    ("counted", "columns called n_edema", lambda name: f"n_{name.lower()}"),
    ("percent_sign", "columns with a number, 3. Edema", lambda name: f"{NAMES.index(name) + 1}. {name}"),
):
    register(_about, _name, rename_labels(_rename), codes={1: 1, 0: 0})
register("codes in the headers, Edema (0=yes, 1=no)", "codes_in_headers",
    rename_labels(lambda name: f"{name} (0=yes, 1=no)"), codes={1: 0, 0: 1},
    then=[*(f"--label={d}={EN[d]} (0=yes, 1=no)" for d in DISEASES), "--code=0=positive",
    "--code=1=negative"])  # fmt: skip


def contradict(cells: Row, film: Film, n: int) -> Row:
    effusion = film.findings["pleural_effusion"]
    return {**cells, "Effusion": "no" if effusion else "yes"}


register("two columns of one disease that contradict each other", "contradicting_columns", contradict,
    then=["--label=pleural_effusion=Pleural Effusion", "--column=ignore=Effusion"])  # fmt: skip


@shape("effusion left and right in two columns")
def sides(place: Place) -> Case:
    made, draw = make_films(doubt=False), random.Random(2)
    place.pictures(made)
    rows = wide(made)
    for cells in rows:
        findings = cells.pop("Pleural Effusion")
        left = findings == "yes" and draw.random() < 0.5
        cells["Left pleural effusion"] = "yes" if left else "no"
        cells["Right pleural effusion"] = "yes" if findings == "yes" and not left else "no"
    place.save(rows)
    return Case(tell_truth(made))


@shape("columns that deny a disease, and ones that only resemble it")
def decoys(place: Place) -> Case:
    made, draw = make_films(), random.Random(3)
    place.pictures(made)
    rows = wide(made)
    for cells, film in zip(rows, made, strict=True):
        del cells["Edema"]
        cells["no_edema"] = "no" if film.findings["edema"] == 1 else "yes"
        for name in ("Pericardial effusion", "Prior atelectasis", "Subcutaneous emphysema", "Edema confidence"):
            cells[name] = draw.choice(["yes", "no"])
    place.save(rows)
    return Case(tell_truth(made, diseases=[d for d in DISEASES if d != "edema"]), then=["--label=edema=none"])


@shape("all five columns deny their disease")
def negated(place: Place) -> Case:
    made = make_films(doubt=False)
    place.pictures(made)
    rows = wide(made, codes={1: 0, 0: 1})
    place.save([{f"no_{k.lower()}" if k in NAMES else k: v for k, v in cells.items()} for cells in rows])
    then = [f"--label={d}=no_{EN[d].lower()}" for d in DISEASES] + ["--code=1=negative", "--code=0=positive"]
    return Case(tell_truth(made), then=then)


@shape("labels of three annotators in columns, cardiomegaly_reader1..3")
def votes_in_columns(place: Place) -> Case:
    made, draw = make_films(doubt=False), random.Random(6)
    place.pictures(made)
    rows = []
    for film in made:
        cells = row(film)
        for disease in DISEASES:
            votes = [draw.randint(0, 1) for _ in range(3)]
            film.findings[disease] = int(sum(votes) > 1)
            cells |= {f"{disease}_reader{n + 1}": vote for n, vote in enumerate(votes)}
        rows.append(cells)
    place.save(rows)
    return Case(tell_truth(made), first=["--raters=majority"])


register("two of the five diseases only", "two_diseases", lambda cells, film, n: {k: v for k, v in cells.items()
    if k not in NAMES or k in ("Edema", "Pleural Effusion")},
    truth={"diseases": ["edema", "pleural_effusion"]}, films_with={})  # fmt: skip
register("every film has the disease", "one_class",
    lambda cells, film, n: film.findings.update(edema=1) or {**cells, "Edema": "yes"},
    then=["--set=one_class=[edema]"])  # fmt: skip


@shape("severity 0 to 3 in place of yes and no")
def grades(place: Place) -> Case:
    made, draw = make_films(doubt=False), random.Random(1)
    place.pictures(made)
    rows = wide(made, codes={1: 1, 0: 0})
    for cells in rows:
        cells.update({name: draw.choice([1, 2, 3]) for name in NAMES if cells[name]})
    place.save(rows)
    return Case(tell_truth(made), book={"0": "negative", "1": "positive", "2": "positive", "3": "positive"})


def add_scores(cells: Row, film: Film, n: int, whole: float = 1) -> Row:
    draw = random.Random(n)
    scores = {EN[d]: draw.uniform(0.5, 1) if film.findings[d] else draw.uniform(0, 0.49) for d in DISEASES}
    return {**cells, **{name: f"{score * whole:.{3 if whole == 1 else 1}f}" for name, score in scores.items()}}


register("probabilities of a network in place of labels", "scores", add_scores, then=["--set=threshold=0.5"])
register("percent in place of labels", "percent", partial(add_scores, whole=100), then=["--set=threshold=50"])

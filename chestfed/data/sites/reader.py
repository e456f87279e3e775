"""Tools to write a reader with: rows, findings, cells, and the catalogue of all readers.

A reader is a function `read(source, options)`, declared by a `SiteReader`. It turns the files of one format into rows,
one per image, with raw findings per disease of `source.config.diseases`. `raw_rows` puts them together. Problems of the
files are noted by `source.problem(...)`, with file and row, and reading continues: a user wants all problems at once.
The rows of a site with problems are not used.

A reader applies no policy: views, uncertain and blank labels, up-sampling and splits are applied after it, from the
site's YAML. `docs/own_reader.md` has the columns of a row and a worked example. What `__all__` names changes with a
major version only.
"""

from __future__ import annotations

import math
import os
import re
import unicodedata
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Final, Literal, get_args

import numpy as np
import pandas as pd
import yaml

from chestfed.core.config import StrictModel
from chestfed.core.errors import ChestfedError, Problem, list_near
from chestfed.core.plugins import Catalogue, Options
from chestfed.data.sites.folders import Folders
from chestfed.data.sites.label_files.source import Source

__all__ = [
    "BLANK",
    "NEGATIVE",
    "POSITIVE",
    "RAW_COLUMNS",
    "SPLITS",
    "UNCERTAIN",
    "UNLABELLED",
    "VIEWS",
    "ChestfedError",
    "Options",
    "Problem",
    "SiteReader",
    "Source",
    "StrictModel",
    "ages",
    "column_findings",
    "from_numbers",
    "image_files",
    "join_rows",
    "label_names",
    "raw_rows",
    "sexes",
    "strongest",
    "translate",
    "views",
]

View = Literal["pa", "ap", "frontal", "lateral", "other", "unknown"]
Split = Literal["train", "valid", "test"]
#: Views of a site table; `frontal` is frontal without knowing whether PA or AP.
VIEWS: Final[tuple[str, ...]] = get_args(View)
SPLITS: Final[tuple[str, ...]] = get_args(Split)
#: Columns that a reader returns, besides one int8 finding per disease; `file` is the label file of `row`.
RAW_COLUMNS: Final = ("image", "patient", "study", "view", "split", "sex", "age", "row", "file", "inverted")

#: Raw findings, int8. `UNLABELLED`: the image has no label at all, whatever the policy for blanks.
POSITIVE, NEGATIVE, UNCERTAIN, BLANK, UNLABELLED = (np.int8(code) for code in (1, 0, -1, -2, -3))
#: A cell that is not one of the known values.
INVALID: Final = np.int8(-9)
_BY_STRENGTH: Final = np.array([UNLABELLED, BLANK, NEGATIVE, UNCERTAIN, POSITIVE, INVALID], dtype=np.int8)
#: Raw finding -> which of several wins, the higher one.
STRENGTH: Final = {int(code): place for place, code in enumerate(_BY_STRENGTH)}
_NUMBERS: Final = {"1": POSITIVE, "0": NEGATIVE, "-1": UNCERTAIN}

#: Words for the sexes, in lowercase.
SEXES: Final = {"f": "F", "female": "F", "m": "M", "male": "M"}
OLDEST: Final = 120
#: Units of an age, in lowercase without accents -> how many of them are a year; Y, M, W and D are DICOM's.
PER_YEAR: Final = {
    word: number
    for number, words in {
        1.0: " y yr yrs year years yo jahr jahre a an ans ano anos 歳 才 歲 岁"  # the first is the empty one
        " lat lata rok roku roky rokov let leta anno anni jaar jaren jr ar",
        12.0: "m mo mos mon month months monat monate monaten mes meses mois mies miesiac miesiace miesiecy"
        " mesic mesice mesicu mesiac mesiace mesiacov mese mesi maand maanden mnd manad manader maned maneder",
        52.18: "w wk wks week weeks woche wochen semana semanas semaine semaines tydzien tygodnie tygodni tyg"
        " tyden tydny tydnu tyzden tyzdne tyzdnov settimana settimane weken vecka veckor uge uger uke uker",
        365.25: "d day days tag tage tagen dia dias jour jours dzien dni den dny dnu"
        " giorno giorni dag dagen dagar dage dager",
    }.items()
    for word in words.split(" ")
}


#: Characters of no width.
_NO_WIDTH: Final = re.compile("[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff]")
_INVISIBLE: Final = ("Cc", "Cf", "Zs", "Zl", "Zp")
#: Signs between a letter and the number behind it: `HC-1`, `HC_1`, and the dashes of text programs.
_BEFORE_NUMBER: Final = re.compile("(?<=[^\\W\\d_])[-_./\u2010-\u2015\u2212]+(?=\\d)")
#: Letters and one number, as a spreadsheet may have rewritten it: `0012`, `12`, `12.0`; and `1.012`, which is 1012.
_NUMBERED: Final = re.compile(r"(\D*)(\d{1,3}(?:[.,]\d{3})+|\d+)(?:[.,]0+)?")


@dataclass(frozen=True)
class SiteReader:
    """Declares a reader: one object at the top level of its module.

    Attributes
    ----------
    name
        As in `reader: NAME` of a site's YAML.
    read
        `read(source, options) -> rows`, see `docs/own_reader.md`. `source` is a `Source`.
    options
        The model of the keys beside `name` in `reader: {name: NAME, ...}`; no other key is accepted.
    roles
        The keys that `label_files` may have; None accepts any.
    """

    name: str
    read: Callable[[Any, Any], pd.DataFrame]
    options: type[Options] = Options
    roles: tuple[str, ...] | None = None


#: Number of images above which only some are looked for, to know the ending of all.
_LOOKED_FOR: Final = 2_000

#: The modules of these packages declare the built-in readers.
_PACKAGES: Final = ("chestfed.data.sites.releases", "chestfed.data.sites.tables")
READERS: Final = Catalogue("reader", "chestfed.readers", SiteReader, packages=_PACKAGES)


def load_names(release: str) -> Any:
    """The names of findings in the label files of a published data set, from `releases/names.yaml`."""
    with resources.files("chestfed.data.sites.releases").joinpath("names.yaml").open(encoding="utf-8") as file:
        return yaml.safe_load(file)[release]


def find_any(source: Source, roles: Sequence[str]) -> dict[str, Path]:
    """The files of those roles that are there. None is a problem; the lack of some is a remark."""
    before = len(source.problems)
    files = {role: path for role in roles if (path := source.find(role, required=False)) is not None}
    patterns = {role: ", ".join(source.config.label_files.get(role, [])) for role in roles if role not in files}
    if not files and len(source.problems) == before:
        text = f"no label file in {source.folder}; looked for {', '.join(patterns.values())} (also as .gz)"
        advice = "set the site's root to the folder of the release, or name a file in label_files of the YAML"
        source.problem("missing file", roles[0], text, advice=advice)
    elif "train" in patterns and len(source.problems) == before:
        source.remarks.append(f"no train file, so nothing to train on; looked for {patterns['train']}")
    return files


def raw_rows(columns: Mapping[str, object], findings: Mapping[str, np.ndarray], rows: int) -> pd.DataFrame:
    """A reader's frame; columns not given are missing (`inverted`: false)."""
    defaults = {"sex": None, "age": np.nan, "inverted": False}
    filled = {name: columns[name] if name in columns else defaults[name] for name in RAW_COLUMNS}
    filled |= {"date": columns["date"]} if "date" in columns else {}  # of the check alone, in years
    return pd.DataFrame({**filled, **findings}, index=pd.RangeIndex(rows))


def join_rows(parts: Sequence[pd.DataFrame], source: Source) -> pd.DataFrame:
    """The rows of several label files; an empty frame with all columns if there is none."""
    if not parts:
        return raw_rows(dict.fromkeys(RAW_COLUMNS), dict.fromkeys(source.config.diseases, np.zeros(0, np.int8)), 0)
    return pd.concat(parts, ignore_index=True)


def views(source: Source, path: Path, cells: pd.Series, rows: np.ndarray, words: Mapping[str, str]) -> pd.Series:
    """Views of the cells by `words`; blank is `unknown`; any other word is a problem."""
    translated = translate(cells, words)
    bad = (translated.isna() & cells.notna()).to_numpy()
    advice = f"known views: {', '.join(sorted(words))}"
    source.bad_rows(path, "unknown view", bad, rows, lambda place: f"unknown view '{cells.iat[place]}'", advice)
    return translated.fillna("unknown")


def image_files(source: Source, names: pd.Series, usual: str) -> pd.Series:
    """The files of images that are named without an ending: with that of the file there is, or else the usual one.

    `names` are paths relative to the root. Of very many, some are looked for, and all only if their endings differ.
    """
    folders, step = Folders(source.root), len(names) // _LOOKED_FOR + 1

    def ending(name: str) -> str:
        twins = folders.twins(name + usual) if source.has_images else []
        return twins[0].removeprefix(name) if twins else ""

    some = {ending(name) for name in names.dropna().iloc[::step]} - {""}
    if len(some) == 1 and step > 1:
        return names + some.pop()
    return names + names.map(lambda name: ending(name) or usual, na_action="ignore")


def column_findings(
    source: Source, path: Path, frame: pd.DataFrame, *, uncertain: bool = True
) -> dict[str, np.ndarray]:
    """Findings int8 [n] per disease from the columns that the label map names; bad values are problems."""
    advice = f"labels are {'1, 0, -1 or blank' if uncertain else '1 or 0'}; fix the cell"
    labels, rows = source.config.labels, frame["row"].to_numpy()
    names = dict.fromkeys(name for names in labels.values() for name in names if name in frame)
    findings = {name: from_numbers(frame[name], uncertain=uncertain) for name in names}
    for name, codes in findings.items():
        for place in np.flatnonzero(codes == INVALID).tolist():
            text = f"'{name}' is '{frame[name].iat[place]}'"
            source.problem("bad label value", source.name(path), text, int(rows[place]), advice)
    return {
        disease: strongest([findings[name] for name in labels[disease] if name in findings], len(frame))
        for disease in source.config.diseases
    }


def label_names(source: Source, vocabulary: Collection[str]) -> list[str]:
    """The names in the site's label map; those unknown to the format are problems."""
    names = list(dict.fromkeys(name for names in source.config.labels.values() for name in names))
    for name in names:
        if name not in vocabulary:
            text = f"'{name}' is not a label of this format; {suggestion(name, vocabulary)}"
            source.problem("unknown label name", "labels", text, advice="fix 'labels' in the site's YAML")
    return [name for name in names if name in vocabulary]


def beside(source: Source, path: Path) -> str:
    """A label file's folder relative to the root, ending in a slash; empty at the root or without images."""
    inside = source.has_images and path.parent != source.root
    return f"{path.parent.relative_to(source.root).as_posix()}/" if inside else ""


def list_entries(source: Source, folders: Iterable[Path]) -> dict[str, str]:
    """Name -> the first of the folders that has it: relative to the root, ending in a slash; empty for the root."""
    places: dict[str, str] = {}
    for folder in folders if source.has_images else ():
        place = "" if folder == source.root else f"{folder.relative_to(source.root).as_posix()}/"
        if folder.is_dir():
            with os.scandir(folder) as entries:
                places = {entry.name: place for entry in entries} | places
    return places


def leaves_root(images: pd.Series) -> pd.Series:
    """Which of the paths, taken by their names alone, leave the root that they are relative to."""
    paths = images.fillna("").astype("str").str.replace("\\", "/", regex=False)
    return paths.str.contains(r"(?:^|/)(?:/|[A-Za-z]:|\.\.(?:/|$))")


def suggestion(name: str, names: Collection[str]) -> str:
    """The closest of the known names, first one that contains it; all of them if none is close."""
    close = [known for known in names if name.casefold() in known.casefold()] or list_near(name, names)
    return f"did you mean '{close[0]}'?" if close else f"known: {', '.join(sorted(names))}"


def from_numbers(cells: pd.Series, *, uncertain: bool = True) -> np.ndarray:
    """Findings int8 [n] of cells 1, 0, -1 or blank; `INVALID` for anything else (and for -1 if not `uncertain`)."""
    return from_words(cells, {word: code for word, code in _NUMBERS.items() if uncertain or code != UNCERTAIN})


def canonical(cell: str) -> str:
    """A cell without outer spaces, in lowercase; 1.0, 1.00 and 1,0 are 1."""
    word = cell.strip().casefold()
    whole = re.fullmatch(r"([+-]?\d+)(?:\.0*|,0+)", word)
    return whole[1] if whole else word


def from_words(cells: pd.Series, words: Mapping[str, np.int8]) -> np.ndarray:
    """Findings int8 [n] of cells by their canonical words, "" being the missing cell; `INVALID` for any other."""
    codes, different = pd.factorize(cells)
    table = [words.get(canonical(str(cell)), INVALID) for cell in different]
    return np.array([*table, words.get("", BLANK)], dtype=np.int8)[codes]


def strongest(findings: list[np.ndarray], rows: int) -> np.ndarray:
    """One finding per image from those of several names: positive wins over uncertain, negative, blank."""
    if not findings:
        return np.full(rows, BLANK, dtype=np.int8)
    ranks = np.vectorize(STRENGTH.__getitem__, otypes=[np.int8])(np.stack(findings)) if len(findings) > 1 else None
    return findings[0] if ranks is None else _BY_STRENGTH[ranks.max(axis=0)]


def sexes(cells: pd.Series) -> pd.Series:
    """`F`, `M` or missing."""
    return translate(cells, SEXES, lower=True)


def ages(cells: pd.Series, unit: str = "") -> np.ndarray:
    """Years float32 [n]; above 120 or unreadable is missing.

    `058Y`, `011M` and `002D` are DICOM ages; `58,5` has a decimal comma; `58 Jahre`, `58 lat` and `3 mois` have words.
    A bare number has the `unit`, by default years.
    """
    codes, different = pd.factorize(cells)
    return np.array([*(_parse_age(str(cell), unit) for cell in different), np.nan], dtype=np.float32)[codes]


def translate(cells: pd.Series, words: Mapping[str, str], *, lower: bool = False) -> pd.Series:
    """Each cell's translation; missing for blanks and for words without one."""
    codes, different = pd.factorize(cells)
    keys = [str(word).strip().lower() if lower else str(word).strip() for word in different]
    table = np.array([*(words.get(key) for key in keys), None], dtype=object)
    return pd.Series(table[codes], index=cells.index, dtype=object)


def _parse_age(cell: str, usual: str) -> float:
    letters = unicodedata.normalize("NFKD", cell)
    bare = "".join(letter for letter in letters if not unicodedata.combining(letter))
    match = re.fullmatch(r"\s*(\d+(?:\.\d+|,\d{1,2})?)\s*([A-Za-z歳才歲岁]*)\.?\s*", bare)
    unit = "" if match is None else "jahr" if match[2] == "J" else match[2].lower() or usual  # a small j may be jours
    if match is None or unit not in PER_YEAR:
        return np.nan
    years = float(match[1].replace(",", ".")) / PER_YEAR[unit]
    return np.nan if years > OLDEST else math.floor(years)


def drop_invisible(frame: pd.DataFrame) -> tuple[pd.DataFrame, int]:
    """Rows whose patients' names are without characters of no width, and how many names had any.

    A byte order mark or a zero-width space within a name, as copied text may have them, would make another patient,
    and so put one person into two splits.
    """
    names = frame["patient"].dropna().drop_duplicates().astype("str")
    marked = names[names.str.contains(_NO_WIDTH)]
    if marked.empty:
        return frame, 0
    seen = {name: _NO_WIDTH.sub("", name).strip() or None for name in marked}
    return frame.assign(patient=frame["patient"].map(lambda name: seen.get(name, name))), len(seen)


def plain_id(name: str) -> str:
    """An id in small letters, without blanks, invisible characters, leading zeros, or the `.0` of a number.

    A sign between letters and a number is left out too: `HC-1`, `hc 1` and `HC001` are alike.
    """
    if name.isdecimal() and name.isascii():
        return name.lstrip("0") or "0"
    if name.isascii() and name.isprintable():
        visible = name.lower().replace(" ", "")
    else:
        folded = unicodedata.normalize("NFKC", _drop_invisible(name)).casefold()
        visible = _drop_invisible(folded)
    visible = visible if visible.isalnum() else _BEFORE_NUMBER.sub("", visible)
    numbered = _NUMBERED.fullmatch(visible)
    return (
        visible
        if numbered is None
        else f"{numbered[1]}{numbered[2].replace('.', '').replace(',', '').lstrip('0') or '0'}"
    )


def group_spellings(patients: Iterable[str]) -> list[list[str]]:
    """Different names with one plain spelling, together; all others are left out."""
    groups: dict[str, list[str]] = {}
    for name in dict.fromkeys(patients):
        groups.setdefault(plain_id(name), []).append(name)
    return [names for plain, names in groups.items() if plain and len(names) > 1]


def similar_ids(frame: pd.DataFrame) -> dict[int, int]:
    """Rows whose patient is, except for the spelling of the id, in another split at an earlier row.

    Keys and values are places in the frame, which has the columns `patient` and `split`: one pair per person. Ids that
    are the same are not reported.
    """
    patients = frame["patient"].unique().tolist()
    groups = {name: number for number, names in enumerate(group_spellings(patients)) for name in names}
    if not groups:
        return {}
    persons, splits = frame["patient"].map(groups).to_numpy(), frame["split"].tolist()
    names = frame["patient"].tolist()
    first: dict[int, list[int]] = {}
    pairs: dict[int, tuple[int, int]] = {}
    for place in np.flatnonzero(~np.isnan(persons.astype(float))).tolist():
        person = int(persons[place])
        for earlier in first.setdefault(person, []):
            if names[place] != names[earlier] and splits[place] != splits[earlier]:
                pairs.setdefault(person, (place, earlier))
        if all((names[place], splits[place]) != (names[other], splits[other]) for other in first[person]):
            first[person].append(place)
    return dict(pairs.values())


def _drop_invisible(name: str) -> str:
    return "".join(letter for letter in name if unicodedata.category(letter) not in _INVISIBLE)

"""PadChest: one CSV, findings as a list of terms of the authors' tree, PNG files in folders 0 to 54 or in one.

`padchest_terms.csv` is the tree: a name in the site's `labels` means its term and all terms below it. What the terms of
an image say of a disease:

- positive: one of them is the disease, or below it;
- unlabeled: the list is empty, or a term is not in the tree, for a misspelt term may be the disease;
- blank: one is in `no_label`; `unchanged` only if no sentence of the report is `normal`;
- negative otherwise.

There is no official split: every image is in train.
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Final, Literal

import numpy as np
import pandas as pd
from pydantic import Field, field_validator

from chestfed.core.plugins import Options
from chestfed.data.sites.label_files.source import Source
from chestfed.data.sites.label_files.text import mention_nearest
from chestfed.data.sites.reader import (
    BLANK,
    NEGATIVE,
    POSITIVE,
    UNLABELLED,
    SiteReader,
    ages,
    beside,
    join_rows,
    label_names,
    raw_rows,
    sexes,
    views,
)
from chestfed.data.sites.terms import listed, normal

_VIEWS: Final = {"PA": "pa", "AP": "ap", "AP_horizontal": "ap", "L": "lateral", "UNK": "unknown"} | dict.fromkeys(
    ("COSTAL", "EXCLUDE"), "other"
)
_REQUIRED: Final = ["ImageID", "StudyID", "PatientID", "Projection", "Labels"]
_OPTIONAL: Final = [
    "ImageDir",
    "PatientBirth",
    "PatientSex_DICOM",
    "StudyDate_DICOM",
    "Pediatric",
    "MethodLabel",
    "LabelsLocalizationsBySentence",
    "PhotometricInterpretation_DICOM",
]
#: Begins the terms that say where a finding is.
_PLACE: Final = "loc "
_UNCHANGED: Final = "unchanged"
_NORMAL_SENTENCE: Final = r"""(?i)'\s*normal\s*'|"\s*normal\s*\""""
#: Words of a note about diseases that no term of a row means.
_UNNAMED: Final = "what they do not name is"
_SHOWN: Final = 3  # unknown terms in a note, and only short ones: a long one may be a report
_LONGEST_SHOWN: Final = 40


@cache
def tree() -> dict[str, frozenset[str]]:
    """Each term of PadChest's tree -> itself and all terms above it."""
    with resources.files("chestfed.data.sites.releases").joinpath("padchest_terms.csv").open(encoding="utf-8") as file:
        frame = pd.read_csv(file, comment="#", keep_default_na=False)
    parents = {
        term: [name for name in cell.split(";") if name] for term, cell in zip(frame.term, frame.below, strict=True)
    }

    def above(term: str) -> frozenset[str]:
        return frozenset([term]).union(*map(above, parents[term]))

    return {term: above(term) for term in parents}


class PadChestOptions(Options):
    """`reader: {name: padchest, ...}`."""

    no_label: list[str] = Field(
        ["exclude", "suboptimal study", _UNCHANGED],
        description="terms that leave every disease not named beside them blank instead of negative; `unchanged` "
        "only if no sentence of the report is normal",
    )
    methods: list[Literal["Physician", "RNN_model"]] | Literal["all"] = Field(
        "all", description="whose labels count; other images have missing labels"
    )
    pediatric: Literal["drop", "keep"] = Field(
        "drop",
        description="drop or keep images that the column Pediatric marks PED; the authors treat them as a "
        "separate view",
    )

    @field_validator("no_label")
    @classmethod
    def _terms_are_known(cls, value: list[str]) -> list[str]:
        for term in value:
            if term not in tree():
                raise ValueError(f"'{term}' is not a term of PadChest{mention_nearest(term, tree())}")
        return value


def read(source: Source, options: PadChestOptions) -> pd.DataFrame:
    """Raw rows of the label file."""
    label_names(source, tree())
    table = source.read_role("labels", _REQUIRED, _OPTIONAL, given=source.labels_file)
    if table is None:
        return join_rows([], source)
    path, frame = table
    children = (frame["Pediatric"].str.strip() == "PED").to_numpy(dtype=bool)
    if options.pediatric == "drop":
        _note(source, path, children, "are of children and are left out (reader.pediatric: keep keeps them)")
        if frame["Pediatric"].isna().all():
            source.remarks.append(f"{source.name(path)}: no 'Pediatric': images of children, if any, are kept")
        frame = frame[~children].reset_index(drop=True)
    rows = frame["row"].to_numpy()
    columns = {
        "image": _locate_images(source, path, frame),
        "patient": frame["PatientID"],
        "study": frame["StudyID"],
        "view": views(source, path, frame["Projection"], rows, _VIEWS),
        "split": "train",
        "sex": sexes(frame["PatientSex_DICOM"]),
        "age": _compute_ages(frame),
        "row": rows,
        "file": source.name(path),
        "inverted": (frame["PhotometricInterpretation_DICOM"] == "MONOCHROME1").to_numpy(dtype=bool),
    }
    return raw_rows(columns, _read_findings(source, path, frame, options), len(frame))


def _read_findings(source: Source, path: Path, frame: pd.DataFrame, options: PadChestOptions) -> dict[str, np.ndarray]:
    """Findings int8 [n] per disease; how many rows are missing or in doubt is noted."""
    codes, cells = _read_terms(source, path, frame)
    known = {normal(term): term for term in tree()}
    named = [{known[word] for word in cell if word in known} for cell in cells]

    def expand(of_cell: list[bool]) -> np.ndarray:
        return np.array(of_cell)[codes]

    strange = expand([not cell <= known.keys() for cell in cells])
    silent = expand([bool(terms & set(options.no_label) - {_UNCHANGED}) for terms in named])
    unchanged = expand([_UNCHANGED in terms & set(options.no_label) for terms in named])
    sentences = frame["LabelsLocalizationsBySentence"]
    unsaid = unchanged & ~sentences.astype("str").str.contains(_NORMAL_SENTENCE).to_numpy(dtype=bool)
    others = _find_other_methods(source, path, frame, options)

    with_one = f"({int((unchanged & ~unsaid).sum()):,} have one)"
    if sentences.isna().all():
        with_one = "in 'LabelsLocalizationsBySentence', which the file lacks"
    normal_too = expand([{"normal"} < terms for terms in named])
    unknown = Counter(word for code in codes.tolist() for word in cells[code] - known.keys())
    _note(source, path, strange, f"have a term not in PadChest's tree ({_name_unknown(unknown)}): {_UNNAMED} missing")
    _note(source, path, silent, f"are marked as excluded or suboptimal: {_UNNAMED} blank")
    _note(source, path, unsaid, f"are 'unchanged' without a normal sentence {with_one}: {_UNNAMED} blank")
    _note(source, path, normal_too, "say 'normal' beside another term; the other term counts")
    _note(source, path, others, "were labeled by a method not in reader.methods: their labels are missing")

    unread = strange | expand([not cell for cell in cells])
    rest = np.select([unread, silent | unsaid], [UNLABELLED, BLANK], NEGATIVE)
    findings = {}
    for disease in source.config.diseases:
        names = set(source.config.labels[disease])
        positive = expand([any(tree()[term] & names for term in terms) for terms in named])
        source.unread("terms not in PadChest's tree", disease, int((strange & ~positive & ~others).sum()))
        findings[disease] = np.select([others, positive], [UNLABELLED, POSITIVE], rest).astype(np.int8)
    return findings


def _read_terms(source: Source, path: Path, frame: pd.DataFrame) -> tuple[np.ndarray, list[set[str]]]:
    """Which of the different cells each row has, int [n], and their terms, without places; the last cell is blank."""
    codes, cells = pd.factorize(frame["Labels"])
    lists = [listed(str(cell)) for cell in cells]
    bad = np.array([*(terms is None for terms in lists), False])[codes]
    advice = "a cell is a list such as ['cardiomegaly', 'pleural effusion']; fix it"
    rows = frame["row"].to_numpy()
    source.bad_rows(path, "bad label value", bad, rows, lambda place: f"Labels is {cells[codes[place]]!r}", advice)
    words = [{normal(term) for term in terms or ()} for terms in [*lists, []]]
    words = [{word for word in cell if word and not word.startswith(_PLACE)} for cell in words]
    empty = np.array([not cell for cell in words])[codes] & ~bad
    _note(source, path, empty, "have no term: their labels are missing")
    return codes, words


def _name_unknown(unknown: Counter[str]) -> str:
    """`12 different, such as 'cardiomegally' (3)`."""
    shown = [f"'{word}' ({rows:,})" for word, rows in unknown.most_common(_SHOWN) if len(word) <= _LONGEST_SHOWN]
    return f"{len(unknown):,} different" + (f", such as {', '.join(shown)}" if shown else "")


def _note(source: Source, path: Path, rows: np.ndarray, text: str) -> None:
    """Say how many of the rows are meant, bool `[n]`, if any."""
    if rows.any():
        source.remarks.append(f"{source.name(path)}: {int(rows.sum()):,} of {len(rows):,} rows {text}")


def _find_other_methods(source: Source, path: Path, frame: pd.DataFrame, options: PadChestOptions) -> np.ndarray:
    """Whose labels were made in none of the ways that the configuration accepts, bool [n]."""
    if options.methods == "all":
        return np.zeros(len(frame), dtype=bool)
    others = ~frame["MethodLabel"].isin(options.methods).to_numpy(dtype=bool)
    if others.all():
        methods = ", ".join(sorted({str(cell) for cell in frame["MethodLabel"]}))
        text = f"no row's MethodLabel is {' or '.join(options.methods)}; found: {methods}"
        source.problem("nothing left", source.name(path), text, advice="change 'reader.methods' in the site's YAML")
    return others


def _compute_ages(frame: pd.DataFrame) -> np.ndarray:
    """Year of the study minus year of birth, float32 [n]; the other fields have no more detail."""
    study = pd.to_numeric(frame["StudyDate_DICOM"].astype("str").str[:4], errors="coerce")
    birth = pd.to_numeric(frame["PatientBirth"], errors="coerce")
    return ages((study - birth).astype("str"))


def _locate_images(source: Source, path: Path, frame: pd.DataFrame) -> pd.Series:
    """Paths relative to the root: in the folder that `ImageDir` names, or beside the label file if there is none."""
    names = frame["ImageDir"].fillna("").astype("str").str.strip().str.removesuffix(".0")
    there = {name: f"{name}/" for name in names.unique() if not source.has_images or (path.parent / name).is_dir()}
    return beside(source, path) + names.map(lambda name: there.get(name, "") if name else "") + frame["ImageID"]


READER: Final = SiteReader("padchest", read, PadChestOptions, roles=("labels",))

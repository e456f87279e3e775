"""Small tables of hospitals that nobody knows: YAML and files, written and opened."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from chestfed.core.diseases import DISEASES
from chestfed.core.errors import Problem, SiteError
from chestfed.data.sites import SiteConfig, SiteTable, load_site_config, open_site
from chestfed.leaves.samples.layouts import make_dicom
from chestfed.leaves.samples.tables import write_rows

#: A hospital's names for the five diseases.
NAMES = {
    "cardiomegaly": ["Cardiomegaly"],
    "edema": ["Edema", "Pulmonary Edema"],
    "consolidation": ["Consolidation"],
    "atelectasis": ["Atelectasis"],
    "pleural_effusion": ["Effusion"],
}
COLUMNS = {"image": "File", "patient": "MRN", "view": "Projection", "split": "Set", "sex": "Sex", "age": "Age"}
Row = Mapping[str, object]
#: Stands in cells and names that must not come out again.
SECRET = "Jane Doe"


def meanings(**more: str) -> dict[str, str]:
    """What the terms of a hospital mean: the five diseases, each also denied and in doubt, and `Normal`."""
    codes = {"Normal": "normal"}
    for disease, names in NAMES.items():
        for name in names:
            codes |= {name: disease}
            codes |= {form.format(name): f"{disease} absent" for form in ("no {}", "without {}", "negative for {}")}
            codes |= {form.format(name): f"{disease} uncertain" for form in ("possible {}", "cannot exclude {}", "{}?")}
    return {**codes, **more}


#: Forms of a table, by what holds its labels.
WIDE: dict[str, Any] = {"codes": {"labels": {"1": "positive", "0": "negative", "-1": "uncertain"}}}
TERMS: dict[str, Any] = {"columns": {**COLUMNS, "findings": "Findings"}, "codes": {"findings": meanings()}}
LONG: dict[str, Any] = {"columns": {**COLUMNS, "finding": "Finding"}, "codes": {"findings": meanings()}}
VALUED: dict[str, Any] = {**LONG, "columns": {**COLUMNS, "finding": "Finding", "value": "Value"}}
READERS: dict[str, Any] = {**WIDE, "columns": {**COLUMNS, "reader": "Reader"}}


def config(folder: Path, table: Mapping[str, Any], file: str = "labels.csv", **keys: Any) -> SiteConfig:
    """A site in `folder/site`, from a YAML that is written and read; `keys` replace or add to the site's."""
    wide_labels = {} if {"findings", "finding"} & table.get("columns", {}).keys() else {"labels": NAMES}
    kinds = ["edema"] if len({**wide_labels, **keys}.get("labels", {}).get("edema", ())) > 1 else []
    site = {
        "site": "st-example",
        "title": "St. Example",
        "reader": "table",
        "root": "site",
        "label_files": {"table": [file]},
        "views": "all",
        "one_class": "all",
        **wide_labels,
        "uncertain": "missing",
        "blank": "missing",
        "table": {"columns": COLUMNS, "any_column": kinds, **table},
    }
    path = folder / "site.yaml"
    path.write_text(yaml.safe_dump({**site, **keys}, sort_keys=False), encoding="utf-8")
    return load_site_config(path)


save_rows = write_rows


def save_dicom(path: Path, **elements: object) -> Path:
    """A small DICOM image with these elements."""
    dataset = make_dicom(np.zeros((2, 2)), uid="1.2.3")
    for name, value in {"PatientName": "Doe^Jane", "PatientID": "4711", **elements}.items():
        setattr(dataset, name, value)
    dataset.file_meta.MediaStorageSOPClassUID = dataset.SOPClassUID
    dataset.file_meta.MediaStorageSOPInstanceUID = dataset.SOPInstanceUID
    path.parent.mkdir(parents=True, exist_ok=True)
    dataset.save_as(path, enforce_file_format=True)
    return path


def open_table(
    folder: Path, table: Mapping[str, Any], rows: Sequence[Row] | None, file: str = "labels.csv", /, **keys: Any
) -> SiteTable:
    """Write the rows, unless they are None, to `folder/site/file`, and open the site."""
    (folder / "site").mkdir(exist_ok=True)
    if rows is not None:
        save_rows(folder / "site" / file, rows)
    return open_site(config(folder, table, file, **keys), folder)


def problems(
    folder: Path, table: Mapping[str, Any], rows: Sequence[Row] | None, file: str = "labels.csv", /, **keys: Any
) -> list[Problem]:
    """The problems that opening these rows reports; empty if it works."""
    try:
        open_table(folder, table, rows, file, **keys)
    except SiteError as error:
        return error.problems
    return []


def refusals(
    folder: Path, table: Mapping[str, Any], rows: Sequence[Row] | None, file: str = "labels.csv", /, **keys: Any
) -> list[tuple[str, int | None]]:
    """Kind and row of each of these problems."""
    return [(problem.kind, problem.row) for problem in problems(folder, table, rows, file, **keys)]


def labels(table: SiteTable) -> list[list[float | None]]:
    """Labels per row, missing as None."""
    return [[None if cell != cell else cell for cell in row] for row in table.labels().tolist()]


def person(number: int, **cells: object) -> dict[str, object]:
    """The cells of a row besides the labels."""
    described = {
        "File": f"{number}.png",
        "MRN": f"p{number}",
        "Projection": "PA",
        "Set": "train",
        "Sex": "F",
        "Age": "63",
    }
    return {**described, **cells}


def wide(number: int, *values: object, **cells: object) -> dict[str, object]:
    """A row with a value for each of the five diseases, or a 0."""
    names = [names[0] for names in NAMES.values()]
    five = dict(zip(names, values or "00000", strict=True))
    return {**person(number), **five, "Pulmonary Edema": "0", **cells}


assert len(NAMES) == len(DISEASES)

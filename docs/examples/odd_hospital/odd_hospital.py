"""A reader for Odd Hospital, whose archive has no spreadsheet: each study has a `study.json` beside its images.

    odd-hospital/archive/S-20240117-01/study.json  S-20240117-01-a.png  S-20240117-01-b.png

    {"study": "S-20240117-01", "patient": "OH-000123", "born": 1961, "year": 2024, "sex": "female",
     "images": [{"file": "S-20240117-01-a.png", "plane": "pa"}, {"file": "S-20240117-01-b.png", "plane": "lateral"}],
     "coding": {"heart": "3", "fluid": "0", "collapse": "?"}}

The coding is a grade from 0 to 4 per sign; "?" is uncertain; a sign that was not assessed is absent. Which grade counts
as positive is an option of this reader.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pydantic import Field

from chestfed.plugins import (
    BLANK,
    NEGATIVE,
    POSITIVE,
    UNCERTAIN,
    UNLABELLED,
    Options,
    SiteReader,
    Source,
    join_rows,
    label_names,
    raw_rows,
    strongest,
)

SIGNS = ("heart", "fluid", "collapse", "water", "dense")
PLANES = {"pa": "pa", "ap": "ap", "lateral": "lateral", "oblique": "other"}
ADVICE = "fix the file, or ask the archive to export the study again"


class OddOptions(Options):
    """`reader: {name: odd_hospital, positive_from: 3}`; any other key is refused."""

    positive_from: int = Field(2, ge=1, le=4, description="the lowest grade that counts as positive")


def read(source: Source, options: OddOptions) -> pd.DataFrame:
    """One row per image of every study file, in the order of the files' paths."""
    label_names(source, SIGNS)  # an unknown sign in the YAML is a problem
    parts = [_study(source, path, options) for path in source.find_all("studies")]
    return join_rows([part for part in parts if part is not None], source)


def _study(source: Source, path: Path, options: OddOptions) -> pd.DataFrame | None:
    text = source.text(path)
    if text is None:
        return None
    try:
        study = json.loads(text)
        files = [str(image["file"]) for image in study["images"]]
        planes = [str(image["plane"]) for image in study["images"]]
        born, year, coding = int(study["born"]), int(study["year"]), dict(study.get("coding", {}))
        patient, number, sex = str(study["patient"]), str(study["study"]), study.get("sex")
    except json.JSONDecodeError as error:
        source.problem("unreadable file", source.name(path), "is not JSON", error.lineno, ADVICE)
        return None
    except (KeyError, TypeError, ValueError) as error:
        key = f"no '{error.args[0]}'" if isinstance(error, KeyError) else "a value of the wrong kind"
        source.problem("malformed study", source.name(path), key, advice=ADVICE)
        return None
    lines = [_line_of(text.decode(), file) for file in files]
    for plane, line in zip(planes, lines, strict=True):
        if plane not in PLANES:
            source.problem("unknown view", source.name(path), f"unknown plane '{plane}'", line, ADVICE)
    for sign in sorted(coding.keys() - set(SIGNS)):
        source.problem("bad label value", source.name(path), f"unknown sign '{sign}'", advice=ADVICE)
    codes = {sign: np.full(len(files), _finding(source, path, sign, coding, options)) for sign in SIGNS}
    columns = {
        "image": [(path.parent.relative_to(source.root) / file).as_posix() for file in files],
        "patient": patient,
        "study": number,
        "view": [PLANES.get(plane, "unknown") for plane in planes],
        "split": "train",  # the archive has no splits: the YAML's `splits` sets patients aside
        "sex": {"female": "F", "male": "M"}.get(str(sex)),
        "age": float(year - born),
        "row": np.array(lines, dtype=np.int64),
        "file": source.name(path),
    }
    labels = source.config.labels.items()  # disease -> signs
    findings = {name: strongest([codes[s] for s in signs if s in SIGNS], len(files)) for name, signs in labels}
    return raw_rows(columns, findings, len(files))


def _finding(source: Source, path: Path, sign: str, coding: dict[str, Any], options: OddOptions) -> np.int8:
    """The raw finding of one sign."""
    grade = coding.get(sign)
    if grade is None:
        return BLANK if coding else UNLABELLED
    if grade == "?":
        return UNCERTAIN
    if grade in ("0", "1", "2", "3", "4"):
        return POSITIVE if int(grade) >= options.positive_from else NEGATIVE
    source.problem("bad label value", source.name(path), f"'{sign}' is not a grade from 0 to 4", advice=ADVICE)
    return BLANK


def _line_of(text: str, file: str) -> int:
    """The line that names an image, counted from 1; 1 if it is not found."""
    before, found, _ = text.partition(json.dumps(file))
    return before.count("\n") + 1 if found else 1


READER = SiteReader("odd_hospital", read, OddOptions, roles=("studies",))

"""Labels in the names of folders and files: releases without a table, such as `train/PNEUMONIA/person1_virus_6.jpeg`.

A pattern takes the label, the patient and, if they are there, study, view and split out of an image's path below the
site's root. A disease is positive where the label is one of its names in the site's `labels`, else negative. An image
whose path does not fit, or whose label belongs to no disease and is not among `normal`, is a problem.
"""

from __future__ import annotations

import re
from typing import Final

import numpy as np
import pandas as pd
from pydantic import Field, field_validator

from chestfed.core.plugins import Options
from chestfed.dicom.file_kinds import image_ending
from chestfed.sites.folders import Folders
from chestfed.sites.label_files.source import Source
from chestfed.sites.reader import NEGATIVE, POSITIVE, SiteReader, View, join_rows, raw_rows

_GROUPS: Final = ("label", "patient", "study", "view", "split")
#: What messages name in place of a label file: the images' paths stay where the images are.
_FILE: Final = "images"


class PathsOptions(Options):
    """`reader: {name: paths, ...}`."""

    pattern: str = Field(
        description="regular expression that is searched for in an image's path below the root, with the groups "
        "(?P<label>...), (?P<patient>...) and possibly study, view and split"
    )
    normal: list[str] = Field([], description="labels that mean none of the site's diseases")
    view: View = Field("unknown", description="the view of all images, unless the pattern has a group for it")
    folders: list[str] = Field(["."], min_length=1, description="folders below the root that are searched")

    @field_validator("pattern")
    @classmethod
    def _has_its_groups(cls, value: str) -> str:
        try:
            groups = re.compile(value).groupindex
        except re.error as error:
            raise ValueError(f"is not a regular expression: {error}") from None
        if not {"label", "patient"} <= groups.keys() <= set(_GROUPS):
            raise ValueError(
                "needs the groups (?P<label>...) and (?P<patient>...), and no others than study, view, split"
            )
        return value


def read(source: Source, options: PathsOptions) -> pd.DataFrame:
    """Raw rows of all images below the folders, in the order of their paths."""
    if not source.has_images:
        source.problem("missing file", "labels", "the labels are in the images' paths", advice="omit --labels")
        return join_rows([], source)
    prefixes = ["" if folder == "." else f"{folder.rstrip('/')}/" for folder in options.folders]
    listed = Folders(source.root)
    images = [name for prefix in prefixes for name in listed.files(prefix) if image_ending(name)]
    if not images:
        advice = "set the site's root to the folder of the release"
        source.problem("missing file", _FILE, f"no image in {', '.join(options.folders)}", advice=advice)
        return join_rows([], source)
    paths = pd.Series(images, dtype=object)
    found = paths.astype("str").str.extract(options.pattern).reindex(columns=_GROUPS).astype(object)
    names = source.config.labels
    known = {*options.normal, *(name for words in names.values() for name in words)}
    rows, label = np.arange(1, len(images) + 1), found["label"]
    unfit = (label.isna() | found["patient"].isna()).to_numpy(dtype=bool)
    advice = "set reader.pattern to how the images are named, or move other images away"
    source.bad_rows(source.root / _FILE, "unknown path", unfit, rows, "the pattern does not fit the path", advice)
    strange = ~unfit & ~label.isin(known).to_numpy(dtype=bool)
    text, advice = "the label belongs to no disease", "add it to 'labels' or to reader.normal in the site's YAML"
    source.bad_rows(source.root / _FILE, "bad label value", strange, rows, text, advice)
    columns = {
        "image": paths,
        "patient": found["patient"],
        "study": found["study"].where(found["study"].notna(), found["patient"]),
        "view": found["view"].where(found["view"].notna(), options.view),
        "split": found["split"].where(found["split"].notna(), "train"),
        "row": rows,
        "file": _FILE,
    }
    findings = {disease: np.where(label.isin(words), POSITIVE, NEGATIVE) for disease, words in names.items()}
    return raw_rows(columns, findings, len(images))[~unfit & ~strange].reset_index(drop=True)


READER: Final = SiteReader("paths", read, PathsOptions, roles=())

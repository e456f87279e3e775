"""Mistakes in the `table` block of a site's YAML; each is named with its file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from chestfed.core.errors import ConfigError
from tests.cases import each
from tests.data.sites.own_tables import COLUMNS, NAMES, READERS, TERMS, config

HEADERS = {"columns": {"patient": "PatientID", "findings": "ImageComments"}}
IMAGES = {"label_files": {"images": ["**/*.dcm"]}}
NAMED: dict[str, Any] = {"header": "AccessionNumber", "elements": ["ViewPosition"]}
BY_VIEW: dict[str, Any] = {"image": "File", "patient": "MRN", "view": "ViewPosition"}
PEOPLE: dict[str, Any] = {"file": "people", "key": ["MRN", "ID"], "columns": ["Sex", "Age"]}
FILES: dict[str, Any] = {"label_files": {"table": ["labels.csv"], "people": ["people.csv"]}}
MISTAKES: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({}, {"reader": "chexpert"}, "'table': only with reader: table; reader 'chexpert' knows its format"),
    ({"colums": {}}, {}, "unknown key 'table.colums'; did you mean 'columns'?"),
    ({"layout": "onehot"}, {}, "unknown key 'table.layout'"),
    ({"columns": {"patient": "MRN"}}, {}, "columns.image is needed"),
    ({"columns": {"image": "File"}}, {}, "columns.patient is needed, or from_path with a group"),
    ({"columns": {**COLUMNS, "value": "V"}}, {}, "columns.value needs columns.finding"),
    ({"columns": {**COLUMNS, "finding": "F", "findings": "G"}}, {}, "findings and finding exclude each other"),
    ({"separator": ";"}, {}, "'separator' has no effect without columns.findings"),
    ({"other_terms": "ignore"}, {}, "'other_terms' has no effect"),
    ({"raters": "majority"}, {}, "'raters' has no effect without annotators"),
    ({**READERS}, {"labels": {**NAMES, "edema": ["E_{reader}"]}}, "exclude each other"),
    ({"any_column": ["mass"]}, {}, "any_column: mass: not among"),
    ({"any_column": ["atelectasis"]}, {}, "any_column: atelectasis has one column"),
    ({"threshold": {"mass": 1}}, {}, "threshold: mass: not among"),
    ({**TERMS, "threshold": 1}, {}, "'threshold' has no effect"),
    ({"encoding": "shift-jiss"}, {}, "unknown encoding: shift-jiss"),
    ({"delimiter": '"'}, {}, "must be an ASCII character"),
    ({"images": {"roots": ["../x"]}}, {}, "'../x' leaves the site's root"),
    ({"images": {"path": "{image.__class__"}}, {}, "write fields as {name}"),
    ({"images": {"path": "{image[0]}"}}, {}, "write fields as {name}"),
    ({"codes": {"view": {"x": "front"}}}, {}, "codes: 'view', 'x': unknown meaning of a view"),
    ({"codes": {"Edema": {"x": "edema"}}}, {}, "unknown meaning of a label"),
    ({"codes": {"Oedema": {"x": "positive"}}}, {}, "'Oedema' is neither a column that is read"),
    ({"codes": {"labels": {"1": "positive", "1.0": "negative"}}}, {}, "'labels' has a value twice"),
    ({**TERMS, "codes": {"findings": {"edema": "oedema"}}}, {}, "oedema: not among the site's 'diseases'"),
    ({**TERMS, "codes": {"findings": {"edema": "see report"}}}, {}, "unknown meaning"),
    ({**TERMS, "codes": {"findings": {"edema": "edema; edema absent"}}}, {}, "mentions edema more than once"),
    (TERMS, {"labels": NAMES}, "remove 'labels'"),
    ({}, {"labels": {"edema": ["x"]}}, "'labels' says nothing about cardiomegaly, consolidation"),
    ({}, {"one_class": ["mass"]}, "mass: not among the site's 'diseases'"),
    ({}, {"reader": {"name": "table", "raters": "any"}}, "unknown key 'reader.raters': it is an option of vindr"),
    ({}, {"label_files": {"labels": ["a.csv"]}}, "label_files takes 'table', or 'train'"),
    ({}, {"label_files": {"train": ["a.csv"]}}, "columns.split exclude each other"),
    ({**HEADERS, "delimiter": ";"}, IMAGES, "'delimiter' has no effect where label_files has images"),
    ({"columns": {**HEADERS["columns"], "image": "x"}}, IMAGES, "'columns.image' has no effect"),
    ({"columns": {"patient": "PatientID", "findings": "ImageComment"}}, IMAGES, "did you mean 'ImageComments'?"),
    (
        {"columns": {"patient": "PatientBirthDate", "findings": "ImageComments"}},
        IMAGES,
        "not a DICOM element that may",
    ),
    ({**HEADERS, "keep": ["PatientName"]}, IMAGES, "may identify a person"),
    ({"images": {"suffix": "any", "recursive": True}}, {}, "cannot be combined"),
    ({"images": {"path": "{File}.png", "replace": {"/": "-"}}}, {}, "'replace' has no effect"),
    ({"images": {"path": "{File}.png", "remove_prefix": "a/"}}, {}, "'remove_prefix' has no effect"),
    ({"images": {"replace": {"": "-"}}}, {}, "at least 1 character"),
    ({"columns": BY_VIEW, "images": {**NAMED, "suffix": ".dcm"}}, {}, "'suffix' has no effect together with 'header'"),
    ({"images": {"unmatched": "drop"}}, {}, "'unmatched' needs 'header'"),
    ({"columns": BY_VIEW, "images": {**NAMED, "header": "PatientName"}}, {}, "table.images.header"),
    ({"images": {**NAMED, "elements": ["ViewPosition", "PatientSex"]}}, {}, "no column is 'PatientSex'"),
    (
        {"columns": {**BY_VIEW, "patient": "PatientName"}, "images": {**NAMED, "elements": ["PatientName"]}},
        {},
        "may identify a person",
    ),
    ({"join": [{**PEOPLE, "file": "persons"}]}, FILES, "join: 'persons' is not a role in label_files"),
    ({"join": [{**PEOPLE, "file": "table"}]}, FILES, "join: 'table' is the table itself"),
    ({"join": [PEOPLE, {**PEOPLE, "key": ["File"]}]}, FILES, "'Sex' is taken from two joined files"),
    ({"join": [{**PEOPLE, "columns": ["Sex", "Sex"]}]}, FILES, "duplicate column in 'columns'"),
    ({"join": [{**PEOPLE, "columns": [], "unmatched": "blank"}]}, FILES, "has no effect without 'columns'"),
    ({"join": [{**PEOPLE, "key": []}]}, FILES, "table.join.0.key"),
    (
        {"join": [{**PEOPLE, "key": ["Sex"]}]},
        FILES,
        "the key 'Sex' of the file 'people' is not known",
    ),
    ({"columns": {"image": "File"}, "from_path": "("}, {}, "is not a regular expression"),
    (
        {"columns": {"image": "File"}, "from_path": "patient"},
        {},
        "needs named groups among patient, study, view",
    ),
    ({"columns": {"image": "File"}, "from_path": "(?P<age>.)"}, {}, "not age"),
    ({"columns": {"image": "File"}, "from_path": "(?P<study>.)"}, {}, "columns.patient is needed"),
    ({"from_path": "(?P<view>.)"}, {}, "columns.view and the group 'view' of from_path exclude"),
    (
        {"columns": {"image": "File"}, "from_path": "(?P<patient>.)", "images": {"path": "{patient}/{image}"}},
        {},
        "images.path needs {patient}",
    ),
    (
        {"columns": {"image": "File"}, "from_path": "(?P<patient>.)(?P<split>.)", "default_split": "test"},
        {},
        "'default_split' has no effect",
    ),
]


@each(("table", "keys", "message"), MISTAKES)
def test_a_mistake_in_the_yaml_is_refused(
    tmp_path: Path, table: dict[str, Any], keys: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        config(tmp_path, table, **keys)
    assert message in str(caught.value)
    assert "site.yaml" in str(caught.value)

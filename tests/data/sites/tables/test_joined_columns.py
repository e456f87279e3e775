"""Columns of a joined file, wherever columns of the table are read: the site is the same as with one merged table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from chestfed.data.checks.check import CheckReport, check_site
from chestfed.data.checks.label_rows import label_rows
from chestfed.data.sites import SiteConfig
from tests.data.sites.own_tables import COLUMNS, LONG, READERS, TERMS, VALUED, config, save_rows, wide

VOTES: dict[str, Any] = {
    "labels": {"edema": ["Edema_{reader}"]},
    "diseases": ["edema"],
    "table": {"raters": "majority"},
}
SCORES: dict[str, Any] = {"labels": {"edema": ["Score"]}, "diseases": ["edema"], "table": {"threshold": 0.5}}
BODY = {"Body": {"chest": "keep", "hand": "drop"}}
#: What reads columns -> keys of `table`, keys of the site, and the columns that are moved into a joined file.
USES: dict[str, tuple[dict[str, Any], dict[str, Any], list[str]]] = {
    "image": ({}, {}, ["File"]),
    "patient": ({}, {}, ["MRN"]),
    "study": ({"columns": {**COLUMNS, "study": "Visit"}}, {}, ["Visit"]),
    "view": ({}, {}, ["Projection"]),
    "view by a code": ({"codes": {"Projection": {"PA": "lateral"}}}, {}, ["Projection"]),
    "split": ({}, {}, ["Set"]),
    "sex and age": ({"missing": ["62"]}, {}, ["Sex", "Age"]),
    "date": ({"columns": {**COLUMNS, "date": "Date"}}, {}, ["Date"]),
    "labels": ({"codes": {"labels": {"1": "negative", "0": "positive"}}}, {}, ["Edema", "Cardiomegaly"]),
    "labels of a threshold": (SCORES["table"], {k: v for k, v in SCORES.items() if k != "table"}, ["Score"]),
    "labels of readers": (VOTES["table"], {k: v for k, v in VOTES.items() if k != "table"}, ["Edema_A", "Edema_B"]),
    "findings": (TERMS, {}, ["Findings"]),
    "finding": (LONG, {}, ["Finding"]),
    "value": ({**VALUED, "codes": {**VALUED["codes"], "Value": {"y": "positive", "n": "negative"}}}, {}, ["Value"]),
    "reader": (READERS, {}, ["Reader"]),
    "keep": ({"keep": ["Body"], "codes": BODY}, {}, ["Body"]),
    "ignore": ({"ignore": ["Body"]}, {}, ["Body"]),
    "patient_prefix": ({"patient_prefix": "Body"}, {}, ["Body"]),
    "images.path": ({"images": {"path": "{Body}/{image}"}}, {}, ["Body"]),
    "groups": ({}, {"groups": {"ward": "Ward"}}, ["Ward"]),
    "shortcuts": ({}, {}, ["Ward", "Body"]),
}


def make_rows() -> list[dict[str, Any]]:
    """Rows with all columns, each with two values or more."""
    further: dict[str, Any] = {
        "Finding": ["Edema", "Effusion"],
        "Findings": ["Normal", "Edema|no Effusion"],
        "Value": "yn",
    }
    further |= {"Reader": "AB", "Body": ["chest", "hand"], "Score": [0.25, 0.75], "Edema_A": "10", "Edema_B": "11"}
    rows: list[dict[str, Any]] = []
    for number in range(44):
        row = wide(number, *(str(number // 2 % 2) * 5), Set=["train", "test"][number % 2], Age=60 + number % 5)
        row |= {"Line": f"n{number}", "Visit": f"v{number // 2}", "Date": f"2020-01-{number // 2 + 1:02}"}
        row |= {"Ward": ["icu", None, "ward"][number % 3], "MRN": f"p{number // 2 * 2 + number % 2}"}
        rows.append(row | {name: values[number % 2] for name, values in further.items()})
    return rows


def describe(site: SiteConfig, folder: Path) -> tuple[CheckReport, dict[str, Any]]:
    """The site's check, and what must not depend on the file that a column is in."""
    report = check_site(site, folder, images=False)
    table = report.inspection.survey.table
    cells = label_rows(site, folder, 5)[2]
    problems = [(problem.kind, problem.file, problem.row) for problem in [*report.errors, *report.warnings]]
    shown = {"roles": {name: role for name, role in table.columns.items() if name != "Line"}, "problems": problems}
    shown |= {"shortcuts": {name: of for name, of in report.shortcuts.items() if name != "Line"}}
    return report, shown | {"frame": table.frame.to_csv(), "cells": cells[sorted(cells)].to_csv()}


@pytest.mark.parametrize("use", USES)
def test_joined_columns_are_read_as_others(tmp_path: Path, use: str) -> None:
    table, keys, moved = USES[use]
    merged, joined, rows = tmp_path / "merged", tmp_path / "joined", make_rows()
    ignored = {"ignore": [*table.get("ignore", []), "Line"]}
    for folder in (merged, joined):
        (folder / "site").mkdir(parents=True)
    save_rows(merged / "site/labels.csv", rows)
    expected = describe(config(merged, {**table, **ignored}, **keys), merged)
    save_rows(joined / "site/labels.csv", [{name: row[name] for name in row if name not in moved} for row in rows])
    save_rows(joined / "site/more.csv", [{name: row[name] for name in ("Line", *moved)} for row in reversed(rows)])
    files = {"table": ["labels.csv"], "more": ["more.csv"]}
    join = {"join": [{"file": "more", "key": ["Line"], "columns": moved}], **table}
    report, shown = describe(config(joined, join, label_files=files, **keys), joined)
    assert not report.errors
    assert len(report.inspection.survey.table.frame) in (22, 44)
    assert shown == expected[1]


def test_joined_columns_are_shortcuts_and_groups(tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    rows = make_rows()
    save_rows(tmp_path / "site/labels.csv", [{name: row[name] for name in row if name != "Ward"} for row in rows])
    save_rows(tmp_path / "site/more.csv", [{name: row[name] for name in ("Line", "Ward")} for row in rows])
    join = {"join": [{"file": "more", "key": ["Line"], "columns": ["Ward"]}]}
    files = {"table": ["labels.csv"], "more": ["more.csv"]}
    assert "Ward" in check_site(config(tmp_path, join, label_files=files), tmp_path, images=False).shortcuts
    site = config(tmp_path, join, label_files=files, groups={"place": "Ward"})
    report = check_site(site, tmp_path, images=False)
    wards = report.inspection.survey.table.frame["group_place"].astype(object)
    assert wards.where(wards.notna(), None).tolist() == [row["Ward"] for row in rows]
    assert "place" in report.shortcuts
    assert "Ward" not in report.shortcuts

"""Rows to read against the pictures: cells, findings, labels, and a sheet of films."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from typer.testing import CliRunner

from chestfed.app.cli import app
from chestfed.core.errors import SiteError
from chestfed.core.pseudonyms import key_for
from chestfed.data.checks.label_rows import contact_sheet, label_rows
from tests.data.sites.own_tables import COLUMNS, config, meanings, person, save_rows, wide

TERMS = {"columns": {**COLUMNS, "findings": "Findings"}, "codes": {"findings": meanings()}}


def hospital(folder: Path) -> None:
    cells = ["Edema|no Effusion", "Normal", "possible Edema", ""]
    save_rows(folder / "site/labels.csv", [person(n, Findings=cell) for n, cell in enumerate(cells)])
    for number in range(3):
        level = np.full((64, 64), 60 * (number + 1), np.uint8)
        level[:32] = 0
        Image.fromarray(level).save(folder / f"site/{number}.png")


def test_row_shows_cell_finding_and_label(tmp_path: Path) -> None:
    hospital(tmp_path)
    survey, places, rows = label_rows(config(tmp_path, TERMS, uncertain="positive"), tmp_path, 20)
    assert places.tolist() == [0, 1, 2, 3]
    assert rows["row"].tolist() == [2, 3, 4, 5]
    assert [rows[name].tolist() for name in ("view", "split")] == [["pa"] * 4, ["train"] * 4]
    assert rows["cell: Findings"].tolist() == ["Edema|no Effusion", "Normal", "possible Edema", ""]
    assert rows["Edema"].tolist() == ["present -> 1", "absent -> 0", "uncertain -> 1", "not labeled -> missing"]
    assert rows["Pleural Effusion"][0] == "absent -> 0"
    assert rows["Cardiomegaly"][0] == "not mentioned -> missing"
    assert contact_sheet(survey, places, tmp_path / "sheet.png") == 1
    pixels = np.asarray(Image.open(tmp_path / "sheet.png"))
    assert [int(pixels[200, 220 * place + 110]) for place in range(3)] == [60, 120, 180]


def test_label_columns_show_each_cell(tmp_path: Path) -> None:
    save_rows(tmp_path / "site/labels.csv", [wide(n, *"10000" if n % 2 else "00000") for n in range(30)])
    site = config(tmp_path, {})
    _, places, rows = label_rows(site, tmp_path, 5)
    _, again, _ = label_rows(site, tmp_path, 5)
    assert places.tolist() == again.tolist()
    assert len(set(places.tolist())) == 5
    for place, cell, label in zip(places, rows["cell: Cardiomegaly"], rows["Cardiomegaly"], strict=True):
        assert (cell, label) == (("1", "present -> 1") if place % 2 else ("0", "absent -> 0"))


def test_all_cells_of_image_are_shown(tmp_path: Path) -> None:
    findings = [(0, "Edema"), (1, "Normal"), (0, "Effusion")]
    save_rows(tmp_path / "site/labels.csv", [person(n, Finding=finding) for n, finding in findings])
    table = {"columns": {**COLUMNS, "finding": "Finding"}, "codes": {"findings": meanings()}}
    rows = label_rows(config(tmp_path, table), tmp_path, 5)[2]
    assert rows["cell: Finding"].tolist() == ["Edema / Effusion", "Normal"]


def test_a_site_with_problems_is_refused(tmp_path: Path) -> None:
    save_rows(tmp_path / "site/labels.csv", [wide(1, *"70000")])
    with pytest.raises(SiteError) as caught:
        label_rows(config(tmp_path, {}), tmp_path, 5)
    assert {problem.kind for problem in caught.value.problems} == {"unknown label"}


def test_command_prints_and_writes_rows(tmp_path: Path) -> None:
    hospital(tmp_path)
    config(tmp_path, TERMS)
    files = ["--csv", str(tmp_path / "rows.csv"), "--sheet", str(tmp_path / "sheet.png")]
    command = ["site", "table", str(tmp_path / "site.yaml"), "--data", str(tmp_path), "--sample", "2", *files]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    assert "2 of 4 images" in result.output
    assert "keep it at the site" in result.output
    rows = pd.read_csv(tmp_path / "rows.csv")
    assert "cell: Findings" in rows.columns
    assert rows["sex"].tolist() == ["F", "F"]
    numbers = rows["image"].str.extract(r"(\d+)\.png")[0]  # patient p2 has image 2.png
    assert rows["patient"].tolist() == [*key_for(public=False).name_patients("st-example", "p" + numbers)]
    assert not re.search(r"\bp\d\b", result.output)
    assert (tmp_path / "sheet.png").stat().st_size > 0


def test_a_cell_cannot_steer_the_terminal(tmp_path: Path) -> None:
    values = {"codes": {"labels": {"\x1b[2j1": "positive"}}}
    save_rows(tmp_path / "site/labels.csv", [wide(1, "\x1b[2J1", *"0000")])
    config(tmp_path, values)
    shown = CliRunner().invoke(app, ["site", "table", str(tmp_path / "site.yaml"), "--data", str(tmp_path)])
    assert "cell: Cardiomegaly: ?[2J1\n" in shown.output

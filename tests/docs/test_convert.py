"""The page on converting exports: each example is run, writes the table that it shows, and is opened as a site."""

from __future__ import annotations

import io
import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pandas as pd
import pytest
from PIL import Image

from chestfed.core.errors import SiteError
from chestfed.data.sites import load_site_config, open_site
from tests.cases import each

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "convert.md").read_text(encoding="utf-8")
#: Name -> content of the files that the page shows.
FILES = {
    name: (DOCS / "examples" / "convert" / name).read_text(encoding="utf-8")
    for name in re.findall(r"^```\{literalinclude\} examples/convert/(\S+)$", PAGE, re.MULTILINE)
}
FUNCTIONS = [name.removesuffix(".py") for name in FILES if re.fullmatch(r"read_\w+\.py", name)]
EXAMPLES = [name.removesuffix(".py") for name in FILES if name.endswith(".py") and name[:-3] not in FUNCTIONS]


def test_every_section_is_an_example() -> None:
    folder = DOCS / "examples" / "convert"
    assert {file.relative_to(folder).as_posix() for file in folder.rglob("*.*")} == FILES.keys()
    assert (len(EXAMPLES), len(FUNCTIONS)) == (2, 2)
    assert PAGE.count("\n## ") == 4
    assert {f"{name}.labels.csv" for name in EXAMPLES} <= FILES.keys()


@each("name", EXAMPLES)
def test_an_example_writes_what_it_shows(tmp_path: Path, name: str) -> None:
    root = tmp_path / "st-anne"
    for file, text in FILES.items():
        folder = tmp_path if file.endswith(".yaml") else root
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(text, encoding="utf-8")
    subprocess.run([sys.executable, f"{name}.py"], cwd=root, check=True)
    shown = FILES[f"{name}.labels.csv"]
    assert (root / "labels.csv").read_text(encoding="utf-8") == shown
    for image in re.findall(r"^\S+?\.png", shown, re.MULTILINE):
        Image.new("L", (64, 64)).save(root / image)
    table = open_site(load_site_config(tmp_path / "st_anne.yaml"), tmp_path)
    rows = [line.split(",")[2:] for line in shown.splitlines()[1:]]
    expected = [[None if cell == "" else float(cell) for cell in row] for row in rows]
    assert [[None if cell != cell else cell for cell in row] for row in table.labels().tolist()] == expected


def _make_export(folder: Path, name: str) -> str:
    """The file that a function reads, from what the page shows of it."""
    if name == "read_sqlite":
        with closing(sqlite3.connect(folder / "export.sqlite")) as file:
            file.executescript(FILES["export.sql"])
        return "export.sqlite"
    pd.read_csv(io.StringIO(FILES["export.csv"])).to_stata(folder / "export.dta", write_index=False)
    return "export.dta"


@each("name", FUNCTIONS)
def test_a_function_reads_another_format(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    root = tmp_path / "st-anne"
    root.mkdir()
    for number in (1, 2, 3):
        Image.new("L", (64, 64)).save(root / f"{number}.png")
    file = _make_export(root, name)
    text = FILES["st_anne.yaml"].replace("labels.csv", file)
    text = re.sub(r"labels:\n(  .*\n)+", "diseases: [edema]\nlabels:\n  edema: [edema]\n", text)
    (tmp_path / "st_anne.yaml").write_text(f"{text}  prepare: {name}:read\n", encoding="utf-8")
    (tmp_path / f"{name}.py").write_text(FILES[f"{name}.py"], encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    table = open_site(load_site_config(tmp_path / "st_anne.yaml"), tmp_path)
    assert [None if cell != cell else cell for (cell,) in table.labels().tolist()] == [1, 0, None]
    (tmp_path / "st_anne.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(SiteError):  # not by itself
        open_site(load_site_config(tmp_path / "st_anne.yaml"), tmp_path)

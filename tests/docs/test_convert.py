"""The page on converting exports: each example is run, writes the table that it shows, and is opened as a site."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from PIL import Image

from chestfed.data.sites import load_site_config, open_site
from tests.cases import each

PAGE = (Path(__file__).parents[2] / "docs" / "convert.md").read_text(encoding="utf-8")
#: Name -> content of the files that the page shows.
FILES = dict(re.findall(r"^```\w+ (\S+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
EXAMPLES = [name.removesuffix(".py") for name in FILES if name.endswith(".py")]


def test_every_section_is_an_example() -> None:
    assert len(EXAMPLES) == PAGE.count("\n## ") == 2
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

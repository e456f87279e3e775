"""docs/site_check.md: its example is what the command prints, and its lists name every kind of finding."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from PIL import Image
from typer.testing import CliRunner

import chestfed
from chestfed.app.cli import app
from chestfed.data.checks.problems import (
    SEVERAL_PERSONS,
    SITES_SHARE_PICTURE,
    SPLITS_SHARE_PICTURE,
    UNREADABLE,
    UNSUITABLE,
    WARNINGS,
)
from chestfed.data.images.file_store import NOT_READ_NOW
from chestfed.data.sites.left_out import MISSING_IMAGE

ROOT = Path(chestfed.__file__).parent.parent
DOCS = ROOT / "docs" / "site_check.md"


def section(title: str) -> str:
    return re.split(r"\n## ", DOCS.read_text(encoding="utf-8").split(f"\n## {title}\n")[1])[0]


def kinds_of_readers() -> set[str]:
    """The kinds of problem in the source of the readers."""
    source = "".join(file.read_text(encoding="utf-8") for file in (ROOT / "chestfed" / "data" / "sites").rglob("*.py"))
    calls = r"(?:problem|bad_rows|report|report_images|Problem|note)\(\s*(?:path, |[~a-z_()!=& ]+, )?"
    kinds = set(re.findall(calls + r"\"([a-z][a-zA-Z ]+)\"", source))
    return kinds | {"path outside the root", "unknown sex", "formula cell"}


def test_all_kinds_are_listed() -> None:
    fails, warns = section("What fails"), section("What only warns")
    assert {kind for kind in WARNINGS if f"`{kind}`" not in warns} == set()
    errors = {
        NOT_READ_NOW,
        MISSING_IMAGE,
        UNREADABLE,
        UNSUITABLE,
        SPLITS_SHARE_PICTURE,
        SITES_SHARE_PICTURE,
        SEVERAL_PERSONS,
        *kinds_of_readers(),
    }
    assert len(errors) > 35
    assert {kind for kind in errors if f"`{kind}`" not in fails} == set()


def test_example_is_what_command_prints(tiny_hospitals: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = shutil.copytree(tiny_hospitals / "synthetic-chestxray8", tmp_path / "data" / "synthetic-chestxray8")
    table = root / "Data_Entry_2017_v2020.csv"
    lines = table.read_text(encoding="utf-8").splitlines()
    lines[6] = lines[6].replace("Effusion", "Efusion")
    lines[48] = lines[48].replace(",1,31,66,M", ",1,1,66,M")
    table.write_text("\n".join(lines) + "\n", encoding="utf-8")
    picture = {path.name: path for path in root.rglob("*.png")}
    cut = picture["00000003_000.png"]
    cut.write_bytes(cut.read_bytes()[:9000])
    shutil.copy(picture["00000002_000.png"], picture["00000004_000.png"])
    Image.open(picture["00000031_000.png"]).convert("L").resize((300, 300)).save(picture["00000021_000.png"], "JPEG")
    shutil.copy(ROOT / "site_configs/synthetic/chestxray8.yaml", tmp_path / "nih.yaml")
    shutil.copytree(ROOT / "site_configs", tmp_path / "site_configs")
    config = tmp_path / "site_configs/synthetic/chestxray8.yaml"
    result = CliRunner().invoke(
        app, ["site", "check", str(config), "--data", str(tmp_path / "data"), "--cache", str(tmp_path / "cache")]
    )
    assert result.exit_code == 1
    shown = DOCS.read_text(encoding="utf-8").split("```text\n")[1].split("```")[0]

    def plain(text: str) -> list[str]:
        return [line.rstrip() for line in text.strip().splitlines() if line.strip()]

    printed = plain(result.output)
    assert plain(shown) == printed[: len(plain(shown))]
    assert len(printed) > len(plain(shown)) > 12

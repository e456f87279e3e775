"""What comes with chestfed, and how an extra of it is installed."""

from __future__ import annotations

import re
import sys
from importlib import metadata
from pathlib import Path

import pytest

from chestfed.core import bundled
from chestfed.core.bundled import install_command

ROOT = Path(__file__).parents[2]
REQUIRES = ["numpy>=2.0", 'onnxruntime>=1.23; extra == "onnx"', "ruff; extra == 'dev'", "flwr<2; extra == 'flower'"]


def test_extra_of_a_checkout_is_locked() -> None:
    words = install_command("onnx").split()
    assert words[:5] == [sys.executable, "-m", "pip", "install", "--constraint"]
    assert Path(words[5]) == ROOT / "requirements" / "constraints.txt"
    assert words[6:] == ['"onnxruntime>=1.23"']
    assert install_command("flower").endswith(f'"{ROOT / "bootstrap.py"}" install federation')


def test_extra_of_a_wheel_is_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundled, "__file__", str(tmp_path / "site-packages" / "chestfed" / "core" / "bundled.py"))
    monkeypatch.setattr(metadata, "requires", lambda name: REQUIRES)
    assert install_command("onnx").partition("install ")[2] == '"onnxruntime>=1.23"'
    assert install_command("flower").partition("install ")[2] == '"flwr<2"'


def test_no_text_names_chestfed_to_an_index() -> None:
    files = [*(ROOT / "chestfed").rglob("*.py"), *(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]
    matches = [file for file in files if re.search(r"pip install .?chestfed\b", file.read_text(encoding="utf-8"))]
    assert matches == []

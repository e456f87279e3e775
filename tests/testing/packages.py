"""Packages that offer readers, as an installer leaves them: a module and its metadata in a folder of `sys.path`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import pytest


def offer(folder: Path, monkeypatch: pytest.MonkeyPatch, package: str, readers: Mapping[str, str], source: str) -> Path:
    """Write the package's one module, whose name is the package's, and its entry points; returns the module's file."""
    folder.mkdir(parents=True, exist_ok=True)
    module = folder / f"{package}.py"
    module.write_text(source, encoding="utf-8")
    metadata = folder / f"{package}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n", encoding="utf-8")
    lines = "".join(f"{name} = {value}\n" for name, value in readers.items())
    (metadata / "entry_points.txt").write_text(f"[chestfed.readers]\n{lines}", encoding="utf-8")
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, package, raising=False)
    return module

"""Imports run downward only, and nothing heavy is imported for `--help`."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import chestfed

ROOT = Path(chestfed.__file__).parent

#: Package part -> the parts it may import, besides itself and the foundation.
FOUNDATION = {
    "errors",
    "diseases",
    "config",
    "randomness",
    "workers",
    "dicom_files",
    "file_kinds",
    "dicom_tags",
    "keys",
    "origin",
    "__init__",
}
ALLOWED = {
    "errors": set(),
    "diseases": set(),
    "config": set(),
    "randomness": set(),
    "workers": set(),
    "dicom_files": set(),
    "file_kinds": {"dicom_files"},
    "dicom_tags": set(),
    "keys": set(),
    "origin": set(),
    "checkpoint": set(),
    "sites": set(),
    "collections": set(),
    "images": set(),
    "inspection": {"sites", "images", "checkpoint"},
    "objectives": set(),
    "algorithms": set(),
    "models": {"resnet"},
    "resnet": set(),
    "evaluation": set(),
    "engines": {"algorithms", "objectives", "models"},
    "experiment_page": set(),
    "tracking": {"experiment_page"},
    "tracked_models": {"tracking"},
    "samples": {"checkpoint"},
    "testing": {"sites", "images", "models", "objectives"},
    "new_site": {"sites"},
    "study": {
        "inspection",
        "sites",
        "collections",
        "images",
        "engines",
        "algorithms",
        "objectives",
        "models",
        "evaluation",
        "checkpoint",
        "tracking",
        "tracked_models",
    },
    "commands": {
        "study",
        "inspection",
        "new_site",
        "collections",
        "samples",
        "sites",
        "checkpoint",
        "tracking",
        "experiment_page",
    },
    "cli": {"cli_site", "commands"},
    "cli_site": {"commands"},
    "__main__": {"cli"},
}


def imported_parts(file: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names = [
                f"{node.module}.{alias.name}" if node.module == "chestfed" else node.module for alias in node.names
            ]
        found |= {name.split(".")[1] for name in names if name.startswith("chestfed.")}
    return found


@pytest.mark.parametrize("file", sorted(ROOT.rglob("*.py")), ids=lambda file: file.relative_to(ROOT).as_posix())
def test_imports_run_downward_only(file: Path) -> None:
    part = file.relative_to(ROOT).parts[0].removesuffix(".py")
    if part == "__init__":
        return
    allowed = ALLOWED[part] | {part} | (FOUNDATION if part not in FOUNDATION else {"errors"})
    assert imported_parts(file) <= allowed


def test_help_imports_nothing_heavy() -> None:
    heavy = [
        "torch",
        "monai",
        "mlflow",
        "pandas",
        "numpy",
        "sklearn",
        "cv2",
        "pydicom",
        "matplotlib",
        "albumentations",
    ]
    program = f"import sys, chestfed.cli; print([name for name in {heavy} if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"

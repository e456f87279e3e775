"""What tests of whole studies share."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def home(tiny_hospitals: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the tiny hospitals, to run commands in."""
    folder = tmp_path_factory.mktemp("home")
    (folder / "synthetic_hospitals").symlink_to(tiny_hospitals)
    return folder

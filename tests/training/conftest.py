"""What tests of whole studies share."""

from __future__ import annotations

from pathlib import Path

import pytest

from chestfed.samples import write_hospitals


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the tiny hospitals, to run commands in."""
    folder = tmp_path_factory.mktemp("home")
    write_hospitals(folder / "synthetic_hospitals", size="tiny", workers=1)
    return folder

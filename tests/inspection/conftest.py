"""The tiny hospitals, written once."""

from __future__ import annotations

from pathlib import Path

import pytest

from chestfed.samples import write_hospitals


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    write_hospitals(folder, seed=1, size="tiny", workers=1)
    return folder

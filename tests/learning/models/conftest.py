"""A folder with a network of one's own, in which the test runs."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def own_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The name of a module in the working folder that declares `TINY`."""
    shutil.copy(Path(__file__).parent / "tiny_transformer.py", tmp_path / "mynets.py")
    monkeypatch.chdir(tmp_path)
    sys.modules.pop("mynets", None)
    yield "mynets"
    sys.modules.pop("mynets", None)

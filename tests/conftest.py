"""What all tests share."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from chestfed.core.pseudonyms import VARIABLE, make_key


@pytest.fixture(autouse=True, scope="session")
def _key_of_the_tests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tests neither use nor make the user's own key."""
    file = tmp_path_factory.mktemp("key") / "key"
    make_key(file)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, str(file))
        yield


@pytest.fixture(scope="session")
def tiny_study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the tiny hospitals and, in `runs`, a finished study of them that MLflow has recorded.

    Tests may add to it, but change nothing.
    """
    from chestfed.samples import write_hospitals
    from tests.training.test_run import command

    folder = tmp_path_factory.mktemp("tiny-study")
    write_hospitals(folder / "synthetic_hospitals", size="tiny", workers=1)
    result = subprocess.run(command("runs"), cwd=folder, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert "MLflow tracking stopped" not in result.stdout
    assert "chestfed report runs/synthetic-source_addition_samples-" in result.stdout
    return folder

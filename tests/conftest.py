"""What all tests share."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from filelock import FileLock

from chestfed.core.pseudonyms import VARIABLE, make_key
from tests.command_line import Called, call


def pytest_configure(config: pytest.Config) -> None:
    """Most run folders that tests make have no manifest, of which they would be warned."""
    config.addinivalue_line("filterwarnings", "ignore::chestfed.core.errors.UncheckedWarning")


@pytest.fixture(autouse=True, scope="session")
def _key_of_the_tests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tests neither use nor make the user's own key."""
    file = tmp_path_factory.mktemp("key") / "key"
    make_key(file)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, str(file))
        yield


@pytest.fixture(scope="session")
def of_all_workers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that the workers of pytest-xdist share."""
    of_this_worker = tmp_path_factory.getbasetemp()
    return of_this_worker.parent if "PYTEST_XDIST_WORKER" in os.environ else of_this_worker


@pytest.fixture(scope="session")
def tiny_hospitals(of_all_workers: Path) -> Path:
    """The tiny hospitals, drawn once; nobody writes there."""
    from chestfed.samples import write_hospitals

    folder = of_all_workers / "tiny-hospitals"
    write_hospitals(folder, seed=1, size="tiny", workers=1)  # waits for another worker's, and finds them
    return folder


@pytest.fixture(scope="session")
def tiny_study(tiny_hospitals: Path, of_all_workers: Path) -> Path:
    """A folder with the tiny hospitals and, in `runs`, a finished study of them that MLflow has recorded.

    Tests may add files of their own beside `runs`, but change nothing: all workers have the same folder.
    """
    from tests.training.tiny_studies import command, run

    folder = of_all_workers / "tiny-study"
    with FileLock(of_all_workers / "tiny-study.lock"):
        if not (folder / "finished").exists():
            folder.mkdir()
            (folder / "synthetic_hospitals").symlink_to(tiny_hospitals)
            result = run(folder, command("runs"))
            assert result.code == 0, result.err
            assert "MLflow tracking stopped" not in result.out
            assert "chestfed report runs/synthetic-source_addition_samples-" in result.out
            (folder / "finished").touch()
    return folder


@pytest.fixture
def chestfed() -> Callable[..., Called]:
    """The command line in this process, see `tests.command_line`."""
    return call

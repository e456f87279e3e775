"""What all tests share."""

from __future__ import annotations

import functools
import gc
import json
import os
import shutil
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
import yaml
from filelock import FileLock
from hypothesis import HealthCheck, settings

from chestfed.core.bundled import bundled
from chestfed.core.pseudonyms import VARIABLE, make_key
from chestfed.data.images.decoding import polarity
from tests import command_line
from tests.command_line import Called, call

#: Before numpy and torch are imported: two workers on two cores compute with one thread each.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["PATH"] = os.pathsep.join([sysconfig.get_path("scripts"), os.environ.get("PATH", "")])  # printed commands
os.environ.pop("COLUMNS", None)  # xdist gives its workers 80; tables are as wide as they need
gc.disable()  # until all is imported

#: Examples of each property; `--hypothesis-profile many` for a search.
IGNORED_CHECKS = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
settings.register_profile("few", deadline=None, max_examples=10, suppress_health_check=IGNORED_CHECKS)
settings.register_profile("many", settings.get_profile("few"), max_examples=300)
settings.load_profile("few")

#: Files that take longest, or have the longest tests.
LONG = (
    "studies/training/test_seeds.py",
    "reports/tracking/test_recording.py",
    "privacy/test_canaries.py",
    "studies/training/test_resume_algorithms.py",
    "studies/training/test_damage.py",
    "studies/training/test_held_out.py",
    "test_api.py",
    "learning/engines/test_ranks.py",
    "studies/tuning/test_tune.py",
    "test_own_method.py",
    "leaves/drafts/test_commands.py",
    "leaves/drafts/test_tutorial.py",
    "studies/training/test_public_study.py",
    "reports/pages/test_report.py",
)


def mark_other_cases(items: list[pytest.Item], complete: bool) -> None:
    """`slow_but(*cases)`: of a test of many cases these are run every time, the others are slow.

    Where all cases are there (`complete`), a name that is none of them is refused.
    """
    by_test: dict[Any, list[Any]] = {}
    for item in items:
        if item.get_closest_marker("slow_but"):
            by_test.setdefault(item.function, []).append(item)  # type: ignore[attr-defined]
    for cases in by_test.values():
        kept = set(cases[0].get_closest_marker("slow_but").args)
        if complete and (unknown := kept - {item.callspec.id for item in cases}):
            raise pytest.UsageError(f"{cases[0].nodeid}: slow_but names {sorted(unknown)}, which are no cases")
        for item in cases:
            if item.callspec.id not in kept:
                item.add_marker(pytest.mark.slow)


@pytest.hookimpl(tryfirst=True)  # before `-m` is looked at
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Campaigns only with `-m campaign`; files with long tests first, so that workers end together."""
    mark_other_cases(items, complete=not any("::" in argument for argument in config.args))
    if "campaign" not in config.option.markexpr:
        config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("campaign")])
        items[:] = [item for item in items if not item.get_closest_marker("campaign")]
    items.sort(key=lambda item: not item.path.as_posix().endswith(LONG))


def pytest_collection_finish() -> None:
    """What is imported by now stays: the garbage collector need not visit it, which takes a tenth of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    gc.enable()


@pytest.fixture(autouse=True, scope="session")
def _key_of_the_tests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tests neither use nor make the user's own key."""
    file = tmp_path_factory.mktemp("key") / "key"
    make_key(file)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, str(file))
        yield


@pytest.fixture(autouse=True, scope="session")
def _few_patients_count() -> Iterator[None]:
    """Tiny hospitals have a dozen patients and means over diseases all the same; `tests/results` has the true limit."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("chestfed.results.evaluation.labeled.LEAST_PATIENTS", 1)
        yield


@pytest.fixture(autouse=True, scope="session")
def _commands_are_built_once() -> Iterator[None]:
    """Building the tree of all commands takes longer than many commands do."""
    build = functools.cache(typer.main.get_command)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("typer.main.get_command", build)
        patch.setattr("typer.testing._get_command", build)
        yield


@pytest.fixture(autouse=True, scope="session")
def _texts_are_parsed_once() -> Iterator[None]:
    """Hundreds of commands read the same bundled YAML, which takes a tenth of a second."""
    compose = functools.lru_cache(maxsize=500)(yaml.compose)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(yaml, "compose", lambda text, Loader: compose(text, Loader=Loader))
        yield


@pytest.fixture(autouse=True, scope="session")
def _pictures_are_measured_once() -> Iterator[None]:
    """A check compares each picture with the mean film three times, and the planted hospitals have the same ones."""
    original, measured = polarity.standardize_polarity, dict[tuple[bytes, tuple[int, ...], str], np.ndarray]()

    def standardize(gray: np.ndarray) -> np.ndarray:
        if gray.size > 100_000:
            return original(gray)
        key = gray.tobytes(), gray.shape, str(gray.dtype)
        if key not in measured:
            measured[key] = original(gray)
        return measured[key].copy()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(polarity, "standardize_polarity", standardize)
        yield


@pytest.fixture(autouse=True, scope="session")
def _disks_are_not_waited_for() -> Iterator[None]:
    """Files need not survive a power cut: a study waits for its disk a hundred times."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that the workers of pytest-xdist share."""
    of_this_worker = tmp_path_factory.getbasetemp()
    return of_this_worker.parent if "PYTEST_XDIST_WORKER" in os.environ else of_this_worker


@pytest.fixture(scope="session")
def tiny_hospitals(shared_folder: Path) -> Path:
    """The tiny hospitals, drawn once; nobody writes there."""
    from chestfed.leaves.samples.writing import write_hospitals

    folder = shared_folder / "tiny-hospitals"
    write_hospitals(folder, seed=1, size="tiny", workers=1)  # waits for another worker's, and finds them
    return folder


@pytest.fixture
def copied_hospitals(tiny_hospitals: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a command would draw the tiny hospitals, it gets copies of them."""
    from chestfed.leaves.samples.writing import STAMP

    def copy(folder: Path, todo: list[Any], films: object, seed: int, stamp: object, _: object) -> Iterator[None]:
        for hospital in todo:
            shutil.copytree(tiny_hospitals / hospital.folder, folder / hospital.folder)
            assert json.loads((folder / hospital.folder / STAMP).read_text()) == stamp
            yield

    monkeypatch.setattr("chestfed.leaves.samples.writing._write_all", copy)


@pytest.fixture(scope="session")
def furnish(tiny_hospitals: Path, shared_folder: Path) -> Callable[[Path], Path]:
    """Puts the tiny hospitals into a folder, with a cache of their images as small studies have them."""
    from chestfed.studies.experiment.loading import load_pipeline
    from chestfed.studies.training.data.experiment import load_images
    from tests.studies.training.tiny_studies import SMALL, read_rows

    cache, file = shared_folder / "tiny-cache", bundled("pipelines") / "source_addition_samples.yaml"
    with FileLock(shared_folder / "tiny-cache.lock"):
        if not cache.exists():
            pipeline = load_pipeline(file, SMALL).resolve()
            load_images([read_rows(pipeline, file, tiny_hospitals)], cache)

    def put_into(folder: Path) -> Path:
        (folder / "synthetic_hospitals").symlink_to(tiny_hospitals)
        shutil.copytree(cache, folder / "cache")
        return folder

    return put_into


@pytest.fixture(scope="session")
def tiny_study(furnish: Callable[[Path], Path], shared_folder: Path) -> Path:
    """A folder with the tiny hospitals and, in `runs`, a finished study of them that MLflow has recorded.

    Tests may add files of their own beside `runs`, but change nothing: all workers have the same folder.
    """
    from tests.studies.training.tiny_studies import command

    folder = shared_folder / "tiny-study"
    with FileLock(shared_folder / "tiny-study.lock"):
        if not (folder / "finished").exists():
            folder.mkdir()
            furnish(folder)
            result = call(*command("runs")[3:], folder=folder)
            assert result.code == 0, result.err
            assert "MLflow tracking stopped" not in result.out
            assert "chestfed report runs/synthetic-source_addition_samples-" in result.out
            (folder / "finished").touch()
    return folder


@pytest.fixture(scope="session")
def tiny_page(tiny_study: Path) -> Path:
    """The page about `tiny_study` as the command writes it, with a figure of each kind; its figures stand beside it."""
    file = tiny_study / "page.html"
    with FileLock(tiny_study / "page.lock"), command_line.drawn_once():
        if not file.exists():
            (run,) = (tiny_study / "runs").glob("synthetic-source_addition_samples-*")
            called = call("report", run, "--out", file.name, "--figures", folder=tiny_study, drawn=True)
            assert called.code == 0, called.err
    return file


@pytest.fixture(scope="session")
def held_out_study(furnish: Callable[[Path], Path], shared_folder: Path) -> Path:
    """As `tiny_study`, with two of the five hospitals held out; `printed.txt` has what the command printed."""
    from tests.studies.training.tiny_studies import study

    folder = shared_folder / "held-out-study"
    with FileLock(shared_folder / "held-out-study.lock"):
        if not (folder / "printed.txt").exists():
            folder.mkdir()
            furnish(folder)
            words = ("--out", "runs", "--set", "held_out.sites=[vindr,chexpert]")
            called = call(*study(str(bundled("pipelines") / "leave_one_site_out.yaml"), *words)[3:], folder=folder)
            assert called.code == 0, called.err
            (folder / "printed.txt").write_text(called.out, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def home(furnish: Callable[[Path], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the tiny hospitals, to run commands in."""
    return furnish(tmp_path_factory.mktemp("home"))


@pytest.fixture
def undrawn() -> Iterator[None]:
    """For tests of a page's text, see `tests.command_line`."""
    with command_line.undrawn():
        yield


@pytest.fixture
def chestfed() -> Callable[..., Called]:
    """The command line in this process, see `tests.command_line`."""
    return call


@pytest.fixture
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests that change files of a run folder: no manifest is compared with them."""
    monkeypatch.setattr("chestfed.results.tables.files.find_damage", lambda *_: [])


@pytest.fixture(scope="session")
def save_figures() -> Callable[[str, Any], None]:
    """Prints figures (`pytest -s`) and writes them as `build/campaigns/NAME.json`."""

    def save(name: str, figures: Any) -> None:
        figures_folder = Path(__file__).parents[1] / "build" / "campaigns"
        figures_folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps(figures, indent=1)
        (figures_folder / f"{name}.json").write_text(text + "\n", encoding="utf-8")
        print(f"{name}: {text}")

    return save

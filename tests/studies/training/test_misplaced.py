"""Results that were copied, exchanged or taken from another run: readers refuse them, a study makes them again."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import chestfed
from chestfed.core.bundled import bundled
from chestfed.core.manifest import MisplacedError, Part
from chestfed.results.tables.collect import load_results
from chestfed.results.tables.predictions import load_predictions
from chestfed.results.tables.run_folder import RunFolder
from chestfed.studies.training.pretrain import STATE
from tests.command_line import call
from tests.studies.training.test_damage import SAME, study_in
from tests.studies.training.tiny_studies import command, run

HOSPITAL = "hospitals/chestxray8"


@pytest.fixture(scope="module")
def sound(home: Path, tiny_study: Path) -> Path:
    """The output folder of a study."""
    return Path(shutil.copytree(tiny_study / "runs", home / "sound", ignore=shutil.ignore_patterns("mlflow*")))


@pytest.fixture(scope="module")
def other(home: Path) -> Path:
    """The run folder of the same study with another seed."""
    assert run(home, command("other", "--no-tracking", "--seed", "7")).code == 0
    return study_in(home / "other")


@pytest.fixture
def study(sound: Path, home: Path) -> Iterator[Path]:
    """A copy of the study's run folder, to change."""
    yield study_in(Path(shutil.copytree(sound, home / "changed")))
    shutil.rmtree(home / "changed")


def replace(folder: Path, source: Path) -> None:
    shutil.rmtree(folder)
    shutil.copytree(source, folder)


def exchange(first: Path, second: Path) -> None:
    aside = first.rename(first.with_name("aside"))
    second.rename(first)
    aside.rename(second)


CHANGES: dict[str, Callable[[Path, Path], object]] = {
    "copied": lambda study, _: replace(study / "k2", study / "k1"),
    "exchanged": lambda study, _: exchange(study / "k1", study / "k2"),
    "of another seed": lambda study, other: replace(study / "k2", other / "k2"),
    "hospital of another K": lambda study, _: replace(study / "k2" / HOSPITAL, study / "k1" / HOSPITAL),
}


def rerun(study: Path, sound: Path, home: Path) -> str:
    """Run the study again: it ends with the same files. Returns what it printed."""
    again = run(home, command("changed", "--no-tracking"))
    assert again.code == 0, again.err
    for name in SAME:
        assert (study / name).read_bytes() == (study_in(sound) / name).read_bytes(), name
    return again.out


@pytest.mark.slow
@pytest.mark.parametrize("how", [how for how in CHANGES if how != "copied"])
def test_misplaced_parts_are_made_again(study: Path, other: Path, sound: Path, home: Path, how: str) -> None:
    CHANGES[how](study, other)
    printed = rerun(study, sound, home)
    assert printed.count("made again") == (2 if how == "exchanged" else 1)
    assert len([*study.rglob("misplaced-*")]) == (2 if how == "exchanged" else 1)


@pytest.mark.slow_but("copied")
@pytest.mark.parametrize("how", ["copied", "exchanged", "of another seed"])
def test_readers_refuse_them(study: Path, other: Path, home: Path, how: str) -> None:
    CHANGES[how](study, other)
    site = ("--site", bundled("site_configs") / "synthetic" / "vindr.yaml", "--data", "synthetic_hospitals")
    for words in (
        ("report", study),
        ("compare", study, other),
        ("compare", study / "k2", other / "k2"),
        ("evaluate", study, *site),
        ("evaluate", study / "k2", *site),
        ("evaluate", study / "k2" / "model.safetensors", *site),
    ):
        refused = call(*words, folder=home)
        assert (refused.code, "is expected" in refused.err) == (1, True), words
    with pytest.raises(MisplacedError) as caught:
        chestfed.Study.load(study).table()
    digest = RunFolder(study).digest
    assert caught.value.expected == Part(digest, caught.value.folder.name)
    assert caught.value.part != caught.value.expected


def test_hospital_results_are_checked(study: Path, other: Path) -> None:
    CHANGES["hospital of another K"](study, other)
    with pytest.raises(MisplacedError):
        load_results(RunFolder(study))
    with pytest.raises(MisplacedError):
        load_predictions(study / "k2" / HOSPITAL)


@pytest.mark.slow
def test_a_renamed_run_folder_is_read(study: Path, home: Path) -> None:
    moved = study.rename(study.with_name("mine"))
    table = chestfed.Study.load(moved).table()
    assert table["k"].unique().tolist() == [1, 2]
    assert call("report", moved, folder=home).code == 0
    assert load_predictions(moved / "k1").seeds == (RunFolder(moved).settings.seed,)


def test_folder_of_another_run_refused(study: Path, other: Path, home: Path) -> None:
    replace(study, other)
    refused = run(home, command("changed", "--no-tracking"))
    assert (refused.code, f"the run {RunFolder(other).digest}" in refused.err) == (1, True)
    assert (study / "k1" / "result.json").is_file()


@pytest.mark.slow
def test_foreign_states_not_resumed(study: Path, other: Path, sound: Path, home: Path) -> None:
    shutil.copy(other / "k1" / STATE, study / "k1" / STATE)
    shutil.copy(study / "k1" / STATE, study / "k2" / STATE)
    for k in (1, 2):
        (study / f"k{k}" / "result.json").unlink()
    (source,) = other.parent.glob("*pretrained-*")
    (target,) = study.parent.glob("*pretrained-*")
    shutil.copy(source / STATE, target / STATE)
    assert rerun(study, sound, home).count("so this part is trained again") == 3

"""A run folder whose files are deleted, cut, altered by one bit or replaced: repaired when the study starts again."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.command_line import call
from tests.studies.training.tiny_studies import command, run

#: What must come out the same, whatever was damaged.
OF_K = ("result.json", "rounds.jsonl", "predictions.parquet", "model.safetensors")
SAME = (
    "table.csv",
    "significance.csv",
    "sites.json",
    *(f"k{k}/{name}" for k in (1, 2) for name in OF_K),
)


@pytest.fixture(scope="module")
def finished(home: Path, tiny_study: Path) -> Path:
    """The output folder of a study."""
    return Path(shutil.copytree(tiny_study / "runs", home / "sound", ignore=shutil.ignore_patterns("mlflow*")))


@pytest.fixture
def copy(finished: Path, home: Path) -> Iterator[Path]:
    """A copy of it to damage, as `damaged` in the home folder."""
    yield Path(shutil.copytree(finished, home / "damaged"))
    shutil.rmtree(home / "damaged")


def flip_bit(content: bytes, chance: random.Random) -> bytes:
    """The content with one bit changed."""
    place = chance.randrange(len(content))
    return content[:place] + bytes([content[place] ^ 1 << chance.randrange(8)]) + content[place + 1 :]


def flip(content: bytes) -> bytes:
    """One bit of a byte in the middle, where values are: of safetensors the tensors, of JSON often a number."""
    place = len(content) * 3 // 4
    return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


DAMAGES: dict[str, Callable[[bytes], bytes | None]] = {
    "deleted": lambda _: None,
    "cut": lambda content: content[: len(content) // 2],
    "a bit": flip,
    "of another shape": lambda _: b"[1]",
}
#: Each study has several files damaged at once; tests/campaigns damages all files one at a time.
CASES = {
    "files": {
        "study.json": "of another shape",
        "thumbnails.npz": "deleted",
        "significance.csv": "a bit",
        "k1/time.json": "cut",
        "k1/model.safetensors": "deleted",
        "k2/result.json": "a bit",
        "k2/predictions.parquet": "a bit",
        "k2/rounds.jsonl": "of another shape",
    },
    "manifests": {"manifest.json": "of another shape", "k1/manifest.json": "cut", "k2/manifest.json": "a bit"},
}


def damage(file: Path, how: str) -> None:
    """Alter or delete a file."""
    content = DAMAGES[how](file.read_bytes())
    file.unlink() if content is None else file.write_bytes(content)


def study_in(out: Path) -> Path:
    """The only study in an output folder."""
    (folder,) = out.glob("synthetic-source_addition_samples-*")
    return folder


def assert_repaired(copy: Path, finished: Path, home: Path) -> str:
    """The same command ends in the same files; returns what it printed."""
    again = run(home, command("damaged", "--no-tracking"))
    assert again.code == 0, again.err
    for name in SAME:
        assert (study_in(copy) / name).read_bytes() == (study_in(finished) / name).read_bytes(), name
    assert call("report", study_in(copy), folder=home).code == 0
    return again.out


@pytest.mark.slow_but("files")
@pytest.mark.parametrize("which", CASES)
def test_damaged_files_are_made_again(copy: Path, finished: Path, home: Path, which: str) -> None:
    for name, how in CASES[which].items():
        damage(study_in(copy) / name, how)
    out = assert_repaired(copy, finished, home)
    for name in CASES[which]:
        assert Path(name).name in out


@pytest.mark.slow
def test_damaged_state_is_trained_again(copy: Path, finished: Path, home: Path) -> None:
    folder = study_in(copy)
    (of_stage_1,) = copy.glob("synthetic-pretrained-*/state.safetensors")
    for state in (of_stage_1, folder / "k2" / "state.safetensors"):
        damage(state, "a bit")
    shutil.copyfile(folder / "k2" / "model.safetensors", folder / "k1" / "state.safetensors")
    for k in ("k1", "k2"):
        (folder / k / "result.json").unlink()
    assert assert_repaired(copy, finished, home).count("so this part is trained again") == 3


@pytest.mark.slow
def test_results_without_manifest_made_again(copy: Path, finished: Path, home: Path) -> None:
    folder = study_in(copy)
    for file in folder.rglob("manifest.json"):
        file.unlink()
    assert call("report", folder, folder=home).code == 1
    assert assert_repaired(copy, finished, home).count("manifest.json damaged or missing, made again") == 4

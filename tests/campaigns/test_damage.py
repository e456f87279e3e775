"""Every file of a run folder deleted, cut, altered by one bit or replaced, one at a time."""

from __future__ import annotations

import random
import shutil
from contextlib import suppress
from pathlib import Path

import pytest

from chestfed.core.checkpoint import load_checkpoint
from chestfed.core.errors import ChestfedError
from chestfed.results.tables.collect import load_results
from chestfed.results.tables.run_folder import RunFolder
from tests.campaigns.children import STUDY, Campaign, list_differences, run
from tests.studies.training.test_damage import DAMAGES, damage, flip_bit

pytestmark = pytest.mark.campaign
#: Written for people or as a lock: nothing reads them.
UNREAD = ("report.html", ".lock")
FLIPS = 50


def list_files(out: Path) -> list[Path]:
    """Every file below an output folder that a command reads, relative to it."""
    files = [file for file in sorted(out.rglob("*")) if file.is_file()]
    return [file.relative_to(out) for file in files if file.name not in UNREAD and not file.name.startswith(".")]


@pytest.mark.parametrize("how", DAMAGES)
def test_damaged_files_are_repaired_or_named(campaign: Campaign, how: str) -> None:
    copy = campaign.home / "damaged"
    for file in list_files(campaign.sound):
        shutil.copytree(campaign.sound, copy)
        damage(copy / file, how)
        result = run((*STUDY, "--out", copy.name, "--no-tracking"), campaign.home, limit=300)
        result.check(0, 1)
        if result.code == 0:
            assert list_differences(copy, campaign.sound) == [], file
        else:
            assert file.name in result.text
        shutil.rmtree(copy)


def test_flipped_bit_is_refused_or_harmless(campaign: Campaign) -> None:
    before = _read(campaign.sound)
    for name in list_files(campaign.sound):
        file, chance = campaign.sound / name, random.Random(str(name))
        content = file.read_bytes()
        try:
            for _ in range(FLIPS):
                file.write_bytes(flip_bit(content, chance))
                with suppress(ChestfedError):
                    assert _read(campaign.sound) == before, name
        finally:
            file.write_bytes(content)


def _read(out: Path) -> str:
    """All that readers and a resumed study take from the folders, as text."""
    (folder,) = out.glob("synthetic-source_addition*")
    run_folder, contents = RunFolder.open(folder), []
    run_folder.check_finished()
    results = load_results(run_folder)
    contents += [run_folder.about, results.estimates.to_csv(), results.differences.to_csv(), run_folder.sites]
    contents += [{name: picture.tobytes() for name, picture in run_folder.thumbnails.items()}]
    for k in run_folder.ks:
        contents += [run_folder.predictions(k).to_csv(), run_folder.rounds(k), run_folder.time(k)]
    for file in sorted(out.rglob("*.safetensors")):
        tensors, values = load_checkpoint(file)
        values.pop("checksum", None)
        contents += [{name: tensor.numpy().tobytes() for name, tensor in tensors.items()}, _plain(values)]
    return repr(contents)


def _plain(values: dict[str, object]) -> dict[str, object]:
    """Without keys that a flipped letter in the name of the checksum has made."""
    return {key: value for key, value in values.items() if not key.endswith("ecksum") and not key.startswith("check")}

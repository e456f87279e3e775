"""Every file of a run folder deleted, cut, altered by one bit, or replaced by JSON of another shape."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from benchmarks.faults.cases import Campaign, Case, Result, told
from benchmarks.faults.children import STUDY, run
from benchmarks.faults.kills import differences
from chestfed.core.checkpoint import load_checkpoint
from chestfed.core.errors import ChestfedError
from chestfed.core.manifest import MANIFEST
from chestfed.results.collect import load_results
from chestfed.results.run_folder import RunFolder

#: Written for people or as a lock: nothing reads them.
_UNREAD = ("report.html", ".lock")


def files_of(out: Path) -> list[str]:
    """Every file below an output folder that a command reads."""
    found = (file.relative_to(out) for file in sorted(out.rglob("*")) if file.is_file())
    return [str(file) for file in found if file.name not in _UNREAD and not file.name.startswith(".")]


def repairs(campaign: Campaign) -> Iterator[Case]:
    """One damage at a time; the same study again must end in the same files, or one message must name the file."""
    for name in files_of(campaign.sound):
        for how in ("deleted", "cut", "one bit", "other JSON"):
            yield Case(f"{_short(name)}, {how}", partial(_repair, campaign, name, how))


def _repair(campaign: Campaign, name: str, how: str) -> Result:
    copy = campaign.home / "damaged"
    shutil.copytree(campaign.sound, copy)
    file = copy / name
    content = file.read_bytes()
    if how == "deleted":
        file.unlink()
    else:
        cut, flipped = content[: len(content) // 2], flip_bit(content, random.Random(name))
        file.write_bytes({"cut": cut, "one bit": flipped, "other JSON": b'{"a": [1]}'}[how])
    ended = run((*STUDY, "--out", copy.name, "--no-tracking"), campaign.home, limit=300)
    if ended.code == 0:
        found = "; ".join(differences(copy, campaign.sound))
    else:
        found = told(ended) or ("" if file.name in ended.text else f"does not name the file: {ended.text[-300:]}")
    shutil.rmtree(copy)
    return Result(found)


def flips(campaign: Campaign) -> Iterator[Case]:
    """Single bits of every file, at random: readers must refuse it, or read what was written."""
    before = _read(campaign.sound)
    for name in files_of(campaign.sound):
        yield Case(f"{_short(name)}, {campaign.flips} bits", partial(_flip, campaign, name, before))


def _flip(campaign: Campaign, name: str, before: str) -> Result:
    file, chance = campaign.sound / name, random.Random(name)
    content, silent, refused, other = file.read_bytes(), 0, 0, ""
    try:
        for _ in range(campaign.flips):
            file.write_bytes(flip_bit(content, chance))
            try:
                silent += _read(campaign.sound) != before
            except ChestfedError:
                refused += 1
            except Exception as error:
                other = f"{type(error).__name__}: {error}"
    finally:
        file.write_bytes(content)
    why = f"{silent} silent {other}".strip() if silent or other else ""
    return Result(why, {"bits": campaign.flips, "refused": refused})


def _read(out: Path) -> str:
    """All that readers and a resumed study take from the folders, as text."""
    (folder,) = out.glob("synthetic-source_addition*")
    run_folder, found = RunFolder.open(folder), []
    run_folder.check_finished()
    results = load_results(run_folder)
    found += [run_folder.about, results.estimates.to_csv(), results.differences.to_csv(), run_folder.sites]
    found += [run_folder.hospitals]
    found += [{name: picture.tobytes() for name, picture in run_folder.thumbnails.items()}]
    for k in run_folder.ks:
        found += [run_folder.predictions(k).to_csv(), run_folder.rounds(k), run_folder.time(k)]
    for file in sorted(out.rglob("*.safetensors")):
        tensors, values = load_checkpoint(file)
        values.pop("checksum", None)
        found += [{name: tensor.numpy().tobytes() for name, tensor in tensors.items()}, _plain(values)]
    return repr(found)


def _plain(values: dict[str, object]) -> dict[str, object]:
    """Without keys that a flipped letter in the name of the checksum has made."""
    return {key: value for key, value in values.items() if not key.endswith("ecksum") and not key.startswith("check")}


def flip_bit(content: bytes, chance: random.Random) -> bytes:
    if not content:
        return b"\0"
    place = chance.randrange(len(content))
    return content[:place] + bytes([content[place] ^ 1 << chance.randrange(8)]) + content[place + 1 :]


def _short(name: str) -> str:
    """Without the digest of the run folder; a manifest is named with its folder."""
    parts = Path(name).parts
    head = "stage 1/" if parts[0].startswith("synthetic-pretrained") else ""
    return head + ("/".join(parts[1:]) or name) if name != MANIFEST else name

"""Every file of a run folder deleted, cut, altered by one bit, or replaced by JSON of another shape."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path

from benchmarks.faults.children import STUDY, run
from benchmarks.faults.kills import differences
from chestfed.core.checkpoint import load_checkpoint
from chestfed.core.errors import ChestfedError
from chestfed.core.manifest import MANIFEST
from chestfed.results import hospital_table
from chestfed.results.run_folder import RunFolder

#: Written for people or as a lock: nothing reads them.
_UNREAD = ("report.html", ".lock")


def files_of(out: Path) -> list[str]:
    """Every file below an output folder that a command reads."""
    found = (file.relative_to(out) for file in sorted(out.rglob("*")) if file.is_file())
    return [str(file) for file in found if file.name not in _UNREAD and not file.name.startswith(".")]


def repairs(home: Path, sound: Path, every: int) -> Iterator[tuple[str, bool, str]]:
    """One damage at a time; the same study again must end in the same files, or one message must name the file."""
    chance = random.Random(3)
    cases = [(name, how) for name in files_of(sound) for how in ("deleted", "cut", "one bit", "other JSON")]
    for name, how in cases[::every]:
        copy = home / "damaged"
        shutil.copytree(sound, copy)
        file = copy / name
        content = file.read_bytes()
        if how == "deleted":
            file.unlink()
        else:
            cut, flipped = content[: len(content) // 2], _flipped(content, chance)
            file.write_bytes({"cut": cut, "one bit": flipped, "other JSON": b'{"a": [1]}'}[how])
        ended = run((*STUDY, "--out", "damaged", "--no-tracking"), home, limit=300)
        if ended.code == 0:
            wrong = differences(copy, sound)
        else:
            wrong = [] if ended.told and file.name in ended.text else [f"exit {ended.code}: {ended.text[-300:]}"]
        yield f"{_short(name)}, {how}", not wrong, "; ".join(wrong)
        shutil.rmtree(copy)


def flips(home: Path, sound: Path, count: int) -> Iterator[tuple[str, bool, str]]:
    """Single bits of every file, at random: readers must refuse it, or read what was written."""
    chance, before = random.Random(4), _read(sound)
    for name in files_of(sound):
        file = sound / name
        content, silent, other = file.read_bytes(), 0, ""
        try:
            for _ in range(count):
                file.write_bytes(_flipped(content, chance))
                try:
                    silent += _read(sound) != before
                except ChestfedError:
                    continue
                except Exception as error:
                    other = f"{type(error).__name__}: {error}"
        finally:
            file.write_bytes(content)
        yield f"{_short(name)}, {count} bits", not silent and not other, f"{silent} silent {other}".strip()


def _read(out: Path) -> str:
    """All that readers and a resumed study take from the folders, as text."""
    (folder,) = out.glob("synthetic-source_addition*")
    run_folder, found = RunFolder.open(folder), []
    run_folder.check_finished()
    found += [run_folder.about, run_folder.frame().to_csv(), run_folder.significance, run_folder.sites]
    found += [run_folder.hospitals, hospital_table.of_study(run_folder)]
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


def _flipped(content: bytes, chance: random.Random) -> bytes:
    if not content:
        return b"\0"
    place = chance.randrange(len(content))
    return content[:place] + bytes([content[place] ^ 1 << chance.randrange(8)]) + content[place + 1 :]


def _short(name: str) -> str:
    """Without the digest of the run folder; a manifest is named with its folder."""
    parts = Path(name).parts
    head = "stage 1/" if parts[0].startswith("synthetic-pretrained") else ""
    return head + ("/".join(parts[1:]) or name) if name != MANIFEST else name

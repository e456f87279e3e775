"""The campaign of faults: kills, damaged files, settings, disks and model files, and one table of what came of them.

    python -m benchmarks.faults --kills 100 --flips 50 --save benchmarks/results/faults.json

Everything is done to studies of the tiny sample hospitals, in a temporary folder. A row is good if the command did its
work or ended in one message, and what it wrote is what an undisturbed study writes. Needs a POSIX system; cases of
other users' folders need root.
"""

from __future__ import annotations

import argparse
import json
import platform
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.faults import configurations, corruption, disks, kills, models
from benchmarks.faults.children import STUDY, run

Rows = Iterator[tuple[str, bool, str]]
PARTS = ("kills", "stores", "repairs", "flips", "configurations", "disks", "models", "together")


def rows_of(part: str, home: Path, sound: Path, given: argparse.Namespace) -> Rows:
    """The cases of a part: name, whether it went well, and if not, why."""
    match part:
        case "kills":
            return kills.of_studies(home, sound, given.kills)
        case "stores":
            return kills.of_stores(home, given.stores)
        case "repairs":
            return corruption.repairs(home, sound, given.every)
        case "flips":
            return corruption.flips(home, sound, given.flips)
        case "configurations":
            return configurations.rows(home)
        case "together":
            return kills.together(home, sound)
        case "disks":
            return disks.rows(home, sound, given.every)
        case _:
            return models.rows(home, sound)


def main() -> None:
    """Run the parts that are asked for, print each case that went wrong, and the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], default=PARTS)
    parser.add_argument("--kills", type=int, default=100, help="kills of studies")
    parser.add_argument("--stores", type=int, default=20, help="kills while MLflow's store is made")
    parser.add_argument("--flips", type=int, default=50, help="bits flipped in each file")
    parser.add_argument("--every", type=int, default=1, help="take every n-th case of repairs and full disks")
    parser.add_argument("--save", type=Path, help="JSON with every case")
    given = parser.parse_args()
    import chestfed.commands.study.run  # noqa: F401 (imported once, for all forks)

    done: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory(prefix="chestfed-faults-") as folder:
        home = Path(folder)
        ended = run((*STUDY, "--out", "sound", "--no-tracking"), home, limit=600)
        if ended.code:
            raise SystemExit(ended.text)
        for part in given.parts:
            began, cases = time.monotonic(), []
            done.append({"part": part, "cases": cases})
            for name, good, why in rows_of(part, home, home / "sound", given):
                cases.append({"case": name, "good": good, "why": why})
                done[-1]["seconds"] = round(time.monotonic() - began)
                if not good:
                    print(f"{part}: {name}: {why}", flush=True)
                if given.save is not None:  # after each: hours may be interrupted
                    _save(given, done)
            print(_line(done[-1]), flush=True)


def _save(given: argparse.Namespace, done: list[dict[str, object]]) -> None:
    """Write these parts; other parts that the file has stay."""
    here = {"python": platform.python_version(), "system": platform.system(), "date": time.strftime("%Y-%m-%d")}
    asked = {key: value for key, value in vars(given).items() if key not in ("save", "parts")}
    parts = json.loads(given.save.read_text())["parts"] if given.save.exists() else []
    kept = {part["part"]: part for part in parts} | {str(part["part"]): {**part, **here, **asked} for part in done}
    given.save.write_text(json.dumps({"parts": [kept[name] for name in PARTS if name in kept]}, indent=1) + "\n")


def _line(done: dict[str, object]) -> str:
    cases: list[dict[str, object]] = done["cases"]  # type: ignore[assignment]
    good = sum(bool(case["good"]) for case in cases)
    return f"| {done['part']} | {len(cases)} cases | {good} good | {done['seconds']} s |"


if __name__ == "__main__":
    main()

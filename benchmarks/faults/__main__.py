"""The campaign of faults: kills, damaged files, pictures, settings, disks and models, and a table of what came of it.

    python -m benchmarks.faults --kills 100 --stores 20 --flips 50 --save benchmarks/results/faults.json
    python -m benchmarks.faults repairs flips --only k2        (some parts, some cases)
    python -m benchmarks.faults --table benchmarks/results/faults.json

Everything is done to studies of the tiny sample hospitals, in a temporary folder. A case is good if the command did its
work or ended in one message, and what it wrote is what an undisturbed study writes. Each case is saved when it ends:
started again with the same file, a campaign does what is missing and what did not go well. Needs a POSIX system; disks
that are really full, and folders of other users, need root.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import subprocess
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

from filelock import FileLock

from benchmarks.faults import canaries, configurations, corruption, disks, kills, models, pictures, places, real_key
from benchmarks.faults.cases import Campaign, Case, Part, Result, as_row, in_words
from benchmarks.faults.children import STUDY, import_what_is_used
from chestfed.core.checkpoint import write_text

PARTS: dict[str, Part] = {
    "kills": kills.of_studies,
    "stores": kills.of_stores,
    "repairs": corruption.repairs,
    "flips": corruption.flips,
    "folders": places.folders,
    "names": places.names,
    "pictures": pictures.cases,
    "configurations": configurations.cases,
    "disks": disks.cases,
    "models": models.cases,
    "together": kills.together,
    "canaries": canaries.cases,
    "real_key": real_key.cases,
}
Saved = dict[str, dict[str, Any]]


def main(arguments: list[str] | None = None) -> None:
    """Do the parts that are asked for, print each case that did not go well, and the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = f"of {', '.join(PARTS)}; none: all"
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], metavar="PART", help=names)
    parser.add_argument("--kills", type=int, default=100, help="kills of studies")
    parser.add_argument("--stores", type=int, default=20, help="kills while MLflow's store is made")
    parser.add_argument("--flips", type=int, default=50, help="bits flipped in each file")
    parser.add_argument("--pictures", type=int, default=4000, help="damaged pictures, at least")
    parser.add_argument("--every", type=int, default=1, help="take every n-th case")
    parser.add_argument("--only", default="", help="take cases whose names have this")
    parser.add_argument("--save", type=Path, help="JSON with every case; what it has and went well is not done again")
    parser.add_argument("--table", type=Path, help="do nothing but print the table of such a file")
    given = parser.parse_args(arguments)
    if given.table:
        print(table(read(given.table)))
        return
    fell = 0
    with tempfile.TemporaryDirectory(prefix="chestfed-faults-") as folder:
        home = Path(folder)
        campaign = Campaign(home, sound_study(home), given.kills, given.stores, given.flips, given.pictures)
        for part in given.parts or PARTS:
            rows = _carry_out(part, campaign, given)
            fell += sum(bool(row.get("why")) for row in rows)
            print(table({part: {"cases": rows}}, head=False), flush=True)
    raise SystemExit(1 if fell else 0)


def sound_study(home: Path) -> Path:
    """The output folder of a study that nothing disturbs; imports what it needs, and MLflow, for all children."""
    from chestfed.tracking.store import connect, local_store

    with tempfile.TemporaryDirectory() as store:
        connect(local_store(Path(store)))  # sets how MLflow is imported
        import_what_is_used((*STUDY, "--out", "sound", "--no-tracking"), home, partial(kills.make_store, Path(store)))
    return home / "sound"


def _carry_out(part: str, campaign: Campaign, given: argparse.Namespace) -> list[dict[str, Any]]:
    """Try the cases of a part one after the other, and save each."""
    rows, commit = [], _commit()
    kept = {row["case"]: row for row in read(given.save).get(part, {}).get("cases", [])}
    for number, case in enumerate(PARTS[part](campaign)):
        if number % given.every or given.only not in case.name:
            continue
        row = kept.get(case.name)
        if row is None or row.get("why"):
            began = _cpu_seconds()
            row = as_row(case, _attempted(case), _cpu_seconds() - began, commit)
            if row.get("why"):
                print(f"{part}: {case.name}: {row['why']}", flush=True)
            _save(given.save, part, row)
        rows.append(row)
    return rows


def _attempted(case: Case) -> Result:
    try:
        return case.attempt()
    except Exception as error:  # the other cases are tried all the same
        return Result(f"the campaign itself: {type(error).__name__}: {error}")


def read(file: Path | None) -> Saved:
    """The parts of a saved campaign, each with its cases; nothing if there is none yet."""
    return json.loads(file.read_text())["parts"] if file is not None and file.exists() else {}


def table(saved: Saved, head: bool = True) -> str:
    """In Markdown, a line per part."""
    lines = ["| part | what was done | result | CPU minutes |", "|---|---|---|---:|"] if head else []
    for part, done in saved.items():
        minutes = sum(row["seconds"] for row in done["cases"]) / 60
        lines.append(f"| `{part}` | {in_words(done['cases'])} | {minutes:.1f} |")
    return "\n".join(lines)


def _save(file: Path | None, part: str, row: dict[str, Any]) -> None:
    """Add a case to the file, or replace it there: several commands may save other parts at the same time."""
    if file is None:
        return
    with FileLock(Path(tempfile.gettempdir()) / f"chestfed-{file.name}.lock"):
        saved = read(file)
        cases = saved.setdefault(part, {"cases": []})["cases"]
        cases[:] = [one for one in cases if one["case"] != row["case"]] + [row]
        saved[part] |= {"python": platform.python_version(), "system": platform.system(), "date": time.strftime("%F")}
        write_text(file, _as_json({name: saved[name] for name in PARTS if name in saved}))


def _as_json(saved: Saved) -> str:
    """With a line per case."""
    parts = []
    for name, part in saved.items():
        about = json.dumps({key: value for key, value in part.items() if key != "cases"})
        cases = ",\n".join(f"  {json.dumps(case)}" for case in part["cases"])
        parts.append(f' {json.dumps(name)}: {about[:-1]}, "cases": [\n{cases}\n ]}}')
    return '{"parts": {\n' + ",\n".join(parts) + "\n}}\n"


def _cpu_seconds() -> float:
    """Of this process and of all that it waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def _commit() -> str:
    """Of the code; with a plus sign if files differ from it. Empty outside of a repository."""
    words = ("git", "describe", "--always", "--dirty=+", "--exclude=*")
    return subprocess.run(words, cwd=Path(__file__).parent, capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    main()

"""Many studies in one process, and many rounds of one: memory and open files must stay as they are.

    python -m benchmarks.faults.soak --studies 30 --hours 6 --save benchmarks/results/soak.json

The studies are those of the campaign (tiny sample hospitals, MLflow included), each with another seed. The rounds are
of one study with K=2 and a tiny network, for as long as is asked; it is stopped by SIGTERM.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from benchmarks.faults.children import SMALL

#: What memory may grow by over the second half, in MiB, and open files: caches of libraries fill up in the first.
GROWTH, HANDLES = 32.0, 2


def look(note: str = "") -> dict[str, Any]:
    """Resident memory in MiB, open files and threads of this process, now."""
    process = psutil.Process()
    memory = process.memory_info().rss / 2**20
    return {"after": note, "mib": round(memory, 1), "files": process.num_fds(), "threads": process.num_threads()}


def studies(count: int) -> list[dict[str, Any]]:
    """Run so many studies one after the other, and look after each."""
    import chestfed

    looks = []
    for seed in range(1, count + 1):
        chestfed.run(seed=seed, overrides=SMALL, out="runs", cache="cache", tracking=True, quiet=True)
        looks.append(look(f"study {seed}"))
        print(*looks[-1].values(), flush=True)
    return looks


def rounds(hours: float, looks_per_hour: int = 60) -> list[dict[str, Any]]:
    """One study of rounds without an end, looked at from a thread and stopped after so many hours."""
    import signal

    import chestfed
    from chestfed.core import stopping

    looks, stop = [], threading.Event()

    def watch() -> None:
        ends = time.monotonic() + hours * 3600
        while time.monotonic() < ends and not stop.wait(min(hours, 1) * 3600 / looks_per_hour):
            looks.append(look(f"{(hours * 3600 - (ends - time.monotonic())) / 60:.1f} min"))
            print(*looks[-1].values(), flush=True)
        os.kill(os.getpid(), signal.SIGTERM)  # SIGINT is ignored in the background of a script

    endless = (*SMALL, "k=[2]", "federated.stages=1", "federated.stage_steps=1000000", "evaluation.every=1000")
    watcher = threading.Thread(target=watch, daemon=True)
    try:
        with stopping.heeded():
            watcher.start()
            chestfed.run(overrides=endless, out="endless", cache="cache", quiet=True)
    except stopping.Stopped:
        pass
    finally:
        stop.set()
    return looks


def flat(looks: list[dict[str, Any]]) -> bool:
    """Whether the last quarter is where the third was, in memory and open files."""
    half = looks[len(looks) // 2 :]
    early, late = (half[: len(half) // 2], half[len(half) // 2 :]) if len(half) > 1 else (half, half)
    grown = {
        key: np.median([one[key] for one in late]) - np.median([one[key] for one in early]) for key in ("mib", "files")
    }
    return bool(grown["mib"] <= GROWTH and grown["files"] <= HANDLES)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", type=int, default=30)
    parser.add_argument("--hours", type=float, default=6.0)
    parser.add_argument("--save", type=Path)
    given = parser.parse_args()
    save = given.save.absolute() if given.save else None
    with tempfile.TemporaryDirectory(prefix="chestfed-soak-") as home:
        os.chdir(home)
        found = {
            "studies": studies(given.studies) if given.studies else [],
            "rounds": rounds(given.hours) if given.hours else [],
        }
    result = {part: {"looks": looks, "flat": flat(looks)} for part, looks in found.items() if looks}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    for part, one in result.items():
        print(f"| {part} | {len(one['looks'])} looks | {'flat' if one['flat'] else 'GROWS'} |")
    if save:
        about = {
            "studies": given.studies,
            "hours": given.hours,
            "peak_mib": round(peak),
            "date": time.strftime("%Y-%m-%d"),
        }
        save.write_text(json.dumps({**about, "parts": result}, indent=1) + "\n")


if __name__ == "__main__":
    main()

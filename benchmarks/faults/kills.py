"""Studies killed at random moments, and MLflow's store killed while it is made."""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from benchmarks.faults.children import STUDY, run, start, wait

_OF_K = ("result.json", "rounds.jsonl", "predictions.parquet", "model.safetensors")
#: What must come out the same to the bit.
SAME = (
    *("table.csv", "table.json", "significance.json", "hospital_table.json"),
    *(f"k{k}/{name}" for k in (1, 2) for name in _OF_K),
)
#: Kills of one study before it is left to end.
_CHAINED = 4


def of_studies(home: Path, sound: Path, kills: int) -> Iterator[tuple[str, bool, str]]:
    """Kill studies with MLflow at random moments, several times each, then let them end: one row per study."""
    chance = random.Random(1)
    whole = run((*STUDY, "--out", "timed"), home).seconds
    shutil.rmtree(home / "timed")
    for number in range(0, kills, _CHAINED):
        out, count = f"killed-{number}", 0
        while count < min(_CHAINED, kills - number):
            ended = wait(start((*STUDY, "--out", out), home), kill_after=chance.uniform(0, whole))
            count += 1
            if ended.code == 0:
                break
        ended = run((*STUDY, "--out", out), home, limit=300)
        found = differences(home / out, sound)
        if ended.code:
            found.append(f"exit {ended.code}: {ended.text[-300:]}")
        found += [] if _recorded(home / out) else ["MLflow lacks runs"]
        yield f"study {number // _CHAINED + 1}, {count} kills", not found, "; ".join(found)
        shutil.rmtree(home / out)


def of_stores(home: Path, kills: int) -> Iterator[tuple[str, bool, str]]:
    """Kill processes while they make MLflow's store; the next one must end with a store that works."""
    from chestfed.tracking.store import Store, local_store

    chance = random.Random(2)
    for number in range(kills):
        out = home / f"store-{number}"
        out.mkdir()

        def make(out: Path = out) -> None:
            Store(local_store(out), out / "artifacts").start_run("x", {})
            raise SystemExit(0)

        wait(start((), home, make), kill_after=chance.uniform(0.2, 4))
        left = sorted(file.name for file in out.iterdir())
        ended = wait(start((), home, make))
        good = ended.code == 0 and "set aside" not in ended.text
        yield f"store {number + 1}, left: {', '.join(left) or 'nothing'}", good, ended.text[-300:] if not good else ""
        shutil.rmtree(out)


def together(home: Path, sound: Path) -> Iterator[tuple[str, bool, str]]:
    """Commands at the same time in one new output folder with one new cache: each ends well, or in one message."""
    pairs = {
        "the same study twice": ((), ()),
        "two studies": ((), ("--seed", "2")),
        "two studies of one pipeline's algorithms": (("--algorithm", "coda_plus"), ("--algorithm", "fedavg")),
    }
    for number, (name, each) in enumerate(pairs.items()):
        places = ("--out", f"together-{number}", "--cache", f"cache-{number}")
        children = [start((*STUDY, *places, *more), home) for more in each]
        ended = [wait(child) for child in children]
        told = all(one.told and "tracking stopped" not in one.text for one in ended)
        good = told and any(one.code == 0 for one in ended)
        if number == 0:
            good = good and not differences(home / places[1], sound)
        yield name, good, "" if good else "; ".join(f"exit {one.code}: {one.text[-300:]}" for one in ended)


def differences(out: Path, sound: Path) -> list[str]:
    """Files of a study that are not as in the study that was not disturbed."""
    (its,), found = sound.glob("synthetic-source_addition*"), list(out.glob("synthetic-source_addition*"))
    if len(found) != 1:
        return [f"{len(found)} run folders"]
    (ours,) = found
    return [
        name for name in SAME if not (ours / name).exists() or (ours / name).read_bytes() != (its / name).read_bytes()
    ]


def _recorded(out: Path) -> bool:
    """Whether MLflow has the study and its two K, once and finished."""
    with closing(sqlite3.connect(out / "mlflow.db")) as store:
        try:
            runs = store.execute("SELECT status FROM runs").fetchall()
        except sqlite3.OperationalError:
            return False
    return sorted(status for (status,) in runs) == ["FINISHED"] * 3

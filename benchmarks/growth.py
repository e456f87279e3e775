"""Time and memory per unit as a study grows: clients, rounds, studies in one MLflow store.

    python -m benchmarks.growth                (some minutes of one core)
    python -m benchmarks.growth rounds --save FILE

clients   CODASCA on the handwritten digits with a network of one block, 5 to 64 clients, 20 rounds of one local step
rounds    the same with two clients, 100 to 1,000 rounds
studies   runs of the size of a study (a parent and five children, 60 rounds each) into one local store

Each part is a process of its own, the least of three turns. A unit's processor time is the difference of two sizes,
divided by the units between them, so that start-up is in none; memory is the most that the process has held so far.
Label tables and the image cache of a million images are parts of `python -m benchmarks` (`tables`, `opening`,
`reports`).
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import Any

import torch

from benchmarks.__main__ import machine
from benchmarks.speed_parts.machine import alone, peak_of

RESULTS = Path(__file__).parent / "results" / "growth.json"
CLIENTS, ROUNDS, STUDIES = (5, 16, 64), (100, 300, 1000), (10, 50, 100)
_LEARNING_ROUNDS, _TURNS = 20, 3
#: Metrics of a round, and rounds of a child, as a study of five diseases records them.
_METRICS, _RECORDED_ROUNDS, _CHILDREN = 13, 60, 5


def main(arguments: list[str] | None = None) -> None:
    """Measure, print and save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="default: all")
    parser.add_argument("--save", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    measured = json.loads(options.save.read_text(encoding="utf-8")) if options.save.exists() else {}
    for part in options.parts or PARTS:
        measured[part] = {"machine": machine(), **PARTS[part]()}
        print(json.dumps({part: measured[part]}, indent=1), flush=True)
        options.save.write_text(json.dumps(measured, indent=1) + "\n", encoding="utf-8")


def measure_clients() -> dict[str, Any]:
    """Growth with the number of clients; the units are rounds of one client."""
    return alone(_growth, [(count, _LEARNING_ROUNDS) for count in CLIENTS])


def measure_rounds() -> dict[str, Any]:
    """Growth with the number of rounds, of two clients; the units are the same."""
    return alone(_growth, [(2, count) for count in ROUNDS])


def measure_studies() -> dict[str, Any]:
    """Growth with the number of studies that a store has already."""
    return alone(_record)


def _growth(cases: list[tuple[int, int]]) -> dict[str, Any]:
    """Milliseconds of the processor per further round of a client, and MiB of memory and disk, by case."""
    torch.set_num_threads(1)
    _run(2, 2)  # imports, and whatever else happens once
    seconds = dict.fromkeys(cases, float("inf"))
    figures: dict[str, dict[str, float]] = {}
    for _ in range(_TURNS):
        for case in cases:
            began = time.process_time()
            disk = _run(*case)
            seconds[case] = min(seconds[case], time.process_time() - began)
            figures.setdefault(
                "{} clients, {} rounds".format(*case), {"peak, MiB": peak_of(), "disk, MiB": round(disk, 2)}
            )
    for (case, larger), entry in zip(pairwise(cases), [*figures.values()][1:], strict=True):
        entry["ms per unit"] = round(1000 * (seconds[larger] - seconds[case]) / (prod(larger) - prod(case)), 2)
    return figures


def _run(clients: int, rounds: int) -> float:
    """One study of the digits; MiB of its folder."""
    import chestfed

    settings = {
        "collection.clients": clients,
        "collection.partition": "random",
        "collection.imratio": "null",
        "k": f"[{clients}]",
        "model.blocks": "[1]",
        "federated.window": 1,
        "federated.stages": 1,
        "federated.stage_steps": rounds,
        "federated.batch_size": 4,
        "evaluation.every": rounds,
        "evaluation.resamples": 0,
        "evaluation.compare_outputs": "false",
    }
    with tempfile.TemporaryDirectory() as folder:
        overrides = [f"{key}={value}" for key, value in settings.items()]
        chestfed.run("digits_ih", algorithm="codasca", out=folder, cache=folder, overrides=overrides, quiet=True)
        return sum(file.stat().st_size for file in Path(folder).rglob("*") if file.is_file()) / (1 << 20)


def _record() -> dict[str, Any]:
    """Milliseconds of the processor per study that is recorded, by how many the store has."""
    from chestfed.reports.tracking.store import Store, local_store

    entries = [
        (number, {f"round/{name}": 0.5 for name in range(_METRICS)}) for number in range(1, _RECORDED_ROUNDS + 1)
    ]
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        store, sizes, done = Store(local_store(out), out / "mlflow-artifacts"), {}, 0
        for size in STUDIES:
            began = time.process_time()
            for study in range(done, size):
                parent = store.start_run(f"study {study}", {"kind": "study"})
                store.log_params(parent, {f"key.{number}": number for number in range(100)})
                for _ in range(_CHILDREN):
                    child = store.start_run("K", {"kind": "K", "mlflow.parentRunId": parent})
                    store.list_steps(child, "round/loss")
                    store.log_metrics(child, entries)
                    store.end_run(child)
                store.end_run(parent)
            each = 1000 * (time.process_time() - began) / (size - done)
            disk = (out / "mlflow.db").stat().st_size / (1 << 20)
            sizes[str(size)] = {"ms per unit": round(each), "peak, MiB": peak_of(), "disk, MiB": round(disk, 2)}
            done = size
    return sizes


PARTS: dict[str, Callable[[], dict[str, Any]]] = {
    "clients": measure_clients,
    "rounds": measure_rounds,
    "studies": measure_studies,
}

if __name__ == "__main__":
    main()

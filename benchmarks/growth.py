"""How processor time and memory grow: each part at three sizes, and the exponent of what it takes.

    python -m benchmarks.growth                (a quarter of an hour of one core)
    python -m benchmarks.growth rows --save FILE

clients    CODASCA on the handwritten digits with a network of one block, to 256 clients, four rounds of one local step
rounds     the same with two clients, to 2,000 rounds
studies    runs of the size of a study (a parent and five children, 60 rounds each) into one local store, to 200
rows       a hospital's own label file, opened, to a million rows
images     what `chestfed evaluate` says of a test set, five diseases and three columns of groups, to 280,000 images
page       the page of a study of two K with such a test set, to 70,000 images
seeds      results and comparison of the seeds of a study, to 100
runs       `chestfed runs` of a folder, to 300
copies     `chestfed site check`: near copies among hashes, to 112,000 images

Test sets have 10,000 images or more, where the resamples are as many at every size (`enough_resamples`).

Sizes grow by one factor r, so that the exponent is log((t3 - t2) / (t2 - t1)) / log r, in which start-up has no part;
it is the time itself that grows like size to the power of it. Each part is a process of its own. Runs are those of the
tests, which no training made; their scores are drawn at random, and so are labels and hashes: no patients.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import math
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pandas as pd

from benchmarks.__main__ import machine
from benchmarks.speed_parts.machine import alone, peak_of

RESULTS = Path(__file__).parent / "results" / "growth.json"
DISEASES: Final = ("cardiomegaly", "edema", "consolidation", "atelectasis", "pleural_effusion")
GROUPS: Final = {"sex": ("F", "M"), "age": ("<40", "40-59", "60-79", ">=80"), "view": ("ap", "pa")}
_LEARNING_ROUNDS, _METRICS, _RECORDED_ROUNDS, _CHILDREN, _LEAST_IMAGES = 4, 13, 60, 5, 1000


def main(arguments: list[str] | None = None) -> None:
    """Measure, print and save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="default: all")
    parser.add_argument("--save", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    measured = json.loads(options.save.read_text(encoding="utf-8")) if options.save.exists() else {}
    for name in options.parts or PARTS:
        part = PARTS[name]
        sizes = {size: alone(part.work, size) for size in part.sizes}
        seconds = [each["seconds"] for each in sizes.values()]
        measured[name] = {
            "machine": machine(),
            "exponent": find_exponent(part.sizes, seconds),
            **{f"{size:,}": each for size, each in sizes.items()},
        }
        print(json.dumps({name: measured[name]}, indent=1), flush=True)
        options.save.write_text(json.dumps(measured, indent=1) + "\n", encoding="utf-8")


def find_exponent(sizes: tuple[int, int, int], seconds: list[float]) -> float | None:
    """The power of the size that the time grows like; None where it does not grow."""
    first, second = seconds[1] - seconds[0], seconds[2] - seconds[1]
    if first <= 0 or second <= 0:
        return None
    return round(math.log(second / first) / math.log(sizes[2] / sizes[1]), 2)


def _timed(work: Callable[[], object]) -> dict[str, float]:
    began = time.process_time()
    work()
    return {"seconds": round(time.process_time() - began, 3), "peak, MiB": peak_of()}


def measure_clients(count: int) -> dict[str, float]:
    """A study of so many clients, after one of two that imports all."""
    _study(2, 2)
    return _timed(lambda: _study(count, _LEARNING_ROUNDS))


def measure_rounds(count: int) -> dict[str, float]:
    """A study of two clients and so many rounds."""
    _study(2, 2)
    return _timed(lambda: _study(2, count))


def _study(clients: int, rounds: int) -> None:
    import torch

    import chestfed

    torch.set_num_threads(1)
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


def measure_studies(count: int) -> dict[str, float]:
    """So many studies recorded in one store."""
    from chestfed.reports.tracking.store import Store, local_store

    rounds = range(1, _RECORDED_ROUNDS + 1)
    entries = [(number, {f"round/{name}": 0.5 for name in range(_METRICS)}) for number in rounds]
    with tempfile.TemporaryDirectory() as folder:
        store = Store(local_store(Path(folder)), Path(folder) / "mlflow-artifacts")

        def record() -> None:
            for study in range(count):
                parent = store.start_run(f"study {study}", {"kind": "study"})
                store.log_params(parent, {f"key.{number}": number for number in range(100)})
                for _ in range(_CHILDREN):
                    child = store.start_run("K", {"kind": "K", "mlflow.parentRunId": parent})
                    store.list_steps(child, "round/loss")
                    store.log_metrics(child, entries)
                    store.end_run(child)
                store.end_run(parent)

        return _timed(record)


def measure_rows(count: int) -> dict[str, float]:
    """A label file of so many rows, opened."""
    from benchmarks.speed_parts.tables import _config, _write
    from chestfed.data.sites import opening

    with tempfile.TemporaryDirectory() as folder:
        _write("wide csv", Path(folder), count)
        config = _config("wide csv")
        return _timed(lambda: opening.open_site(config, Path(folder), Path(folder, "labels.csv")))


def measure_images(count: int) -> dict[str, float]:
    """The summary of a test set of so many images, after a small one that imports all."""
    _evaluate(_LEAST_IMAGES)()
    return _timed(_evaluate(count))


def _evaluate(count: int) -> Callable[[], object]:
    from chestfed.results.evaluation.intervals.methods import Intervals
    from chestfed.results.evaluation.labeled import Scored
    from chestfed.results.evaluation.summary import summarize

    labels, groups = _draw_labels(count), _draw_groups(count)
    scores = 1 / (1 + np.exp(-np.random.default_rng(1).normal(size=labels.shape) - labels))
    scored = Scored(scores, labels, np.arange(count) * 3 // 4, DISEASES)
    return lambda: summarize(scored, "frontal-image", Intervals(), groups)


def measure_page(count: int) -> dict[str, float]:
    """The page of a study with a test set of so many images, and a column for each of its groups."""
    with tempfile.TemporaryDirectory() as folder:
        _prepare_page(_LEAST_IMAGES, Path(folder) / "small")()
        return _timed(_prepare_page(count, Path(folder) / "run"))


def _prepare_page(count: int, folder: Path) -> Callable[[], object]:
    from chestfed.reports.pages.page import write_report
    from tests.results.tables import finished_runs

    finished_runs.IMAGES, finished_runs.PATIENTS, finished_runs.MADE = count, -(-count * 3 // 4), None
    finished_runs.NAMES = DISEASES  # type: ignore[assignment]
    run = finished_runs.write_run(folder, labels=_draw_labels(count))
    for file in run.glob("k*/predictions.parquet"):
        columns = {f"group_{name}": values for name, values in _draw_groups(count).items()}
        pd.read_parquet(file).assign(**columns).to_parquet(file, index=False)
    finished_runs.seal_run(run)
    return lambda: write_report(run, run / "report.html")


def measure_seeds(count: int) -> dict[str, float]:
    """The results of so many seeds, and the folder of their comparison."""
    from chestfed.results.tables.collect import collect, write_comparison
    from chestfed.results.tables.run_folder import RunFolder
    from tests.results.tables.finished_runs import write_run

    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        runs = [write_run(out / f"run-{seed}", seed=seed, compared=False) for seed in range(count)]
        return _timed(lambda: write_comparison(collect([RunFolder.open(run) for run in runs]), out))


def measure_runs(count: int) -> dict[str, float]:
    """The list of so many runs in a folder."""
    from chestfed.app.commands.machine.runs import runs
    from tests.results.tables.finished_runs import write_run

    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        for number in range(count):
            write_run(Path(folder) / f"synthetic-study-{number:012x}")
        return _timed(lambda: runs(Path(folder)))


def measure_copies(count: int) -> dict[str, float]:
    """Near copies among so many images, one in a hundred of which is one.

    Bits are set with probabilities of 0.155 to 0.845. So a pair agrees, up to one bit, in 0.035 of the 16 bands on
    average, as pairs of 684 images of ChestX-ray8 do; random hashes would agree in 0.004.
    """
    from chestfed.data.checks.duplicates import near_pairs

    rng = np.random.default_rng(0)
    shares = rng.uniform(0.155, 0.845, 256)
    hashes = np.stack([np.packbits(rng.random((HASHES, 256)) < shares, axis=1) for _ in range(count)])
    copied = rng.choice(count, count // 100, replace=False)
    hashes[copied] = hashes[(copied + 1) % count]
    hashes[copied, 0, :3] ^= 1
    return _timed(lambda: near_pairs(hashes))


def _draw_labels(count: int) -> np.ndarray:
    return (np.random.default_rng(0).random((count, len(DISEASES))) < 0.1).astype(np.float32)


def _draw_groups(count: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(2)
    return {name: rng.choice(values, count) for name, values in GROUPS.items()}


@dataclass(frozen=True)
class _Part:
    """What is measured, and its sizes, each the same factor larger than the last."""

    work: Callable[[int], dict[str, float]]
    sizes: tuple[int, int, int]


#: Of an image: of itself, of it turned, and of its middle (`facts.near_hashes`).
HASHES: Final = 3
PARTS: dict[str, _Part] = {
    "clients": _Part(measure_clients, (16, 64, 256)),
    "rounds": _Part(measure_rounds, (20, 200, 2000)),
    "studies": _Part(measure_studies, (8, 40, 200)),
    "rows": _Part(measure_rows, (10_000, 100_000, 1_000_000)),
    "images": _Part(measure_images, (17_500, 70_000, 280_000)),
    "page": _Part(measure_page, (17_500, 35_000, 70_000)),
    "seeds": _Part(measure_seeds, (4, 20, 100)),
    "runs": _Part(measure_runs, (12, 60, 300)),
    "copies": _Part(measure_copies, (7_000, 28_000, 112_000)),
}

if __name__ == "__main__":
    main()

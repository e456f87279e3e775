"""Training with its input, the tests, and studies: what a step on tensors leaves out."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader

from benchmarks.gpu_parts import ways
from benchmarks.gpu_parts.bench import Bench, set_precision
from benchmarks.gpu_parts.study import measure_study
from benchmarks.speed_parts import training
from chestfed.data.images.augment import Augment

_ROOT = Path(__file__).parents[2]


def measure_input(bench: Bench) -> None:
    """CODASCA on images of a cache, by threads that read, and LibAUC's way with a DataLoader; input alone."""
    autocast = set_precision("bf16")
    with training.cached(64 if bench.smoke else 4096) as images:
        for threads in sorted({0, 2, bench.workers}):
            batches = training.batches(images, Augment(), bench.batches[0], threads, bench.device)
            bench.report(f"input alone, {threads} threads", bench.rate(batches.next, bench.batches[0], 0.6))
            batches.close()
        for count in bench.batches:
            bench.free()
            batches = training.batches(images, Augment(), count, bench.workers, bench.device)
            row: dict[str, Any] = {"CODASCA": bench.rate(*ways.codasca(bench, batches, count, autocast=autocast))}
            batches.close()
            bench.free()
            row["LibAUC-like, DataLoader"] = bench.rate(
                *ways.libauc_like(bench, count, autocast=False, pixels=_load(images, count, bench)), 3.0
            )
            row["ratio"] = round(row["CODASCA"] / row["LibAUC-like, DataLoader"], 2)
            bench.report(f"batch {count}", row)


def _load(images: Any, count: int, bench: Bench) -> Iterator[torch.Tensor]:
    """Images of a DataLoader of processes, again and again."""
    films = training.Films(images.read(range(len(images.records))))
    workers = 0 if bench.smoke else bench.workers
    loader = DataLoader(films, count, num_workers=workers, drop_last=True, pin_memory=bench.is_gpu)
    while True:
        yield from loader


def measure_tests(bench: Bench) -> None:
    """`pytest -m gpu tests/gpu`; where there is no GPU they are collected and skipped."""
    words = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "gpu", "tests/gpu"]
    bench.report("tests", _run([*words], _ROOT))


def measure_command(bench: Bench) -> None:
    """A study of two K on phantoms by the command, and the same command again."""
    with tempfile.TemporaryDirectory() as folder:
        words = ["-m", "chestfed", "study", "--k", "1,2", "--no-tracking", "--device", bench.device.type]
        keys = ["pretrain.epochs=2", "federated.stage_steps=16", "alternatives=null"]
        keys += ["samples.size=tiny"] * bench.smoke
        words += [word for key in keys for word in ("--set", key)]
        for name in ("a study", "the same again"):
            bench.report(name, _run(words, Path(folder)))


def _run(words: list[str], folder: Path) -> dict[str, Any]:
    begin = time.perf_counter()
    ended = subprocess.run([sys.executable, *words], cwd=folder, capture_output=True, text=True, check=False)
    lines = (ended.stdout + ended.stderr).strip().splitlines()
    return {"code": ended.returncode, "seconds": round(time.perf_counter() - begin, 1), "end": lines[-6:]}


def measure_paper(bench: Bench, minutes: float) -> None:
    """Both stages of the paper's study; see `benchmarks.gpu_parts.study`."""
    for name, value in measure_study(0.0 if bench.smoke else 60 * minutes, smoke=bench.smoke).items():
        bench.report(name, value)

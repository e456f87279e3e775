"""Starting: imports, a site of a million rows, a whole study."""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from chestfed.images.cache import COLUMNS
from chestfed.images.index import KEY, Index

ROWS = 1_000_000


def measure() -> dict[str, Any]:
    """An index of a million images: written once, then found again, as every start of a study does."""
    keys = np.random.default_rng(0).bytes(16 * ROWS)
    parts = [keys[start : start + 16] for start in range(0, len(keys), 16)]
    with tempfile.TemporaryDirectory() as folder:
        index = Index(Path(folder) / "index.sqlite", COLUMNS)
        index.keep([(key, number, key, key, None) for number, key in enumerate(parts)])
        begin = time.process_time()
        known, found = index.find(np.frombuffer(keys, KEY))
        seconds = time.process_time() - begin
        assert known.all()
        assert (found["record"] == np.arange(ROWS)).all()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return {"rows": ROWS, "seconds to find all": round(seconds, 1), "peak of this process, MiB": peak}


def measure_start() -> dict[str, Any]:
    """Seconds of processor time of a new interpreter that imports what a study needs, and its largest parts."""
    names = ("numpy", "torch", "chestfed.commands.study.run", "monai.networks.nets", "mlflow")
    return {"seconds to import": {name: _spent("-c", f"import {name}")["processor seconds"] for name in names}}


def measure_study() -> dict[str, Any]:
    """The default study from an empty folder, twice: with one thread of torch and with all cores; then its dry run."""
    found = {}
    for threads in ("null", "1"):
        with tempfile.TemporaryDirectory() as folder:
            command = ("-m", "chestfed", "study", "--set", f"runtime.threads={threads}")
            found[f"runtime.threads={threads}"] = _spent(*command, cwd=folder) | {
                "peak of a process, MiB": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024
            }
            found[f"runtime.threads={threads}, dry run"] = _spent(*command, "--dry-run", cwd=folder)
    return found


def _spent(*arguments: str, cwd: str | None = None) -> dict[str, float]:
    """Seconds on the clock and of processor time of Python with these arguments and of its children."""
    begin, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *arguments], check=True, capture_output=True, cwd=cwd)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"seconds": round(time.perf_counter() - begin, 2), "processor seconds": round(spent, 2)}

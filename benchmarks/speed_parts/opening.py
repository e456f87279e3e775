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
    found = {}
    for name in ("numpy", "torch", "chestfed.commands.study.run", "monai.networks.nets", "mlflow"):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", f"import {name}"], check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        found[name] = round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 2)
    return {"seconds to import": found}


def measure_study() -> dict[str, Any]:
    """The default study from an empty folder, twice: with one thread of torch and with all cores."""
    found = {}
    for threads in ("null", "1"):
        with tempfile.TemporaryDirectory() as folder:
            begin, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
            command = [sys.executable, "-m", "chestfed", "study", "--set", f"runtime.threads={threads}"]
            subprocess.run(command, check=True, cwd=folder, stdout=subprocess.DEVNULL)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            found[f"runtime.threads={threads}"] = {
                "seconds": round(time.perf_counter() - begin),
                "processor seconds": round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime),
                "peak of a process, MiB": after.ru_maxrss // 1024,
            }
    return found

"""Starting: imports, a site of a million rows, a whole study."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.speed_parts.machine import alone, peak_of
from chestfed.data.images.cache import COLUMNS
from chestfed.data.images.database import KEY, Database, Row

ROWS = 1_000_000


def measure() -> dict[str, Any]:
    """An index of a million images: written once, then found again, as every start of a study does."""
    return alone(_index)


def _index() -> dict[str, Any]:
    keys = np.random.default_rng(0).bytes(16 * ROWS)
    parts = [keys[start : start + 16] for start in range(0, len(keys), 16)]
    with tempfile.TemporaryDirectory() as folder:
        database = Database(Path(folder) / "images.sqlite")
        database.create()
        database.add({"pixels-320": [Row(key, (key, key, None)) for key in parts]})
        begin = time.process_time()
        known, _, cells = database.find("pixels-320", COLUMNS, np.frombuffer(keys, KEY))
        seconds = time.process_time() - begin
        assert known.all()
        assert (cells["digest"] == np.frombuffer(keys, KEY)).all()
    return {"rows": ROWS, "seconds to find all": round(seconds, 1), "peak, MiB": peak_of()}


def measure_start() -> dict[str, Any]:
    """Seconds of processor time of a new interpreter that imports what a study needs, and its largest parts."""
    names = ("numpy", "torch", "monai.networks.nets", "mlflow")
    parts = {name: f"import {name}" for name in names}
    study = "import atexit, gc; atexit.register(gc.freeze); gc.disable(); import chestfed.app.studies"
    parts["chestfed.app.studies, as `chestfed study` does"] = study
    return {"seconds to import": {name: spent("-c", code)["processor seconds"] for name, code in parts.items()}}


def measure_study() -> dict[str, Any]:
    """The default study from an empty folder, as it is and with two threads of torch; its dry run after each."""
    found = {}
    for threads in (1, 2):
        with tempfile.TemporaryDirectory() as folder:
            command = ("-m", "chestfed", "study", "--set", f"runtime.threads={threads}")
            found[f"runtime.threads={threads}"] = spent(*command, cwd=folder)
            found[f"runtime.threads={threads}, dry run"] = spent(*command, "--dry-run", cwd=folder)
    return found


def spent(*arguments: str, cwd: str | None = None, allowed: tuple[int, ...] = (0,)) -> dict[str, float]:
    """Seconds on the clock, and of the processor, of Python with these arguments, and the peak of its memory.

    Exits with what it printed if its exit code is not one of `allowed`.
    """
    began, peak = time.perf_counter(), 0
    with tempfile.TemporaryFile() as out:
        process = subprocess.Popen([sys.executable, *arguments], stdout=out, stderr=out, cwd=cwd)
        while (ended := os.wait4(process.pid, os.WNOHANG))[0] == 0:
            peak = max(peak, peak_of(process.pid))
            time.sleep(0.05)
        process.returncode = os.waitstatus_to_exitcode(ended[1])
        if process.returncode not in allowed:
            out.seek(0)
            raise SystemExit(out.read().decode()[-4000:])
    return {
        "seconds": round(time.perf_counter() - began, 2),
        "processor seconds": round(ended[2].ru_utime + ended[2].ru_stime, 2),
        "peak, MiB": peak,
    }

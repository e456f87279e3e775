"""Starting: imports, a site of a million rows, a whole study."""

from __future__ import annotations

import os
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
    """The default study from an empty folder, as it is and with two threads of torch; its dry run after each."""
    found = {}
    for threads in (1, 2):
        with tempfile.TemporaryDirectory() as folder:
            command = ("-m", "chestfed", "study", "--set", f"runtime.threads={threads}")
            found[f"runtime.threads={threads}"] = _spent(*command, cwd=folder)
            found[f"runtime.threads={threads}, dry run"] = _spent(*command, "--dry-run", cwd=folder)
    return found


def _spent(*arguments: str, cwd: str | None = None) -> dict[str, float]:
    """Seconds on the clock, and of the processor, of Python with these arguments; its largest process, in MiB."""
    begin = time.perf_counter()
    with tempfile.TemporaryFile() as out:
        process = subprocess.Popen([sys.executable, *arguments], stdout=out, stderr=out, cwd=cwd)
        _, status, used = os.wait4(process.pid, 0)  # its own and its children's, not those of others before it
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            out.seek(0)
            raise SystemExit(out.read().decode()[-4000:])
    return {
        "seconds": round(time.perf_counter() - begin, 2),
        "processor seconds": round(used.ru_utime + used.ru_stime, 2),
        "peak, MiB": used.ru_maxrss // 1024,
    }

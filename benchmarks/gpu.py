"""How fast chestfed trains DenseNet121 at 320x320 on a GPU, beside the bare network and LibAUC's way:

    python -m benchmarks.gpu --save gpu.json               (all parts in order of value, eight minutes)
    python -m benchmarks.gpu steps launches                (some)
    python -m benchmarks.gpu study --minutes 10            (both stages at the paper's size, random weights)
    python -m benchmarks.gpu --smoke                       (a small network on the CPU: only that it runs)

Each part runs in a process of its own, with a limit: one that hangs or dies is noted with what it has measured, and the
next begins. Rates are images a second. No file of patients is read, and nothing is downloaded.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import torch

from benchmarks.__main__ import machine
from benchmarks.gpu_parts import steps, whole
from benchmarks.gpu_parts.bench import Bench

#: In order of value, each with the seconds that it may take.
PARTS: Final[dict[str, tuple[Callable[[Bench], None], int]]] = {
    "ceilings": (steps.measure_ceilings, 40),
    "steps": (steps.measure_steps, 200),
    "launches": (steps.measure_launches, 60),
    "tests": (whole.measure_tests, 120),
    "input": (whole.measure_input, 90),
    "memory": (steps.measure_memory, 40),
    "command": (whole.measure_command, 120),
    "compiled": (steps.measure_compiled, 150),
    "streams": (steps.measure_streams, 40),
    "heuristics": (steps.measure_heuristics, 50),
}
#: Asked for by name alone: it takes the minutes that it is given.
STUDY: Final = "study"


def main(arguments: list[str] | None = None) -> None:
    """Measure, print and save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, STUDY, []], help="default: all but study")
    parser.add_argument("--smoke", action="store_true", help="a small network, two steps of each, on the CPU")
    parser.add_argument("--minutes", type=float, default=8.0, help="of all parts together")
    parser.add_argument("--workers", type=int, default=8, help="threads that read, and processes of a DataLoader")
    parser.add_argument("--save", type=Path)
    parser.add_argument("--here", action="store_true", help="in this process, without limits")
    options = parser.parse_args(arguments)
    if not options.smoke and not torch.cuda.is_available():
        parser.error("torch sees no CUDA device; --smoke runs on the CPU")
    name = "CPU, smoke test: the figures mean nothing" if options.smoke else torch.cuda.get_device_name()
    report: dict[str, Any] = {"device": name, "torch": torch.__version__, "machine": machine()}
    end = time.monotonic() + 60 * options.minutes
    for part in options.parts or PARTS:
        if options.here:
            report[part] = {}
            _measure(part, options, report[part])
        elif time.monotonic() < end - 10:
            report[part] = _run_apart(part, options, end - time.monotonic())
        else:
            report[part] = {"error": "no time left"}
        print(json.dumps({part: report[part]}, indent=1), flush=True)
        if options.save:
            options.save.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def _measure(part: str, options: argparse.Namespace, measured: dict[str, Any]) -> None:
    """A part in this process: what it measures is put into `measured` and saved, figure by figure."""

    def report(key: str, value: Any) -> None:
        measured[key] = value
        if options.here and options.save:
            options.save.write_text(json.dumps(measured) + "\n", encoding="utf-8")

    device = torch.device("cpu" if options.smoke else "cuda")
    batches = {"batches": (4,)} if options.smoke else {}
    bench = Bench(device, report, options.smoke, workers=options.workers, **batches)
    if part == STUDY:
        whole.measure_paper(bench, options.minutes)
    else:
        PARTS[part][0](bench)


def _run_apart(part: str, options: argparse.Namespace, left: float) -> dict[str, Any]:
    """A part in a process of its own, which is killed with all that it has started when its time is up."""
    limit = left if part == STUDY else min(left, (4 if options.smoke else 1) * PARTS[part][1])
    more = ["--smoke"] * options.smoke + ["--workers", str(options.workers), "--minutes", str(0.9 * limit / 60)]
    with tempfile.TemporaryDirectory() as folder:
        file, log, begin = Path(folder, "part.json"), Path(folder, "log"), time.monotonic()
        command = [sys.executable, "-m", "benchmarks.gpu", part, "--here", "--save", str(file), *more]
        with log.open("w", encoding="utf-8") as out:
            process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            code: int | str = process.wait(limit)
        except subprocess.TimeoutExpired:
            code = f"time is up after {limit:.0f} s"
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        text = file.read_text(encoding="utf-8") if file.exists() else "{}"
        measured = json.loads(text).get(part) or json.loads(text)
        if code != 0:
            measured |= {"error": code, "end": log.read_text(encoding="utf-8").splitlines()[-8:]}
        return {**measured, "seconds": round(time.monotonic() - begin, 1)}


if __name__ == "__main__":
    main()

"""How fast the parts of chestfed are, each beside what else could do it:

python -m benchmarks                    (all parts, some minutes)
python -m benchmarks loader updates     (some)
python -m benchmarks --save FILE        (by default benchmarks/results/speed.json, merged with what is there)
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

from benchmarks.speed_parts import evaluation, opening, prepare, reports, tables, training, updates
from benchmarks.speed_parts.machine import processor

PARTS: dict[str, Callable[[], dict[str, Any]]] = {
    "prepare": prepare.measure,
    "dicom": prepare.measure_dicom,
    "processes": prepare.measure_site,
    "loader": training.measure_loader,
    "step": training.measure_step,
    "updates": updates.measure,
    "evaluation": evaluation.measure,
    "tables": tables.measure,
    "opening": opening.measure,
    "start": opening.measure_start,
    "study": opening.measure_study,
    "reports": reports.measure,
}
RESULTS = Path(__file__).parent / "results" / "speed.json"
PACKAGES = (
    "torch",
    "numpy",
    "pillow",
    "opencv-python-headless",
    "pydicom",
    "pylibjpeg-rle",
    "imagecodecs",
    "monai",
    "xxhash",
)


def main(arguments: list[str] | None = None) -> None:
    """Measure, print and save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="default: all")
    parser.add_argument("--save", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    found = json.loads(options.save.read_text(encoding="utf-8")) if options.save.exists() else {}
    for part in options.parts or PARTS:
        found[part] = {"command": f"python -m benchmarks {part}", "machine": machine(), **PARTS[part]()}
        print(json.dumps({part: found[part]}, indent=1), flush=True)
        options.save.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def machine() -> dict[str, Any]:
    """What a figure holds for."""
    return {
        "processor": processor(),
        "cores": os.cpu_count(),
        "load before": round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else None,
        "python": sys.version.split()[0],
        "versions": {name: metadata.version(name) for name in PACKAGES},
    }


if __name__ == "__main__":
    main()

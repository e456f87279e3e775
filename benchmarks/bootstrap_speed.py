"""Time of the bootstrap on one core: 2000 resamples of 5 diseases, on 202 and on 67,000 images.

    OMP_NUM_THREADS=1 .venv/bin/python benchmarks/bootstrap_speed.py --save benchmarks/results/bootstrap_speed.json

202 images of 200 patients is CheXpert's frontal validation set; 67,000 images are drawn once as one image per patient
(the most draws) and once as three. Scores are random, 10% of the labels positive. "separate" is one draw of patients
per disease (`resampled_aucs`), "joint" one for all of them (`jointly_resampled_aucs`); "summary" is everything that
`chestfed evaluate` says, with both of them, the other numbers and three columns of subgroups (`summarize`).
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from chestfed.core.randomness import numpy_stream
from chestfed.evaluation.intervals.bootstrap import jointly_resampled_aucs, resampled_aucs
from chestfed.evaluation.intervals.methods import Intervals
from chestfed.evaluation.labeled import Scored
from chestfed.evaluation.summary import summarize
from chestfed.training.identity import software_versions

DISEASES = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--resamples", type=int, default=2000)
    parser.add_argument("--save", type=Path)
    options = parser.parse_args()

    report: dict = {"command": " ".join(["python", *sys.argv]), "cpu": cpu(), "versions": software_versions()}
    report |= {"resamples": options.resamples, "diseases": DISEASES, "cases": []}
    tiny = Scored(np.full((4, 1), 0.5), np.array([[0.0], [0], [1], [1]]), np.arange(4), ["disease 0"])
    summarize(tiny, "frontal-image", Intervals())  # its imports are no work
    for images, patients in ((202, 200), (67_000, 67_000), (67_000, 22_333)):
        rng = numpy_stream(0, "bootstrap speed", images, patients)
        labels = (rng.random((images, DISEASES)) < 0.1).astype(float)
        scores = rng.normal(size=(images, DISEASES)) + labels
        patient = np.arange(images) % patients
        seconds = {}
        groups = {name: rng.integers(0, values, images) for name, values in (("sex", 2), ("age", 4), ("view", 2))}
        work: dict[str, Callable[[], object]] = {
            "separate": partial(resampled_aucs, scores, labels, patient, options.resamples, 0),
            "joint": partial(jointly_resampled_aucs, scores, labels, patient, options.resamples, 0),
            "summary": partial(
                summarize,
                Scored(1 / (1 + np.exp(-scores)), labels, patient, [f"disease {j}" for j in range(DISEASES)]),
                "frontal-image",
                Intervals(resamples=options.resamples),
                groups,
            ),
        }
        for name, run in work.items():
            start = time.process_time(), time.perf_counter()
            run()
            seconds[name] = {"cpu": time.process_time() - start[0], "wall": time.perf_counter() - start[1]}
        report["cases"].append({"images": images, "patients": patients, "seconds": seconds})
        shown = ", ".join(f"{name} {s['wall']:.2f} s ({s['cpu']:.2f} s of CPU)" for name, s in seconds.items())
        print(f"{images:6} images of {patients:6} patients: {shown}", flush=True)
    if options.save:
        options.save.parent.mkdir(parents=True, exist_ok=True)
        options.save.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


def cpu() -> str:
    """Name of the processor, as Linux tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return "unknown"
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")


if __name__ == "__main__":
    main()

"""How often the test over training seeds finds a difference where there is none, and how often it finds one.

    python -m benchmarks.seed_test --save benchmarks/results/seed_test.json      (about 10 minutes on one core)

Simulated studies of 202 test images, five correlated diseases with the prevalences of CheXpert's validation set, and
two models of the same quality, each trained with 2, 3, 5 or 10 seeds. A score is made of the label, what is hard about
the image for everybody, for this model, for this seed, and for this run alone; and every run has a quality of its own,
with standard deviation `seeds_differ`. The share of p below 0.05 should be at most 0.05.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from chestfed.evaluation.training_seeds import seeds_test

_PREVALENCES = (0.33, 0.21, 0.16, 0.37, 0.32)


def null_studies(
    studies: int, seeds: int, seeds_differ: float, images_per_patient: int, better: float = 0.0, start: int = 1
) -> Iterator[float]:
    """The p value of each study; model b is better by `better` deviations of a score."""
    for study in range(studies):
        rng = np.random.default_rng([start, study])
        people = 202 // images_per_patient
        patients = np.repeat(np.arange(people), images_per_patient)

        def drawn(together: float, rng: np.random.Generator = rng, people: int = people) -> np.ndarray:
            """Standard normal `[n, J]`; a patient's images share that part of the variance."""
            own = rng.standard_normal((people * images_per_patient, 5))
            of_patient = np.repeat(rng.standard_normal((people, 5)), images_per_patient, axis=0)
            return together**0.5 * of_patient + (1 - together) ** 0.5 * own

        together = 0.6 if images_per_patient > 1 else 0.0
        sick = 0.5 * rng.standard_normal((len(patients), 1)) + 0.87 * drawn(together)
        labels = np.stack([sick[:, j] > np.quantile(sick[:, j], 1 - p) for j, p in enumerate(_PREVALENCES)], 1) * 1.0
        everybody, of_seeds = drawn(together), [drawn(0) for _ in range(seeds)]
        runs = []
        for extra in (0.0, better):
            of_model = drawn(0)
            runs.append(
                [
                    (1.3 + extra + seeds_differ * rng.standard_normal()) * labels
                    + everybody + 0.5 * of_model + 0.3 * of_seed + 0.6 * drawn(0)
                    for of_seed in of_seeds
                ]
            )  # fmt: skip
        p = seeds_test(runs[0], runs[1], labels, patients).p
        assert p is not None
        yield p


def main() -> None:
    """Print one row per case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", type=int, default=400, help="simulated studies per case")
    parser.add_argument("--save", type=Path, help="JSON file for the rows")
    chosen = parser.parse_args()
    rows = []
    for seeds in (2, 3, 5, 10):
        for differ in (0.0, 0.1, 0.4):
            for images in (1, 4):
                case = {"seeds": seeds, "seeds_differ": differ, "images_per_patient": images}
                shares = {
                    name: float(
                        np.mean([p < 0.05 for p in null_studies(chosen.studies, seeds, differ, images, better)])
                    )
                    for name, better in (("false_positives", 0.0), ("found_better_by_0.3", 0.3))
                }
                rows.append({**case, **shares})
                print(rows[-1], flush=True)
    if chosen.save:
        chosen.save.write_text(json.dumps({"studies": chosen.studies, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()

"""How often do 95% intervals of the AUC hold the true AUC? Simulated test sets of 202 images, 10% of them positive.

    .venv/bin/python benchmarks/bootstrap_coverage.py --save benchmarks/results/bootstrap_coverage.json

Every test set has five diseases and two models of the same true AUC. Scores are binormal: N(mu, 1) for a positive image
and N(0, 1) for a negative one, AUC = Phi(mu / sqrt 2); what the images share (over diseases) and what the models share
makes correlations. Labels of the diseases are correlated through the patient.

single      every patient has one image
clustered   patients have one to three images (two in the mean); a sick patient's image is positive with probability
            2/3, and half of a score's variance is the patient's

Reported, with the Monte-Carlo standard error: coverage and mean length of the intervals of one disease's AUC, of the
mean AUC over the five diseases, and of the differences between the models, which are 0.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from statistics import NormalDist

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.bootstrap_speed import cpu
from chestfed.evaluation import bootstrap
from chestfed.evaluation.auc import auc_per_disease
from chestfed.evaluation.delong import delong_difference_per_disease, delong_per_disease
from chestfed.evaluation.interval import Interval
from chestfed.randomness import numpy_stream
from chestfed.study.run import software_versions

NAMES = tuple(f"disease {j}" for j in range(1, 6))
VARIANTS = ("single", "clustered")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", type=int, default=2000, help="simulated test sets per variant")
    parser.add_argument("--resamples", type=int, default=1000)
    parser.add_argument("--images", type=int, default=202)
    parser.add_argument("--prevalence", type=float, default=0.1)
    parser.add_argument("--auc", type=float, default=0.85)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--save", type=Path)
    options = parser.parse_args()

    start = time.perf_counter()
    tasks = [(variant, part, options) for variant in VARIANTS for part in range(options.processes)]
    with ProcessPoolExecutor(options.processes) as pool:
        parts = list(pool.map(simulate, *zip(*tasks, strict=True)))
    report: dict = {"command": " ".join(["python", *sys.argv]), "cpu": cpu(), "versions": software_versions()}
    report |= {name: getattr(options, name) for name in ("sets", "resamples", "images", "prevalence", "auc")}
    report |= {"seconds": round(time.perf_counter() - start), "coverage": {}}
    for variant in VARIANTS:
        tallies: dict[str, Tally] = {}
        for (of, _, _), part in zip(tasks, parts, strict=True):
            for name, tally in part.items() if of == variant else ():
                tallies.setdefault(name, Tally()).add(tally)
        report["coverage"][variant] = {name: tally.summary() for name, tally in tallies.items()}
        for name, tally in report["coverage"][variant].items():
            print(
                f"{variant:9}  {name:50}  {tally['coverage']:.3f} ± {tally['standard_error']:.3f}"
                f"  length {tally['mean_length']:.3f}  truth below {tally['below']:.3f} above {tally['above']:.3f}"
            )
    if options.save:
        options.save.parent.mkdir(parents=True, exist_ok=True)
        options.save.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


@dataclass
class Tally:
    """What became of one kind of interval: where the truth was, and lengths; `none` counts undefined ones."""

    below: int = 0
    above: int = 0
    none: int = 0
    lengths: list[float] = field(default_factory=list)

    def see(self, interval: Interval | None, truth: float) -> None:
        if interval is None:
            self.none += 1
            return
        self.below += truth < interval.low
        self.above += truth > interval.high
        self.lengths.append(interval.high - interval.low)

    def add(self, other: Tally) -> None:
        self.below, self.above, self.none = self.below + other.below, self.above + other.above, self.none + other.none
        self.lengths += other.lengths

    def summary(self) -> dict[str, float]:
        n = len(self.lengths)
        coverage = 1 - (self.below + self.above) / n
        return {
            "coverage": round(coverage, 4),
            "standard_error": round((coverage * (1 - coverage) / n) ** 0.5, 4),
            "mean_length": round(float(np.mean(self.lengths)), 4),
            "below": round(self.below / n, 4),
            "above": round(self.above / n, 4),
            "intervals": n,
            "undefined": self.none,
        }


def simulate(variant: str, part: int, options: argparse.Namespace) -> dict[str, Tally]:
    """Tallies over every `processes`-th simulated test set, from `part` on."""
    tallies: dict[str, Tally] = {}

    def see(name: str, interval: Interval | None, truth: float) -> None:
        tallies.setdefault(name, Tally()).see(interval, truth)

    for number in range(part, options.sets, options.processes):
        scores, labels, patients = test_set(variant, number, options)
        if (labels.sum(axis=0) < 2).any():
            continue  # an interval needs two positive images
        separate = bootstrap.resampled_aucs(scores, labels, patients, options.resamples, number)
        joint = bootstrap.jointly_resampled_aucs(scores, labels, patients, options.resamples, number)
        smaller = int(bootstrap.units_per_disease(labels, patients)[0])
        units = bootstrap.units_of_mean(labels, patients)
        (delong, *_) = delong_per_disease(scores[0], labels, NAMES)
        (difference, *_) = delong_difference_per_disease([scores[0]], [scores[1]], labels, NAMES)
        aucs = [result.auc for result in auc_per_disease(scores[0], labels, NAMES)]

        see("AUC: bootstrap, percentile", bootstrap.interval(separate[0, :, 0]), options.auc)
        see("AUC: bootstrap, auc_interval", bootstrap.auc_interval(aucs[0], separate[0, :, 0], smaller), options.auc)
        see("AUC: DeLong, normal", delong.normal, options.auc)
        see("AUC: DeLong, logit", delong.logit, options.auc)
        of_mean = bootstrap.mean_over_diseases(separate[0])
        see("mean AUC: separate draws, percentile", bootstrap.interval(of_mean), options.auc)
        of_mean = bootstrap.mean_over_diseases(joint[0])
        see("mean AUC: joint draws, percentile", bootstrap.interval(of_mean), options.auc)
        see("mean AUC: joint draws, auc_interval", bootstrap.auc_interval(np.mean(aucs), of_mean, units), options.auc)
        of_one = separate[1, :, 0] - separate[0, :, 0]
        see("difference: bootstrap, percentile", bootstrap.interval(of_one), 0)
        see("difference: bootstrap, expanded percentile", bootstrap.interval(of_one, units=smaller), 0)
        see("difference: DeLong", difference.interval, 0)
        of_mean = bootstrap.mean_over_diseases(separate[1] - separate[0])
        see("mean difference: separate draws, percentile", bootstrap.interval(of_mean), 0)
        of_mean = bootstrap.mean_over_diseases(joint[1] - joint[0])
        see("mean difference: joint draws, percentile", bootstrap.interval(of_mean), 0)
        see("mean difference: joint draws, expanded percentile", bootstrap.interval(of_mean, units=units), 0)
    return tallies


def test_set(variant: str, number: int, options: argparse.Namespace) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scores `[2, n, 5]` of two models, labels `[n, 5]`, patients `[n]`."""
    rng = numpy_stream(0, "coverage", variant, number)
    n, diseases = options.images, len(NAMES)
    sizes = rng.integers(1, 4, n) if variant == "clustered" else np.ones(n, int)
    patients = np.repeat(np.arange(n), sizes)[:n]
    shown = 2 / 3 if variant == "clustered" else 1  # a sick patient's image is positive so often
    threshold = NormalDist().inv_cdf(1 - options.prevalence / shown)
    latent = np.sqrt(0.5) * rng.normal(size=(n, 1)) + np.sqrt(0.5) * rng.normal(size=(n, diseases))
    labels = ((latent > threshold)[patients] & (rng.random((n, diseases)) < shown)).astype(float)
    # Standard normal noise: a part of the patient (or, with one image each, of the image), one that all diseases of
    # the image share, one of the image and disease, and one of the model.
    of_patient = rng.normal(size=(n, diseases))[patients]
    of_image, of_both = rng.normal(size=(n, 1)), rng.normal(size=(n, diseases))
    of_model = rng.normal(size=(2, n, diseases))
    noise = np.sqrt(0.5) * of_patient + np.sqrt(0.2) * of_image + np.sqrt(0.1) * of_both + np.sqrt(0.2) * of_model
    return np.sqrt(2) * NormalDist().inv_cdf(options.auc) * labels + noise, labels, patients


if __name__ == "__main__":
    main()

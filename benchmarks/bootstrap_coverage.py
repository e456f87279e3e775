"""How often do 95% intervals hold the truth? Simulated test sets of 202 images, 10% of them positive.

    .venv/bin/python benchmarks/bootstrap_coverage.py --save benchmarks/results/bootstrap_coverage.json

Every test set has five diseases and two models of the same true AUC. Scores are binormal: N(mu, 1) for a positive image
and N(0, 1) for a negative one, AUC = Phi(mu / sqrt 2); what the images share (over diseases) and what the models share
makes correlations. Labels of the diseases are correlated through the patient.

single      every patient has one image
clustered   patients have one to three images (two in the mean); a sick patient's image is positive with probability
            2/3, and half of a score's variance is the patient's

Reported for each true AUC, with the Monte-Carlo standard error: coverage and mean length of the intervals of one
disease's AUC, of the mean AUC over the five diseases, of the differences between the models, which are 0, and of the
numbers beside the AUC. AUPRC and Brier score depend on the share of positives, so the truth is that for the test set's.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import NormalDist

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.speed_parts.machine import processor
from chestfed.core.randomness import numpy_stream
from chestfed.evaluation import metrics
from chestfed.evaluation.calibration import calibration
from chestfed.evaluation.estimates import auc_estimates
from chestfed.evaluation.intervals import bootstrap
from chestfed.evaluation.intervals.degrees_of_freedom import count_effective_patients
from chestfed.evaluation.intervals.interval import Interval, logit_interval, quantile_interval
from chestfed.evaluation.intervals.methods import Intervals
from chestfed.evaluation.labeled import Scored
from chestfed.evaluation.resampled_metrics import RESAMPLED, resampled_metrics
from chestfed.training.identity import software_versions

NAMES = tuple(f"disease {j}" for j in range(1, 6))
VARIANTS = ("single", "clustered")
SHARE, MAX_FPR = 0.9, 0.1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", type=int, default=2000, help="simulated test sets per variant and AUC")
    parser.add_argument("--resamples", type=int, default=400)
    parser.add_argument("--images", type=int, default=202)
    parser.add_argument("--prevalence", type=float, default=0.1)
    parser.add_argument("--auc", type=float, nargs="+", default=[0.6, 0.75, 0.85, 0.9, 0.95])
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--save", type=Path)
    options = parser.parse_args()

    start = time.perf_counter()
    cases = [(auc, variant) for auc in options.auc for variant in VARIANTS]
    tasks = [(*case, part, options) for case in cases for part in range(options.processes)]
    with ProcessPoolExecutor(options.processes) as pool:
        parts = list(pool.map(simulate, *zip(*tasks, strict=True)))
    report: dict = {"command": " ".join(["python", *sys.argv]), "cpu": processor(), "versions": software_versions()}
    report |= {name: getattr(options, name) for name in ("sets", "resamples", "images", "prevalence", "auc")}
    report |= {"seconds": round(time.perf_counter() - start), "coverage": {}}
    for auc, variant in cases:
        tallies: dict[str, Tally] = {}
        for (*of, _, _), part in zip(tasks, parts, strict=True):
            for name, tally in part.items() if of == [auc, variant] else ():
                tallies.setdefault(name, Tally()).add(tally)
        found = {name: tally.summary() for name, tally in tallies.items()}
        report["coverage"].setdefault(f"AUC {auc}", {})[variant] = found
        for name, tally in found.items():
            print(
                f"AUC {auc}  {variant:9}  {name:40}  {tally['coverage']:.3f} ± {tally['standard_error']:.3f}"
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


def simulate(auc: float, variant: str, part: int, options: argparse.Namespace) -> dict[str, Tally]:
    """Tallies over every `processes`-th simulated test set, from `part` on."""
    tallies: dict[str, Tally] = {}

    def see(name: str, interval: Interval | None, truth: float) -> None:
        tallies.setdefault(name, Tally()).see(interval, truth)

    for number in range(part, options.sets, options.processes):
        scores, labels, patients = test_set(auc, variant, number, options)
        if (labels.sum(axis=0) < 2).any():
            continue  # an interval needs two positive images
        separate = bootstrap.resampled_aucs(scores, labels, patients, options.resamples, number)
        joint = bootstrap.jointly_resampled_aucs(scores, labels, patients, options.resamples, number)
        smaller = int(count_effective_patients(labels[:, :1], patients))
        units = count_effective_patients(labels, patients)
        model = Scored(scores[0], labels, patients, NAMES)
        first, *_, mean = auc_estimates(model, Intervals("obuchowski", options.resamples, number))

        one, of_mean = separate[0, :, 0], bootstrap.mean_over_diseases(joint[0])
        assert first.value is not None
        assert mean.value is not None
        see("AUC: bootstrap, percentile", percentile(one), auc)
        see("AUC: bootstrap, m - 1 degrees of freedom", logit_interval(first.value, one, smaller), auc)
        see("AUC: obuchowski", first.interval, auc)
        separately = percentile(bootstrap.mean_over_diseases(separate[0]))
        see("mean AUC: separate draws, percentile", separately, auc)
        see("mean AUC: joint draws, percentile", percentile(of_mean), auc)
        see("mean AUC: m - 1 degrees of freedom", logit_interval(mean.value, of_mean, units), auc)
        see("mean AUC: obuchowski", mean.interval, auc)
        of_one, of_mean = separate[1, :, 0] - one, bootstrap.mean_over_diseases(joint[1] - joint[0])
        see("difference: bootstrap, percentile", percentile(of_one), 0)
        see("mean difference: joint draws, percentile", percentile(of_mean), 0)
        for name, interval, truth in _beside(auc, model, smaller, options.resamples, number):
            see(name, interval, truth)
    return tallies


def percentile(values: np.ndarray) -> Interval | None:
    found = quantile_interval(values)
    return found and found[0]


def _beside(
    auc: float, model: Scored, units: int, resamples: int, seed: int
) -> list[tuple[str, Interval | None, float]]:
    """The first disease's numbers beside the AUC: name, interval and truth."""
    column = replace(model, scores=_expit(model.scores)).columns()[0]
    drawn = resampled_metrics(column, 0, resamples, seed, SHARE, MAX_FPR)
    truth = true_numbers(auc, float(column.positive.mean()))
    at_specificity = metrics.sensitivity_at_specificity(column, SHARE)
    at_sensitivity = metrics.specificity_at_sensitivity(column, SHARE)
    values = (
        metrics.average_precision(column),
        metrics.partial_auc(column, MAX_FPR),
        at_specificity and at_specificity.sensitivity,
        at_sensitivity and at_sensitivity.specificity,
        getattr(calibration(column), "brier", None),
    )
    return [
        (name, logit_interval(value, resampled, units), truth[name])
        for name, value, resampled in zip(RESAMPLED, values, drawn, strict=True)
        if value is not None
    ]


def true_numbers(auc: float, prevalence: float) -> dict[str, float]:
    """What the metrics come to with binormal scores and endlessly many images, by summation over a fine grid."""
    normal, shift = NormalDist(), np.sqrt(2) * NormalDist().inv_cdf(auc)
    grid = np.linspace(-8, 8 + shift, 20_001)
    middle, density = (grid[1:] + grid[:-1]) / 2, np.exp(-(grid**2) / 2) / np.sqrt(2 * np.pi)
    step = grid[1] - grid[0]
    shifted = np.exp(-((grid - shift) ** 2) / 2) / np.sqrt(2 * np.pi)
    false = np.cumsum(density[::-1])[::-1] * step  # called at each threshold
    true = np.cumsum(shifted[::-1])[::-1] * step
    precision = prevalence * true / (prevalence * true + (1 - prevalence) * false)
    at = normal.inv_cdf(1 - MAX_FPR)
    beyond = middle > at
    # Area up to MAX_FPR: sensitivity at the threshold, summed over the negatives beyond it.
    sensitivity = np.interp(middle, grid, true)
    area = float((sensitivity * np.exp(-(middle**2) / 2) / np.sqrt(2 * np.pi))[beyond].sum() * step)
    least = MAX_FPR**2 / 2
    brier = prevalence * (shifted * (1 - _expit(grid)) ** 2) + (1 - prevalence) * (density * _expit(grid) ** 2)
    return {
        "auprc": float((precision * shifted).sum() * step),
        "partial_auc": (1 + (area - least) / (MAX_FPR - least)) / 2,
        "sensitivity": normal.cdf(shift - normal.inv_cdf(SHARE)),
        "specificity": normal.cdf(shift - normal.inv_cdf(SHARE)),
        "brier": float(brier.sum() * step),
    }


def _expit(x: np.ndarray) -> np.ndarray:
    """Some probability for a score; calibrated it is not."""
    return 1 / (1 + np.exp(1.5 - x))


def test_set(
    auc: float, variant: str, number: int, options: argparse.Namespace
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
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
    return np.sqrt(2) * NormalDist().inv_cdf(auc) * labels + noise, labels, patients


if __name__ == "__main__":
    main()

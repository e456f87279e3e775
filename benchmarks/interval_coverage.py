"""How often does each named 95% interval of an AUC hold the truth, and how wide is it? Eight hard cases, simulated.

    .venv/bin/python benchmarks/interval_coverage.py --save benchmarks/results/interval_coverage.json

Scores are N(mu, 1) for a positive image and N(0, 1) for a negative one, AUC = Phi(mu / sqrt 2), unless a case says
otherwise. The resamples of one test set are the same for all methods. Prints a table in Markdown: coverage in percent,
and in brackets the mean width.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import NormalDist

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.speed_parts.machine import processor
from chestfed.core.randomness import numpy_stream
from chestfed.evaluation import metrics
from chestfed.evaluation.intervals.methods import METHODS, Contrast, Intervals
from chestfed.evaluation.labeled import Scored
from chestfed.training.identity import software_versions

NORMAL = NormalDist()


@dataclass(frozen=True)
class Case:
    """A test set: so many patients, a share of them (or of their images) positive, scores of this AUC."""

    title: str
    patients: int = 200
    positive: float = 0.1
    auc: float = 0.85
    clustered: bool = False  #: 1 to 20 images per patient, mostly few; 80% of a score's variance is the patient's
    labels_change: bool = False  #: an image of a sick patient is positive with probability one half
    rounded: bool = False  #: scores are whole numbers
    invisible: float = 0.0  #: share of positive images that look like negative ones

    @property
    def shift(self) -> float:
        """Mu."""
        return 2**0.5 * NORMAL.inv_cdf(self.auc)

    @property
    def truth(self) -> float:
        """The AUC with endlessly many patients."""
        if not self.rounded:
            return (1 - self.invisible) * self.auc + self.invisible / 2
        ends = np.arange(-12, 16) - 0.5
        positive, negative = (np.diff([NORMAL.cdf(end - mean) for end in ends]) for mean in (self.shift, 0))
        return float(positive @ (np.cumsum(negative) - negative / 2))

    def draw(self, rng: np.random.Generator) -> Scored:
        """One test set; the number of positive patients is fixed."""
        sizes = np.ones(self.patients, int)
        if self.clustered:
            sizes = np.minimum(rng.geometric(0.2, self.patients), 20)
        patient = np.repeat(np.arange(self.patients), sizes)
        label = (np.arange(self.patients) < round(self.positive * self.patients))[patient]
        if self.labels_change:
            label &= rng.random(len(label)) < 0.5
        share = 0.8 if self.clustered else 0.0
        score = np.sqrt(share) * rng.normal(size=self.patients)[patient]
        score += np.sqrt(1 - share) * rng.normal(size=len(patient))
        score += self.shift * (label & (rng.random(len(label)) >= self.invisible))
        score = np.round(score) if self.rounded else score
        return Scored(score[:, None], label[:, None].astype(float), patient, ["disease"])


CASES = (
    Case("200 patients, 10% positive, AUC 0.85"),
    Case("40 patients, 5 positive", patients=40, positive=0.125),
    Case("1 to 20 images per patient, correlation 0.8", patients=60, positive=0.3, clustered=True),
    Case("the same, labels change within patients", patients=60, positive=0.5, clustered=True, labels_change=True),
    Case("20% of the positives look negative", invisible=0.2),
    Case("ties: scores are whole numbers", rounded=True),
    Case("AUC 0.98", auc=0.98),
    Case("90% positive", positive=0.9),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", type=int, default=1000, help="simulated test sets per case")
    parser.add_argument("--resamples", type=int, default=1000)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--save", type=Path)
    options = parser.parse_args()
    start = time.perf_counter()
    tasks = [(case, part, options) for case in CASES for part in range(options.processes)]
    with ProcessPoolExecutor(options.processes) as pool:
        parts = list(pool.map(intervals_of, *zip(*tasks, strict=True)))
    report: dict = {"command": " ".join(["python", *sys.argv]), "cpu": processor(), "versions": software_versions()}
    report |= {"sets": options.sets, "resamples": options.resamples, "seconds": round(time.perf_counter() - start)}
    report["cases"] = {}
    print(f"| case | {' | '.join(METHODS)} |\n|---|{'---|' * len(METHODS)}")
    for case in CASES:
        mine = [part for (of, *_), part in zip(tasks, parts, strict=True) if of == case]
        found = {name: summary(np.concatenate([part[name] for part in mine]), case.truth) for name in METHODS}
        report["cases"][case.title] = {"truth": round(case.truth, 6)} | found
        cells = (f"{100 * one['coverage']:.1f} ({one['mean_width']:.3f})" for one in found.values())
        print(f"| {case.title} | {' | '.join(cells)} |", flush=True)
    if options.save:
        options.save.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


def summary(ends: np.ndarray, truth: float) -> dict[str, float]:
    """Of intervals `[sets, 2]`, NaN where there is none, which counts as not holding the truth."""
    held = (ends[:, 0] <= truth) & (truth <= ends[:, 1])
    coverage, n = float(held.mean()), len(ends)
    return {
        "coverage": round(coverage, 4),
        "standard_error": round((coverage * (1 - coverage) / n) ** 0.5, 4),
        "mean_width": round(float(np.nanmean(ends[:, 1] - ends[:, 0])), 4),
        "truth_below": round(float((truth < ends[:, 0]).mean()), 4),
        "truth_above": round(float((truth > ends[:, 1]).mean()), 4),
        "undefined": int(np.isnan(ends[:, 0]).sum()),
    }


def intervals_of(case: Case, part: int, options: argparse.Namespace) -> dict[str, np.ndarray]:
    """Every method's intervals `[sets, 2]` on every `processes`-th test set, from `part` on."""
    ends: dict[str, list] = {name: [] for name in METHODS}
    for number in range(part, options.sets, options.processes):
        found = case.draw(numpy_stream(0, "interval coverage", case.title, number))
        auc = metrics.auc(found.columns()[0])
        first = Contrast(found.scores[None], found.labels, found.patients, Intervals("bca", options.resamples, number))
        for name in METHODS:
            its = replace(first, how=replace(first.how, method=name))
            vars(its)["draws"] = first.draws  # cached
            ends[name].append(its.bounds([auc, auc])[0].interval or (np.nan, np.nan))
    return {name: np.array(pairs) for name, pairs in ends.items()}


if __name__ == "__main__":
    main()

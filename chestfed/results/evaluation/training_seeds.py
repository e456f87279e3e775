"""Comparison of two models that were each trained with several seeds: is the difference more than chance?

Two chances are at work: other test patients, and another training seed. Training seeds are to a model what readers are
to an imaging modality: every seed of both models "reads" the same patients. So the question is that of a multi-reader,
multi-case study, and its method is used, with seeds as readers and patients as cases, both of them random:

- N. A. Obuchowski, H. E. Rockette: Hypothesis testing of diagnostic accuracy for multiple readers and multiple tests:
  an ANOVA approach with dependent observations. Communications in Statistics - Simulation 24 (1995);
- R. A. Fisher: The fiducial argument in statistical inference. Annals of Eugenics 6 (1935), the distribution of Behrens
  and Fisher, for the tests. Obuchowski and Rockette's F with Hillis's degrees of freedom (Statistics in Medicine 26,
  2007) rejects too often with the two to five seeds that a study has: 11% in place of 5% with two
  (`pytest -m campaign -k test_false_positives`).

Several splits of the patients add a third chance, other training patients: `splits`.

Covariances of AUCs are Obuchowski's, of DeLong's structural components summed within a patient: `auc_covariance`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import scipy

from chestfed.results.evaluation.intervals.degrees_of_freedom import count_effective_patients
from chestfed.results.evaluation.intervals.delong import auc_covariance
from chestfed.results.evaluation.intervals.interval import Interval
from chestfed.results.evaluation.splits import ONE_SPLIT, Splits, between_seeds

#: References of the test, for a paper.
REFERENCES = (
    "N. A. Obuchowski, H. E. Rockette: Hypothesis testing of diagnostic accuracy for multiple readers and multiple "
    "tests: an ANOVA approach with dependent observations. Communications in Statistics - Simulation 24 (1995) 285-308",
    "R. A. Fisher: The fiducial argument in statistical inference. Annals of Eugenics 6 (1935) 391-398",
)
#: With fewer seeds, tables say what difference could be seen at all.
ENOUGH_SEEDS: Final = 5
#: The chance at which a difference counts as one that is seen, and the most seeds that are considered.
POWER: Final = 0.8
MOST_SEEDS: Final = 1000
#: A variance of AUCs below this is rounding.
_NO_VARIANCE = 1e-24
#: Points of the grid of a chi-square variable: of a test, and where many are tried.
_NODES, _FEWER_NODES = 200, 64
#: Points of all grids of a test over splits together.
_MOST_NODES = 100_000


@dataclass(frozen=True)
class SeedsTest:
    """Mean over seeds, and splits of the patients, of model b's AUC minus model a's."""

    difference: float
    of_seeds: tuple[float, ...]  #: the difference of each seed, in order; of several splits those of each after another
    error: float | None = None  #: standard error over test patients, training seeds and splits
    seeds_share: float | None = None  #: the share of its square that comes from training seeds
    freedom: float = 0.0  #: degrees of freedom of the rest, which comes from test patients
    #: interval, p: of one test, at 95%; None, with the `reason`, where there is no variance to test with.
    interval: Interval | None = None
    p: float | None = None
    reason: str = ""
    total_freedom: float = 0.0  #: degrees of freedom of the whole error, by Satterthwaite's formula


def seeds_test(
    runs_a: Sequence[np.ndarray],
    runs_b: Sequence[np.ndarray],
    labels: np.ndarray,
    patients: np.ndarray,
    hospitals: np.ndarray | None = None,
    splits: Splits = ONE_SPLIT,
) -> SeedsTest:
    """Model b against model a over the seeds they share, for the mean AUC over the columns of `labels`.

    `runs_a` and `runs_b` are scores `[n, J]`, one per seed, in the same order of seeds: at least two. The rest is that
    of `estimate_contrast`, with weights -1 and 1: its standard error is then that of Obuchowski and Rockette for two
    tests, `SE^2 = 2/r (MS(TR) + max(r (Cov2 - Cov3), 0))`.

    Raises `ValueError` if the models have different numbers of seeds, or fewer than two without several splits, or a
    class is of one patient.
    """
    r = len(runs_a)
    if r != len(runs_b) or r * splits.count < 2:
        raise ValueError(
            f"a test over training seeds needs two or more seeds, the same of both: not {r}, {len(runs_b)}"
        )
    return estimate_contrast([runs_a, runs_b], (-1.0, 1.0), labels, patients, hospitals, splits=splits)


def estimate_contrast(
    models: Sequence[Sequence[np.ndarray]],
    weights: Sequence[float],
    labels: np.ndarray,
    patients: np.ndarray,
    hospitals: np.ndarray | None = None,
    other: tuple[float, float] | None = None,
    splits: Splits = ONE_SPLIT,
) -> SeedsTest:
    """A weighted sum of several models' mean AUCs over the columns of `labels`, with its error over seeds and patients.

    `models` hold the scores `[n, J]` of each of the r seeds, the same seeds in the same order for every model, and
    `weights` say what each model's AUC counts. Labels are `[n, J]` in {0, 1, NaN}, patients and hospitals `[n]`, these
    as in `Scored`. With c_s the sum at seed s, the squared standard error of its mean is

        SE^2 = var(c_s) / r + max(mean over s != t of cov(c_s, c_t), 0),

    the variance over seeds with r - 1 degrees of freedom, and the covariance over patients that two seeds share with
    m - 1, m being `count_effective_patients`. The error is distributed as the sum of two Student variables with these
    degrees (Behrens and Fisher), which is Student's t where one part is 0. With one seed the error is that over
    patients alone, of these very models, and there is no p. `other` is the variance of a further, independent error of
    the mean, and its degrees of freedom.

    With `splits` the columns are those of every split, and the parts of the error those of `splits.find_parts`.

    Raises `ValueError` if the models have different numbers of seeds or no model has any, or a class is of one patient.
    """
    r = len(models[0]) if models else 0
    if not r or any(len(runs) != r for runs in models) or len(models) != len(weights):
        counts = ", ".join(str(len(runs)) for runs in models)
        raise ValueError(f"a contrast needs a weight and the same seeds of every model: {len(weights)}; {counts}")
    contrasts = np.kron(np.asarray(weights, float)[:, None], np.eye(r))
    runs = [run for of_model in models for run in of_model]
    estimate = auc_covariance(runs, labels, contrasts, patients, hospitals)
    if estimate is None or np.isnan(estimate[1]).any():
        raise ValueError("a covariance of AUCs needs two patients of each class")
    of_seeds, covariance = estimate
    difference, each, by_patients = float(of_seeds.mean()), tuple(of_seeds.tolist()), between_seeds(covariance)
    freedom = count_effective_patients(labels, patients, hospitals) - 1
    parts = [(by_patients, freedom)]
    if splits.count > 1:
        of_runs, within, stay = splits.measure(
            [run for runs in models for run in runs], labels, contrasts, patients, hospitals
        )
        each = tuple(of_runs.ravel().tolist())
        parts = splits.find_parts(of_runs, within, by_patients, freedom, stay=stay)
    elif r > 1:
        parts.append((float(of_seeds.var(ddof=1)) / r, r - 1))
    of_training = sum(part for part, _ in parts[1:])
    parts += [] if other is None else [other]
    variance = sum(part for part, _ in parts)
    if variance < _NO_VARIANCE:
        if abs(difference) < math.sqrt(_NO_VARIANCE):
            return SeedsTest(difference, each, 0.0, 0.0, interval=Interval(difference, difference), p=1.0)
        return SeedsTest(difference, each, reason="no variance in these data")
    half, beyond = _bound(parts, splits.count, _NODES if other is None else _FEWER_NODES)
    interval, p = Interval(difference - half, difference + half), beyond(abs(difference)) if len(each) > 1 else None
    total = variance**2 / sum(part**2 / degrees for part, degrees in parts)
    error, share = math.sqrt(variance), of_training / variance
    return SeedsTest(difference, each, error, share, freedom, interval, p, total_freedom=total)


def _bound(parts: Sequence[tuple[float, float]], splits: int, nodes: int) -> tuple[float, Callable[[float], float]]:
    """Half the width of the 95% interval, and the tails beyond a width, of a sum of Student variables."""
    from scipy import optimize  # takes a quarter of a second to import

    variances, freedoms = zip(*(part for part in parts if part[0] or splits == 1), strict=True)
    beyond = _tails(variances, freedoms, nodes if splits == 1 else int(_MOST_NODES ** (1 / len(variances))))
    return optimize.brentq(lambda width: beyond(width) - 0.05, 0.0, 1e4 * math.sqrt(sum(variances))), beyond


def compute_power(
    of_one_seed: float, by_patients: float, freedom: float, seeds: int, level: float = 0.05
) -> Callable[[float], float]:
    """The chance that `seeds_test` gives a p below `level`, by the true difference of the AUCs.

    The estimated difference is normal around the true one, with variance v = `of_one_seed` / r + `by_patients`. The two
    parts are estimated independently of it, as chi-squares with r - 1 and `freedom` degrees of freedom, and their sum w
    and the share of the first set the least difference sqrt(w) q(share) that is significant. So the chance is the mean
    of the normal tails beyond it over a grid of equally likely chi-squares; with one part 0 it is the noncentral t's.
    """
    variances, freedoms = (of_one_seed / seeds, by_patients), (seeds - 1, freedom)
    shares, limits = _find_limits(freedoms, level)
    of_seeds, of_patients = _chi_squares(variances, freedoms, _FEWER_NODES)
    total = np.add.outer(of_seeds, of_patients)
    least = np.sqrt(total) * np.interp(of_seeds[:, None] / total, shares, limits)
    error = math.sqrt(sum(variances))

    def chance(difference: float) -> float:
        tails = scipy.special.ndtr((difference - least) / error) + scipy.special.ndtr((-difference - least) / error)
        return float(tails.mean())

    return chance


@functools.lru_cache(maxsize=256)
def _find_limits(freedoms: tuple[float, float], level: float) -> tuple[np.ndarray, np.ndarray]:
    """Shares of the first part in the variance of a sum of Student variables, which is 1, and the width for `level`."""
    from scipy import optimize

    shares = np.linspace(0, 1, 17) ** 2  # q changes fastest where few degrees of freedom come in
    limits = []
    for share in shares:
        beyond, most = _tails([share, 1 - share], freedoms, _FEWER_NODES), 4.0
        while beyond(most) > level:
            most *= 2
        limits.append(optimize.brentq(lambda width, beyond=beyond: beyond(width) - level, 0.0, most, xtol=1e-6))
    return shares, np.array(limits)


def _tails(variances: Sequence[float], freedoms: Sequence[float], nodes: int = _NODES) -> Callable[[float], float]:
    """P(|X| > width) of a sum X of Student variables, each scaled by the root of its variance.

    Given their chi-square parts, the sum is normal: the mean of its tails over a grid of equally likely values.
    """
    shares = (np.arange(nodes) + 0.5) / nodes
    parts = [
        variance * freedom / scipy.special.chdtri(freedom, shares)
        for variance, freedom in zip(variances, freedoms, strict=True)
    ]
    deviations = np.sqrt(functools.reduce(np.add.outer, parts))
    return lambda width: float(2 * scipy.special.ndtr(-width / deviations).mean())


def _chi_squares(variances: Sequence[float], freedoms: Sequence[float], nodes: int) -> list[np.ndarray]:
    """Equally likely values of each estimated variance: chi-squares over their degrees of freedom."""
    shares = (np.arange(nodes) + 0.5) / nodes
    return [v * scipy.special.chdtri(f, shares) / f for v, f in zip(variances, freedoms, strict=True)]

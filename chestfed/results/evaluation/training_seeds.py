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

With several splits of the patients a third chance is at work: other training patients. Every split tests and trains on
others, with training seeds of its own, and a patient that one split tests trains the models of the others. What that
adds cannot be estimated from the splits without bias:

- Y. Bengio, Y. Grandvalet: No unbiased estimator of the variance of k-fold cross-validation. JMLR 5 (2004);
- C. Nadeau, Y. Bengio: Inference for the generalization error. Machine Learning 52 (2003): splits correlate by about
  the share of patients that are tested, so their mean over S splits has the variance (1 / S + n_test / n_train) of one.

Their correction is applied to components that are known better than from S values: `estimate_contrast`.

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

#: References of the test, for a paper.
REFERENCES = (
    "N. A. Obuchowski, H. E. Rockette: Hypothesis testing of diagnostic accuracy for multiple readers and multiple "
    "tests: an ANOVA approach with dependent observations. Communications in Statistics - Simulation 24 (1995) 285-308",
    "R. A. Fisher: The fiducial argument in statistical inference. Annals of Eugenics 6 (1935) 391-398",
)
#: Reference of the variance over splits of the patients.
SPLITS_REFERENCE = "C. Nadeau, Y. Bengio: Inference for the generalization error. Machine Learning 52 (2003) 239-281"
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
class Splits:
    """Splits of the patients, whose diseases are columns of one array side by side: those of each split together."""

    count: int = 1
    reuse: float = 0.0  #: test patients per training patient, as in `Scored`


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
    splits: Splits = Splits(),
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
    splits: Splits = Splits(),
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

    With S splits the columns are those of every split, side by side, each labeled where its split tests, and the s-th
    seed of one split is another training than the s-th of the next. With V the mean over the splits of the covariance
    over patients, V_all that of the mean over all splits, W the mean within splits of the variance over seeds, and B
    the variance over splits of their means, the squared standard error is

        max(V_all, c V) + W / (S r) + c max(B - (V - C) - W / r, 0),   c = 1 / S + n_test / n_train,

    where C is the covariance over patients between splits, 0 if none tests a patient of another. The first part has the
    patients' degrees of freedom, the second S (r - 1), the third, what differs between splits beyond patients and
    seeds, S - 1. With one seed W is 0, and the third part has the luck of training.

    Raises `ValueError` if the models have different numbers of seeds or no model has any, or a class is of one patient.
    """
    r = len(models[0]) if models else 0
    if not r or any(len(runs) != r for runs in models) or len(models) != len(weights):
        counts = ", ".join(str(len(runs)) for runs in models)
        raise ValueError(f"a contrast needs a weight and the same seeds of every model: {len(weights)}; {counts}")
    contrasts = np.kron(np.asarray(weights, float)[:, None], np.eye(r))
    estimate = auc_covariance([run for runs in models for run in runs], labels, contrasts, patients, hospitals)
    if estimate is None or np.isnan(estimate[1]).any():
        raise ValueError("a covariance of AUCs needs two patients of each class")
    of_seeds, covariance = estimate
    difference, each = float(of_seeds.mean()), tuple(of_seeds.tolist())
    by_patients = _between_seeds(covariance)
    freedom = count_effective_patients(labels, patients, hospitals) - 1
    parts = [(by_patients, freedom)]
    if splits.count > 1:
        runs = [run for model in models for run in model]
        of_runs, within = _estimate_splits(runs, labels, contrasts, patients, hospitals, splits)
        each = tuple(of_runs.ravel().tolist())
        parts = _find_parts(of_runs, within, by_patients, freedom, splits.reuse)
    elif r > 1:
        parts.append((float(of_seeds.var(ddof=1)) / r, r - 1))
    of_training = sum(part for part, _ in parts[1:])
    if other is not None:
        parts.append(other)
    variance = sum(part for part, _ in parts)
    if variance < _NO_VARIANCE:
        if abs(difference) < math.sqrt(_NO_VARIANCE):
            return SeedsTest(difference, each, 0.0, 0.0, interval=Interval(difference, difference), p=1.0)
        return SeedsTest(difference, each, reason="no variance in these data")
    from scipy import optimize  # takes a quarter of a second to import

    variances, freedoms = zip(*(part for part in parts if part[0] or splits.count == 1), strict=True)
    nodes = _NODES if other is None else _FEWER_NODES
    beyond = _tails(
        variances, freedoms, min(nodes, int(_MOST_NODES ** (1 / len(parts)))) if splits.count > 1 else nodes
    )
    half = optimize.brentq(lambda width: beyond(width) - 0.05, 0.0, 1e4 * math.sqrt(variance))
    interval = Interval(difference - half, difference + half)
    error, share = math.sqrt(variance), of_training / variance
    p = beyond(abs(difference)) if len(each) > 1 else None
    total = variance**2 / sum(part**2 / degrees for part, degrees in parts)
    return SeedsTest(difference, each, error, share, freedom, interval, p, total_freedom=total)


def _between_seeds(covariance: np.ndarray) -> float:
    """Covariance over patients that two seeds share, from that of all seeds `[r, r]`; of one seed its variance."""
    r = len(covariance)
    return max(float(covariance[~np.eye(r, dtype=bool)].mean() if r > 1 else covariance[0, 0]), 0.0)


def _estimate_splits(
    runs: Sequence[np.ndarray],
    labels: np.ndarray,
    contrasts: np.ndarray,
    patients: np.ndarray,
    hospitals: np.ndarray | None,
    splits: Splits,
) -> tuple[np.ndarray, np.ndarray]:
    """The contrast of each split and seed `[S, r]`, and the covariance over patients in each split `[S]`.

    Raises `ValueError` if a split has no AUC.
    """
    values, within = [], []
    for columns in np.split(np.arange(labels.shape[1]), splits.count):
        rows = ~np.isnan(labels[:, columns]).all(axis=1)
        here = np.ix_(rows, columns)
        estimate = auc_covariance(
            [run[here] for run in runs],
            labels[here],
            contrasts,
            patients[rows],
            None if hospitals is None else hospitals[rows],
        )
        if estimate is None or np.isnan(estimate[1]).any():
            raise ValueError("a covariance of AUCs needs two patients of each class in every split")
        values.append(estimate[0])
        within.append(_between_seeds(estimate[1]))
    return np.array(values), np.array(within)


def _find_parts(
    of_runs: np.ndarray, within: np.ndarray, by_patients: float, freedom: float, reuse: float
) -> list[tuple[float, float]]:
    """Parts of the squared error with their degrees of freedom, see `estimate_contrast`: patients, seeds, splits."""
    count, r = of_runs.shape
    one, factor = float(within.mean()), 1 / count + reuse
    shared = min(max((by_patients - one / count) * count / (count - 1), 0.0), one)
    seeds = float(of_runs.var(axis=1, ddof=1).mean()) if r > 1 else 0.0
    beyond = max(float(of_runs.mean(axis=1).var(ddof=1)) - (one - shared) - seeds / r, 0.0)
    parts = [(max(by_patients, factor * one), freedom)]
    if r > 1:
        parts.append((seeds / (count * r), count * (r - 1)))
    return [*parts, (factor * beyond, count - 1)]


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

"""The error of a mean over splits of the patients, of which each tests and trains on others.

Three chances are at work: other test patients, another training seed, and other training patients. Every split has
training seeds of its own, and a patient that one split tests trains the models of the others, so that splits are not
independent. What that adds cannot be estimated from the splits without bias:

- Y. Bengio, Y. Grandvalet: No unbiased estimator of the variance of k-fold cross-validation. JMLR 5 (2004);
- C. Nadeau, Y. Bengio: Inference for the generalization error. Machine Learning 52 (2003): splits correlate by about
  the share of patients that are tested, so their mean over S splits has the variance (1 / S + n_test / n_train) of one.

Their correction is applied to components that are known better than from S values (`Splits.find_parts`). It is larger
than what simulated studies need (`pytest -m campaign -k test_splits`).

Where all splits test the same patients and leave out others of the training patients in turn, most training patients
are common to two splits, whose models vary by less than models of other training patients would. If a share f is left
out, means over training patients of two splits correlate by 1 - f: the variance of their mean over S splits is
(1 / S + (1 - f) / f) of what is seen between them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from chestfed.results.evaluation.intervals.delong import auc_covariance
from chestfed.results.evaluation.labeled import NO_ROTATION, Rotation

#: Reference of the variance over splits of the patients.
SPLITS_REFERENCE: Final = (
    "C. Nadeau, Y. Bengio: Inference for the generalization error. Machine Learning 52 (2003) 239-281"
)


@dataclass(frozen=True)
class Splits:
    """Splits of the patients, whose diseases are columns of one array side by side: those of each split together."""

    count: int = 1
    rotation: Rotation = NO_ROTATION

    def measure(
        self,
        runs: Sequence[np.ndarray],
        labels: np.ndarray,
        contrasts: np.ndarray,
        patients: np.ndarray,
        hospitals: np.ndarray | None,
    ) -> tuple[np.ndarray, np.ndarray, bool]:
        """Contrasts of splits and seeds `[S, r]`, covariances over patients in each split `[S]`, and whether the
        test patients stay: are the same in all splits.

        The arguments are those of `auc_covariance`, with one contrast per seed. Raises `ValueError` if a split has no
        AUC, or a class of one patient.
        """
        values, within, tested = [], [], set[frozenset[object]]()
        for columns in np.split(np.arange(labels.shape[1]), self.count):
            rows = ~np.isnan(labels[:, columns]).all(axis=1)
            here, at = np.ix_(rows, columns), None if hospitals is None else hospitals[rows]
            estimate = auc_covariance([run[here] for run in runs], labels[here], contrasts, patients[rows], at)
            if estimate is None or np.isnan(estimate[1]).any():
                raise ValueError("a covariance of AUCs needs two patients of each class in every split")
            values.append(estimate[0])
            within.append(between_seeds(estimate[1]))
            tested.add(frozenset(patients[rows].tolist()))
        return np.array(values), np.array(within), len(tested) == 1

    def find_parts(
        self, of_runs: np.ndarray, within: np.ndarray, by_patients: float, freedom: float, *, stay: bool = False
    ) -> list[tuple[float, float]]:
        """Parts of the squared error of a mean, each with its degrees of freedom: patients, seeds, splits.

        `of_runs` `[S, r]`, `within` `[S]` and whether the test patients `stay` are those of `measure`; `by_patients` is
        the covariance over patients of the mean over all splits, V_all, with so many degrees of `freedom`. With V the
        mean of `within`, W the mean variance over the seeds of a split, and B the variance over the splits of their
        means, the parts are

            max(V_all, c V),   W / (S r),   c max(B - (V - C) - W / r, 0),   c = 1 / S + n_test / n_train.

        C is the covariance over patients of two splits, which is 0 if none tests a patient of another. If the test
        patients stay, c is 1 / S in the first part and 1 / S + (1 - f) / f in the third. The second part
        has S (r - 1) degrees of freedom, the third, what differs beyond patients and seeds, S - 1. With one seed there
        is no second part, and the third has the luck of training.
        """
        count, r = of_runs.shape
        one, factor = float(within.mean()), 1 / count + (0.0 if stay else self.rotation.tested)
        shared = min(max((by_patients - one / count) * count / (count - 1), 0.0), one)
        seeds = float(of_runs.var(axis=1, ddof=1).mean()) if r > 1 else 0.0
        beyond = max(float(of_runs.mean(axis=1).var(ddof=1)) - (one - shared) - seeds / r, 0.0)
        parts = [(max(by_patients, factor * one), freedom)]
        if r > 1:
            parts.append((seeds / (count * r), count * (r - 1)))
        return [*parts, ((1 / count + self.rotation.common if stay else factor) * beyond, count - 1)]


ONE_SPLIT: Final = Splits()


def between_seeds(covariance: np.ndarray) -> float:
    """Covariance over patients that two seeds share, from that of all seeds `[r, r]`; of one seed its variance."""
    r = len(covariance)
    return max(float(covariance[~np.eye(r, dtype=bool)].mean() if r > 1 else covariance[0, 0]), 0.0)

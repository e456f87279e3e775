"""Scores and labels of one test set, and the labeled images of each disease: what every number starts from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np
import pandas as pd

#: Patients with a disease, and without it, that it needs to count in a mean over diseases and in all that rests on one.
LEAST_PATIENTS: Final = 10
#: Why there is no mean.
NO_DISEASE_COUNTS: Final = f"no disease has {LEAST_PATIENTS} patients with it and {LEAST_PATIENTS} without"


@dataclass(frozen=True)
class Column:
    """One disease's labeled images."""

    disease: str
    score: np.ndarray  #: float64 `[m]`
    positive: np.ndarray  #: bool `[m]`
    patient: np.ndarray  #: `[m]`, any values that identify a patient
    missing: int  #: n - m, the images without a label for this disease
    hospital: np.ndarray | None = None  #: `[m]`; the AUC is the mean of the hospitals' own. None: one AUC over all
    stratum: np.ndarray | None = None  #: int `[m]`; pairs are of images of one stratum. None: of any two images

    @property
    def positives(self) -> int:
        """Number of positive images, n+."""
        return int(self.positive.sum())

    @property
    def negatives(self) -> int:
        """Number of negative images, n-."""
        return len(self.positive) - self.positives

    @property
    def counts(self) -> dict[str, int]:
        """Positive, negative and missing images by these names."""
        return {"positives": self.positives, "negatives": self.negatives, "missing": self.missing}

    @property
    def patient_counts(self) -> tuple[int, int]:
        """Patients with a positive image, and with a negative one."""
        return len(pd.unique(self.patient[self.positive])), len(pd.unique(self.patient[~self.positive]))

    @property
    def in_mean(self) -> bool:
        """Whether it counts in a mean over diseases (`find_counted`)."""
        return any(cell.counts for cell in self._divide())

    @property
    def reason(self) -> str:
        """Why there is no pair of a positive and a negative image; empty if there is one."""
        if self.positives == 0:
            if self.stratum is not None:
                return "no group has images of both classes"
            return "no positive image" if self.negatives else "no labeled image"
        if self.negatives == 0:
            return "no negative image"
        return "" if self.parts() else "no hospital has images of both classes"

    def parts(self) -> list[Column]:
        """The images of each hospital that its AUC is the mean of (`divide`); without hospitals the column itself."""
        if self.hospital is None:
            return [self] if self.positives and self.negatives else []
        return [self.take(cell.rows) for cell in self._divide() if cell.weight]

    def _divide(self) -> list[Cell]:
        return divide(self.positive[:, None].astype(float), self.patient, self.hospital)

    def take(self, rows: np.ndarray) -> Column:
        """The images of some rows, bool `[m]` or their places, of no hospital."""
        stratum = None if self.stratum is None else self.stratum[rows]
        return Column(self.disease, self.score[rows], self.positive[rows], self.patient[rows], 0, None, stratum)


class Rotation(NamedTuple):
    """How the patients of two splits differ, as ratios of numbers of patients."""

    tested: float = 0.0  #: test patients per training patient, where other splits train on those that one tests
    #: Training patients that two splits have in common per one that they do not, where all test the same patients.
    common: float = 0.0


NO_ROTATION: Final = Rotation()


@dataclass(frozen=True)
class Scored:
    """Scores of one model on a test set, with labels."""

    #: scores, labels: `[n, J]`; labels in {0, 1, NaN}.
    scores: np.ndarray
    labels: np.ndarray
    patients: np.ndarray  #: `[n]`, any values that identify a patient
    diseases: Sequence[str]  #: the names of the J columns
    #: `[n]`, any values that identify a hospital: each AUC is the mean of the hospitals' own. None: one AUC over all
    #: pairs of images. No patient is at two hospitals.
    hospitals: np.ndarray | None = None
    split: int = 0  #: number of the split of patients
    rotation: Rotation = NO_ROTATION  #: how the other splits' patients differ from this one's
    strata: np.ndarray | None = None  #: int `[n]`, of `pair_within`; None: pairs are of any two images

    def columns(self) -> list[Column]:
        """The labeled images of each disease.

        Raises `ValueError` if the shapes differ, a label is another number, or a score of a labeled image is NaN.
        """
        scores, labels = self.scores, self.labels
        if scores.shape != labels.shape or scores.ndim != 2 or scores.shape[1] != len(self.diseases):
            raise ValueError(
                f"scores {scores.shape} and labels {labels.shape} do not fit {len(self.diseases)} diseases"
            )
        for name, values in (("patients", self.patients), ("hospitals", self.hospitals)):
            if values is not None and len(values) != len(labels):
                raise ValueError(f"{len(values)} {name} do not fit {len(labels)} images")
        return [self._column(j, disease) for j, disease in enumerate(self.diseases)]

    def _column(self, j: int, disease: str) -> Column:
        rows = np.flatnonzero(~np.isnan(self.labels[:, j]))
        label, score = self.labels[rows, j], self.scores[rows, j].astype(np.float64)
        other = label[(label != 0) & (label != 1)]
        if len(other):
            raise ValueError(f"labels of {disease} contain {other[0]}; they may be 0, 1 or NaN")
        if np.isnan(score).any():
            raise ValueError(f"scores of {disease} contain NaN")
        hospital = None if self.hospitals is None else np.asarray(self.hospitals)[rows]
        stratum, missing = None if self.strata is None else self.strata[rows], len(self.labels) - len(rows)
        return Column(disease, score, label == 1, np.asarray(self.patients)[rows], missing, hospital, stratum)

    def where(self, rows: np.ndarray) -> Scored:
        """These rows alone, bool `[n]`."""
        parts = {"scores": self.scores, "labels": self.labels, "patients": self.patients}
        if self.hospitals is not None:
            parts["hospitals"] = self.hospitals
        if self.strata is not None:
            parts["strata"] = self.strata
        return replace(self, **{name: values[rows] for name, values in parts.items()})

    def pair_within(self, values: Sequence[object] | np.ndarray | pd.Series | pd.Categorical) -> Scored:
        """With pairs of images of one value alone, of `[n]` values such as views; the AUC is their concordant share.

        A label becomes missing where an image has no value, or where no image of the same value (and hospital) has the
        other label: it is in no pair.
        """
        strata = pd.factorize(pd.Series(values))[0]
        hospitals = np.zeros(len(strata), int) if self.hospitals is None else number_names(self.hospitals)
        cells = np.where(strata < 0, -1, hospitals * (strata.max(initial=0) + 1) + strata)
        labels = self.labels.copy()
        for column in labels.T:
            both = np.intersect1d(cells[column == 0], cells[column == 1])
            column[(cells < 0) | ~np.isin(cells, both)] = np.nan
        return replace(self, labels=labels, strata=strata)


def group_splits(runs: Sequence[Scored]) -> dict[int, list[Scored]]:
    """Runs of one model by the split of the patients, which is of the same images in all of its runs.

    Raises `ValueError` if splits have different numbers of runs.
    """
    groups: dict[int, list[Scored]] = {}
    for run in runs:
        groups.setdefault(run.split, []).append(run)
    counts = {len(members) for members in groups.values()}
    if len(counts) > 1:
        raise ValueError(f"splits of the patients have different numbers of training seeds: {sorted(counts)}")
    return groups


def put_together(splits: Sequence[Scored]) -> Scored:
    """The images of several splits below each other."""
    if len(splits) == 1:
        return splits[0]
    hospitals = [part.hospitals for part in splits if part.hospitals is not None]
    return replace(
        splits[0],
        scores=np.concatenate([part.scores for part in splits]),
        labels=np.concatenate([part.labels for part in splits]),
        patients=np.concatenate([part.patients for part in splits]),
        hospitals=np.concatenate(hospitals) if hospitals else None,
    )


def put_beside(splits: Sequence[Scored]) -> Scored:
    """The images of several splits below each other, with columns of every split, which are missing in the others."""
    if len(splits) == 1:
        return splits[0]
    whole, diseases = put_together(splits), len(splits[0].diseases)
    shape = len(whole.labels), len(splits) * diseases
    scores, labels, row = np.zeros(shape), np.full(shape, np.nan), 0
    for number, part in enumerate(splits):
        here = slice(row, row := row + len(part.labels)), slice(number * diseases, (number + 1) * diseases)
        scores[here], labels[here] = part.scores, part.labels
    return replace(whole, scores=scores, labels=labels, diseases=[name for part in splits for name in part.diseases])


@dataclass(frozen=True)
class Cell:
    """The labeled images of one disease, all or those of one hospital."""

    column: int  #: of labels `[n, J]`
    hospital: int | None  #: in the order of first appearance; None: images of all
    rows: np.ndarray  #: int `[m]`
    positive: np.ndarray  #: bool `[m]`
    patients: tuple[int, int]  #: with a positive image, and with a negative one
    weight: float = 0.0  #: of this AUC in the disease's: 1 / (cells of the disease that it is the mean of), else 0

    @property
    def counts(self) -> bool:
        """Whether it has the patients that a number needs to count in a mean."""
        return min(self.patients) >= LEAST_PATIENTS

    @property
    def stream(self) -> tuple[int, ...]:
        """Numbers that name its random draws."""
        return (self.column,) if self.hospital is None else (self.column, self.hospital)


def divide(labels: np.ndarray, patients: np.ndarray, hospitals: np.ndarray | None = None) -> list[Cell]:
    """Each disease of labels `[n, J]`, or with hospitals `[n]` each at each, and its weight in the disease's AUC.

    The one rule of what counts, also for what tables say is left out: the AUC of a disease is the mean over the
    hospitals with `LEAST_PATIENTS` of each class. Where no hospital has them, it is over those with both classes, and
    the disease is in no mean over diseases. A number that rests on fewer patients would turn the mean by their luck.
    """
    cells = []
    numbers = np.zeros(len(labels), int) if hospitals is None else number_names(hospitals)
    for j, column in enumerate(labels.T):
        parts = []
        for number in range(int(numbers.max(initial=-1)) + 1):
            rows = np.flatnonzero((numbers == number) & ~np.isnan(column))
            positive, who = column[rows] == 1, patients[rows]
            both = len(pd.unique(who[positive])), len(pd.unique(who[~positive]))
            parts.append(Cell(j, None if hospitals is None else number, rows, positive, both))
        least = LEAST_PATIENTS if any(part.counts for part in parts) else 1
        used = [min(part.patients) >= least for part in parts]
        cells += [replace(part, weight=here / max(sum(used), 1)) for part, here in zip(parts, used, strict=True)]
    return cells


def list_cells(labels: np.ndarray, patients: np.ndarray, hospitals: np.ndarray | None = None) -> list[Cell]:
    """The cells of `divide` that have a weight: of both classes, so each has an AUC."""
    return [cell for cell in divide(labels, patients, hospitals) if cell.weight]


def list_strata(patients: np.ndarray, hospitals: np.ndarray | None = None) -> list[np.ndarray]:
    """The places of each hospital's patients among all, sorted (`np.unique`); without hospitals all of them.

    Raises `ValueError` if a patient is at two hospitals.
    """
    names, places = np.unique(patients, return_inverse=True)
    if hospitals is None:
        return [np.arange(len(names))]
    numbers = number_names(hospitals)
    strata = [np.unique(places[numbers == number]) for number in range(int(numbers.max(initial=-1)) + 1)]
    if sum(map(len, strata)) != len(names):
        raise ValueError("a patient is at two hospitals")
    return strata


def find_counted(labels: np.ndarray, patients: np.ndarray, hospitals: np.ndarray | None = None) -> np.ndarray:
    """Which diseases of labels `[n, J]` count in a mean, bool `[J]`: with `LEAST_PATIENTS` of each class at a place."""
    counted = np.zeros(labels.shape[1], bool)
    counted[[cell.column for cell in divide(labels, patients, hospitals) if cell.counts]] = True
    return counted


def find_counted_in_all(tests: Sequence[Scored]) -> np.ndarray:
    """Which diseases count in every one of the test sets, such as those of several splits, bool `[J]`."""
    return np.all([find_counted(test.labels, test.patients, test.hospitals) for test in tests], axis=0)


def number_names(names: np.ndarray) -> np.ndarray:
    """A number per distinct name, from 0, in the order in which they first appear, int `[n]`."""
    return pd.factorize(np.asarray(names), use_na_sentinel=False)[0]

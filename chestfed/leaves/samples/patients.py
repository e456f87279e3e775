"""Who comes to a hospital: patients, their studies and diseases, and what the label file says of them.

The label file comes first: as many positives as the hospital's prevalences ask for, the diseases of a patient in
company. What is in the pictures then departs from it: some positives are wrong, as many cases were missed, and a
hospital whose labels come from reports calls subtle cases uncertain.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from chestfed.core.diseases import DISEASES

#: Correlation of the diseases' latent variables: one part of the patient, one of the study.
_PATIENT, _STUDY = 0.3, 0.35
#: A case that no report mentions is not a plain one.
_MISSED_SEVERITY: Final = 0.5


@dataclass(frozen=True)
class Patient:
    """A patient of one hospital. `number` is unique there."""

    number: int
    female: bool
    age: int


@dataclass(frozen=True)
class Film:
    """One image: who, in which study, how taken, what is really there, and what the label file says.

    `severity` is 0 for an absent disease, else from 0.17 to 1. `labels` is 1, 0, or -1 for uncertain. A `nodule` and
    `devices` (lines, leads, a pacemaker) are visible but are not among the five diseases.
    """

    patient: Patient
    study: int
    number: int
    view: str
    split: str
    severity: Mapping[str, float]
    labels: Mapping[str, int]
    nodule: bool = False
    devices: bool = False


@dataclass(frozen=True)
class CaseMix:
    """Mix of a hospital's patients and labels.

    `prevalence`: share of the images with a positive label, an uncertain one counted as `doubted_positives` says.
    `portable`: share of AP pictures among patients without a disease; each disease adds `sick_portable`. `noise`: share
    of the positive labels that are wrong; as many cases are missed. `subtle` from 0 to 1 moves severities down.
    `doubted_positives`: share of a disease's positives that the labels call uncertain, subtle ones first (the policy
    counts them as positive). `doubted_negatives`: the same of the negatives (counted as negative).
    """

    prevalence: Mapping[str, float]
    mean_age: float
    female: float
    portable: float
    sick_portable: float
    noise: float
    subtle: float
    doubted_positives: Mapping[str, float]
    doubted_negatives: Mapping[str, float]


@dataclass(frozen=True)
class Visit:
    """A study before its diseases are drawn; `counted` is the number of its images that prevalences refer to."""

    patient: Patient
    study: int
    laterals: int
    counted: int


def draw_patient(rng: np.random.Generator, mix: CaseMix, number: int) -> Patient:
    """A patient of this hospital."""
    age = int(np.clip(rng.normal(mix.mean_age, 16), 18, 90))
    return Patient(number, bool(rng.random() < mix.female), age)


def draw_films(rng: np.random.Generator, mix: CaseMix, visits: list[Visit], split: str, *, exact: bool) -> list[Film]:
    """The images of these studies. With `exact`, labels are the truth: no errors, no doubts."""
    positive = _draw_positives(rng, mix, visits)
    truth, severity = _draw_truth(rng, mix, positive, errors=not exact)
    doubted = np.zeros_like(positive) if exact else _draw_doubts(rng, mix, positive, severity)
    films = []
    for row, visit in enumerate(visits):
        sick = int(truth[row].sum())
        portable = rng.random() < min(mix.portable + mix.sick_portable * sick, 0.97)
        labels = {name: -1 if doubted[row, j] else int(positive[row, j]) for j, name in enumerate(DISEASES)}
        first = Film(
            visit.patient,
            visit.study,
            1,
            "ap" if portable else "pa",
            split,
            dict(zip(DISEASES, severity[row].tolist(), strict=True)),
            labels,
            nodule=bool(rng.random() < 0.06),
            devices=bool(rng.random() < (0.5 if portable else 0.06)),
        )
        films.append(first)
        films += [replace(first, number=2 + extra, view="lateral", devices=False) for extra in range(visit.laterals)]
    return films


def _draw_positives(rng: np.random.Generator, mix: CaseMix, visits: list[Visit]) -> np.ndarray:
    """Positive labels bool `[studies, diseases]`: those with the highest latent values, until there are enough."""
    people = {visit.patient.number: None for visit in visits}
    states = dict(zip(people, rng.standard_normal(len(people)), strict=True))
    of_patient = np.array([states[visit.patient.number] for visit in visits])[:, None]
    rest = np.sqrt(1 - _PATIENT**2 - _STUDY**2) * rng.standard_normal((len(visits), len(DISEASES)))
    latent = _PATIENT * of_patient + _STUDY * rng.standard_normal((len(visits), 1)) + rest
    counted = np.array([visit.counted for visit in visits])
    positive = np.zeros(latent.shape, dtype=bool)
    for j, disease in enumerate(DISEASES):
        if mix.prevalence[disease] > 0:
            number = max(2, round(mix.prevalence[disease] * counted.sum()))
            order = np.argsort(-latent[:, j], kind="stable")
            positive[order[np.cumsum(counted[order]) <= number], j] = True
    return positive


def _draw_truth(
    rng: np.random.Generator, mix: CaseMix, positive: np.ndarray, *, errors: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Draw the truth, bool, and how plainly it is seen, float, both `[studies, diseases]`."""
    truth = positive.copy()
    severity = 0.35 + 0.65 * rng.beta(2.4, 1.4 + 2.4 * mix.subtle, positive.shape)
    for j in range(positive.shape[1]):
        wrong = int(rng.binomial(positive[:, j].sum(), mix.noise)) if errors else 0
        if wrong:
            truth[rng.choice(np.flatnonzero(positive[:, j]), wrong, replace=False), j] = False
            missed = rng.choice(np.flatnonzero(~positive[:, j]), wrong, replace=False)
            truth[missed, j] = True
            severity[missed, j] *= _MISSED_SEVERITY
    return truth, np.where(truth, np.maximum(severity, 0.15), 0.0)


def _draw_doubts(rng: np.random.Generator, mix: CaseMix, positive: np.ndarray, severity: np.ndarray) -> np.ndarray:
    """Labels called uncertain, bool `[studies, diseases]`: the subtlest positives, and negatives by chance."""
    doubted = np.zeros(positive.shape, dtype=bool)
    for j, disease in enumerate(DISEASES):
        rows = np.flatnonzero(positive[:, j])
        plainness = severity[rows, j] + rng.normal(0, 0.15, len(rows))
        number = round(mix.doubted_positives.get(disease, 0.0) * len(rows))
        doubted[rows[np.argsort(plainness, kind="stable")[:number]], j] = True
        # A missed case is doubted more often than a healthy chest.
        chance = mix.doubted_negatives.get(disease, 0.0) * np.where(severity[:, j] > 0, 6, 1)
        doubted[:, j] |= ~positive[:, j] & (rng.random(len(positive)) < chance)
    return doubted

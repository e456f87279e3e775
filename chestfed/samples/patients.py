"""Who comes to a hospital: patients, their studies and diseases, and what the label file says of them.

The truth is drawn first; a label file then errs on a share of it, and in some hospitals calls a subtle finding
uncertain or does not mention a disease that is not there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from chestfed.diseases import DISEASES

#: How strongly diseases come together: weight of a patient's general state in each disease's latent variable.
_SHARED = 0.35


@dataclass(frozen=True)
class Patient:
    """A patient of one hospital. `number` is unique there."""

    number: int
    female: bool
    age: int


@dataclass(frozen=True)
class Film:
    """One image: who, in which study, how taken, and what is really there.

    `severity` is 0 for an absent disease, else 0.15 to 1. `said` is the label file: 1, 0, or -1 (uncertain).
    """

    patient: Patient
    study: int
    number: int
    view: str
    split: str
    severity: Mapping[str, float]
    sides: Mapping[str, int]
    said: Mapping[str, int]

    @property
    def present(self) -> dict[str, bool]:
        """The truth, disease by disease."""
        return {disease: severity > 0 for disease, severity in self.severity.items()}


@dataclass(frozen=True)
class CaseMix:
    """What a hospital's patients are like; ratios are of images."""

    prevalence: Mapping[str, float]
    mean_age: float
    female: float
    portable: float
    label_noise: float
    subtle: float
    uncertain: float = 0.0


def draw_severities(rng: np.random.Generator, mix: CaseMix) -> dict[str, float]:
    """Severity of each disease of one study; together they follow the hospital's prevalences."""
    state = rng.standard_normal()
    severities = {}
    for disease in DISEASES:
        latent = _SHARED * state + np.sqrt(1 - _SHARED**2) * rng.standard_normal()
        p = mix.prevalence[disease]
        present = p > 0 and latent > NormalDist().inv_cdf(1 - p)
        # Beta: most cases in between, some subtle, few unmistakable; `subtle` shifts the whole.
        drawn = rng.beta(2.2, 1.6 + 2.4 * mix.subtle)
        severities[disease] = float(0.18 + 0.82 * drawn) if present else 0.0
    return severities


def draw_sides(rng: np.random.Generator) -> dict[str, int]:
    """Side of the one-sided findings, and how much of an effusion the other side has, in percent."""
    sides = {disease: int(rng.choice([-1, 1])) for disease in DISEASES}
    return sides | {"effusion_other": int(rng.choice([0, 0, 60]))}


def draw_patient(rng: np.random.Generator, mix: CaseMix, number: int) -> Patient:
    """A patient of this hospital."""
    age = int(np.clip(rng.normal(mix.mean_age, 15), 18, 90))
    return Patient(number, bool(rng.random() < mix.female), age)


def report(rng: np.random.Generator, severity: Mapping[str, float], mix: CaseMix) -> dict[str, int]:
    """What the label file says: 1, 0 or -1. Errors fall on subtle findings more often than on plain ones."""
    said = {}
    for disease in DISEASES:
        true = severity[disease]
        plain = true > 0.45
        missed = mix.label_noise * (0.4 if plain else 2.0)
        # Wrong positives are rare enough not to swamp a rare disease.
        invented = mix.label_noise * min(0.5, mix.prevalence[disease])
        value = int(true > 0)
        if rng.random() < (missed if true else invented):
            value = 1 - value
        if mix.uncertain:
            doubt = mix.uncertain * ((0.6 if plain else 2.5) if true else 0.5)
            if rng.random() < doubt:
                value = -1
        said[disease] = value
    return said

"""The five hospitals: their patients, devices and sizes, near the source paper's Table 2, and unlike one another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from chestfed.diseases import DISEASES
from chestfed.randomness import numpy_stream
from chestfed.samples.acquisition import Device
from chestfed.samples.patients import CaseMix, Film, draw_patient, draw_severities, draw_sides, report

#: CheXpert's validation set: images, of them frontal, patients, and positives among the frontal ones.
VALID_IMAGES, VALID_FRONTAL, VALID_PATIENTS = 234, 202, 200
VALID_POSITIVES: Final = dict(zip(DISEASES, (66, 42, 32, 75, 64), strict=True))


@dataclass(frozen=True)
class Hospital:
    """One hospital. `train`, `valid` and `test` count patients; `films` is the mean number of images per patient."""

    name: str
    folder: str
    train: int
    valid: int
    test: int
    films: float
    lateral: float
    mix: CaseMix
    device: Device


def _mix(prevalence: tuple[float, ...], **rest: float) -> CaseMix:
    return CaseMix(dict(zip(DISEASES, prevalence, strict=True)), **rest)


#: The prevalences are Table 2's but for CheXpert, whose paper row counts positives of two diseases twice.
HOSPITALS: Final = (
    Hospital(
        "chexpert",
        "synthetic-chexpert",
        train=180,
        valid=VALID_PATIENTS,
        test=0,
        films=1.4,
        lateral=0.12,
        mix=_mix(
            (0.13, 0.28, 0.07, 0.26, 0.40),
            mean_age=61,
            female=0.42,
            portable=0.75,
            label_noise=0.04,
            subtle=0.3,
            uncertain=0.06,
        ),
        device=Device(320, 390, 0.0, 1.0, 1.0, 0.5, 0.020, 0.15, "L", "PORTABLE"),
    ),
    Hospital(
        "chestxray8",
        "synthetic-chestxray8",
        train=440,
        valid=0,
        test=40,
        films=1.3,
        lateral=0.0,
        mix=_mix(
            (0.025, 0.021, 0.042, 0.103, 0.119), mean_age=47, female=0.44, portable=0.4, label_noise=0.08, subtle=0.2
        ),
        device=Device(400, 400, -0.04, 1.12, 1.15, 0.7, 0.030, 0.30, "L"),
    ),
    Hospital(
        "padchest",
        "synthetic-padchest",
        train=440,
        valid=0,
        test=0,
        films=1.2,
        lateral=0.15,
        mix=_mix(
            (0.089, 0.012, 0.015, 0.056, 0.064), mean_age=59, female=0.5, portable=0.12, label_noise=0.05, subtle=0.3
        ),
        device=Device(380, 360, 0.05, 0.90, 0.9, 0.4, 0.015, 0.10, "I"),
    ),
    Hospital(
        "mimic-cxr",
        "synthetic-mimic-cxr",
        train=360,
        valid=15,
        test=15,
        films=1.7,
        lateral=0.15,
        mix=_mix(
            (0.196, 0.179, 0.047, 0.246, 0.237),
            mean_age=62,
            female=0.47,
            portable=0.65,
            label_noise=0.05,
            subtle=0.3,
            uncertain=0.05,
        ),
        device=Device(360, 430, 0.02, 1.05, 1.05, 0.9, 0.025, 0.25, "L", "AP UPRIGHT"),
    ),
    Hospital(
        "vindr",
        "synthetic-vindr",
        train=340,
        valid=0,
        test=30,
        films=1.0,
        lateral=0.0,
        mix=_mix(
            (0.153, 0.0, 0.024, 0.012, 0.069), mean_age=45, female=0.45, portable=0.0, label_noise=0.04, subtle=0.2
        ),
        device=Device(380, 340, -0.02, 0.85, 1.25, 0.3, 0.020, 0.20, "R"),
    ),
)

#: Share of the default number of patients.
SIZES: Final = {"default": 1.0, "tiny": 0.1}


def draw_films(hospital: Hospital, seed: int, size: str) -> list[Film]:
    """All films of a hospital, drawn from the seed; patients of one split only."""
    share = SIZES[size]
    films: list[Film] = []
    number = 0
    for split, count in (("train", hospital.train), ("valid", hospital.valid), ("test", hospital.test)):
        if split == "valid" and hospital.name == "chexpert":
            films += _validation_set(hospital, seed, number, share)
            number += count
            continue
        for _ in range(max(3, round(count * share)) if count else 0):
            number += 1
            films += _films_of(hospital, seed, number, split)
    return films


def _films_of(hospital: Hospital, seed: int, number: int, split: str) -> list[Film]:
    rng = numpy_stream(seed, "samples", hospital.name, "patient", number)
    patient = draw_patient(rng, hospital.mix, number)
    films = []
    studies = 1 + int(rng.poisson(hospital.films - 1))
    for study in range(1, studies + 1):
        severity = draw_severities(rng, hospital.mix)
        sides = draw_sides(rng)
        said = report(rng, severity, hospital.mix) if split != "valid" else {d: int(s > 0) for d, s in severity.items()}
        view = "ap" if rng.random() < hospital.mix.portable else "pa"
        films.append(Film(patient, study, 1, view, split, severity, sides, said))
        if rng.random() < hospital.lateral:
            films.append(Film(patient, study, 2, "lateral", split, severity, sides, said))
    return films


def _validation_set(hospital: Hospital, seed: int, first: int, share: float) -> list[Film]:
    """CheXpert's: 202 frontal images of 200 patients with the real numbers of positives, no doubt, no error.

    Comes about by drawing patients with the same general state, and then setting, disease by disease, the highest
    latent values positive.
    """
    rng = numpy_stream(seed, "samples", hospital.name, "validation set")
    patients = max(12, round(VALID_PATIENTS * share))
    frontal = patients + round(2 * share)
    state = rng.standard_normal(frontal)
    severities: list[dict[str, float]] = [{} for _ in range(frontal)]
    for disease in DISEASES:
        latent = 0.35 * state + 0.94 * rng.standard_normal(frontal)
        positives = max(3, round(VALID_POSITIVES[disease] * frontal / VALID_FRONTAL))
        chosen = set(np.argsort(-latent)[:positives].tolist())
        for index in range(frontal):
            drawn = float(0.18 + 0.82 * rng.beta(2.2, 1.6 + 2.4 * hospital.mix.subtle))
            severities[index][disease] = drawn if index in chosen else 0.0
    films = []
    laterals = (VALID_IMAGES - VALID_FRONTAL) * patients // VALID_PATIENTS
    for index, severity in enumerate(severities):
        # The images beyond one per patient are second views of the first patients.
        number, second = (first + index + 1, False) if index < patients else (first + index - patients + 1, True)
        own = numpy_stream(seed, "samples", hospital.name, "patient", number)
        patient = draw_patient(own, hospital.mix, number)
        view = "ap" if rng.random() < hospital.mix.portable else "pa"
        said = {disease: int(value > 0) for disease, value in severity.items()}
        sides = draw_sides(rng)
        films.append(Film(patient, 2 if second else 1, 1, view, "valid", severity, sides, said))
        if index < laterals:
            films.append(Film(patient, 1, 2, "lateral", "valid", severity, sides, said))
    return films

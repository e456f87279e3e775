"""The five hospitals: their patients, machines and sizes, near the source paper's Table 2, and unlike one another."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass, replace
from importlib import resources
from typing import Final

import numpy as np
import yaml
from pydantic import TypeAdapter

from chestfed.core.diseases import DISEASES
from chestfed.core.randomness import numpy_stream
from chestfed.leaves.samples.drawing.acquisition import Look
from chestfed.leaves.samples.patients import CaseMix, Film, Visit, draw_films, draw_patient

#: CheXpert's validation set: positives among its 202 frontal images of 200 patients, one study each; 32 lateral ones go
#: with them.
VALID_FRONTAL, VALID_PATIENTS, VALID_LATERAL = 202, 200, 32
VALID_POSITIVES: Final = dict(zip(DISEASES, (66, 42, 32, 75, 64), strict=True))
#: Share of positives among a hospital's test images, at least, of every disease that it has: an AUC over two or three
#: positives would say nothing.
TEST_POSITIVES: Final = 0.06


#: At most so many images are written per hospital and split.
SIZES: Final = {"default": sys.maxsize, "full": sys.maxsize, "tiny": 24}
#: Sizes whose pictures have half as many rows and columns: still more than twice the default study's 64 pixels.
HALVED: Final = ("default",)


@dataclass(frozen=True)
class Hospital:
    """One hospital.

    `train`, `valid` and `test` count the images that the site's configuration uses: frontal ones, or all
    (`counts_lateral`). `studies` is the mean number of studies per patient, `lateral` the share of them with a
    lateral image.
    """

    name: str
    folder: str
    train: int
    valid: int
    test: int
    studies: float
    lateral: float
    counts_lateral: bool
    mix: CaseMix
    look: Look


_TEXT: Final = resources.files("chestfed.leaves.samples").joinpath("hospitals.yaml").read_text(encoding="utf-8")
HOSPITALS: Final = TypeAdapter(tuple[Hospital, ...]).validate_python(yaml.safe_load(_TEXT))


def list_hospitals(size: str) -> list[Hospital]:
    """The hospitals as a size has them."""
    return [replace(each, look=each.look.halve()) if size in HALVED else each for each in HOSPITALS]


def draw_hospital_images(hospital: Hospital, seed: int, at_most: int) -> list[Film]:
    """All images of a hospital, per split `at_most` so many; a patient is in one split only."""
    films: list[Film] = []
    for split, images in (("train", hospital.train), ("valid", hospital.valid), ("test", hospital.test)):
        if not images:
            continue
        rng = numpy_stream(seed, "samples", hospital.name, split)
        first = 1 + max((film.patient.number for film in films), default=0)
        if split == "valid" and hospital.name == "chexpert":
            films += _draw_validation_set(rng, hospital, first, at_most)
        else:
            visits = _draw_visits(rng, hospital, first, min(images, at_most))
            mix = hospital.mix if split != "test" else _raise_prevalence(hospital.mix)
            films += draw_films(rng, mix, visits, split, exact=False)
    return films


def _raise_prevalence(mix: CaseMix) -> CaseMix:
    return replace(mix, prevalence={name: p and max(p, TEST_POSITIVES) for name, p in mix.prevalence.items()})


def _draw_visits(rng: np.random.Generator, hospital: Hospital, first: int, images: int) -> list[Visit]:
    """Studies of patients numbered from `first`, until that many images are counted."""
    visits: list[Visit] = []
    number, counted = first, 0
    while counted < images:
        patient = draw_patient(rng, hospital.mix, number)
        for study in range(1, 2 + int(rng.poisson(hospital.studies - 1))):
            room = images - counted
            if not room:
                break
            lateral = int(rng.random() < hospital.lateral) if room > 1 or not hospital.counts_lateral else 0
            visits.append(Visit(patient, study, lateral, 1 + (lateral if hospital.counts_lateral else 0)))
            counted += visits[-1].counted
        number += 1
    return visits


def _draw_validation_set(rng: np.random.Generator, hospital: Hospital, first: int, at_most: int) -> list[Film]:
    """CheXpert's: its numbers of images, studies, patients and positives; labels are exact.

    Two studies have a second frontal view. They are drawn as studies of their own, and give way to a second view of a
    study with the same labels, so that the numbers of positives stay (with seeds that have no such study: of the most
    alike).
    """
    frontal = min(VALID_FRONTAL, at_most)
    seconds = VALID_FRONTAL - VALID_PATIENTS if frontal == VALID_FRONTAL else 0
    laterals = VALID_LATERAL * frontal // VALID_FRONTAL
    visits = []
    for place in range(frontal - seconds):
        patient = draw_patient(rng, hospital.mix, first + place)
        visits.append(Visit(patient, 1, int(place < laterals), 1))
        if place < seconds:
            visits.append(Visit(patient, 2, 0, 1))
    ratios = {disease: count / VALID_FRONTAL for disease, count in VALID_POSITIVES.items()}
    drawn = draw_films(rng, replace(hospital.mix, prevalence=ratios), visits, "valid", exact=True)
    films = [film for film in drawn if film.study == 1]
    for extra in (film for film in drawn if film.study == 2):
        views = Counter(film.patient.number for film in films)
        alone = [place for place, film in enumerate(films) if views[film.patient.number] == 1]
        place = min(alone, key=lambda place: sum(films[place].labels[name] != extra.labels[name] for name in DISEASES))
        films.insert(place + 1, replace(films[place], number=2))
    return films

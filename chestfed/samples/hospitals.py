"""The five hospitals: their patients, machines and sizes, near the source paper's Table 2, and unlike one another."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from chestfed.core.diseases import DISEASES
from chestfed.core.randomness import numpy_stream
from chestfed.samples.acquisition import Look
from chestfed.samples.patients import CaseMix, Film, Visit, draw_films, draw_patient

#: CheXpert's validation set: positives among its 202 frontal images of 200 patients, one study each; 32 lateral ones go
#: with them.
VALID_FRONTAL, VALID_PATIENTS, VALID_LATERAL = 202, 200, 32
VALID_POSITIVES: Final = dict(zip(DISEASES, (66, 42, 32, 75, 64), strict=True))


@dataclass(frozen=True)
class Size:
    """How many images are written: all of them, or at most `at_most` per hospital and split."""

    at_most: int | None = None

    def of(self, images: int) -> int:
        """That many of a split's images."""
        return images if self.at_most is None else min(images, self.at_most)


SIZES: Final = {"default": Size(), "tiny": Size(at_most=24)}


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


def _by_disease(*values: float) -> dict[str, float]:
    return dict(zip(DISEASES, values, strict=True))


#: Prevalences are Table 2's; for CheXpert, whose row there counts the positives of two diseases twice, the single ones.
HOSPITALS: Final = (
    Hospital(
        "chexpert",
        "synthetic-chexpert",
        train=160,
        valid=VALID_FRONTAL,
        test=0,
        studies=1.2,
        lateral=0.11,
        counts_lateral=False,
        mix=CaseMix(
            _by_disease(0.122, 0.322, 0.068, 0.312, 0.403),
            mean_age=61,
            female=0.41,
            portable=0.72,
            sick_portable=0.06,
            noise=0.05,
            subtle=0.12,
            doubted_positives={"edema": 0.19, "atelectasis": 0.5},
            doubted_negatives={"cardiomegaly": 0.035, "consolidation": 0.12, "pleural_effusion": 0.05},
        ),
        look=Look(
            shape=(320, 390),
            field=(36.5, 1.5),
            scatter=(0.5, 0.1),
            noise=0.035,
            blur=0.05,
            black=(0.16, 0.03),
            white=(0.88, 0.03),
            gamma=(1.0, 0.08),
            edges=0.2,
            tilt=0.02,
            collimated=0.15,
            marker="letter",
            portable_word="PORTABLE",
            portable_share=0.4,
        ),
    ),
    Hospital(
        "chestxray8",
        "synthetic-chestxray8",
        train=560,
        valid=0,
        test=60,
        studies=1.6,
        lateral=0.0,
        counts_lateral=True,
        mix=CaseMix(
            _by_disease(0.025, 0.021, 0.042, 0.103, 0.119),
            mean_age=47,
            female=0.44,
            portable=0.33,
            sick_portable=0.12,
            noise=0.08,
            subtle=0.05,
            doubted_positives={},
            doubted_negatives={},
        ),
        look=Look(
            shape=(352, 352),
            field=(38.5, 2.0),
            scatter=(0.9, 0.15),
            noise=0.055,
            blur=0.09,
            black=(0.12, 0.04),
            white=(0.92, 0.03),
            gamma=(0.86, 0.1),
            edges=0.0,
            tilt=0.03,
            collimated=0.35,
            marker="box",
            portable_word="AP",
        ),
    ),
    Hospital(
        "padchest",
        "synthetic-padchest",
        train=480,
        valid=0,
        test=0,
        studies=1.3,
        lateral=0.07,
        counts_lateral=False,
        mix=CaseMix(
            _by_disease(0.089, 0.012, 0.015, 0.056, 0.064),
            mean_age=59,
            female=0.5,
            portable=0.12,
            sick_portable=0.1,
            noise=0.06,
            subtle=0.1,
            doubted_positives={},
            doubted_negatives={},
        ),
        look=Look(
            shape=(368, 344),
            field=(39.5, 1.5),
            scatter=(0.6, 0.1),
            noise=0.03,
            blur=0.05,
            black=(0.26, 0.03),
            white=(0.80, 0.03),
            gamma=(1.2, 0.07),
            edges=0.1,
            tilt=0.015,
            collimated=0.1,
            marker="dot",
            portable_word="",
        ),
    ),
    Hospital(
        "mimic-cxr",
        "synthetic-mimic-cxr",
        train=640,
        valid=20,
        test=40,
        studies=1.5,
        lateral=0.1,
        counts_lateral=True,
        mix=CaseMix(
            _by_disease(0.196, 0.179, 0.047, 0.246, 0.237),
            mean_age=62,
            female=0.48,
            portable=0.35,
            sick_portable=0.3,  # a confounder: here the word in the corner says "ill"
            noise=0.06,
            subtle=0.12,
            doubted_positives={"edema": 0.3, "atelectasis": 0.18},
            doubted_negatives={"cardiomegaly": 0.03, "consolidation": 0.02, "pleural_effusion": 0.025},
        ),
        look=Look(
            shape=(400, 328),
            field=(41.0, 1.5),
            scatter=(0.7, 0.12),
            noise=0.04,
            blur=0.06,
            black=(0.14, 0.03),
            white=(0.86, 0.04),
            gamma=(0.92, 0.08),
            edges=0.55,
            tilt=0.03,
            collimated=0.3,
            marker="disc",
            portable_word="PORTABLE AP",
        ),
    ),
    Hospital(
        "vindr",
        "synthetic-vindr",
        train=400,
        valid=0,
        test=60,
        studies=1.0,
        lateral=0.0,
        counts_lateral=True,
        mix=CaseMix(
            _by_disease(0.153, 0.0, 0.024, 0.012, 0.069),
            mean_age=45,
            female=0.46,
            portable=0.0,
            sick_portable=0.0,
            noise=0.05,
            subtle=0.05,
            doubted_positives={},
            doubted_negatives={},
        ),
        look=Look(
            shape=(380, 336),
            field=(38.0, 1.5),
            scatter=(0.4, 0.08),
            noise=0.025,
            blur=0.04,
            black=(0.10, 0.03),
            white=(0.84, 0.03),
            gamma=(1.15, 0.08),
            edges=0.35,
            tilt=0.015,
            collimated=0.2,
            marker="letter",
            portable_word="",
        ),
    ),
)


def films_of(hospital: Hospital, seed: int, size: Size) -> list[Film]:
    """All images of a hospital; a patient is in one split only."""
    films: list[Film] = []
    for split, images in (("train", hospital.train), ("valid", hospital.valid), ("test", hospital.test)):
        if not images:
            continue
        rng = numpy_stream(seed, "samples", hospital.name, split)
        first = 1 + max((film.patient.number for film in films), default=0)
        if split == "valid" and hospital.name == "chexpert":
            films += _validation_set(rng, hospital, first, size)
        else:
            visits = _visits(rng, hospital, first, size.of(images))
            films += draw_films(rng, hospital.mix, visits, split, exact=False)
    return films


def _visits(rng: np.random.Generator, hospital: Hospital, first: int, images: int) -> list[Visit]:
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


def _validation_set(rng: np.random.Generator, hospital: Hospital, first: int, size: Size) -> list[Film]:
    """CheXpert's: its numbers of images, studies, patients and positives; labels are exact.

    Two studies have a second frontal view. They are drawn as studies of their own, and give way to a second view of a
    study with the same labels, so that the numbers of positives stay (with seeds that have no such study: of the most
    alike).
    """
    frontal = size.of(VALID_FRONTAL)
    seconds = VALID_FRONTAL - VALID_PATIENTS if frontal == VALID_FRONTAL else 0
    laterals = VALID_LATERAL * frontal // VALID_FRONTAL
    visits = []
    for place in range(frontal - seconds):
        patient = draw_patient(rng, hospital.mix, first + place)
        visits.append(Visit(patient, 1, int(place < laterals), 1))
        if place < seconds:
            visits.append(Visit(patient, 2, 0, 1))
    ratios = {disease: count / VALID_FRONTAL for disease, count in VALID_POSITIVES.items()}
    mix = CaseMix(**{**vars(hospital.mix), "prevalence": ratios})
    drawn = draw_films(rng, mix, visits, "valid", exact=True)
    films = [film for film in drawn if film.study == 1]
    for extra in (film for film in drawn if film.study == 2):
        views = Counter(film.patient.number for film in films)
        alone = [place for place, film in enumerate(films) if views[film.patient.number] == 1]
        place = min(alone, key=lambda place: sum(films[place].said[name] != extra.said[name] for name in DISEASES))
        films.insert(place + 1, replace(films[place], number=2))
    return films

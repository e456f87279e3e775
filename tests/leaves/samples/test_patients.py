"""Prevalences, label errors and doubts come out as the hospitals' descriptions say."""

from __future__ import annotations

import numpy as np
import pytest

from chestfed.core.diseases import DISEASES
from chestfed.leaves.samples.hospitals import (
    HOSPITALS,
    SIZES,
    VALID_FRONTAL,
    VALID_LATERAL,
    VALID_PATIENTS,
    VALID_POSITIVES,
    Hospital,
    draw_hospital_images,
)
from chestfed.leaves.samples.patients import Film

BY_NAME = {hospital.name: hospital for hospital in HOSPITALS}


def films(name: str, split: str, seed: int = 1) -> list[Film]:
    return [film for film in draw_hospital_images(BY_NAME[name], seed, SIZES["default"]) if film.split == split]


def policy_positive(film: Film, disease: str) -> bool:
    """By the source paper's policy for uncertain labels."""
    return film.labels[disease] == 1 or (film.labels[disease] == -1 and disease in ("edema", "atelectasis"))


@pytest.mark.parametrize("hospital", HOSPITALS, ids=lambda hospital: hospital.name)
def test_prevalences_are_the_papers(hospital: Hospital) -> None:
    train = films(hospital.name, "train")
    counted = [film for film in train if hospital.counts_lateral or film.view != "lateral"]
    assert len(counted) == hospital.train
    for disease in DISEASES:
        share = np.mean([policy_positive(film, disease) for film in counted])
        assert share == pytest.approx(hospital.mix.prevalence[disease], abs=max(0.004, 0.5 / len(counted)))


def test_validation_has_the_real_counts() -> None:
    valid = films("chexpert", "valid")
    frontal = [film for film in valid if film.view != "lateral"]
    assert len(valid) == VALID_FRONTAL + VALID_LATERAL == 234
    assert len(frontal) == 202
    assert len({film.patient.number for film in valid}) == VALID_PATIENTS == 200
    assert {disease: sum(film.labels[disease] for film in frontal) for disease in DISEASES} == VALID_POSITIVES
    assert len({(film.patient.number, film.study) for film in valid}) == 200


@pytest.mark.parametrize("seed", range(1, 6))
def test_two_validation_studies_have_2_views(seed: int) -> None:
    valid = films("chexpert", "valid", seed)
    seconds = [film for film in valid if film.view != "lateral" and film.number == 2]
    assert len(seconds) == 2
    for second in seconds:
        first, again = (film for film in valid if film.patient.number == second.patient.number)
        assert (first.number, again) == (1, second)
        assert (first.study, first.labels, first.severity) == (second.study, second.labels, second.severity)
    frontal = [film for film in valid if film.view != "lateral"]
    for disease, positives in VALID_POSITIVES.items():
        assert sum(film.labels[disease] for film in frontal) == pytest.approx(positives, abs=1)


def test_validation_labels_are_the_truth() -> None:
    for film in films("chexpert", "valid"):
        assert {disease: int(severity > 0) for disease, severity in film.severity.items()} == film.labels


def test_training_labels_err_both_ways() -> None:
    train = films("mimic-cxr", "train")
    wrong = sum(film.labels[disease] == 1 and not film.severity[disease] for film in train for disease in DISEASES)
    positive = sum(film.labels[disease] == 1 for film in train for disease in DISEASES)
    missed = sum(film.labels[disease] == 0 and film.severity[disease] > 0 for film in train for disease in DISEASES)
    assert 0.02 < wrong / positive < 0.12
    assert 0.02 < missed / positive < 0.12


def test_doubted_positives_are_subtler() -> None:
    train = films("chexpert", "train")
    means = {
        value: np.mean([film.severity["atelectasis"] for film in train if film.labels["atelectasis"] == value])
        for value in (1, -1)
    }
    assert means[-1] < means[1] - 0.15


def test_diseases_come_in_company() -> None:
    train = [film for film in films("mimic-cxr", "train") if film.number == 1]
    present = np.array([[film.severity[disease] > 0 for disease in DISEASES] for film in train])
    correlations = np.corrcoef(present.T)[np.triu_indices(len(DISEASES), 1)]
    assert 0.02 < correlations.mean() < 0.35


def test_a_patient_is_in_one_split_only() -> None:
    for hospital in HOSPITALS:
        splits: dict[int, set[str]] = {}
        for film in draw_hospital_images(hospital, 1, SIZES["default"]):
            splits.setdefault(film.patient.number, set()).add(film.split)
        assert all(len(names) == 1 for names in splits.values())


def test_the_portable_word_goes_with_disease() -> None:
    def gap(name: str) -> float:
        train = [film for film in films(name, "train") if film.number == 1]
        sick = [film.view == "ap" for film in train if any(film.severity.values())]
        healthy = [film.view == "ap" for film in train if not any(film.severity.values())]
        return float(np.mean(sick) - np.mean(healthy))

    assert gap("mimic-cxr") > gap("chexpert") + 0.15
